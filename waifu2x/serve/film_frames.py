"""Reads what films say of themselves, and single frames of them. A separate process reads each
film, as in `waifu2x video`: the server sees planes alone."""

from __future__ import annotations

import importlib.util
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np

from waifu2x.errors import ImageError
from waifu2x.flows.film.frames.frame_enlarger import plane_format
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.fields import Deinterlacing
from waifu2x.formats.film.reading.selection import Selection
from waifu2x.imaging import planar_rgb
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.planar import PlanarPicture
from waifu2x.serve import names
from waifu2x.serve.jobs import SourceInfo
from waifu2x.serve.limits import FILM_SECONDS

_LOOKED_AT = Fraction(1, 10)
"""Where in a film its thumbnail is: the first frame is often black."""
_one_at_a_time = threading.Lock()
"""Held while a film is read: each read has a process, with its decoder's memory."""


def can_read() -> bool:
    """Returns whether films can be read, which needs PyAV."""
    return importlib.util.find_spec("av") is not None


def frame_count(film: Film) -> int:
    """Returns the number of frames by the film's own account; 0 if it gives none."""
    return film.pictures.frames or round((film.seconds or 0) * film.pictures.rate)


def probe_film(path: Path, name: str, max_pixels: int) -> SourceInfo:
    """Reads the header of a film. `name` stands for it in messages. Raises ImageError, and
    UnavailableError where PyAV is missing."""
    with _one_at_a_time, FilmReader(path) as reader:
        film = reader.film
    check_film(film, name, max_pixels)
    pictures = film.pictures
    extension = names.extension(name)
    size = path.stat().st_size
    return SourceInfo(pictures.width, pictures.height, size, extension, frame_count(film))


def check_film(film: Film, name: str, max_pixels: int) -> None:
    """Raises ImageError for a film that is larger or longer than allowed."""
    pictures = film.pictures
    if pictures.width * pictures.height > max_pixels:
        raise ImageError(
            f"{name}: its pictures have {pictures.width}x{pictures.height} pixels, more than the"
            f" {max_pixels} that --max-pixels allows"
        )
    seconds = max(film.seconds or 0, frame_count(film) / pictures.rate)
    if seconds > FILM_SECONDS:
        raise ImageError(
            f"{name}: it lasts {float(seconds) / 3600:.3g} hours, more than {FILM_SECONDS // 3600}",
            "use `waifu2x video`",
        )


def film_frame(path: Path, name: str, number: int | None) -> Picture:
    """Returns a frame as float32, not rotated; `number` counts from 0 at the film's rate. With
    None, one that stands for the film. Raises ImageError."""
    with _one_at_a_time, FilmReader(path) as reader:
        film = reader.film
        pictures = film.pictures
        if number is None:
            start = Fraction(film.seconds or 0) * _LOOKED_AT
        else:
            start = number / pictures.rate
        how: Deinterlacing = "frame" if pictures.interlaced else "off"
        frames = reader.frames(Selection(start, deinterlacing=how), 1)
        try:
            found = next((frame for frame in frames if frame.is_wanted), None)
            if found is None:
                raise ImageError(f"{name}: it has no frame {number}")
            form = plane_format(pictures.pixels, pictures.colours)
            planes = found.planes[: 1 if form.is_grey else 3]
            pixels = planar_rgb.to_rgb(PlanarPicture(form, *planes))
            alpha = None
            if pictures.pixels.planes in (2, 4):
                alpha = found.planes[-1] / np.float32((1 << form.bits) - 1)
            found.release()
        finally:
            frames.close()
    return Picture(pixels, alpha)
