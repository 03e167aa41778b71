"""Whole pictures of interlaced ones, by FFmpeg's filters."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from waifu2x.errors import ImageError
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import pixel_format

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

Deinterlacing = Literal["off", "frame", "field", "ivtc"]
"""Nothing; a picture of each frame; of each field, twice as many; film as it was before it was
made interlaced video of 30 frames a second."""


def ticks_in_one(how: Deinterlacing) -> int:
    """How many ticks of the times of its pictures are one of the film's.

    Pictures of film are five quarters of a frame of video apart: so quarters make them exact.
    """
    return {"field": 2, "ivtc": 4}.get(how, 1)


def deinterlaced(
    frames: Iterator[VideoFrame], tick: Fraction, how: Deinterlacing, name: str
) -> Iterator[VideoFrame]:
    """Frames, whose times are ticks of so many seconds, as whole pictures: "off", or "frame" and
    "field", whose times are in ticks of half the length. `name` stands for the film in messages.

    Raises ImageError for pictures that the filter does not take.
    """
    if how == "off":
        yield from frames
        return
    first = next(frames, None)
    if first is None:
        return
    graph = library().filter.Graph()
    entry = source_of(graph, first, tick)
    mode = "send_field" if how == "field" else "send_frame"
    filtered = graph.add("bwdif", f"mode={mode}:parity=auto:deint=interlaced")
    entry.link_to(filtered)
    end = graph.add("buffersink")
    filtered.link_to(end)
    configure(graph, first, name)
    wanted = tick / ticks_in_one(how)
    frame: VideoFrame | None = first
    while frame is not None:
        frame.time_base = tick
        entry.push(frame)
        yield from _retimed(graph, first, wanted, name)
        frame = next(frames, None)
    entry.push(None)
    yield from _retimed(graph, first, wanted, name)


def _retimed(graph: Any, first: VideoFrame, tick: Fraction, name: str) -> Iterator[VideoFrame]:
    for made in pulled(graph, first, name):
        unit = made.time_base / tick  # the filter's ticks are half as long, in either mode
        made.pts = round(made.pts * unit)
        made.duration = round((made.duration or 0) * unit)
        yield made


def source_of(graph: Any, first: VideoFrame, tick: Fraction, rate: Fraction | None = None) -> Any:
    """Where frames like the first enter a graph."""
    told = f"video_size={first.width}x{first.height}:pix_fmt={first.format.name}"
    told += f":time_base={tick}:pixel_aspect=1/1:colorspace={int(first.colorspace)}"
    told += f":range={int(first.color_range)}"
    return graph.add("buffer", told + ("" if rate is None else f":frame_rate={rate}"))


def configure(graph: Any, first: VideoFrame, name: str) -> None:
    """Makes a graph ready. Raises ImageError where a filter does not take such frames."""
    try:
        graph.configure()
    except library().FFmpegError as error:
        raise _unfit(first, name) from error


def pulled(graph: Any, first: VideoFrame, name: str) -> Iterator[Any]:
    """The frames that a graph has ready. Raises ImageError where they are of another kind than the
    first one that was given: FFmpeg converts what a filter does not take."""
    av = library()
    while True:
        try:
            made = graph.pull()
        except (av.BlockingIOError, av.EOFError):
            return
        if pixel_format(made.format.name, name) != pixel_format(first.format.name, name):
            raise _unfit(first, name)
        yield made


def _unfit(first: VideoFrame, name: str) -> ImageError:
    return ImageError(
        f"{name}: pictures of {first.format.name} cannot be deinterlaced: use --deinterlace off"
    )
