"""Joins the parts of a film, and copies all its other streams beside them."""

from __future__ import annotations

import heapq
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from waifu2x.errors import ImageError, OutputError
from waifu2x.formats.film.codecs import ENCODERS, has_own_hdr
from waifu2x.formats.film.description import Film, OtherStream
from waifu2x.formats.film.encode import Encoded, Shape, opened_stream, rank_of
from waifu2x.formats.film.library import library
from waifu2x.formats.film.matroska import PictureFields, placeholder, set_fields
from waifu2x.formats.film.opening import MAX_SECONDS, in_short
from waifu2x.formats.film.packets import MAX_GAPS, Gap, Packets
from waifu2x.formats.film.subtitles import to_mov_text, to_subrip
from waifu2x.formats.film.targets import CONTAINERS, KeptStream, StreamPlan
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

_LIES = ("DURATION", "BPS", "NUMBER_OF_", "_STATISTICS_", "ENCODER")
"""Beginnings of tags that tell of the stream as it was."""
_OF_CONTAINERS = {
    "encoder", "major_brand", "minor_version", "compatible_brands", "handler_name", "vendor_id",
    "filename", "mimetype", "alpha_mode",
}  # fmt: skip
"""Tags that demuxers make of a container's own fields."""


@dataclass(frozen=True)
class Cut:
    """The stretch of a film that is wanted, in seconds."""

    start: Fraction = Fraction(0)
    end: Fraction | None = None


def tried(
    source: InputContainer,
    film: Film,
    shape: Shape,
    plan: StreamPlan,
    cover_of: Callable[[Stream], bytes],
) -> StreamPlan:
    """A plan as FFmpeg's muxer agrees with it: what it cannot take is among what is refused.

    `cover_of` reads a cover. Raises OutputError where it cannot take even the pictures.
    """
    plain = replace(plan, taken=())
    trouble = _trouble(source, film, shape, plain, cover_of)
    if trouble:
        raise OutputError(
            f".{plan.container} cannot hold pictures of {shape.encoding.codec}: {trouble}"
        )
    titles = {stream.index: stream.title for stream in film.others}
    if not _trouble(source, film, shape, plan, cover_of):
        return plan
    taken: list[KeptStream] = []
    refused = list(plan.refused)
    for one in plan.taken:
        if _trouble(source, film, shape, replace(plan, taken=(*taken, one)), cover_of):
            refused.append((one.index, titles[one.index]))
        else:
            taken.append(one)
    return replace(plan, taken=tuple(taken), refused=tuple(sorted(refused)))


def _trouble(
    source: InputContainer,
    film: Film,
    shape: Shape,
    plan: StreamPlan,
    cover_of: Callable[[Stream], bytes],
) -> str:
    """What is wrong with a plan; empty if nothing is."""
    av = library()
    out = open_target(io.BytesIO(), plan, faststart=False)
    try:
        begin_streams(out, source, film, shape, plan, None, Cut(), cover_of)
        out.start_encoding()
    except (av.FFmpegError, ValueError) as error:
        return in_short(error)
    finally:
        _let_go(out)
    return ""


def join(
    target: Path,
    source: InputContainer,
    film: Film,
    shape: Shape,
    plan: StreamPlan,
    parts: Sequence[tuple[Path, Encoded]],
    cut: Cut,
    on_packet: Callable[[], None] = lambda: None,
    complaints: int = 0,
) -> tuple[str, ...]:
    """Writes a film into a file: the pictures of its parts, and the other streams as they are.

    Returns what is missing in the others where the source is damaged, each a clause. `complaints`
    there were when the source was opened. Raises OutputError, ImageError for a part that is not as
    it was written.
    """
    av = library()
    extradata = _extradata(parts)
    out = open_target(f"file:{target}", plan, faststart=True)
    try:
        with out:
            video, others = begin_streams(
                out, source, film, shape, plan, extradata, cut, cover_from_file
            )
            out.start_encoding()
            packets = Packets(source, [source.streams[index] for index in others])
            copied = CopiedStreams(film, others, cut)
            pictures = _pictures(parts, video, shape, cut)
            for _, is_copied, packet in heapq.merge(
                copied.all_of(packets), pictures, key=lambda one: one[:2]
            ):
                on_packet()
                if is_copied:
                    copied.mux(out, packet)
                else:
                    out.mux(packet)
    except av.FFmpegError as error:
        raise OutputError(f"cannot write the film: {in_short(error)}") from error
    if needed_fields(film, shape, plan) is not None:
        with target.open("r+b") as file:
            write_fields(file, film, shape, plan)
    return copied.lost(packets.damaged + complaints)


