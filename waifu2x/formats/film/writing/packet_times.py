"""Corrects the times of copied packets, which containers take only in order.

Times of a source may repeat (Matroska rounds to a millisecond, and packets of TrueHD are shorter),
leap (a damaged packet), restart (two recordings in one file) or be unknown (Matroska keeps no
decoding times). Only the packet at fault is changed.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from waifu2x.errors import OutputError
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.packets import MAX_GAPS, Gap

if TYPE_CHECKING:
    from av.packet import Packet

LEAP = 10
"""Seconds by which the times of one recording never move: a longer leap is damage or another
recording."""
_AGREED = 8
"""The number of packets after a leap that confirm it, if none of them goes back."""
_DEEPEST = 64
"""More packets than any encoder codes before the first one shown."""
_UNHEARD = Fraction(1, 100)
"""Seconds of silence within the rounding of times."""
_LONGEST = 1 << 62
"""Ticks of a packet: more than 63 bits are an error to PyAV."""
_MOST_AHEAD = 256
_BYTES_AHEAD = 8 << 20
"""Subtitles that wait for their time, and their bytes."""
_SHORTEST_SILENCE = Fraction(1, 50)
"""Seconds of silence beyond the rounding of times."""
_PIECE = 1 << 16
_MOST_SILENCE = 1 << 30
"""Bytes of silence in a film: 93 minutes of stereo. Damaged times could ask for a week."""
_SILENT = {"pcm_u8": 0x80, "pcm_alaw": 0xD5, "pcm_mulaw": 0xFF}
"""The byte of silence, where it is not 0."""


class FollowingTimes:
    """Times of sound or pictures, whose packets follow one another."""

    def __init__(self, tick: Fraction, *, is_sound: bool, may_repeat: bool) -> None:
        """`tick` is in seconds, that of the target. `may_repeat`: its container allows packets with
        equal decoding times."""
        self._tick = tick
        self._leap = LEAP // tick
        self._is_sound = is_sound
        self._step = 0 if may_repeat else 1
        self._last: int | None = None
        """Decoding time of the latest packet, in ticks."""
        self._due = 0
        self._undated: list[Packet[Any]] = []
        """Packets before the first one with a decoding time."""
        self._held: list[Packet[Any]] = []
        self._heard: Fraction | None = None
        """Ticks at which the sound so far ends; None if unknown."""
        self.gaps: list[Gap] = []
        self.wrong = 0
        """Packets whose times leap or go back."""

    def add(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """Takes a packet; yields those that are ready, with times in ticks of the target."""
        rounding = _in_ticks(packet, self._tick)
        if packet.dts is None and packet.pts is None:
            self.wrong += 1
            if not self._is_sound or self._last is None:
                return
            packet.dts = self._due
        if self._is_sound:  # decoded in the order of hearing
            if packet.dts is None:
                packet.dts = packet.pts
            elif packet.pts is None:
                packet.pts = packet.dts
        if packet.dts is None:
            self._undated.append(packet)
            if len(self._undated) >= _DEEPEST:
                yield from self._dated(None, rounding)
            return
        if self._undated:
            yield from self._dated(packet.dts, rounding)
        yield from self._arrived(packet, rounding)

    def rest(self) -> Iterator[Packet[Any]]:
        """Yields the last packets."""
        if self._undated:
            yield from self._dated(None, 1)
        if len(self._held) == 1 and self._last is not None:  # nothing goes on from there
            yield from self._blamed()
        else:
            yield from self._meant()

    def _dated(self, following: int | None, rounding: int) -> Iterator[Packet[Any]]:
        """Gives packets the latest possible decoding times: before the next one's, and before they
        are shown."""
        waiting, self._undated = self._undated, []
        for packet in reversed(waiting):
            assert packet.pts is not None
            before = packet.pts
            if following is not None:
                before = min(before, following - max(packet.duration or 0, 1))
            packet.dts = following = before
        for packet in waiting:
            yield from self._arrived(packet, rounding)

    def _arrived(self, packet: Packet[Any], rounding: int) -> Iterator[Packet[Any]]:
        assert packet.dts is not None
        if self._held:
            first = self._held[0].dts
            assert first is not None
            if packet.dts < first:
                yield from self._blamed()
                yield from self._arrived(packet, rounding)
                return
            self._held.append(packet)
            if len(self._held) >= _AGREED:
                yield from self._meant()
        elif packet.dts - self._due > self._leap:
            self._held.append(packet)
        else:
            yield self._placed(packet, rounding)

    def _meant(self) -> Iterator[Packet[Any]]:
        """Yields the packets after a leap that others have confirmed."""
        held, self._held = self._held, []
        for one in held:
            yield self._placed(one, 1)

    def _blamed(self) -> Iterator[Packet[Any]]:
        """Yields the packets that leapt alone, at the times when they are due."""
        held, self._held = self._held, []
        self.wrong += len(held)
        if self._last is None:
            return  # nothing tells where they belong
        for packet in held:
            assert packet.dts is not None
            _shift(packet, self._due - packet.dts)
            yield self._placed(packet, 0)

    def _placed(self, packet: Packet[Any], rounding: int) -> Packet[Any]:
        """Returns a packet whose decoding time is not before that of the last one."""
        assert packet.dts is not None
        if self._last is not None:
            late = self._last + self._step - packet.dts
            if late > self._leap:  # times have begun anew: it follows the last one
                self.wrong += 1
                _shift(packet, max(self._due, self._last + self._step) - packet.dts)
            elif late > rounding:
                self.wrong += 1
                _shift(packet, late)
            elif late > 0:
                packet.dts += late
                if packet.pts is not None:
                    packet.pts = max(packet.pts, packet.dts)
        self._last = packet.dts
        self._due = packet.dts + (packet.duration or 0)
        if self._is_sound:
            self._listen(packet)
        return packet

    def _listen(self, packet: Packet[Any]) -> None:
        """Notes silence before this packet that is longer than the packet."""
        assert packet.pts is not None
        start, length = packet.pts * self._tick, (packet.duration or 0) * self._tick
        due, self._heard = self._heard, None
        if not length:
            return  # the next one's time is unknown
        if due is not None and start - due > max(length, _UNHEARD) and len(self.gaps) < MAX_GAPS:
            self.gaps.append(Gap(due, start - due))
        self._heard = start + length


class SortedTimes:
    """Times of subtitles, which wait for sound and pictures: one that leaps ahead
    delays no other."""

    def __init__(self, tick: Fraction) -> None:
        self._tick = tick
        self._waiting: list[tuple[int, int, Packet[Any]]] = []
        """A heap of times, numbers and packets."""
        self._number = self._size = 0
        self._last: int | None = None
        self.gaps: list[Gap] = []
        """Always empty: subtitles pause most of the time."""
        self.wrong = 0
        """Packets that come too late."""

    def add(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """Takes a packet; yields those that can wait no longer, with times in ticks of
        the target."""
        _in_ticks(packet, self._tick)
        time = packet.pts if packet.pts is not None else packet.dts
        if time is None:
            self.wrong += 1
            return
        packet.pts = packet.dts = time
        heapq.heappush(self._waiting, (time, self._number, packet))
        self._number += 1
        self._size += packet.size
        while len(self._waiting) > _MOST_AHEAD or self._size > _BYTES_AHEAD:
            yield self._next()

    def until(self, seconds: float) -> Iterator[Packet[Any]]:
        """Yields the packets that are due."""
        while self._waiting and self._waiting[0][0] * self._tick <= seconds:
            yield self._next()

    def rest(self) -> Iterator[Packet[Any]]:
        """Yields the last packets."""
        while self._waiting:
            yield self._next()

    def _next(self) -> Packet[Any]:
        time, _, packet = heapq.heappop(self._waiting)
        self._size -= packet.size
        if self._last is not None and time < self._last:
            self.wrong += 1
            packet.pts = packet.dts = time = self._last
        self._last = time
        return packet


def _in_ticks(packet: Packet[Any], tick: Fraction) -> int:
    """Converts the times of a packet to ticks; returns how many ticks rounding may move them."""
    base = packet.time_base
    assert base is not None  # as every packet of a demuxer has one
    unit = base / tick
    if unit != 1:
        packet.pts, packet.dts = (
            None if time is None else round(time * unit) for time in (packet.pts, packet.dts)
        )
        packet.duration = min(round((packet.duration or 0) * unit), _LONGEST)
        packet.time_base = tick
    return -(-unit.numerator // unit.denominator) + 1


def _shift(packet: Packet[Any], ticks: int) -> None:
    assert packet.dts is not None
    packet.dts += ticks
    if packet.pts is not None:
        packet.pts += ticks


class FilledGaps:
    """A sound of plain samples (PCM) whose gaps are filled with silence. mov keeps such sound as
    one run of samples, without times."""

    def __init__(self, title: str, codec: str, channels: int, tick: Fraction) -> None:
        """`title` names the sound in messages, `codec` is FFmpeg's name of its samples, and `tick`
        a sample of the target in seconds."""
        bits = re.search(r"\d+", codec)
        self._title = title
        self._frame = (int(bits[0]) // 8 if bits else 1) * max(channels, 1)
        """Bytes of one sample of all channels, which lasts a tick."""
        self._silent = bytes([_SILENT.get(codec, 0)])
        self._tick = tick
        self._end: int | None = None
        """End of the samples so far, in ticks."""
        self._filled = 0

    def before(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """Yields the silence before a packet. Raises OutputError."""
        assert packet.dts is not None
        if self._end is None:
            self._end = packet.dts
        missing = packet.dts - self._end
        if missing * self._tick > _SHORTEST_SILENCE:
            self._filled += missing * self._frame
            if self._filled > _MOST_SILENCE:
                raise OutputError(
                    f"{self._title} has gaps of more than {_MOST_SILENCE >> 20} MiB of silence,"
                    " which a "
                    ".mov cannot skip",
                    "write an .mkv",
                )
            while missing > 0:
                length = min(missing, max(1, _PIECE // self._frame))
                silence: Packet[Any] = library().Packet(self._silent * (length * self._frame))
                silence.stream, silence.time_base = packet.stream, self._tick
                silence.pts = silence.dts = self._end
                silence.duration = length
                yield silence
                self._end += length
                missing -= length
        self._end += packet.size // self._frame
