"""Writes a film: its header at once, then coded pictures and copied packets as they come. They come
one by one from a film that is being made, or from the parts of a film."""

from __future__ import annotations

import heapq
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waifu2x.errors import ImageError, OutputError
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.pipes import HeldOutput
from waifu2x.formats.film.reading.packets import Packets, may_grow
from waifu2x.formats.film.writing.copied_streams import CopiedStreams, Timed
from waifu2x.formats.film.writing.encode import (
    Encoded,
    PictureTemplate,
    decode_times,
    opened_part,
    rank_of,
)
from waifu2x.formats.film.writing.header import (
    BegunStreams,
    CoverOf,
    FilmPlan,
    begin_streams,
    cover_from_file,
    open_target,
    write_fields,
)
from waifu2x.formats.film.writing.mp4 import CountedPackets, expected_packets, turn_off
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from av.container import InputContainer
    from av.packet import Packet

Parts = Sequence[tuple[Path, Encoded]]
"""Files and times of the parts of a film, in order."""
_DEFAULT = 1
"""FFmpeg's disposition of a stream that players choose by themselves."""
_RATES = (
    96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350,
)  # fmt: skip
_PROFILES = {"Main": 1, "LC": 2, "SSR": 3, "LTP": 4}
"""Audio object types of ISO/IEC 14496-3."""
_EXTENDED = ("HE-AAC", "HE-AACv2")
"""AAC LC at half the rate, with data to restore high frequencies, and in the second a second
channel."""
_CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 8: 7}


class FilmWriter:
    """A film that is being written into a file or pipe. All methods raise OutputError, or
    BrokenPipeError where the reader is gone."""

    def __init__(
        self,
        target: Path | io.RawIOBase,
        source: InputContainer,
        plan: FilmPlan,
        template: PictureTemplate,
        cover_of: CoverOf,
        expected: CountedPackets | None = None,
    ) -> None:
        """Writes the header. Before the packets of mp4 and mov, room is left for the index of
        those that are expected; with None, the file is rewritten for it at the end."""
        self._target, self._plan = target, plan
        self._expected = expected
        self._room = None if expected is None else expected.room(plan)
        held = None if isinstance(target, Path) else HeldOutput(target)
        with self._sentences():
            self._out: Any = open_target(
                held or f"file:{target}", plan.streams.container, self._room
            )
            begun = begin_streams(self._out, source, plan, template, cover_of)
            if held is not None:
                _describe_aac(source, begun)
            self._out.start_encoding()
            if held is not None:
                with held.released() as header:
                    write_fields(header, plan)
        texts = [one for one, _ in begun.others.values() if one.type == "subtitle"]
        self._off = [one.index + 1 for one in texts if not one.disposition & _DEFAULT]
        """Tracks that players show only on request."""
        self._pictures = begun.pictures
        self.copied = CopiedStreams(plan, begun)

    def add_picture(self, packet: Packet[Any]) -> None:
        """Writes a coded picture, with times in ticks of the film, and the subtitles that are due
        by then."""
        assert packet.pts is not None
        assert packet.dts is not None
        packet.pts -= self._plan.begin
        packet.dts -= self._plan.begin
        due = float(packet.dts * self._plan.shape.tick)
        packet.stream = self._pictures
        with self._sentences():
            self._out.mux(packet)
        self._copy(self.copied.until(due))

    def copy(self, packet: Packet[Any]) -> None:
        """Writes a packet of another stream of the source, once it can be."""
        self._copy(self.copied.packets(packet))

    def add_copied(self, made: Packet[Any]) -> None:
        """Writes a packet from `copied`."""
        with self._sentences():
            self.copied.mux(self._out, made)

    @property
    def size(self) -> int:
        """Returns the bytes of the file so far; 0 for a pipe."""
        return self._target.stat().st_size if isinstance(self._target, Path) else 0

    def close(self, complaints: int, late: int) -> tuple[str, ...]:
        """Completes the film. Returns and takes what `CopiedStreams.lost` does. Raises
        LargerIndexError where the room for the index is too small."""
        self._copy(self.copied.rest())
        with self._sentences():
            try:
                self._out.close()
            except library().error.ArgumentError as error:
                if self._expected is None:
                    raise
                counted = self._expected.counted(self.copied.muxed)
                if counted.room(self._plan) <= (self._room or 0):
                    raise
                raise LargerIndexError(counted) from error
            if isinstance(self._target, Path):
                with self._target.open("r+b") as file:
                    write_fields(file, self._plan)
                    if self._plan.streams.container in ("mp4", "mov"):
                        turn_off(file, self._off)
        return self.copied.lost(complaints, late)

    def _copy(self, packets: Iterator[Packet[Any]]) -> None:
        with self._sentences():
            for made in packets:
                self.copied.mux(self._out, made)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        name = self._plan.name
        try:
            yield
        except BrokenPipeError:
            raise
        except library().FFmpegError as error:
            raise OutputError(f"{name}: cannot write: {in_short(error)}") from error
        except OSError as error:
            raise OutputError(f"{name}: cannot write: {reason(error)}") from error


