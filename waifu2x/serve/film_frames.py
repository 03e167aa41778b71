"""Reads what films say of themselves, and single frames of them. A separate process reads each
film, as in `waifu2x video`: the server sees planes alone."""

from __future__ import annotations

import importlib.util
import threading
from fractions import Fraction
from pathlib import Path

from waifu2x.errors import ImageError
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.trials import LOOKED_AT, frame_at
from waifu2x.formats.film.description import Film
from waifu2x.imaging.picture import Picture
from waifu2x.serve import names
from waifu2x.serve.jobs import SourceInfo
from waifu2x.serve.limits import FILM_SECONDS

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
            start = Fraction(film.seconds or 0) * LOOKED_AT
        else:
            start = number / pictures.rate
        frame = frame_at(reader, start)
    if frame is None:
        raise ImageError(f"{name}: it has no frame {number}")
    return frame
