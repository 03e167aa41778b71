"""Chooses what options leave open: noise level, encoder, size; finds the black bars of a film."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import Waifu2xError
from waifu2x.flows.film.request import FilmJob
from waifu2x.formats.film import HARDWARE
from waifu2x.formats.film.description import FilmCrop, Pictures
from waifu2x.formats.film.reading.selection import Selection
from waifu2x.formats.film.reading.times import RESTARTED
from waifu2x.formats.film.writing import targets
from waifu2x.formats.film.writing.codecs import ENCODERS, choose, is_available
from waifu2x.imaging import sizes
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.formats.film.description import Film
    from waifu2x.networks.model_set import ModelSet

FILM_NOISE = 0
"""The level for any codec with loss; see benchmarks/film_models.py."""
_LOSSLESS = {
    "ffv1", "rawvideo", "huffyuv", "ffvhuff", "utvideo", "magicyuv", "lagarith", "png", "qtrle",
    "v210", "wrapped_avframe", "prores", "dnxhd", "cfhd",
}  # fmt: skip
"""Codecs without loss or nearly so, as used for editing."""
_H264_MOST = 4096
"""The most pixels of a side for H.264 encoders in hardware."""
_SIZES = ("scale", "width", "height", "longer_side", "shorter_side", "min_size")
_DECIDING = ("model", "noise", "tta", "strength", "mask")
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


@dataclass(frozen=True)
class DecidedFilm:
    """A job and the arguments of its Upscaler, with all choices made."""

    job: FilmJob
    arguments: dict[str, Any]
    height: int
    width: int
    asked: tuple[int, int]
    """The requested height and width, which may be odd where the encoder's are not."""
    changes: bool
    """Whether the film is to be changed at all."""


def decided(
    film: Film, job: FilmJob, arguments: Mapping[str, Any], models: ModelSet
) -> DecidedFilm:
    """Chooses noise level and encoder where they are `auto`, and an even size. Raises Waifu2xError
    for what this film does not allow."""
    chosen = {**arguments, **_as_stored(film.pictures, arguments)}
    size = film.pictures.height, film.pictures.width
    try:
        given: dict[str, Any] = {name: chosen.get(name) for name in _SIZES}
        request = sizes.request(**given)
        plan = request.plan(*size, lambda scale: 1)
        if job.max_height is not None and plan.height > job.max_height:
            chosen |= {**dict.fromkeys(_SIZES), "height": job.max_height}
            plan = sizes.request(height=job.max_height).plan(*size, lambda scale: 1)
    except Waifu2xError as error:
        raise error.of(job.source) from error
    if chosen["noise"] == "auto":
        chosen["noise"] = noise_level(film.pictures, models)
    asked = plan.height, _in_square_pixels(plan.width, film.pictures, job)
    changes = chosen["noise"] is not None or asked != size
    if job.wish.codec == "auto":
        codec = hardware_codec(film.pictures, job, *asked)
        job = replace(job, wish=replace(job.wish, codec=codec))
    even = even_size(film, job, *asked)
    if even != (plan.height, plan.width):
        chosen |= {**dict.fromkeys(_SIZES), "height": even[0], "width": even[1], "fit": "exact"}
    return DecidedFilm(job, chosen, *even, asked, changes)


def _in_square_pixels(width: int, pictures: Pictures, job: FilmJob) -> int:
    """Returns the columns of a result, more or fewer where its container says nothing of pixels
    that are not square."""
    is_gif = targets.container_of(job.target, job.form) == "gif"
    return sizes.rounded(width * pictures.aspect) if is_gif and pictures.aspect else width


def _as_stored(pictures: Pictures, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the width, height and mask of stored frames that are shown with those that are asked
    for: players turn frames, and stretch their pixels."""
    width, height = arguments["width"], arguments["height"]
    mask = arguments.get("mask")
    if mask is not None and (pictures.orientation > 1 or pictures.aspect is not None):
        mask = mask.stored(pictures.orientation, pictures.aspect)
    if pictures.orientation >= 5:
        width, height = height, width
    if pictures.aspect is not None and width is not None:
        width = sizes.rounded(width / pictures.aspect)
    return {"width": width, "height": height, "mask": mask}


def deciding_settings(
    arguments: Mapping[str, Any], models: ModelSet, arithmetic: str
) -> tuple[tuple[str, str], ...]:
    """Returns all that decides the pixels of parts, for `FilmJob.settings`. `arithmetic` is what
    the network computes in."""
    deciding = [(name, str(arguments.get(name))) for name in _DECIDING]
    return (*deciding, ("arithmetic", arithmetic), ("weights", models.digest()))


def noise_level(pictures: Pictures, models: ModelSet) -> int | None:
    """Returns the noise level for a film; None for a lossless codec, or models without it."""
    has_it = FILM_NOISE in models.noise_levels
    return FILM_NOISE if has_it and pictures.codec not in _LOSSLESS else None


def hardware_codec(pictures: Pictures, job: FilmJob, height: int, width: int) -> str | None:
    """Returns the first encoder in hardware that can make the film, or None."""
    container = targets.container_of(job.target, job.form)
    depth = job.wish.depth or (8 if pictures.pixels.bits == 8 else 10)
    coded = ["hevc", "av1"]
    if depth == 8 and max(height, width) <= _H264_MOST:
        coded.insert(0, "h264")
    for name in (one for each in coded for one in HARDWARE if one.startswith(f"{each}_")):
        encoder = ENCODERS[name]
        fits = container in encoder.containers and depth in encoder.depths
        if fits and pictures.pixels.planes < 4 and is_available(name):
            return name
    return None


def even_size(film: Film, job: FilmJob, height: int, width: int) -> tuple[int, int]:
    """Returns a size that the encoder can code: without the last row or column if sides must be
    even. Raises OutputError for a codec that does not fit the film or its target."""
    container = targets.container_of(job.target, job.form)
    if container in targets.RAW:
        return height, width
    encoding = choose(job.wish, film.pictures.pixels, container, film.pictures.hdr)
    if not ENCODERS[encoding.codec].even:
        return height, width
    rows, columns = encoding.pixels.rows, encoding.pixels.columns
    return max(rows, height - height % rows), max(columns, width - width % columns)


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
