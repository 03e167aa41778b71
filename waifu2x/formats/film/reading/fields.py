"""Finds combs of fields in a film that does not say it is interlaced, and the pulldown of film in
video, by FFmpeg's filter idet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import frame_pixels, planes_of
from waifu2x.formats.film.reading.decoding import Decoding
from waifu2x.formats.film.reading.deinterlacing import FieldOrder, source_of
from waifu2x.formats.film.reading.packets import Packets

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame

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
    idet, end = graph.add("idet"), graph.add("buffersink")
    entry.link_to(idet)
    idet.link_to(end)
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
    lines = planes_of(frame, pixels)[0].astype(np.int32)
    above, below = lines[1:-1] - lines[:-2], lines[1:-1] - lines[2:]
    step = _STEP << (pixels.bits - 8)
    combed = ((above > step) & (below > step)) | ((above < -step) & (below < -step))
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
