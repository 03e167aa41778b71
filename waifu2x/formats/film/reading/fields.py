"""The fields of interlaced pictures: finds them where a film does not say that it has them, makes
whole pictures of them, and undoes the pulldown of film in video (telecine), by FFmpeg's filters.

Video of 30 frames a second shows four pictures of film in five frames; some hold fields of
two pictures. Fields are put together as they belong, and of each five frames the one without
anything new is dropped.

Which one that is depends on where counting begins. So cycles of five begin at places that the film
alone decides, and a run that begins in its middle makes the same pictures. Their times are even
within a cycle, as those of the film were; the times of the filters are ignored.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import frame_pixels, pixel_format, planes_of
from waifu2x.formats.film.reading.decoding import Decoding
from waifu2x.formats.film.reading.packets import Packets

if TYPE_CHECKING:
    from av.container import InputContainer
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
MOST_LINES = 1088
"""Lines of the largest pictures that are ever interlaced."""
_PLACES = 3
"""Stretches of a film that are looked at. Titles that scroll look like combs."""
_FRAMES = 100
"""Frames of a stretch."""
_MOST_PACKETS = 5000
"""Packets of all streams that are read for a stretch."""
_LEAST = 12
"""Frames of a stretch below which nothing is known."""
_ONE_ORDER = 0.9
"""The least share of combed frames with the same order. In pictures without combs, fine patterns
are taken for either."""
_COMBED = 0.3
"""The least share of combed frames."""
_EACH = 5
"""One frame in as many is searched for combs."""
_STEP = 10
"""Levels of 256 between a line and both its neighbours that make a comb."""
_LEAST_COMBS = 1 / 2000
"""The least share of pixels in combs. Flat drawings that move sideways have none, and idet takes
their edges for fields."""
_REPEATED = (0.1, 0.3)
"""Shares of frames that repeat a field of the one before, for either field. With pulldown, one
frame in five repeats the upper and one the lower field."""
_NTSC = (28, 31)
"""Frames a second of video that may be film with pulldown."""


class Fields(NamedTuple):
    """The fields of a film's frames, as they look."""

    order: FieldOrder | None = None
    """None: whole pictures."""
    is_telecined: bool = False
    """Whether they are film with the pulldown of NTSC."""


def fields_of(
    container: InputContainer,
    film: Film,
    name: str,
    on_packet: Callable[[], None] = lambda: None,
) -> Fields:
    """Looks at some hundred frames of a film that can be sought in."""
    stream: Any = container.streams[film.pictures.index]
    left = 0

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooManyPacketsError
        on_packet()

    decoding = Decoding(Packets(container, [stream]), stream, name, count)
    seconds = Fraction(film.seconds or 0)
    is_short = seconds * film.pictures.rate < _FRAMES * (_PLACES + 1)
    places = [Fraction(0)] if is_short else [
        seconds * number / (_PLACES + 1) for number in range(1, _PLACES + 1)
    ]  # fmt: skip
    looks: Counter[Fields] = Counter()
    for place in places:
        if any(2 * times > len(places) for times in looks.values()):
            break  # another look would change nothing, and costs a film its first second
        left = _MOST_PACKETS
        # Damage is told when the film is read.
        with suppress(library().FFmpegError, ImageError, _TooManyPacketsError):
            if place:
                begin = place + Fraction(film.shift, 1_000_000)
                container.seek(int(begin * 1_000_000))
                decoding.restart()
            looks[_look(islice(decoding, _FRAMES), film.pictures.rate)] += 1
    orders = Counter(look.order for look in looks.elements())
    agreed = [order for order, times in orders.items() if 2 * times > len(places)]
    telecined = sum(look.is_telecined for look in looks.elements())
    return Fields(agreed[0] if agreed else None, 2 * telecined > len(places))


class _TooManyPacketsError(Exception):
    """A stretch has more packets than its frames need."""


def _look(frames: Iterator[VideoFrame], rate: Fraction) -> Fields:
    first = next(frames, None)
    if first is None:
        return Fields()
    graph: Any = library().filter.Graph()
    entry = source_of(graph, first, Fraction(1, 25))
    link(graph, entry, ("idet", ""))
    graph.configure()
    told: dict[str, str] = {}
    count = 0
    combs: list[float] = []
    frame: VideoFrame | None = first
    while frame is not None and _is_alike(frame, first):
        if count % _EACH == 0:
            combs.append(_combs(frame))
        frame.pts, frame.time_base = count, Fraction(1, 25)
        entry.push(frame)
        count += 1
        told = _latest(graph, told)
        frame = next(frames, None)
    entry.push(None)
    told = _latest(graph, told)
    if count < _LEAST or sum(combs) < _LEAST_COMBS * len(combs):
        return Fields()

    def share(kind: str) -> float:
        return float(told.get(f"lavfi.idet.{kind}", 0)) / count

    upper, lower = share("multiple.tff"), share("multiple.bff")
    combed = upper + lower
    order: FieldOrder | None = None
    if combed >= _COMBED and max(upper, lower) >= _ONE_ORDER * combed:
        order = "tff" if upper > lower else "bff"
    least, most = _REPEATED
    is_telecined = (
        order is not None
        and _NTSC[0] < rate < _NTSC[1]
        and all(least <= share(f"repeated.{field}") <= most for field in ("top", "bottom"))
    )
    return Fields(order, is_telecined)


def _combs(frame: VideoFrame) -> float:
    """Returns the share of pixels that are all brighter, or all darker, than those above and
    below."""
    pixels = frame_pixels(frame, "")
    lines = planes_of(frame, pixels)[0]
    line, above, below = lines[1:-1], lines[:-2], lines[2:]
    # Unsigned numbers are the fastest here; a wrong sign does not count.
    most, least = np.maximum(above, below), np.minimum(above, below)
    step = _STEP << (pixels.bits - 8)
    combed = ((line > most) & (line - most > step)) | ((line < least) & (least - line > step))
    return float(combed.mean()) if combed.size else 0.0


def _is_alike(frame: VideoFrame, first: VideoFrame) -> bool:
    return (frame.width, frame.height, frame.format.name) == (
        first.width,
        first.height,
        first.format.name,
    )


def _latest(graph: Any, told: dict[str, str]) -> dict[str, str]:
    """Returns what the filter tells with its latest frame, or else `told`."""
    av = library()
    with suppress(av.BlockingIOError, av.EOFError):
        while True:
            told = dict(graph.pull().metadata)
    return told


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
    link(graph, entry, ("bwdif", f"mode={mode}:{which}"))
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


def link(graph: Any, before: Any, *steps: tuple[str, str]) -> None:
    """Adds filters behind another one, by their names and options, and the end of the graph."""
    for name, options in (*steps, ("buffersink", "")):
        step = graph.add(name, options)
        before.link_to(step)
        before = step


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
        f"{name}: pictures of {first.format.name} cannot be deinterlaced", "use --deinterlace off"
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
        self._entry.link_to(both)
        both.link_to(matched, 0, 0)
        both.link_to(matched, 1, 1)
        link(graph, matched, ("decimate", f"cycle={_CYCLE}"))
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