class LargerIndexError(Exception):
    """The index of an mp4 or mov is larger than the room for it."""

    def __init__(self, counted: CountedPackets) -> None:
        super().__init__()
        self.counted = counted


@dataclass(frozen=True)
class FilmJoin:
    """The parts of a film, and the source whose other streams go beside them."""

    target: Path
    source: InputContainer
    plan: FilmPlan
    parts: Parts
    complaints: int = 0
    """Faults that showed when the source was opened."""
    on_packet: Callable[[], None] = lambda: None
    on_close: Callable[[int], None] = lambda size: None
    """Called with the bytes of the file before it is completed, which may take long."""

    def write(self) -> tuple[str, ...]:
        """Writes the film; returns a clause for each loss in the streams of a damaged source.
        Raises OutputError, and ImageError for a part that is not as it was written."""
        expected: CountedPackets | None = None
        if self.plan.streams.container in ("mp4", "mov"):
            times = [one for _, one in self.parts]
            expected = expected_packets(self.source, self.plan, times)
        while True:
            try:
                return self._written(expected)
            except LargerIndexError as error:  # the source has more packets than it said
                expected = error.counted
                self.source.seek(0)

    def _written(self, expected: CountedPackets | None) -> tuple[str, ...]:
        plan, source = self.plan, self.source
        template = PictureTemplate(self.parts[0][0])
        writer = FilmWriter(self.target, source, plan, template, cover_from_file, expected)
        copied = writer.copied
        packets = Packets(source, [source.streams[index] for index in copied.indices])
        others = packets if copied.indices or may_grow(source) else ()
        pictures = _pictures(self.parts, plan)
        for _, is_copied, packet in heapq.merge(
            copied.all_of(others), pictures, key=lambda one: one[:2]
        ):
            self.on_packet()
            if is_copied:
                writer.add_copied(packet)
            else:
                writer.add_picture(packet)
        self.on_close(writer.size)
        complaints = self.complaints + packets.damaged + len(packets.incomplete)
        return writer.close(complaints, packets.late_streams())


def _pictures(parts: Parts, plan: FilmPlan) -> Iterator[Timed]:
    shape = plan.shape
    times = [pts for _, one in parts for pts in one.pts]
    durations = [length for _, one in parts for length in one.durations]
    decoded = decode_times(times, max(one.depth for _, one in parts))
    begun = 0
    first: bytes | None = None
    for path, told in parts:
        left = set(range(len(told.pts)))
        damaged = ImageError(f"{path}: it is not as it was written", "use --restart")
        with _read(path, damaged) as part:
            extradata = part.streams.video[0].codec_context.extradata
            first = first if begun else extradata
            if extradata != first:
                raise ImageError(
                    f"{path.parent}: its parts were not all encoded alike", "use --restart"
                )
            packets = (one for one in part.demux(part.streams.video[0]) if one.size)
            for number, packet in enumerate(packets):
                rank = rank_of(packet.pts)
                if rank not in left:
                    raise damaged
                left.remove(rank)
                place = begun + rank
                packet.time_base = shape.tick
                packet.pts, packet.dts = times[place], decoded[begun + number]
                following = times[place + 1] - times[place] if place + 1 < len(times) else 0
                packet.duration = durations[place] or following or shape.usual_duration
                yield float((packet.dts - plan.begin) * shape.tick), 0, packet
        if left:
            raise damaged
        begun += len(told.pts)


@contextmanager
def _read(path: Path, damaged: ImageError) -> Iterator[Any]:
    try:
        with opened_part(path) as part:
            yield part
    except library().FFmpegError as error:
        raise damaged from error


def _describe_aac(source: InputContainer, begun: BegunStreams) -> None:
    for index, (stream, taken) in begun.others.items():
        context: Any = source.streams[index].codec_context
        is_aac = taken.handling == "copy" and context is not None and context.name == "aac"
        if is_aac and not context.extradata:
            stream.codec_context.extradata = audio_config(context)


def audio_config(context: AudioCodecContext) -> bytes | None:
    """Returns the AudioSpecificConfig for AAC packets that describe themselves; None if unknown.
    Sound of MPEG-TS is like that. FFmpeg adds it to Matroska when it finds it, which a pipe does
    not allow."""
    rate, count = context.sample_rate, context.layout.nb_channels
    profile = context.profile or ""
    if profile in _EXTENDED:
        rate //= 2
        count = 1 if profile == "HE-AACv2" else count
    kind = 2 if profile in _EXTENDED else _PROFILES.get(profile)
    channels = _CHANNELS.get(count)
    if kind is None or rate not in _RATES or channels is None:
        return None
    return (kind << 11 | _RATES.index(rate) << 7 | channels << 3).to_bytes(2)
