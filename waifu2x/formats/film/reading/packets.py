"""Reads the packets of a film, past damage in its container."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x.formats.film.frame_files import TICK, FrameSequence
from waifu2x.formats.film.library import complaints, library
from waifu2x.formats.film.reading.times import RESTARTED, TIMED, OneClock

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

_HOPELESS = 100
"""Consecutive errors after which reading ends."""

_STREAM = re.compile(r"^ *Stream #0:(\d{1,4})", re.MULTILINE)
"""The line of FFmpeg's description that gives the number of a stream."""
MAX_GAPS = 20


def may_grow(container: InputContainer) -> bool:
    """Returns whether streams may appear anywhere in the file."""
    return container.format.name in (*RESTARTED, "flv")


class Gap(NamedTuple):
    """A stretch without packets of a stream, in seconds."""

    start: Fraction
    length: Fraction


class Packets:
    """The packets of streams in the order of the file: an iterator that no damage ends. FFmpeg
    finds the next sound place after damage by itself, and only its log tells of that. The times of
    further recordings in a file go on from the one before; so such a file is always read from its
    beginning."""

    def __init__(self, container: InputContainer, streams: Sequence[Stream]) -> None:
        self._container = container
        self._streams = streams
        self._clock = OneClock()
        self.damaged = 0
        """Damaged places of the container so far."""
        self.incomplete: list[Fraction] = []
        """Seconds of packets that a gap in the file follows, in recordings, where another one may
        begin there."""

    @property
    def recordings(self) -> int:
        """Returns how many recordings have begun so far."""
        return self._clock.recordings

    def late_streams(self) -> int:
        """Returns how many streams have appeared since the file was opened. PyAV does not know
        them, and gives none of their packets."""
        if not may_grow(self._container):
            return 0
        log = library().logging
        quiet = log.get_level()
        log.set_level(log.INFO)
        container: Any = self._container
        try:
            told = container.dumps_format()
        finally:
            log.set_level(quiet)
        numbers = [int(number) for number in _STREAM.findall(told)]
        return max(0, max(numbers, default=0) + 1 - len(self._container.streams))

    def __iter__(self) -> Iterator[Packet[Any]]:
        """Yields the packets that are not empty."""
        if self._container.format.name not in RESTARTED:
            yield from self._all_of(self._streams)
            return
        self._clock = OneClock()
        self.incomplete.clear()
        wanted = frozenset(stream.index for stream in self._streams)
        others = [one for one in self._streams if one.type not in TIMED]
        seen = [one for one in self._container.streams if one.type in TIMED]
        for packet in self._clock.given(self._all_of([*seen, *others])):
            if packet.is_corrupt and packet.dts is not None:
                self.incomplete.append(packet.dts * packet.time_base)
            if packet.stream_index in wanted:
                yield packet

    def _all_of(self, streams: Sequence[Stream]) -> Iterator[Packet[Any]]:
        """Yields the packets as FFmpeg gives them, past damage."""
        av = library()
        failures = 0
        may_restart = self._container.format.name in RESTARTED
        packets = self._container.demux(streams)
        while failures < _HOPELESS:
            try:
                packet = self._next(packets)
            except av.FFmpegError:
                # It ends the iterator, but not the file.
                failures += 1
                self.damaged += failures == 1
                packets = self._container.demux(streams)
                continue
            if packet is None:
                return
            failures = 0
            if not may_restart or packet.dts is None:
                self.damaged += packet.is_corrupt
            if packet.size:
                yield packet

    def _next(self, packets: Iterator[Packet[Any]]) -> Packet[Any] | None:
        with complaints(self._container.format.name) as heard:
            try:
                return next(packets, None)
            except IndexError:
                # The end: PyAV also asks for streams behind the header, which it does not know.
                return None
            finally:
                self.damaged += bool(heard())


class FramePackets:
    """Picture files as packets, each with the time of its frame: a damaged one moves no other."""

    def __init__(self, files: FrameSequence) -> None:
        self._files = files
        self.damaged = files.damaged
        self.incomplete: list[Fraction] = []
        self.recordings = 1

    def late_streams(self) -> int:
        """Returns 0."""
        return 0

    def __iter__(self) -> Iterator[Packet[Any]]:
        """Yields all packets. Raises ImageError for an unreadable file."""
        times, end = self._files.times, self._files.end
        for data, time in zip(self._files.contents(), times, strict=True):
            packet: Packet[Any] = library().Packet(data)
            packet.pts = packet.dts = time
            packet.time_base = TICK
            if end is not None and time == times[-1]:
                packet.duration = end - time
            packet.is_keyframe = True  # else it is a difference from the one before
            yield packet
