"""The header of a film that is written: its streams, tags and chapters."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from waifu2x.formats.film.cut import Cut
from waifu2x.formats.film.description import Film, OtherStream
from waifu2x.formats.film.library import library
from waifu2x.formats.film.writing.codecs import has_own_hdr
from waifu2x.formats.film.writing.covers import CoverOf, attach
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.film.writing.matroska import PictureFields, placeholder, set_fields
from waifu2x.formats.film.writing.picture_stream import PictureTemplate, add_pictures
from waifu2x.formats.film.writing.targets import CONTAINERS, KeptStream, StreamPlan

if TYPE_CHECKING:
    from av.container import InputContainer

_LIES = ("DURATION", "BPS", "NUMBER_OF_", "_STATISTICS_", "ENCODER")
"""Beginnings of tags that tell of the stream as it was."""
_OF_CONTAINERS = {
    "encoder", "major_brand", "minor_version", "compatible_brands", "handler_name", "vendor_id",
    "filename", "mimetype", "alpha_mode",
}  # fmt: skip
"""Tags that demuxers make of a container's own fields."""


class FilmPlan(NamedTuple):
    """All that is decided about a film to write."""

    film: Film
    """The one that it is made of."""
    shape: Shape
    streams: StreamPlan
    cut: Cut = Cut()


class BegunStreams(NamedTuple):
    """The streams of a film that is written."""

    pictures: Any
    others: dict[int, tuple[Any, KeptStream]]
    """Those with packets, by their numbers in the source."""


def open_target(
    target: IO[bytes] | io.RawIOBase | str, container: str, room: int | None = None
) -> Any:
    """A container of FFmpeg's to write, by its extension. `room` bytes are left for the index of
    mp4 and mov before the packets, where players want it; None: all packets of a file that is named
    are moved for it, once they are written."""
    options = {"fflags": "+bitexact"}  # no numbers at random: a film made twice is the same
    if room is not None:
        options["moov_size"] = str(room)
    elif isinstance(target, str) and container in ("mp4", "mov"):
        options["movflags"] = "+faststart"
    return library().open(target, "w", format=CONTAINERS[container], container_options=options)


def begin_streams(
    out: Any,
    source: InputContainer,
    plan: FilmPlan,
    template: PictureTemplate,
    cover_of: CoverOf,
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
    """The stream of the target."""
    if taken.handling == "copy":
        added = out.add_stream_from_template(stream)
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
    """Seconds by which Matroska's muxer moves all streams, since none may begin before 0: sound
    does, by what its decoder drops. It does not move chapters."""
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
    """Writes what Matroska is to be told of the pictures into its header. Raises OutputError."""
    fields = needed_fields(plan)
    if fields is not None:
        shape = plan.shape
        set_fields(file, fields, (shape.height, shape.width), _title(plan.film))


def needed_fields(plan: FilmPlan) -> PictureFields | None:
    """What Matroska is to be told of the pictures, if anything."""
    shape = plan.shape
    hdr = None if has_own_hdr(shape.encoding.codec) else plan.film.pictures.hdr
    is_needed = shape.aspect is not None or hdr is not None
    if plan.streams.container not in ("mkv", "webm") or not is_needed:
        return None
    return PictureFields(shape.aspect, hdr)


def _title(film: Film) -> str:
    return next((value for key, value in film.pictures.tags if key == "title"), "")
