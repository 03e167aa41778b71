"""Where a film's chroma samples sit, which PyAV does not tell.

Matroska's header does: FFmpeg is asked to write one for the stream, into memory, and it is read.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from waifu2x.formats.film.description import Siting
from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.video.stream import VideoStream

_HORIZONTAL, _VERTICAL = 0x55B7, 0x55B8
_SITINGS: dict[tuple[int, int], Siting] = {
    (1, 2): "left",
    (1, 1): "topleft",
    (2, 2): "center",
}
"""By Matroska's numbers: 1 is at the first pixel, 2 is half way to the second."""
_PARENTS = {
    0x18538067,  # segment
    0x1654AE6B,  # tracks
    0xAE,  # track
    0xE0,  # video
    0x55B0,  # colour
}


def siting_of(stream: VideoStream) -> Siting | None:
    """Where its chroma sits, if the film says so."""
    av = library()
    written = io.BytesIO()
    try:
        with av.open(written, "w", format="matroska") as container:
            container.add_stream_from_template(stream, opaque=True)
            container.start_encoding()
            header = written.getvalue()
    except (av.FFmpegError, ValueError):  # a codec that Matroska does not know
        return None
    found: dict[int, int] = {}
    _walk(memoryview(header), found)
    return _SITINGS.get((found.get(_HORIZONTAL, 0), found.get(_VERTICAL, 0)))


def _walk(data: memoryview, found: dict[int, int]) -> None:
    """Puts the two elements into `found`."""
    at = 0
    while at < len(data):
        name, at = _number(data, at, keep_length=True)
        size, at = _number(data, at, keep_length=False)
        end = len(data) if size < 0 else min(at + size, len(data))
        if name in _PARENTS:
            _walk(data[at:end], found)
        elif name in (_HORIZONTAL, _VERTICAL):
            found[name] = int.from_bytes(data[at:end])
        at = end


def _number(data: memoryview, at: int, *, keep_length: bool) -> tuple[int, int]:
    """A number of EBML and where it ends; -1 for a size that is not known."""
    length = 9 - data[at].bit_length()
    if length > 8 or at + length > len(data):
        return -1, len(data)
    value = int.from_bytes(data[at : at + length])
    if keep_length:
        return value, at + length
    value &= (1 << 7 * length) - 1
    return (-1 if value == (1 << 7 * length) - 1 else value), at + length
