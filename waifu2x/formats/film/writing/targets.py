"""Containers to write: which streams of a film they take, and how; the pixels of those without an
encoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from waifu2x.errors import OutputError
from waifu2x.formats.film.description import Film, OtherStream, PixelFormat, yuv_format
from waifu2x.formats.film.frame_files import frame_pattern
from waifu2x.formats.film.writing.codecs import Encoding, Wish
from waifu2x.system.lazy_dataclass import dataclass

CONTAINERS = {"mkv": "matroska", "mp4": "mp4", "mov": "mov", "webm": "webm"}
"""FFmpeg's formats, by the extension of a name."""
Handling = Literal["copy", "subrip", "mov_text", "attachment", "pcm"]
"""Copies a stream; converts the text of subtitles; attaches a cover as a file; packs the samples of
PCM otherwise."""
ROOMIEST = ("mkv", "mov", "mp4")
"""Containers that are looked at where another one cannot hold a stream, the best first."""
_TEXT = ("srt", "subrip")
_STYLED = ("ass", "ssa")


@dataclass(frozen=True)
class KeptStream:
    """A stream of the source that goes into the target."""

    index: int
    handling: Handling


@dataclass(frozen=True)
class StreamPlan:
    """The handling of the streams of a film."""

    container: str
    taken: tuple[KeptStream, ...]
    refused: tuple[tuple[int, str], ...]
    """Index and name of the streams that the container cannot hold."""
    notices: tuple[str, ...]
    """A clause for each stream that is not kept as it is."""


RAW = ("y4m", "png", "gif")
"""Targets without an encoder, which hold only pictures."""
_PIPED = ("mkv", "webm", "y4m")
"""Containers that can be written without seeking."""


def container_of(path: Path, form: str | None = None) -> str:
    """Returns the extension of a target: of its name or, for standard output, `form`. Raises
    OutputError if films are not written so."""
    if path == Path("-"):
        if form not in (None, *_PIPED):
            raise OutputError(f"standard output: .{form} has to be sought in", "use -f mkv or y4m")
        return form or "mkv"
    extension = "png" if frame_pattern(path) is not None else path.suffix[1:].lower()
    if extension not in (*CONTAINERS, *RAW) or (extension == "png" and frame_pattern(path) is None):
        raise OutputError(
            f"{path}: a film is written as .mkv, .mp4, .mov, .webm, .gif or .y4m, or as frames "
            "such as frames/%06d.png",
            "choose one",
        )
    if form not in (None, extension):
        raise OutputError(
            f"{path}: it is a .{extension} by its name, and -f says {form}", "choose one"
        )
    return extension


def plan(film: Film, container: str, *, sound: bool = True, subtitles: bool = True) -> StreamPlan:
    """Returns the streams that a container takes, by tables alone; `header.tried` asks FFmpeg."""
    taken: list[KeptStream] = []
    refused: list[tuple[int, str]] = []
    notices: list[str] = []
    if container in RAW:
        others = any(stream.kind in ("audio", "subtitle") for stream in film.others)
        name = "y4m" if container == "y4m" else container.upper()
        notices = [f"{name} holds pictures only: sound and subtitles are left out"] * others
        return StreamPlan(container, (), (), tuple(notices))
    for stream in film.others:
        if (stream.kind == "audio" and not sound) or (stream.kind == "subtitle" and not subtitles):
            continue
        handling = _handling(stream, container, notices)
        if handling is not None:
            taken.append(KeptStream(stream.index, handling))
        elif _is_written_anew(stream):
            pass  # chapters and the timecode
        else:
            refused.append((stream.index, stream.title))
    return StreamPlan(container, tuple(taken), tuple(refused), tuple(notices))


