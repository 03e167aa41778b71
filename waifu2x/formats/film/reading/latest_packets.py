"""The latest packets of pictures: what a decoder may hold still when there are no more.

At its end PyAV takes what a decoder still holds up to the first picture that is damaged, and cannot
go on behind it. With a thread for each of 16 cores that may be 30 pictures, so they are decoded
once more, by one thread: that one holds none that could be damaged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.decoders import DECODERS

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_DEEPEST = 160
"""More pictures than a decoder holds: 128 threads, and 16 that are shown later than others."""
_MOST = 32 << 20
"""Bytes that are kept. What takes more is not decoded again."""


class LatestPackets:
    """Packets from a keyframe on, and how many pictures of them have not come."""

    def __init__(self) -> None:
        self._packets: deque[Packet[Any]] = deque()
        self._keyframes: deque[int] = deque()
        """The numbers of those from which on one can decode."""
        self._count = self._size = 0
        self._latest: int | None = None
        """The latest time of a picture so far."""
        self.awaited = 0
        """Packets without a picture and without an error so far."""
        self.damaged = 0
        """Packets that could not be decoded again, of pictures that have not come."""

    def add(self, packet: Packet[Any], frames: Sequence[VideoFrame] | None) -> None:
        """A packet was decoded, with these frames; None: with an error."""
        if packet.is_keyframe:
            self._keyframes.append(self._count)
        self._count += 1
        if self._keyframes:
            self._packets.append(packet)
            self._size += packet.size
        while self._keyframes and (
            self._size > _MOST
            or (len(self._keyframes) > 1 and self._count - self._keyframes[1] >= _DEEPEST)
        ):
            self._forget()
        self.awaited += 1
        self.take([None] if frames is None else frames)

    def take(self, frames: Sequence[VideoFrame | None]) -> None:
        """Frames have come; None is an error in the place of one."""
        self.awaited -= len(frames)
        for frame in frames:
            time = None if frame is None else _time_of(frame)
            if time is not None and (self._latest is None or time > self._latest):
                self._latest = time

    def again(self, stream: VideoStream, decoder: str) -> Iterator[VideoFrame]:
        """The frames after the latest that has come, by a new decoder of that name."""
        errors = library().FFmpegError
        packets, self._packets = self._packets, deque()
        latest = self._latest
        if latest is None or not packets:
            return
        context = _decoder_like(stream.codec_context, decoder)
        for packet in [*packets, None]:
            try:
                frames = context.decode(packet)
            except errors:
                time = None if packet is None else packet.dts if packet.pts is None else packet.pts
                self.damaged += time is not None and time > latest
                continue
            for frame in frames:
                time = _time_of(frame)
                if time is not None and time > latest:
                    yield frame

    def _forget(self) -> None:
        """Lets go of the packets up to the next keyframe, or of all."""
        first = self._keyframes.popleft()
        until = self._keyframes[0] if self._keyframes else self._count
        for _ in range(until - first):
            self._size -= self._packets.popleft().size


def _time_of(frame: VideoFrame) -> int | None:
    return frame.dts if frame.pts is None else frame.pts


def _decoder_like(own: Any, decoder: str) -> Any:
    """A decoder of one thread for the pictures of another."""
    context: Any = library().CodecContext.create(decoder, "r")
    context.options = {"codec_whitelist": DECODERS}
    context.extradata, context.codec_tag = own.extradata, own.codec_tag
    context.width, context.height = own.width, own.height
    context.bits_per_coded_sample = own.bits_per_coded_sample
    context.thread_count = 1
    return context
