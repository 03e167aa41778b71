"""Whole pictures of interlaced ones, by FFmpeg's filters."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

Deinterlacing = Literal["off", "frame", "field", "ivtc"]
"""Nothing; a picture of each frame; of each field, twice as many; film as it was before it was
made interlaced video of 30 frames a second."""
_FILTERS: dict[Deinterlacing, list[tuple[str, str]]] = {
    "frame": [("bwdif", "mode=send_frame:parity=auto:deint=interlaced")],
    "field": [("bwdif", "mode=send_field:parity=auto:deint=interlaced")],
    "ivtc": [("fieldmatch", "order=auto"), ("decimate", "")],
}


def deinterlaced(
    frames: Iterator[VideoFrame], stream: VideoStream, rate: Fraction, how: Deinterlacing
) -> Iterator[tuple[VideoFrame, Fraction]]:
    """Frames, each with the seconds of a tick of its times."""
    base = stream.time_base
    assert base is not None  # describe() refuses films without times
    if how == "off":
        for frame in frames:
            yield frame, base
        return
    av = library()
    graph = av.filter.Graph()
    last = entry = graph.add_buffer(template=stream)
    filters = _FILTERS[how]
    if how == "ivtc":  # which wants an even rate
        filters = [("fps", f"fps={rate}"), *filters]
    for name, arguments in filters:
        added = graph.add(name, arguments)
        last.link_to(added)
        last = added
    end = graph.add("buffersink")
    last.link_to(end)
    graph.configure()

    def pull() -> Iterator[tuple[VideoFrame, Fraction]]:
        while True:
            try:
                made = graph.pull()
            except (av.BlockingIOError, av.EOFError):
                return
            assert made.time_base is not None
            yield made, made.time_base

    for frame in frames:
        frame.time_base = base
        entry.push(frame)
        yield from pull()
    entry.push(None)
    yield from pull()
