"""Joins the parts of a film, and copies all its other streams beside them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.errors import ImageError, OutputError
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.reading.packets import Packets, may_grow
from waifu2x.formats.film.writing.copied_streams import Timed
from waifu2x.formats.film.writing.encode import Encoded, decode_times, rank_of
from waifu2x.formats.film.writing.film_writer import FilmWriter
from waifu2x.formats.film.writing.header import (
    FilmPlan,
    PictureTemplate,
    cover_from_file,
    opened_part,
)
from waifu2x.formats.film.writing.mp4 import CountedPackets, expected_packets
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.container import InputContainer

Parts = Sequence[tuple[Path, Encoded]]
"""Files and times of the parts of a film, in order."""


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
        try:
            try:
                return self._written(expected)
            except _LargerIndexError as error:  # the source has more packets than it said
                self.source.seek(0)
                return self._written(error.counted)
        except library().FFmpegError as error:
            raise OutputError(f"cannot write the film: {in_short(error)}") from error
        except OSError as error:
            raise OutputError(f"cannot write the film: {reason(error)}") from error

    def _written(self, expected: CountedPackets | None) -> tuple[str, ...]:
        plan, source = self.plan, self.source
        room = None if expected is None else expected.room(plan)
        template = PictureTemplate(self.parts[0][0])
        writer = FilmWriter(self.target, source, plan, template, cover_from_file, room)
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
        self.on_close(self.target.stat().st_size)
        try:
            writer.close()
        except library().error.ArgumentError as error:
            counted = None if expected is None else expected.counted(copied.muxed)
            if counted is None or counted.room(plan) <= (room or 0):
                raise
            raise _LargerIndexError(counted) from error
        complaints = self.complaints + packets.damaged + len(packets.incomplete)
        return copied.lost(complaints, packets.late_streams())


class _LargerIndexError(Exception):
    """The index is larger than the room for it."""

    def __init__(self, counted: CountedPackets) -> None:
        super().__init__()
        self.counted = counted


def _pictures(parts: Parts, plan: FilmPlan) -> Iterator[Timed]:
    shape = plan.shape
    offset = -(-plan.cut.start // shape.tick)
    times = [pts - offset for _, one in parts for pts in one.pts]
    durations = [length for _, one in parts for length in one.durations]
    decoded = decode_times(times, max(one.depth for _, one in parts))
    begun = 0
    first: bytes | None = None
    for path, told in parts:
        left = set(range(len(told.pts)))
        damaged = ImageError(f"{path}: is not as it was written: use --restart")
        with opened_part(path) as part:
            extradata = part.streams.video[0].codec_context.extradata
            first = first if begun else extradata
            if extradata != first:
                raise ImageError(
                    f"{path.parent}: its parts were not all encoded alike: use --restart"
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
                packet.duration = (
                    durations[place] or following or round(1 / shape.rate / shape.tick)
                )
                yield float(packet.dts * shape.tick), 0, packet
        if left:
            raise damaged
        begun += len(told.pts)
