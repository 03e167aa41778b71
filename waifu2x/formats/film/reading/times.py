"""Corrects the times of a film while it is read: of recordings that follow one another in one file,
and of frames.

MPEG streams tell no length, so recordings are joined by concatenating files, and a receiver that
restarts resets its clock. FFmpeg gives the times as they are.

Damaged films have impossible times, times that go back, or that leap ahead for a frame. Such a
frame is shown when it is due: its picture is as good as any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x.formats.film.reading.opening import MAX_SECONDS

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame

RESTARTED = ("mpegts", "mpeg")
"""FFmpeg's formats whose clock may begin anywhere and be reset, in ticks of 1/90000 s."""
TIMED = ("video", "audio")
"""Streams that go on all the time, so that a leap of theirs shows."""
_SECOND = 90_000
_NEAR = _SECOND // 10
"""A time further back than this, or further ahead of the previous packet, is a leap: damage, a gap
or another clock."""
_AHEAD = 600 * _SECOND
"""The longest gap in a recording. FFmpeg adds 26.5 hours to a clock that has gone far back."""
_AGREED = 8
"""Consecutive packets of a stream that settle by which clock it goes on."""
_LONGEST = 5 * _SECOND
"""The longest pause of a stream that is still waited for."""
_MOST_PACKETS, _MOST_BYTES = 2048, 64 << 20
"""Packets and bytes that wait at most."""
_LOOKED_AT = 4
"""Frames that are examined after a leap, to see whether time goes back."""


