"""Compares the decoded frames with the length and the number of pictures that a film claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from waifu2x.formats.film.description import Film

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_FRAMED = ("matroska", "mov")
_ONE_EACH = ("h264", "hevc", "ffv1", "prores", "dnxhd", "mjpeg", "png", "vp9")
"""Codecs in which each packet is one picture; `_FRAMED` are such containers."""


class CodedPictures:
    """Counts the packets of pictures that are shown."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: list[int | None] = []
        """Times of packets before the first decoded picture."""
        self._first: int | None = None

    def add(self, packet: Packet[Any]) -> None:
        """Counts a packet, unless it is shown before the first picture that can be decoded."""
        if packet.is_discard:
            return
        if self._first is None:
            self._waiting.append(packet.pts)
        else:
            self._count(packet.pts)

    def begin(self, frames: Sequence[VideoFrame]) -> None:
        """Takes note of the first decoded pictures."""
        if self._first is None and frames:
            self._first = -1 if frames[0].pts is None else frames[0].pts
            for pts in self._waiting:
                self._count(pts)
            self._waiting.clear()

    def _count(self, pts: int | None) -> None:
        assert self._first is not None
        self.number += pts is None or pts >= self._first


def missing_frames(film: Film, coded: CodedPictures, frames: int) -> int:
    """Returns how many frames a fully decoded film lacks, as far as that is known. For AVI it is at
    most 1. `frames` is how many were decoded."""
    pictures = film.pictures
    if film.container == "avi" and pictures.codec != "mpeg4":
        # It has a number of frames but no times. That of MPEG-4 counts some twice.
        return int(frames < (pictures.frames or 0))
    if film.container in _FRAMED and pictures.codec in _ONE_EACH:
        return max(0, coded.number - frames)
    return 0


def ends_early(film: Film, stream: VideoStream, end: float) -> bool:
    """Returns whether a film claims to be longer than `end` seconds, where its last frame ends."""
    pictures = film.pictures
    if stream.duration is not None and stream.duration > 0:
        claimed = float((stream.duration + (stream.start_time or 0)) * pictures.time_base)
        claimed -= film.shift / 1e6
        if film.container == "avi" and pictures.frames is not None:
            # FFmpeg goes by the size of the file if that is less than its header says.
            claimed = max(claimed, float(pictures.frames / pictures.rate))
    elif pictures.frames is not None:
        claimed = float(pictures.frames / pictures.rate)
    else:
        # The end of the longest stream counts for a container, so a bit less is no damage.
        claimed = seconds_of(dict(pictures.tags).get("DURATION", "")) or film.seconds or 0
    near = 3 / float(pictures.rate)
    # Other containers' claims are of their longest stream, or were copied from another file.
    return end < claimed - (near if film.container in ("avi", "mov") else max(1.0, near))


def seconds_of(duration: str) -> float:
    """Returns the seconds of Matroska's tag, as in 00:01:02.500000000; 0 for any other text."""
    try:
        hours, minutes, seconds = duration.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except (ValueError, OverflowError):
        return 0.0
