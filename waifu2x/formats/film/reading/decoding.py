"""Decodes packets into frames, past damaged ones, and keeps the packets of other streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from waifu2x.errors import ImageError
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.opening import decoder_like, decoder_of, new_decoder

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from waifu2x.formats.film.reading.packets import FramePackets, Packets

_UNTIL_FIRST = 2000
"""Packets at the beginning of a film that must give a frame. Later damage may be longer."""
_MOST_KEPT = 256 << 20
"""Bytes of other streams that are kept between two pictures of a film that is read only once."""
_MOST_SKIPPED = 64 << 20
"""Bytes from a keyframe on that are kept while the next one is looked for."""
_BEHIND = 60
"""Seconds of pictures after the end during which a late sound is still expected."""
_DEEPEST = 160
"""More pictures than a decoder holds: 128 threads, and 16 that are shown later than others."""
_MOST = 32 << 20
"""Bytes that are kept. What takes more is not decoded again."""


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


class Decoding:
    """Decodes the pictures of a film."""

    def __init__(
        self,
        packets: Packets | FramePackets,
        stream: VideoStream,
        name: str,
        on_packet: Callable[[], None] = lambda: None,
    ) -> None:
        """Decodes `stream`; `name` stands for the film in messages. `on_packet` is called for each
        packet. Raises ImageError for a codec that films may not have."""
        self._packets = packets
        self._stream = stream
        self._name = name
        self._on_packet = on_packet
        self.others: deque[Packet[Any]] = deque()
        """Packets of other streams, in the order of the file, for the caller to remove."""
        self.coded = CodedPictures()
        self._undecodable = 0
        self._has_begun = False
        self._feed = iter(packets)
        self._context = new_decoder(stream, name)
        self._latest = LatestPackets()
        self._frames = self._decode()

    @property
    def damaged(self) -> int:
        """Returns how many packets and places of the container are damaged so far."""
        return self._undecodable + self._packets.damaged

    def __iter__(self) -> Iterator[VideoFrame]:
        """Yields the remaining frames. Raises ImageError."""
        return self._frames

    def restart(self, until: Fraction | None = None) -> None:
        """Begins anew after the file was sought in. Skips all before the last keyframe that is
        decoded before `until`, in seconds of the file."""
        self._frames.close()
        self._context = new_decoder(self._stream, self._name)
        self._latest = LatestPackets()
        self.others.clear()
        self._feed = iter(self._packets)
        if until is not None:
            self._feed = self._behind(until, self._feed)
        self._frames = self._decode()

    def read_on(self, until: Fraction, sounds: Sequence[int]) -> None:
        """Reads packets of other streams up to a time in seconds of the file. Streams numbered
        `sounds` may lie behind the pictures and are read up to that time. One that has ended is not
        awaited to the end of a pipe, unless the file tells its length. Raises ImageError."""
        awaited = {number: bool(self._stream.container.streams[number].frames) for number in sounds}
        kept = 0
        for packet in self._feed:
            self._on_packet()
            base = packet.time_base
            now = None if packet.dts is None or base is None else packet.dts * base
            if packet.stream_index != self._stream.index and (now is None or now <= until):
                self.others.append(packet)
                kept = self._keep(kept, packet)
            elif now is not None and now > until:
                awaited.pop(packet.stream_index, None)
            if now is not None and now > until + _BEHIND and not any(awaited.values()):
                return
            if not awaited and now is not None and now > until:
                return

    def _behind(self, until: Fraction, packets: Iterator[Packet[Any]]) -> Iterator[Packet[Any]]:
        """Yields the packets from a keyframe on, an earlier one if much lies behind it."""
        held: list[Packet[Any]] = []
        size = 0
        for packet in packets:
            self._on_packet()
            base = packet.time_base
            if packet.stream_index == self._stream.index and packet.dts is not None:
                if base is not None and packet.dts * base > until:
                    held.append(packet)
                    break
                if packet.is_keyframe:
                    held.clear()
                    size = 0
            held.append(packet)
            size += packet.size
            if size > _MOST_SKIPPED:
                break
        yield from held
        held.clear()
        yield from packets

    def _keep(self, kept: int, packet: Packet[Any]) -> int:
        kept += packet.size
        if kept > _MOST_KEPT:
            raise ImageError(
                f"{self._name}: {kept >> 20} MiB of other streams come before a picture"
            )
        return kept

    def _decode(self) -> Generator[VideoFrame]:
        errors = library().FFmpegError
        fruitless = kept = 0
        for packet in self._feed:
            self._on_packet()
            if packet.stream_index != self._stream.index:
                self.others.append(packet)
                kept = self._keep(kept, packet)
                continue
            self.coded.add(packet)
            frames: Sequence[VideoFrame] | None = None
            try:
                frames = self._context.decode(packet)
            except errors:
                self._undecodable += 1
            self._latest.add(packet, frames)
            self.coded.begin(frames or [])
            self._has_begun |= bool(frames)
            fruitless, kept = (0, 0) if frames else (fruitless + 1, kept)
            if fruitless > _UNTIL_FIRST and not self._has_begun:
                raise ImageError(f"{self._name}: its first {fruitless} packets give no picture")
            yield from frames or []
        yield from self._last()

    def _last(self) -> Iterator[VideoFrame]:
        """Yields the frames that the decoder still holds at the end."""
        av = library()
        latest, is_damaged = self._latest, False
        frames: Sequence[VideoFrame] = []
        try:
            frames = self._context.decode(None)
        except av.error.EOFError:  # it has given all before
            return
        except av.FFmpegError:
            is_damaged = True
        latest.take(frames)
        self.coded.begin(frames)
        yield from frames
        if is_damaged or latest.awaited > 0:
            yield from latest.again(self._stream, decoder_of(self._stream))
            self._undecodable += max(latest.damaged, is_damaged)


class LatestPackets:
    """The latest packets of pictures: a decoder may still hold some at the end. At the end PyAV
    takes what a decoder holds up to the first damaged picture, and cannot go on behind it. With 16
    threads that may lose 30 pictures, so they are decoded again by one thread, which holds none
    that could be damaged."""

    def __init__(self) -> None:
        self._packets: deque[Packet[Any]] = deque()
        self._keyframes: deque[int] = deque()
        """Numbers of the packets at which decoding can begin."""
        self._count = self._size = 0
        self._latest: int | None = None
        self.awaited = 0
        """Packets so far without a picture and without an error."""
        self.damaged = 0
        """Packets that failed again, of pictures that have not come."""

    def add(self, packet: Packet[Any], frames: Sequence[VideoFrame] | None) -> None:
        """Takes a packet and the frames decoded from it; None stands for an error."""
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
        """Takes further frames; None stands for an error in the place of one."""
        self.awaited -= len(frames)
        for frame in frames:
            time = None if frame is None else _time_of(frame)
            if time is not None and (self._latest is None or time > self._latest):
                self._latest = time

    def again(self, stream: VideoStream, decoder: str) -> Iterator[VideoFrame]:
        """Yields the frames after the latest one so far, from a new decoder of that name."""
        errors = library().FFmpegError
        packets, self._packets = self._packets, deque()
        latest = self._latest
        if latest is None or not packets:
            return
        context = decoder_like(stream.codec_context, decoder)
        context.thread_count = 1
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
        first = self._keyframes.popleft()
        until = self._keyframes[0] if self._keyframes else self._count
        for _ in range(until - first):
            self._size -= self._packets.popleft().size


def _time_of(frame: VideoFrame) -> int | None:
    return frame.dts if frame.pts is None else frame.pts
