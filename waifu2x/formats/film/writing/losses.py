"""What an encoding keeps less of than its source has, without anybody having asked for that."""

from __future__ import annotations

from collections.abc import Iterator

from waifu2x.formats.film.description import PixelFormat
from waifu2x.formats.film.writing.codecs import Encoding, Wish

_LAYOUTS = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0"}
"""By columns and rows of luma to one sample of chroma."""


def losses(wish: Wish, source: PixelFormat, encoding: Encoding) -> Iterator[str]:
    """Each a clause."""
    made = encoding.pixels
    if made.bits < source.bits and wish.depth is None:
        yield f"{made.bits} of {source.bits} bits are kept: {encoding.codec} has no more here"
    layouts = [(one.columns, one.rows) for one in (source, made)]
    if source.planes >= 3 and layouts[1] > layouts[0] and wish.chroma is None:
        had, has = (_LAYOUTS.get(one, "other") for one in layouts)
        yield f"chroma of {had} becomes {has}: {encoding.codec} has no more here"
