"""What a film's header tells of its pictures and PyAV does not: where chroma sits, Dolby Vision.

Matroska's header tells both: FFmpeg is asked to write one for the stream, into memory, and it is
read.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.formats.film.description import ChromaSiting
from waifu2x.formats.film.library import library
from waifu2x.formats.film.writing.matroska import elements

if TYPE_CHECKING:
    from av.video.stream import VideoStream

_HORIZONTAL, _VERTICAL, _ADDED_TYPE, _ADDED_DATA = 0x55B7, 0x55B8, 0x41E7, 0x41ED
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
    0x41E4,  # what is added to packets
}
_DOLBY_VISION = (b"dvcC", b"dvvC", b"dvwC")


class DolbyVision(NamedTuple):
    """How a film uses it."""

    profile: int
    base: int
    """What its pictures are without it: 0 nothing that can be shown, 1 HDR10, 2 SDR, 4 HLG."""

    @property
    def is_needed(self) -> bool:
        """Whether its pictures mean nothing without it."""
        return self.profile == 5 or (self.profile == 10 and self.base == 0)


class StreamHeader(NamedTuple):
    """What a header tells."""

    siting: ChromaSiting | None = None
    dolby_vision: DolbyVision | None = None


def header_of(stream: VideoStream) -> StreamHeader:
    """What the film says of its pictures."""
    av = library()
    written = io.BytesIO()
    try:
        with av.open(written, "w", format="matroska") as container:
            container.add_stream_from_template(stream, opaque=True)
            container.start_encoding()
            header = written.getvalue()
    except (av.FFmpegError, ValueError):  # a codec that Matroska does not know
        return StreamHeader()
    found: dict[int, bytes] = {}
    _walk(header, 0, len(header), found)
    sides = (int.from_bytes(found.get(number, b"")) for number in (_HORIZONTAL, _VERTICAL))
    told = found.get(_ADDED_DATA, b"")
    vision = None
    if found.get(_ADDED_TYPE) in _DOLBY_VISION and len(told) > 4:
        vision = DolbyVision(told[2] >> 1, told[4] >> 4)
    return StreamHeader(_SITINGS.get((next(sides), next(sides))), vision)


def _walk(data: bytes, at: int, end: int, found: dict[int, bytes]) -> None:
    """Puts the elements that are known into `found`."""
    for one in elements(data, at, end):
        if one.number in _PARENTS:
            _walk(data, one.start, one.end, found)
        elif one.number in (_HORIZONTAL, _VERTICAL, _ADDED_TYPE, _ADDED_DATA):
            found[one.number] = data[one.start : one.end]