def write_fields(file: IO[bytes], film: Film, shape: Shape, plan: StreamPlan) -> None:
    """Writes what Matroska is to be told of the pictures into its header. Raises OutputError."""
    fields = needed_fields(film, shape, plan)
    if fields is not None:
        set_fields(file, fields, (shape.height, shape.width), _title(film))


def needed_fields(film: Film, shape: Shape, plan: StreamPlan) -> PictureFields | None:
    """What Matroska is to be told of the pictures, if anything."""
    hdr = None if has_own_hdr(shape.encoding.codec) else film.pictures.hdr
    is_needed = shape.aspect is not None or hdr is not None
    if plan.container not in ("mkv", "webm") or not is_needed:
        return None
    return PictureFields(shape.aspect, hdr)


def _title(film: Film) -> str:
    return next((value for key, value in film.pictures.tags if key == "title"), "")


def open_target(
    target: IO[bytes] | io.RawIOBase | str, plan: StreamPlan, *, faststart: bool
) -> Any:
    """A container of FFmpeg's to write."""
    options = {"fflags": "+bitexact"}  # no numbers at random: a film made twice is the same
    if faststart and plan.container in ("mp4", "mov"):
        options["movflags"] = "+faststart"
    return library().open(target, "w", format=CONTAINERS[plan.container], container_options=options)


def _let_go(out: Any) -> None:
    with suppress(Exception):  # it was a trial
        out.close()


def _extradata(parts: Sequence[tuple[Path, Encoded]]) -> bytes | None:
    found: set[bytes | None] = set()
    for path, _ in parts:
        with library().open(f"file:{path}", "r", format="matroska") as part:
            found.add(part.streams.video[0].codec_context.extradata)
    if len(found) > 1:
        raise ImageError(
            f"{parts[0][0].parent}: its parts were not all encoded alike: use --restart"
        )
    return found.pop() if found else None


def begin_streams(
    out: Any,
    source: InputContainer,
    film: Film,
    shape: Shape,
    plan: StreamPlan,
    extradata: bytes | None,
    cut: Cut,
    cover_of: Callable[[Stream], bytes],
) -> tuple[Any, dict[int, tuple[Any, KeptStream]]]:
    """Adds all streams, tags and chapters: the pictures, and the others by their numbers."""
    pictures = film.pictures
    video = opened_stream(out, ENCODERS[shape.encoding.codec].library, shape)
    video.time_base = shape.tick
    if extradata is not None:
        video.codec_context.extradata = extradata
    if shape.encoding.codec in ("x265", "hevc_nvenc") and plan.container in ("mp4", "mov"):
        video.codec_context.codec_tag = "hvc1"  # or Apple's players show nothing
    if pictures.matrix is not None:
        video.set_display_matrix(pictures.matrix)
    video.disposition = pictures.disposition
    video.metadata.update(_kept(pictures.tags))
    if needed_fields(film, shape, plan) is not None:
        video.metadata["title"] = placeholder(_title(film))
    if shape.encoding.pixels.planes == 4 and shape.encoding.codec == "vp9":
        video.metadata["alpha_mode"] = "1"
    described = {stream.index: stream for stream in film.others}
    others: dict[int, tuple[Any, KeptStream]] = {}
    for taken in plan.taken:
        stream = source.streams[taken.index]
        added = _added(out, stream, taken, described[taken.index], cover_of)
        if added is not None:
            others[taken.index] = (added, taken)
    out.metadata.update(_kept(film.tags))
    lead = _lead(film, plan, [source.streams[index] for index in others])
    chapters = _chapters(source, film, cut, lead)
    if chapters:
        out.set_chapters(chapters)
    return video, others


def _added(
    out: Any,
    stream: Any,
    taken: KeptStream,
    told: OtherStream,
    cover_of: Callable[[Stream], bytes],
) -> Any:
    """The stream of the target; None for an attachment, which is written with the header."""
    if taken.handling == "attachment":
        data = cover_of(stream)
        tags = dict(told.tags)
        is_png = told.codec == "png"
        out.add_attachment(
            tags.get("filename", "cover.png" if is_png else "cover.jpg"),
            tags.get("mimetype", "image/png" if is_png else "image/jpeg"),
            data,
        )
        return None
    if taken.handling == "copy":
        added = out.add_stream_from_template(stream)
    else:
        added = out.add_mux_stream(taken.handling)
        added.time_base = Fraction(1, 1000)
    if told.kind == "attachment":
        return None
    added.metadata.clear()
    added.metadata.update(_kept(told.tags, keep_own=taken.handling == "copy"))
    added.disposition = told.disposition
    return added