class OneClock:
    """Moves each further recording, with all its streams, to where the previous one ended. A
    recording begins where all active sounds and pictures leap. So the clock has to see all of them;
    then every reader of the file finds the same times."""

    def __init__(self) -> None:
        self.recordings = 1
        """Recordings that have begun so far."""
        self._offset = 0
        """Ticks by which the present recording is moved."""
        self._ends: dict[int, _End] = {}
        """Positions of the sounds and pictures in the present recording."""
        self._leapt = _Leapt()

    def given(self, packets: Iterable[Packet[Any]]) -> Iterator[Packet[Any]]:
        """Yields all packets, with times that continue from one recording to the next."""
        for packet in packets:
            yield from self._taken(packet)
        yield from self._settled()

    def _taken(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        index, time, leapt = packet.stream_index, _time_of(packet), self._leapt
        end = self._ends.get(index)
        begun = end is not None and time is not None and end.is_left(time)
        if not leapt.waiting and not begun:
            self._note(packet)
            yield self._moved(packet)
            return
        known = leapt.streams.get(index)
        if known and end is not None and time is not None and not _goes_on(known, time, end):
            yield from self._settled()
            yield from self._taken(packet)
            return
        if begun or known is not None:
            leapt.add(packet)
        else:
            leapt.hold(packet, is_going_on=end is not None)
            if end is not None:
                self._note(packet)
        if leapt.is_enough(self._awaited()):
            yield from self._settled()

    def _awaited(self) -> list[int]:
        latest = max((end.decoded for end in self._ends.values()), default=0)
        return [index for index, end in self._ends.items() if latest - end.decoded <= _LONGEST]

    def _settled(self) -> Iterator[Packet[Any]]:
        """Yields the packets that waited, each in its recording."""
        leapt, self._leapt = self._leapt, _Leapt()
        agreed = leapt.agreed()
        if leapt.is_divided() or not any(
            self._ends[index].is_over(leapt.streams[index][0].decoded) for index in agreed
        ):
            # A gap, damage, or one stream that other streams need not follow.
            for packet, is_next in leapt.waiting:
                if is_next is None or (is_next and packet.stream_index in agreed):
                    self._note(packet)
                yield self._moved(packet)
            return
        later = []
        for packet, is_next in leapt.waiting:
            if is_next or (is_next is None and leapt.is_behind(packet)):
                later.append(packet)
            else:
                yield self._moved(packet)
        self._offset += max(self._ends[index].until(leapt.streams[index]) for index in agreed)
        self._ends = {}
        self.recordings += 1
        for packet in later:
            self._note(packet)
            yield self._moved(packet)

    def _note(self, packet: Packet[Any]) -> None:
        if packet.dts is not None and packet.stream.type in TIMED:
            self._ends.setdefault(packet.stream_index, _End()).add(packet)

    def _moved(self, packet: Packet[Any]) -> Packet[Any]:
        if self._offset:
            packet.pts = None if packet.pts is None else packet.pts + self._offset
            packet.dts = None if packet.dts is None else packet.dts + self._offset
        return packet


class _Times(NamedTuple):
    decoded: int
    shown: int


class _End:
    """The position of a stream in the present recording, in ticks of its clock."""

    def __init__(self) -> None:
        self.decoded = 0
        self.length = 0
        self._shown_until: int | None = None

    def add(self, packet: Packet[Any]) -> None:
        decoded, shown = packet.dts, packet.pts
        assert decoded is not None
        if packet.duration:
            self.length = packet.duration
        elif self._shown_until is not None:
            self.length = min(max(decoded - self.decoded, 0), _SECOND)
        self.decoded = decoded
        until = (decoded if shown is None else shown) + self.length
        self._shown_until = max(until, self._shown_until or until)

    def is_left(self, time: int) -> bool:
        """Returns whether the time of the next packet leaps."""
        return not -_NEAR <= time - self.decoded <= self.length + _NEAR

    def is_over(self, time: int) -> bool:
        """Returns whether the next packets belong to another recording."""
        return not -_NEAR <= time - self.decoded <= self.length + _AHEAD

    def until(self, begun: list[_Times]) -> int:
        """Returns by how much packets of the next recording have to move to follow this one."""
        assert self._shown_until is not None
        return max(
            self.decoded + self.length - begun[0].decoded,
            self._shown_until - min(one.shown for one in begun),
        )


class _Leapt:
    """The packets from the first that leaps on, until their meaning is clear."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Packet[Any], bool | None]] = []
        """Packets, and whether their streams have leapt; None where that is unknown."""
        self.streams: dict[int, list[_Times]] = {}
        """Times of the packets since then, for each stream that has leapt."""
        self._going_on: dict[int, int] = {}
        """Packets since then of each other stream."""
        self._size = 0
        self._place: int | None = None
        """Position in the file of the first packet that has leapt."""

    def add(self, packet: Packet[Any]) -> None:
        self._take(packet, True)
        known = self.streams.setdefault(packet.stream_index, [])
        if packet.dts is not None:
            known.append(_Times(packet.dts, packet.dts if packet.pts is None else packet.pts))
        place = packet.pos
        if place is not None and (self._place is None or place < self._place):
            self._place = place

    def hold(self, packet: Packet[Any], *, is_going_on: bool) -> None:
        """Takes a packet of a stream that has not leapt; `is_going_on`: although it could have."""
        self._take(packet, False if is_going_on else None)
        if is_going_on:
            index = packet.stream_index
            self._going_on[index] = self._going_on.get(index, 0) + 1

    def _take(self, packet: Packet[Any], is_next: bool | None) -> None:
        self.waiting.append((packet, is_next))
        self._size += packet.size

    def is_behind(self, packet: Packet[Any]) -> bool:
        """Returns whether a packet lies behind the first one that has leapt, in the file."""
        return self._place is None or packet.pos is None or packet.pos >= self._place

    def is_divided(self) -> bool:
        """Returns whether a stream goes on without a leap."""
        return any(count >= _AGREED for count in self._going_on.values())

    def agreed(self) -> list[int]:
        """Returns the streams that go on from where they have leapt to."""
        return [index for index, known in self.streams.items() if len(known) >= _AGREED]

    def is_enough(self, awaited: list[int]) -> bool:
        """Returns whether the clocks of all awaited streams are known, or enough has waited."""
        return (
            self.is_divided()
            or set(awaited) <= set(self.agreed())
            or any(
                known and known[-1].decoded - known[0].decoded > _LONGEST
                for known in self.streams.values()
            )
            or len(self.waiting) >= _MOST_PACKETS
            or self._size >= _MOST_BYTES
        )


def _goes_on(known: list[_Times], time: int, end: _End) -> bool:
    """Returns whether a packet follows those that have leapt, so that these were not damaged."""
    before = known[-1].decoded
    if len(known) == 1 and abs(time - end.decoded) < abs(time - before):
        return False
    return -_NEAR <= time - before <= _NEAR + end.length + max(0, before - end.decoded)


def _time_of(packet: Packet[Any]) -> int | None:
    return packet.pts if packet.dts is None else packet.dts


class Times:
    def __init__(
        self, origin: Fraction, tick: Fraction, length: int, delay: int | None = None
    ) -> None:
        """Takes times from `origin`, in seconds, on, in ticks of `tick` seconds. A frame is shown
        for about `length` ticks. With `delay`, frames have only an order of coding, which is late
        by as many ticks."""
        self._origin, self._tick = origin, tick
        self._first = -(-origin // tick)
        self._is_plain = self._first * tick == origin  # fractions take long
        self._length = length
        self._delay = delay
        self._most = MAX_SECONDS // tick
        self.moved = 0
        """Frames so far whose time is not that of the film."""

    def given(self, frames: Iterable[VideoFrame]) -> Iterator[VideoFrame]:
        """Yields the frames, with `pts` and `duration` set."""
        source = iter(frames)
        waiting: deque[VideoFrame] = deque()
        last: int | None = None
        due = 0
        while True:
            frame = waiting.popleft() if waiting else next(source, None)
            if frame is None:
                return
            pts = self._told(frame)
            if pts is None:
                self.moved += frame.pts is not None
                pts = due
            elif pts > due:
                while len(waiting) < _LOOKED_AT and (more := next(source, None)) is not None:
                    waiting.append(more)
                later = [self._told(one) for one in waiting]
                back = [one for one in later if one is not None and one < pts]
                if sound := [one for one in back if last is None or one > last]:
                    self.moved += 1
                    pts = min(due, min(sound) - 1)
            if last is not None and pts <= last:
                self.moved += 1
                pts = last + 1
            last = pts
            duration = frame.duration or 0
            frame.pts = pts
            frame.duration = duration if 0 <= duration <= self._most else 0
            due = pts + (frame.duration or self._length)
            yield frame

    def _told(self, frame: VideoFrame) -> int | None:
        """Returns the time that the film gives a frame, if that is possible."""
        pts = frame.pts
        if self._delay is not None:
            pts = None if frame.dts is None else frame.dts - self._delay
        if pts is None:
            return None
        if self._is_plain:
            pts -= self._first
        else:
            pts = round((pts * self._tick - self._origin) / self._tick)
        return pts if abs(pts) <= self._most else None
