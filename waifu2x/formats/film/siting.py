"""Where a film's chroma samples sit, which PyAV does not tell.

Matroska's header does: FFmpeg is asked to write one for the stream, into memory, and it is read.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from waifu2x.formats.film.description import ChromaSiting
from waifu2x.formats.film.library import library
from waifu2x.formats.film.matroska import elements

if TYPE_CHECKING:
    from av.video.stream import VideoStream

_HORIZONTAL, _VERTICAL = 0x55B7, 0x55B8
_SITINGS: dict[tuple[int, int], ChromaSiting] = {
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


def siting_of(stream: VideoStream) -> ChromaSiting | None:
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
    _walk(header, 0, len(header), found)
    return _SITINGS.get((found.get(_HORIZONTAL, 0), found.get(_VERTICAL, 0)))


def _walk(data: bytes, at: int, end: int, found: dict[int, int]) -> None:
    """Puts the two elements into `found`."""
    for one in elements(data, at, end):
        if one.number in _PARENTS:
            _walk(data, one.start, one.end, found)
        elif one.number in (_HORIZONTAL, _VERTICAL):
            found[one.number] = int.from_bytes(data[one.start : one.end])
