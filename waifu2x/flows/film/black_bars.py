"""Finds the black bars of a film, by some of its frames."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.film.description import FilmCrop, Pictures
from waifu2x.formats.film.reading.selection import Selection
from waifu2x.formats.film.reading.times import RESTARTED

if TYPE_CHECKING:
    from waifu2x.flows.film.reading.client import FilmReader

_SHARES = tuple(Fraction(number, 10) for number in (1, 3, 5, 7, 9))
"""Where frames are looked at, as shares of the film's length."""
_FEWEST = 3
"""Frames that must not be black all over."""
_DARK = 28 / 255
"""The greatest luma in a bar, as a share of all codes: black is 16 of 255 in limited range, and
codecs leave noise in it."""
_BRIGHT = 64 / 255
"""The greatest luma within two lines of a bar, at least: pictures of the night fade into black, but
bars end at an edge."""
_LEAST = Fraction(1, 50)
"""The share of a side that bars have together at least."""
_MOST = Fraction(1, 2)


def black_bars(reader: FilmReader) -> FilmCrop | None:
    """Returns the part of the pictures without the black bars that all looked-at frames have; None
    without any, and for a film that cannot be sought in quickly. Raises ImageError."""
    film = reader.film
    if not film.seekable or not film.seconds or film.container in RESTARTED:
        return None
    pictures = film.pictures
    rows, columns = np.zeros(pictures.height), np.zeros(pictures.width)
    seen = 0
    for share in _SHARES:
        found = _brightest(reader, Fraction(film.seconds).limit_denominator(1000) * share)
        if found is not None and found[0].max() > _DARK:
            seen += 1
            rows, columns = np.maximum(rows, found[0]), np.maximum(columns, found[1])
    return _crop(rows, columns, pictures) if seen >= _FEWEST else None


def _brightest(reader: FilmReader, start: Fraction) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Returns the greatest luma of each row and column of a frame, as shares of all codes; None if
    there is no frame."""
    frames = reader.frames(Selection(start), 1)
    try:
        frame = next((one for one in frames if one.is_wanted), None)
        if frame is None:
            return None
        pixels = reader.film.pictures.pixels
        luma = np.maximum.reduce(frame.planes[:3]) if pixels.is_rgb else frame.planes[0]
        most = (1 << pixels.bits) - 1
        found = luma.max(axis=1) / most, luma.max(axis=0) / most
        frame.release()
    finally:
        frames.close()
    return found


def _crop(rows: NDArray[Any], columns: NDArray[Any], pictures: Pictures) -> FilmCrop | None:
    height, width, pixels = pictures.height, pictures.width, pictures.pixels
    top, tall = _span(rows, pixels.rows)
    left, wide = _span(columns, pixels.columns)
    if height - tall < _LEAST * height:
        top, tall = 0, height
    if width - wide < _LEAST * width:
        left, wide = 0, width
    if (tall, wide) == (height, width) or tall < _MOST * height or wide < _MOST * width:
        return None
    return FilmCrop(wide, tall, left, top)


def _span(brightest: NDArray[Any], step: int) -> tuple[int, int]:
    """Returns where the picture begins, and how many lines it has from there, in whole samples of
    chroma."""
    there = np.flatnonzero(brightest > _DARK)
    first, end = int(there[0]), int(there[-1]) + 1
    if brightest[first : first + 2].max() < _BRIGHT:
        first = 0
    if brightest[max(0, end - 2) : end].max() < _BRIGHT:
        end = len(brightest)
    first = first // step * step
    return first, min(len(brightest), -(-end // step) * step) - first
