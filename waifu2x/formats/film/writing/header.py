"""Writes the header of a film: its streams, attachments, tags and chapters."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from waifu2x.errors import OutputError
from waifu2x.formats.film.description import Cut, Film, OtherStream, becomes_sdr
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.reading.opening import DECODERS
from waifu2x.formats.film.writing.codecs import has_own_hdr
from waifu2x.formats.film.writing.encode import PictureTemplate, Shape, opened_part
from waifu2x.formats.film.writing.matroska import PictureFields, placeholder, set_fields
from waifu2x.formats.film.writing.targets import CONTAINERS, KeptStream, StreamPlan

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.stream import Stream

_LIES = ("DURATION", "BPS", "NUMBER_OF_", "_STATISTICS_", "ENCODER")
"""Beginnings of tags that describe the stream as it was."""
_OF_CONTAINERS = {
    "encoder", "major_brand", "minor_version", "compatible_brands", "handler_name", "vendor_id",
    "filename", "mimetype", "alpha_mode",
}  # fmt: skip
"""Tags that demuxers make of fields of a container."""
CoverOf = Callable[["Stream"], bytes]


class FilmPlan(NamedTuple):
    """All decisions about a film to write."""

    film: Film
    shape: Shape
    streams: StreamPlan
    cut: Cut = Cut()
    name: str = ""
    """The name of the target in messages."""

    @property
    def begin(self) -> int:
        """Returns the first tick of the cut, which is the target's beginning."""
        return -(-self.cut.start // self.shape.tick)


class BegunStreams(NamedTuple):
    """The streams of a film that is written."""

    pictures: Any
    others: dict[int, tuple[Any, KeptStream]]
    """Streams with packets, by their index in the source."""


def open_target(
    target: IO[bytes] | io.RawIOBase | str, container: str, room: int | None = None
) -> Any:
    """Opens a container to write. `container` is its extension. `room` bytes are left before the
    packets of mp4 and mov for their index; with None, a named file is rewritten for it at the end.
    """
    options = {"fflags": "+bitexact"}  # no random numbers: a film made twice is the same
    if room is not None:
        options["moov_size"] = str(room)
    elif isinstance(target, str) and container in ("mp4", "mov"):
        options["movflags"] = "+faststart"
    return library().open(target, "w", format=CONTAINERS[container], container_options=options)


def begin_streams(
    out: Any, source: InputContainer, plan: FilmPlan, template: PictureTemplate, cover_of: CoverOf
) -> BegunStreams:
    """Adds all streams, tags and chapters."""
    film, container = plan.film, plan.streams.container
    video = add_pictures(out, container, plan.shape, template)
    pictures = film.pictures
    if pictures.matrix is not None:
        video.set_display_matrix(pictures.matrix)
    video.disposition = pictures.disposition
    video.metadata.update(_kept(pictures.tags))
    if needed_fields(plan) is not None:
        video.metadata["title"] = placeholder(_title(film))
    encoding = plan.shape.encoding
    if encoding.pixels.planes == 4 and encoding.codec == "vp9":
        video.metadata["alpha_mode"] = "1"
    described = {stream.index: stream for stream in film.others}
    others: dict[int, tuple[Any, KeptStream]] = {}
    for taken in plan.streams.taken:
        stream = source.streams[taken.index]
        told = described[taken.index]
        if taken.handling == "attachment":
            attach(out, told, cover_of(stream))
            continue
        added = _added(out, stream, taken, told)
        if told.kind != "attachment":  # which is in the header, and keeps all its tags
            others[taken.index] = (added, taken)
    out.metadata.update(_kept(film.tags))
    lead = _lead(plan, [source.streams[index] for index in others])
    chapters = _chapters(source, plan, lead)
    if chapters:
        out.set_chapters(chapters)
    return BegunStreams(video, others)


def _added(out: Any, stream: Any, taken: KeptStream, told: OtherStream) -> Any:
    if taken.handling == "copy":
        added = out.add_stream_from_template(stream)
    elif taken.handling == "pcm":
        own = stream.codec_context
        added = out.add_stream(packed_pcm(own), rate=own.sample_rate, layout=own.layout)
    else:
        added = out.add_mux_stream(taken.handling)
        added.time_base = Fraction(1, 1000)
    if told.kind != "attachment":
        added.metadata.clear()
        added.metadata.update(_kept(told.tags, keep_own=taken.handling == "copy"))
        added.disposition = told.disposition
    return added


def _kept(tags: Sequence[tuple[str, str]], *, keep_own: bool = False) -> dict[str, str]:
    return {
        key: value
        for key, value in tags
        if key.lower() not in _OF_CONTAINERS
        and ((keep_own and key != "DURATION") or not key.upper().startswith(_LIES))
    }


def _lead(plan: FilmPlan, streams: Sequence[Any]) -> Fraction:
    """Returns the seconds by which Matroska's muxer moves all streams but not the chapters: no
    stream may begin before 0, and sound does, by what its decoder drops."""
    if plan.film.shift or plan.streams.container not in ("mkv", "webm"):
        return Fraction(0)
    begins: list[Fraction] = [
        one.start_time * one.time_base for one in streams if one.start_time is not None
    ]
    return max([Fraction(0), *(-begin for begin in begins)])


def _chapters(source: InputContainer, plan: FilmPlan, lead: Fraction) -> list[Any]:
    cut = plan.cut
    shift = Fraction(plan.film.shift, 1_000_000) + cut.start - lead
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


def write_fields(file: IO[bytes], plan: FilmPlan) -> None:
    """Writes the fields of the pictures into a Matroska header. Raises OutputError."""
    fields = needed_fields(plan)
    if fields is None:
        return
    shape = plan.shape
    try:
        set_fields(file, fields, (shape.height, shape.width), _title(plan.film))
    except OutputError as error:
        raise error.of(plan.name) from error


def needed_fields(plan: FilmPlan) -> PictureFields | None:
    """Returns the fields of the pictures that Matroska needs, if any."""
    shape = plan.shape
    pictures = plan.film.pictures
    is_sdr = becomes_sdr(pictures.colours, shape.colours)
    hdr = None if is_sdr or has_own_hdr(shape.encoding.codec) else pictures.hdr
    is_needed = shape.aspect is not None or hdr is not None
    if plan.streams.container not in ("mkv", "webm") or not is_needed:
        return None
    return PictureFields(shape.aspect, hdr)


def _title(film: Film) -> str:
    return next((value for key, value in film.pictures.tags if key == "title"), "")


def attach(out: Any, told: OtherStream, picture: bytes) -> None:
    """Adds a cover as an attached file, as Matroska keeps covers."""
    tags = dict(told.tags)
    is_png = told.codec == "png"
    out.add_attachment(
        tags.get("filename", "cover.png" if is_png else "cover.jpg"),
        tags.get("mimetype", "image/png" if is_png else "image/jpeg"),
        picture,
    )


def cover_from_file(stream: Any) -> bytes:
    """Returns the picture of a cover. The film can be sought in, and stands at its beginning."""
    packets = stream.container.demux(stream)
    data = next((bytes(packet) for packet in packets if packet.size), b"")
    stream.container.seek(0)
    return data


def add_pictures(out: Any, container: str, shape: Shape, template: PictureTemplate) -> Any:
    """Adds the stream of pictures to a container; `container` is its extension."""
    with opened_part(template.file) as part:
        told: Any = part.streams.video[0]
        video = out.add_stream_from_template(told, opaque=True)
        own, context = told.codec_context, video.codec_context
        codec = shape.encoding.codec
        if template.extradata is not None:
            context.extradata = template.extradata
        if codec == "prores":
            # Its profile is its tag, which Matroska keeps as extradata.
            context.extradata, context.codec_tag = None, own.codec_tag
            if shape.encoding.pixels.planes == 4:
                context.bits_per_coded_sample = _WITH_ALPHA
    is_hevc = codec == "x265" or codec.startswith("hevc_")
    if is_hevc and container in ("mp4", "mov"):
        context.codec_tag = "hvc1"  # or Apple's players show nothing
    # A header alone leaves some of it unknown, since nothing is decoded.
    context.height, context.width = shape.height, shape.width
    context.pix_fmt = shape.encoding.taken
    context.framerate = shape.rate
    if shape.aspect is not None:
        context.sample_aspect_ratio = shape.aspect
    video.time_base = shape.tick
    return video


_WITH_ALPHA = 32
"""Bits of a pixel by which QuickTime recognises transparency."""


def tried(
    source: InputContainer, plan: FilmPlan, template: PictureTemplate, cover_of: CoverOf
) -> StreamPlan:
    """Returns the streams of a plan without those that FFmpeg's muxer refuses. Raises OutputError
    where it refuses even the pictures."""

    def trouble(*taken: KeptStream) -> str:
        streams = replace(plan.streams, taken=taken)
        return _trouble(source, plan._replace(streams=streams), template, cover_of)

    found = trouble()
    if found:
        raise OutputError(
            f".{plan.streams.container} cannot hold pictures of {plan.shape.encoding.codec}: "
            f"{found}"
        )
    streams = plan.streams
    if not trouble(*streams.taken):
        return streams
    others = {stream.index: stream for stream in plan.film.others}
    taken: list[KeptStream] = []
    refused, notices = list(streams.refused), list(streams.notices)
    for one in streams.taken:
        told = others[one.index]
        repacked = replace(one, handling="pcm")
        if not trouble(*taken, one):
            taken.append(one)
        elif is_pcm(told) and not trouble(*taken, repacked):
            taken.append(repacked)
            packed = packed_pcm(source.streams[one.index].codec_context)
            notices.append(f"{told.title} becomes {packed}, with the same samples")
        else:
            refused.append((one.index, told.title))
    return replace(
        streams, taken=tuple(taken), refused=tuple(sorted(refused)), notices=tuple(notices)
    )


def is_pcm(told: OtherStream) -> bool:
    """Returns whether a stream is sound without compression, for which FFmpeg has a decoder."""
    return told.codec.startswith("pcm_") and told.codec in DECODERS.split(",")


def packed_pcm(context: Any) -> str:
    """Returns FFmpeg's name of the PCM that most containers hold, for the samples that a decoder of
    PCM gives, whose type loses none of their bits."""
    kind = context.format.name.removesuffix("p")
    if kind == "s32" and "32" not in context.name:
        return "pcm_s24le"  # that of discs has at most 24 bits
    return {"u8": "pcm_u8"}.get(kind, f"pcm_{_PCM.get(kind, kind)}le")


_PCM = {"flt": "f32", "dbl": "f64"}
"""Names of PCM for FFmpeg's types of floating-point samples."""


def _trouble(
    source: InputContainer, plan: FilmPlan, template: PictureTemplate, cover_of: CoverOf
) -> str:
    out: Any = open_target(io.BytesIO(), plan.streams.container)
    try:
        begin_streams(out, source, plan, template, cover_of)
        out.start_encoding()
    except (library().FFmpegError, ValueError) as error:
        return in_short(error)
    finally:
        with suppress(Exception):  # it was a trial
            out.close()
    return ""