def cover_from_file(stream: Any) -> bytes:
    """The picture of a cover, of a film that can be sought in and stands at its beginning."""
    packets = stream.container.demux(stream)
    data = next((bytes(packet) for packet in packets if packet.size), b"")
    stream.container.seek(0)
    return data


def _kept(tags: Sequence[tuple[str, str]], *, keep_own: bool = False) -> dict[str, str]:
    return {
        key: value
        for key, value in tags
        if key.lower() not in _OF_CONTAINERS
        and ((keep_own and key != "DURATION") or not key.upper().startswith(_LIES))
    }


def _lead(film: Film, plan: StreamPlan, streams: Sequence[Any]) -> Fraction:
    """Seconds by which Matroska's muxer moves all streams, since none may begin before 0: sound
    does, by what its decoder drops. It does not move chapters."""
    if film.shift or plan.container not in ("mkv", "webm"):
        return Fraction(0)
    begins: list[Fraction] = [
        one.start_time * one.time_base for one in streams if one.start_time is not None
    ]
    return max([Fraction(0), *(-begin for begin in begins)])


def _chapters(source: InputContainer, film: Film, cut: Cut, lead: Fraction) -> list[Any]:
    shift = Fraction(film.shift, 1_000_000) + cut.start - lead
    found = []
    for chapter in source.chapters():
        base = chapter["time_base"]
        assert base is not None
        start, end = (round(chapter[side] - shift / base) for side in ("start", "end"))
        if cut.end is not None:
            end = min(end, round((cut.end - cut.start) / base))
        start = max(start, 0)
        if end > start:
            found.append({**chapter, "start": start, "end": end})
    return found


_UNHEARD = Fraction(1, 100)
"""Seconds of silence that are within the rounding of times."""
Timed = tuple[float, int, Any]
"""A packet of the target, after its time in seconds and the order of those of one time."""


