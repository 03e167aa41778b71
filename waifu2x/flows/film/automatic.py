"""What is chosen by the film, the model and the machine: the noise level, the encoder, the size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waifu2x.flows.film.request import FilmJob
from waifu2x.formats.film import targets
from waifu2x.formats.film.codecs import ENCODERS, choose, is_available

if TYPE_CHECKING:
    from waifu2x.formats.film.description import Film, Pictures
    from waifu2x.networks.model_set import ModelSet

FILM_NOISE = 0
"""The level for whatever an encoder has coded with loss: benchmarks/film_models.py."""
_LOSSLESS = {
    "ffv1", "rawvideo", "huffyuv", "ffvhuff", "utvideo", "magicyuv", "lagarith", "png", "qtrle",
    "v210", "wrapped_avframe", "prores", "dnxhd", "cfhd",
}  # fmt: skip
"""Codecs that change nothing, or next to nothing: those that films are cut in."""
_MAKERS = ("nvenc", "qsv", "amf")
_H264_MOST = 4096
"""The most pixels of a side that encoders of H.264 in hardware take."""


def noise_level(pictures: Pictures, models: ModelSet) -> int | None:
    """The noise level for a film: none where its codec leaves none, or the models lack it."""
    has_it = FILM_NOISE in models.noise_levels
    return FILM_NOISE if has_it and pictures.codec not in _LOSSLESS else None


def hardware_codec(pictures: Pictures, job: FilmJob, height: int, width: int) -> str | None:
    """The first encoder of this machine's hardware that can make the film; None if none can."""
    container = targets.container_of(job.target, job.form)
    depth = job.wish.depth or (8 if pictures.pixels.bits == 8 else 10)
    coded = ["hevc", "av1"]
    if depth == 8 and max(height, width) <= _H264_MOST:
        coded.insert(0, "h264")
    for name in (f"{each}_{maker}" for each in coded for maker in _MAKERS):
        encoder = ENCODERS[name]
        fits = container in encoder.containers and depth in encoder.depths
        if fits and pictures.pixels.planes < 4 and is_available(name):
            return name
    return None


def even_size(film: Film, job: FilmJob, height: int, width: int) -> tuple[int, int]:
    """A size that the encoder can code: without the last row or column where sides must be even.

    Raises OutputError for a codec that does not go with the film or its target.
    """
    container = targets.container_of(job.target, job.form)
    if container in targets.RAW:
        return height, width
    encoding = choose(job.wish, film.pictures.pixels, container, film.pictures.hdr)
    if not ENCODERS[encoding.codec].even:
        return height, width
    rows, columns = encoding.pixels.rows, encoding.pixels.columns
    return max(rows, height - height % rows), max(columns, width - width % columns)
