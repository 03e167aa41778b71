"""Makes whole pictures of interlaced ones by FFmpeg's filters, and undoes telecine.

Video of 30 frames a second shows four pictures of film in five frames; some hold fields of
two pictures. Fields are put together as they belong, and of each five frames the one without
anything new is dropped.

Which one that is depends on where counting begins. So cycles of five begin at places that the film
alone decides, and a run that begins in its middle makes the same pictures. Their times are even
within a cycle, as those of the film were; the times of the filters are ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from waifu2x.errors import ImageError
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import pixel_format

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

Deinterlacing = Literal["off", "frame", "field", "ivtc"]
"""Leaves frames as they are; makes a picture of each frame, or of each field, twice as many;
restores film that was made video of 30 frames a second."""
FieldOrder = Literal["tff", "bff"]
"""The upper field of a frame comes first, or the lower one."""
_CYCLE, _KEPT = 5, 4
"""Frames of video, and the pictures of film in them."""
_LONGEST_GAP = 1
"""Seconds without a frame that are filled by repeating the one before; longer ones stay."""


def ticks_in_one(how: Deinterlacing) -> int:
    """Returns how many ticks of the new pictures are one tick of the film. Pictures of film are
    five quarters of a frame of video apart, so quarters are exact."""
    return {"field": 2, "ivtc": 4}.get(how, 1)


def deinterlaced(
    frames: Iterator[VideoFrame],
    tick: Fraction,
    how: Deinterlacing,
    name: str,
    order: FieldOrder | None = None,
) -> Iterator[VideoFrame]:
    """Yields whole pictures of frames whose times are in ticks of `tick` seconds. With "frame" and
    "field" their ticks are half as long; "off" changes nothing. With an `order`, all frames are of
    such fields, else those that say so. `name` stands for the film in messages. Raises ImageError
    for pictures that the filter does not take."""
    if how == "off":
        yield from frames
        return
    first = next(frames, None)
    if first is None:
        return
    graph = library().filter.Graph()
    entry = source_of(graph, first, tick)
    mode = "send_field" if how == "field" else "send_frame"
    which = "parity=auto:deint=interlaced" if order is None else f"parity={order}:deint=all"
    filtered = graph.add("bwdif", f"mode={mode}:{which}")
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
    """Adds the entry for frames like `first` to a graph."""
    told = f"video_size={first.width}x{first.height}:pix_fmt={first.format.name}"
    told += f":time_base={tick}:pixel_aspect=1/1:colorspace={int(first.colorspace)}"
    told += f":range={int(first.color_range)}"
    return graph.add("buffer", told + ("" if rate is None else f":frame_rate={rate}"))


def configure(graph: Any, first: VideoFrame, name: str) -> None:
    """Completes a graph. Raises ImageError where a filter does not take such frames."""
    try:
        graph.configure()
    except library().FFmpegError as error:
        raise _unfit(first, name) from error


def pulled(graph: Any, first: VideoFrame, name: str) -> Iterator[Any]:
    """Yields the frames that a graph has ready. Raises ImageError where FFmpeg has converted them,
    since a filter does not take such frames."""
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


def film_pictures(
    frames: Iterator[VideoFrame],
    tick: Fraction,
    rate: Fraction,
    begin: int,
    name: str,
    order: FieldOrder | None = None,
) -> Iterator[VideoFrame]:
    """Yields the pictures of film in frames of video, with times in quarters of a tick. `tick` is
    in seconds, `rate` that of the video, and `begin` the time of the film's first frame; `order` is
    that of fields, where the frames do not say it. If
    `frames` begin later, the pictures up to the next cycle are missing. Raises ImageError for
    pictures that the filters do not take."""
    made: _TelecineGraph | None = None
    for place, frame in _even(frames, tick * rate, begin, _LONGEST_GAP * rate):
        if made is None:
            made = _TelecineGraph(frame, tick, rate, begin, name, order or "auto")
        yield from made.of(place, frame)
    if made is not None:
        yield from made.rest()


def _even(
    frames: Iterator[VideoFrame], in_tick: Fraction, begin: int, longest: Fraction
) -> Iterator[tuple[int, VideoFrame]]:
    """Yields a frame for each place of an even grid, from the beginning of a cycle on. A tick has
    `in_tick` places; `begin` is the time of place 0. Missing frames are repeated."""
    at: int | None = None
    last: VideoFrame | None = None
    for frame in frames:
        assert frame.pts is not None  # Times gives each one
        place = round((frame.pts - begin) * in_tick)
        if at is None or last is None:
            if place % _CYCLE:
                continue
            at = place - 1
        elif place - at > longest:
            while (at + 1) % _CYCLE:
                at += 1
                yield at, last
            at = place - place % _CYCLE - 1
            last = frame
        while at + 1 < place:
            at += 1
            yield at, last or frame
        if at < place:
            at += 1
            yield at, frame
            last = frame


class _TelecineGraph:
    def __init__(
        self, first: VideoFrame, tick: Fraction, rate: Fraction, begin: int, name: str, order: str
    ) -> None:
        self._first, self._name, self._rate = first, name, rate
        self._begin = begin * ticks_in_one("ivtc")
        self._place = 1 / (rate * tick / ticks_in_one("ivtc"))
        """Ticks of pictures between two places."""
        self._graph = graph = library().filter.Graph()
        self._entry = source_of(graph, first, 1 / rate, rate)
        # Fields are compared in 8 bits, but taken from the frames with all bits.
        both = graph.add("split")
        matched = graph.add("fieldmatch", f"order={order}:ppsrc=1")
        fewer = graph.add("decimate", f"cycle={_CYCLE}")
        end = graph.add("buffersink")
        self._entry.link_to(both)
        both.link_to(matched, 0, 0)
        both.link_to(matched, 1, 1)
        matched.link_to(fewer)
        fewer.link_to(end)
        configure(graph, first, name)
        self._cycles: deque[int] = deque()
        """Beginnings of cycles whose pictures have not all come."""
        self._come = 0
        """Pictures that have come of the first of those."""
        self._given: tuple[int, VideoFrame] | None = None
        self._pushed = 0

    def of(self, place: int, frame: VideoFrame) -> Iterator[VideoFrame]:
        """Takes one more frame; yields the pictures that are ready."""
        if place % _CYCLE == 0:
            self._cycles.append(place)
        self._given = place, frame
        self._push(frame)
        return self._pictures(None)

    def rest(self) -> Iterator[VideoFrame]:
        assert self._given is not None
        place, frame = self._given
        # The filter drops one picture too many of the last cycle, so that is one beyond the end.
        for more in range(place + 1, place - place % _CYCLE + 2 * _CYCLE):
            if more % _CYCLE == 0:
                self._cycles.append(more)
            self._push(frame)
        self._entry.push(None)
        return self._pictures(place + 1)

    def _push(self, frame: VideoFrame) -> None:
        # A repeated frame may be pushed again, since the graph copies its times.
        frame.pts, frame.time_base = self._pushed, 1 / self._rate
        self._entry.push(frame)
        self._pushed += 1

    def _pictures(self, end: int | None) -> Iterator[Any]:
        """Yields the pictures that are ready, up to the place `end` if given."""
        for made in pulled(self._graph, self._first, self._name):
            places = [
                self._cycles[0] + Fraction(_CYCLE * number, _KEPT)
                for number in (self._come, self._come + 1)
            ]
            self._come = (self._come + 1) % _KEPT
            if not self._come:
                self._cycles.popleft()
            if end is not None and places[0] >= end:
                return
            pts, following = (self._begin + round(place * self._place) for place in places)
            made.pts, made.duration = pts, following - pts
            yield made