class CopiedStreams:
    """What becomes of the packets of streams that are copied."""

    def __init__(self, film: Film, others: dict[int, tuple[Any, KeptStream]], cut: Cut) -> None:
        self._film = film
        self._others = others
        self._shift = Fraction(film.shift, 1_000_000) + cut.start
        self._cut = cut
        self._due: dict[int, Fraction] = {}
        """Seconds at which the next packet of each sound is due."""
        self._gaps: list[tuple[int, Gap]] = []
        self._least: dict[int, int] = {}
        """The earliest tick at which the next packet of each stream may be decoded."""
        self._wrong: Counter[int] = Counter()
        """Packets of each stream whose times go back, or are no times."""
        self._spoilt: Counter[int] = Counter()
        """Packets of each stream that the target refused."""
        self._now = float("-inf")
        """Seconds of the latest packet so far."""

    def all_of(self, packets: Iterable[Packet[Any]]) -> Iterator[Timed]:
        """The packets of the target for packets of the source, in their order."""
        if not self._others:
            return
        for packet in packets:
            made = self.packet(packet)
            if made is not None:
                yield self._now, 1, made

    def packet(self, packet: Packet[Any]) -> Packet[Any] | None:
        """The packet of the target for one of the source; None for what is left out."""
        if packet.stream_index not in self._others:
            return None
        stream, taken = self._others[packet.stream_index]
        cut, shift = self._cut, self._shift
        base = packet.time_base
        assert base is not None  # as every packet of a demuxer has one
        pts = packet.pts if packet.pts is not None else packet.dts
        if pts is not None:  # else it is a cover
            ticks = round(shift / base)
            if cut.start and pts < ticks:
                shown = pts + (packet.duration or 0) - ticks
                if packet.stream.type != "subtitle" or shown <= 0:
                    return None
                # It is on the screen when the stretch begins.
                packet.pts = packet.dts = pts = ticks
                packet.duration = shown
            if cut.end is not None:
                last = round((cut.end - cut.start + shift) / base)
                if pts >= last:
                    return None
                if packet.stream.type == "subtitle":
                    packet.duration = min(packet.duration or 0, last - pts)
            packet.pts = None if packet.pts is None else packet.pts - ticks
            packet.dts = None if packet.dts is None else packet.dts - ticks
            decoded = self._in_order(packet, pts - ticks)
            if decoded is None:
                return None
            self._now = max(self._now, float(decoded * base))
            self._watch(packet, (pts - ticks) * base)
        made: Packet[Any] | None = packet if taken.handling == "copy" else _converted(packet, taken)
        if made is not None:
            made.stream = stream
        return made

    def mux(self, out: Any, made: Packet[Any]) -> None:
        """Gives a packet to the target, but for a damaged one that it cannot take."""
        target = made.stream
        try:
            out.mux(made)
        except library().error.InvalidDataError:
            for index, (stream, _) in self._others.items():
                self._spoilt[index] += stream is target

    def _in_order(self, packet: Packet[Any], pts: int) -> int | None:
        """When a packet is decoded, in ticks, not before the one before it: containers take no
        other. None for a time that no film has."""
        assert packet.time_base is not None
        if abs(pts * packet.time_base) > MAX_SECONDS:
            self._wrong[packet.stream_index] += 1
            return None
        decoded = packet.dts if packet.dts is not None else pts
        least = self._least.get(packet.stream_index, decoded)
        if decoded < least:
            self._wrong[packet.stream_index] += 1
            packet.dts = packet.pts = decoded = least
        is_strict = packet.stream.type not in ("subtitle", "data")
        self._least[packet.stream_index] = decoded + is_strict
        return decoded

    def _watch(self, packet: Packet[Any], start: Fraction) -> None:
        """Notes a stretch without sound before this packet that is longer than the packet."""
        if packet.stream.type != "audio" or packet.time_base is None:
            return
        length = (packet.duration or 0) * packet.time_base
        due = self._due.pop(packet.stream_index, None)
        if not length:
            return  # who knows when the next one is due
        if due is not None and start - due > max(length, _UNHEARD) and len(self._gaps) < MAX_GAPS:
            self._gaps.append((packet.stream_index, Gap(due, start - due)))
        self._due[packet.stream_index] = start + length

    def lost(self, complaints: int) -> tuple[str, ...]:
        """What is wrong with times, and what is missing in sounds if there were complaints: else
        it is meant so."""
        titles = {stream.index: stream.title for stream in self._film.others}
        wrong = [
            f"{titles[index]} has {count} packet{'s' * (count > 1)} out of time"
            for index, count in self._wrong.items()
        ]
        wrong += [
            f"{titles[index]} lost {count} packet{'s' * (count > 1)}, which cannot be written"
            for index, count in self._spoilt.items()
            if count
        ]
        gaps = [
            f"{titles[index]} has nothing from {float(gap.start):.2f} to "
            f"{float(gap.start + gap.length):.2f} s"
            for index, gap in self._gaps
            if complaints
        ]
        return (*wrong, *gaps)


def _converted(packet: Packet[Any], taken: KeptStream) -> Packet[Any] | None:
    text = bytes(packet)
    codec = packet.stream.codec_context.name
    made = to_subrip(text) if taken.handling == "subrip" else to_mov_text(text, codec)
    if not made:
        return None
    new: Packet[Any] = library().Packet(made)
    new.pts = new.dts = packet.pts
    new.duration, new.time_base = packet.duration, packet.time_base
    return new


def _pictures(
    parts: Sequence[tuple[Path, Encoded]], video: Any, shape: Shape, cut: Cut
) -> Iterator[Timed]:
    """The packets of all parts, with their own times: a decoder's times are those of the film's
    pictures in their order, as much earlier as any picture is coded later than it is shown."""
    av = library()
    offset = -(-cut.start // shape.tick)
    times = [pts - offset for _, one in parts for pts in one.pts]
    durations = [length for _, one in parts for length in one.durations]
    depth = max((one.depth for _, one in parts), default=0)
    step = times[1] - times[0] if len(times) > 1 else 1
    earlier = [times[0] - step * (depth - number) for number in range(depth)] if times else []
    decoded = [*earlier, *times]
    begun = 0
    for path, told in parts:
        left = set(range(len(told.pts)))
        damaged = ImageError(f"{path}: is not as it was written: use --restart")
        with av.open(f"file:{path}", "r", format="matroska") as part:
            packets = (one for one in part.demux(part.streams.video[0]) if one.size)
            for number, packet in enumerate(packets):
                rank = rank_of(packet.pts)
                if rank not in left:
                    raise damaged
                left.remove(rank)
                place = begun + rank
                packet.stream = video
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