def _handling(stream: OtherStream, container: str, notices: list[str]) -> Handling | None:
    kind, codec = stream.kind, stream.codec
    into_mp4 = container in ("mp4", "mov")
    if kind == "audio":
        return "copy" if container != "webm" or codec in ("opus", "libopus", "vorbis") else None
    if kind == "subtitle":
        if container == "mkv":
            return "subrip" if codec == "mov_text" else "copy"
        if into_mp4 and codec in _TEXT:
            return "mov_text"
        if into_mp4 and codec in _STYLED:
            notices.append(f"{stream.title} loses its styles and drawings")
            return "mov_text"
        fits = codec == "mov_text" if into_mp4 else codec == "webvtt"
        return "copy" if fits else None
    if kind == "attachment":
        return "copy" if container == "mkv" else None
    if kind == "video" and not stream.is_hidden:
        if stream.is_cover:
            return {"mkv": "attachment", "mp4": "copy"}.get(container)  # type: ignore[return-value]
        return "copy" if container == "mkv" else None
    return None


def _is_written_anew(stream: OtherStream) -> bool:
    return stream.kind == "data" and (stream.is_hidden or "timecode" in dict(stream.tags))


def check(plan: StreamPlan, film: Film, name: str, elsewhere: Mapping[str, StreamPlan]) -> None:
    """Raises OutputError where the container refuses streams; `name` stands for the target.
    `elsewhere` are the plans for other containers, which the remedy is chosen by."""
    if not plan.refused:
        return
    best, others = min(
        ((plan.container, plan), *elsewhere.items()), key=lambda one: len(one[1].refused)
    )
    ways = []
    if best != plan.container and not others.refused:
        ways.append(f"use .{best}")
    elif best != plan.container:
        ways.append(f"use .{best} with --drop-unsupported, which leaves out {_titles(others)} only")
    lost = {index for index, _ in plan.refused}
    sounds = {stream.index for stream in film.others if stream.kind == "audio"}
    if not sounds or not sounds <= lost:
        ways.append(f"{'use ' * (not ways)}--drop-unsupported")
    elif not ways:
        ways.append("use --drop-unsupported for a silent film: no container here holds its sound")
    raise OutputError(f"{name}: .{plan.container} cannot hold {_titles(plan)}", ", or ".join(ways))


def _titles(plan: StreamPlan) -> str:
    return ", ".join(title for _, title in plan.refused)


def raw_encoding(wish: Wish, source: PixelFormat, container: str) -> Encoding:
    """Returns the encoding of unencoded frames; `container` is one of RAW. Raises
    OutputError for options that need an encoder."""
    wanted = {
        "--codec": wish.codec,
        "--crf": wish.crf,
        "--preset": wish.preset,
        "--tune": wish.tune,
        "--codec-option": wish.options or None,
    }
    given = [name for name, value in wanted.items() if value is not None]
    if given:
        raise OutputError(f"{container} has no encoder", f"leave {' and '.join(given)} out")
    if container == "y4m":
        pixels = _y4m_pixels(wish, source)
    else:
        pixels = _rgb_pixels(wish, source, container)
    return Encoding(container, pixels, ())


def _y4m_pixels(wish: Wish, source: PixelFormat) -> PixelFormat:
    if source.planes == 4:
        raise OutputError("y4m cannot hold transparency", "use .mkv")
    bits = wish.depth or (8 if source.bits == 8 else 10)
    if source.planes == 1 and wish.chroma is None:
        return PixelFormat("gray" if bits == 8 else "gray10le", bits, 1, 1, 1)
    return yuv_format(bits, wish.chroma or source.chroma)


def _rgb_pixels(wish: Wish, source: PixelFormat, container: str) -> PixelFormat:
    if wish.chroma is not None:
        raise OutputError(f"{container.upper()} is RGB", "leave --chroma out")
    if container == "gif" and wish.depth not in (None, 8):
        raise OutputError("GIF holds 8 bits", f"leave --depth {wish.depth} out")
    bits = 8 if container == "gif" or (wish.depth or source.bits) == 8 else 16
    if source.planes == 1:
        return PixelFormat("gray" if bits == 8 else "gray16le", bits, 1, 1, 1)
    planes = 4 if source.planes == 4 else 3
    name = f"gbr{'a' * (planes == 4)}p{'' if bits == 8 else '16le'}"
    return PixelFormat(name, bits, 1, 1, planes, is_rgb=True)
