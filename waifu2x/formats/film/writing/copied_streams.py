"""Copies streams of a film packet by packet; converts subtitles for other containers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from waifu2x.errors import Sentence
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.opening import MAX_SECONDS
from waifu2x.formats.film.writing.header import BegunStreams, FilmPlan
from waifu2x.formats.film.writing.packet_times import FilledGaps, FollowingTimes, SortedTimes
from waifu2x.formats.film.writing.targets import KeptStream

if TYPE_CHECKING:
    from av.packet import Packet

Timed = tuple[float, int, Any]
"""Seconds and rank of a packet of the target, and the packet."""
_MARKS = re.compile(r"</?(?:i|b|u|s|font)\b[^<>]*>", re.IGNORECASE)
_OVERRIDES = re.compile(r"\{\\[^{}]*\}")
_BLOCKS = re.compile(r"\{([^}]*)\}")
"""ASS's tags of style and remarks, which are not shown."""
_DRAWING = re.compile(r"\\p(-?\d+)")
"""The tag before text (0) or before shapes to draw."""
_MOST_TEXT = 0xFFFF
"""Bytes of a text of mov_text."""


class CopiedStreams:
    """Converts the packets of copied streams for the target."""

    def __init__(self, plan: FilmPlan, begun: BegunStreams) -> None:
        """Begins after the header of the target was written, which decides its ticks."""
        self._others = begun.others
        self._cut = plan.cut
        self._shift = Fraction(plan.film.shift, 1_000_000) + plan.cut.start
        self._sources = {stream.index: index for index, (stream, _) in self._others.items()}
        """Indices in the source of the streams of the target."""
        described = {stream.index: stream for stream in plan.film.others}
        self._titles = {index: described[index].title for index in self._others}
        self._times: dict[int, FollowingTimes | SortedTimes] = {}
        self._filled: dict[int, FilledGaps] = {}
        """Sounds whose gaps the target cannot keep."""
        for index, (stream, taken) in self._others.items():
            told = described[index]
            if told.kind == "subtitle":
                self._times[index] = SortedTimes(stream.time_base)
            elif not told.is_cover:
                if plan.streams.container == "mov" and told.codec.startswith("pcm_"):
                    channels = stream.codec_context.layout.nb_channels
                    codec = stream.codec_context.name if taken.handling == "pcm" else told.codec
                    title = f"{plan.name}: {told.title}"
                    self._filled[index] = FilledGaps(title, codec, channels, stream.time_base)
                self._times[index] = FollowingTimes(
                    stream.time_base,
                    is_sound=told.kind == "audio",
                    may_repeat=plan.streams.container in ("mkv", "webm"),
                )
        self._absurd: Counter[int] = Counter()
        self._spoilt: Counter[int] = Counter()
        self.muxed: Counter[int] = Counter()
        """Packets of each stream that were written."""
        self._now = float("-inf")

    @property
    def indices(self) -> list[int]:
        """Returns the indices of the streams in the source."""
        return list(self._others)

    def all_of(self, packets: Iterable[Packet[Any]]) -> Iterator[Timed]:
        """Yields the packets of the target for all packets of the source, in order."""
        for packet in packets:
            for made in self.packets(packet):
                yield self._now, 1, made
        for made in self.rest():
            yield self._now, 1, made

    def packets(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """Yields the packets of the target that one packet of the source completes."""
        index = packet.stream_index
        if index not in self._others or not self._is_wanted(packet):
            return
        stream, taken = self._others[index]
        if taken.handling == "copy":
            found = [packet]
        elif taken.handling == "pcm":
            found = self._repacked(packet, stream)
        else:
            found = _converted(packet, taken)
        times = self._times.get(index)
        for made in found:
            made.stream = stream
            if times is None:  # a cover
                yield made
                continue
            for one in times.add(made):
                if isinstance(times, FollowingTimes) and one.dts is not None:
                    yield from self.until(float(one.dts * stream.time_base))
                    if index in self._filled:
                        yield from self._filled[index].before(one)
                yield one

    def _repacked(self, packet: Packet[Any], stream: Any) -> list[Packet[Any]]:
        """Returns the samples of a packet of PCM in the order of bytes of the target."""
        try:
            frames = packet.stream.codec_context.decode(packet)
            return [made for frame in frames for made in stream.encode(frame)]
        except library().error.InvalidDataError:
            self._spoilt[packet.stream_index] += 1
            return []

    def until(self, seconds: float) -> Iterator[Packet[Any]]:
        """Yields the subtitles that are due at a time of the film."""
        self._now = max(self._now, seconds)
        for times in self._times.values():
            if isinstance(times, SortedTimes):
                yield from times.until(self._now)

    def rest(self) -> Iterator[Packet[Any]]:
        """Yields the last packets, after the end of the source."""
        for index, times in self._times.items():
            for one in times.rest():
                if index in self._filled:
                    yield from self._filled[index].before(one)
                yield one

    def mux(self, out: Any, made: Packet[Any]) -> None:
        """Writes a packet into the target; counts a damaged one that it refuses."""
        index = self._sources[made.stream_index]
        errors = library().error
        try:
            out.mux(made)
            self.muxed[index] += 1
        except (errors.InvalidDataError, errors.ArgumentError):
            self._spoilt[index] += 1

    def _is_wanted(self, packet: Packet[Any]) -> bool:
        """Returns whether a packet lies in the cut; moves its times to the beginning of the cut."""
        base, cut, shift = packet.time_base, self._cut, self._shift
        assert base is not None  # as every packet of a demuxer has one
        pts = packet.pts if packet.pts is not None else packet.dts
        if pts is None:  # a cover, or what follows the packet before
            return True
        is_text = packet.stream.type == "subtitle"
        ticks = round(shift / base)
        if cut.start and pts < ticks:
            shown = pts + (packet.duration or 0) - ticks
            if not is_text or shown <= 0:
                return False
            # It is on the screen when the stretch begins.
            packet.pts = packet.dts = pts = ticks
            packet.duration = shown
        if cut.end is not None:
            last = round((cut.end - cut.start + shift) / base)
            if pts >= last:
                return False
            if is_text:
                packet.duration = min(packet.duration or 0, last - pts)
        if abs((pts - ticks) * base) > MAX_SECONDS:
            self._absurd[packet.stream_index] += 1
            return False
        packet.pts = None if packet.pts is None else packet.pts - ticks
        packet.dts = None if packet.dts is None else packet.dts - ticks
        return True

    def lost(self, complaints: int, late: int) -> tuple[str, ...]:
        """Returns a clause for each packet out of time, each gap in a damaged film, and `late`
        streams that began in its middle. `complaints` counts the faults of the film."""
        wrong = {index: times.wrong + self._absurd[index] for index, times in self._times.items()}
        found = [
            f"{count} packet{'s' * (count > 1)} of {self._titles[index]}"
            f" {'have' if count > 1 else 'has'} a wrong time"
            for index, count in wrong.items()
            if count
        ]
        found += [
            f"{count} packet{'s' * (count > 1)} of {self._titles[index]} cannot be written"
            for index, count in self._spoilt.items()
            if count
        ]
        found += [
            f"{self._titles[index]} has nothing from {float(gap.start):.2f} to "
            f"{float(gap.start + gap.length):.2f} s"
            for index, times in self._times.items()
            for gap in times.gaps
            if complaints
        ]
        if late:
            told = "1 stream that begins" if late == 1 else f"{late} streams that begin"
            found.append(
                Sentence(
                    f"{told} in its middle {'is' if late == 1 else 'are'} left out",
                    f"to keep {'it' if late == 1 else 'them'}, give the film that"
                    " `ffmpeg -analyzeduration 10G -probesize 10G -i FILM -map 0 -c copy OUT.mkv`"
                    " makes",
                )
            )
        return tuple(found)


def _converted(packet: Packet[Any], taken: KeptStream) -> list[Packet[Any]]:
    """Returns the packet of the target with the text of a subtitle; none for one without text."""
    text = bytes(packet)
    codec = packet.stream.codec_context.name
    made = to_subrip(text) if taken.handling == "subrip" else to_mov_text(text, codec)
    if not made:
        return []
    new: Packet[Any] = library().Packet(made)
    new.pts = new.dts = packet.pts
    new.duration, new.time_base = packet.duration, packet.time_base
    return [new]


def to_mov_text(data: bytes, codec: str) -> bytes:
    """Returns a packet of mov_text with the text of one of SRT or ASS, without styles and drawings;
    empty if there is no text."""
    text = data.decode("utf-8", "replace")
    if codec in ("ass", "ssa"):
        # The text is the ninth field, and may hold commas itself.
        fields = text.split(",", 8)
        text = _spoken(fields[8] if len(fields) == 9 else "")
        text = text.replace(r"\N", "\n").replace(r"\n", "\n").replace(r"\h", "\u00a0")
    else:
        text = _MARKS.sub("", _OVERRIDES.sub("", text))
    coded = text.strip().replace("\r\n", "\n").encode()
    if not coded:
        return b""
    while len(coded) > _MOST_TEXT:
        coded = coded[:_MOST_TEXT].decode("utf-8", "ignore").encode()
    return len(coded).to_bytes(2) + coded


def _spoken(line: str) -> str:
    found, is_text = [], True
    for number, piece in enumerate(_BLOCKS.split(line)):
        if number % 2:  # a block
            modes = _DRAWING.findall(piece)
            is_text = int(modes[-1]) <= 0 if modes else is_text
        elif is_text:
            found.append(piece)
    return "".join(found)


def to_subrip(data: bytes) -> bytes:
    """Returns a packet of SRT with the text of one of mov_text; empty for one that fills a gap."""
    size = int.from_bytes(data[:2])
    coded = data[2 : 2 + size]
    if coded[:2] in (b"\xfe\xff", b"\xff\xfe"):
        return coded.decode("utf-16", "replace").strip().encode()
    return coded.decode("utf-8", "replace").strip().encode()
