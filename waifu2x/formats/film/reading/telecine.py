"""Film as it was before it was made video of 30 frames a second: telecine, undone.

Video shows four pictures of film in five frames, some of which hold fields of two pictures. Fields
are put together as they belong, and of each five frames the one is dropped that shows nothing new.

Which one that is depends on where one begins to count. So cycles of five begin at places that the
film alone decides, and whoever begins in its middle makes the same pictures. Their times are even
within a cycle, as those of the film were: what the filters say of them is not asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.deinterlacing import (
    configure,
    pulled,
    source_of,
    ticks_in_one,
)

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_CYCLE, _KEPT = 5, 4
"""Frames of video, and the pictures of film in them."""
_LONGEST = 1
"""Seconds without a frame that are filled by repeating the one before; longer ones stay."""


def film_pictures(
    frames: Iterator[VideoFrame], tick: Fraction, rate: Fraction, begin: int, name: str
) -> Iterator[VideoFrame]:
    """The pictures of film in frames of video, with times in quarters of the ticks of theirs.

    Ticks are of so many seconds, `rate` is that of the video, `begin` the time of the film's first
    frame; if `frames` begin elsewhere, the first pictures are missing. `name` stands for the film
    in messages. Raises ImageError for pictures that the filters do not take.
    """
    made: _Made | None = None
    for place, frame in _even(frames, tick * rate, begin, _LONGEST * rate):
        if made is None:
            made = _Made(frame, tick, rate, begin, name)
        yield from made.of(place, frame)
    if made is not None:
        yield from made.rest()


def _even(
    frames: Iterator[VideoFrame], in_tick: Fraction, begin: int, longest: Fraction
) -> Iterator[tuple[int, VideoFrame]]:
    """Frames at each place of an even grid, whole cycles of them, but for the last.

    `in_tick` is how many places are in a tick; `begin` is the time of place 0. From the first place
    on at which a cycle begins, frames are repeated where there is none.
    """
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


class _Made:
    """The filters, and what comes out of them."""

    def __init__(
        self, first: VideoFrame, tick: Fraction, rate: Fraction, begin: int, name: str
    ) -> None:
        self._first, self._name, self._rate = first, name, rate
        self._begin = begin * ticks_in_one("ivtc")
        self._place = 1 / (rate * tick / ticks_in_one("ivtc"))
        """Ticks of pictures between two places."""
        self._graph = graph = library().filter.Graph()
        self._entry = source_of(graph, first, 1 / rate, rate)
        # Fields are compared as 8 bits, and taken from what was given, of all its bits.
        both = graph.add("split")
        matched = graph.add("fieldmatch", "order=auto:ppsrc=1")
        fewer = graph.add("decimate", f"cycle={_CYCLE}")
        end = graph.add("buffersink")
        self._entry.link_to(both)
        both.link_to(matched, 0, 0)
        both.link_to(matched, 1, 1)
        matched.link_to(fewer)
        fewer.link_to(end)
        configure(graph, first, name)
        self._cycles: deque[int] = deque()
        """Where cycles begin whose pictures have not all come."""
        self._come = 0
        """How many pictures of the first of those have."""
        self._given: tuple[int, VideoFrame] | None = None
        """The last frame, and its place."""
        self._pushed = 0

    def of(self, place: int, frame: VideoFrame) -> Iterator[VideoFrame]:
        """The pictures that are ready with one frame more."""
        if place % _CYCLE == 0:
            self._cycles.append(place)
        self._given = place, frame
        self._push(frame)
        return self._pictures(None)

    def rest(self) -> Iterator[VideoFrame]:
        """The last pictures."""
        assert self._given is not None
        place, frame = self._given
        # Of the last cycle the filter drops a picture too many, whole or not: so it is another one,
        # beyond the end.
        for more in range(place + 1, place - place % _CYCLE + 2 * _CYCLE):
            if more % _CYCLE == 0:
                self._cycles.append(more)
            self._push(frame)
        self._entry.push(None)
        return self._pictures(place + 1)

    def _push(self, frame: VideoFrame) -> None:
        # One that is repeated is pushed again: the graph has its own copy of what it is told.
        frame.pts, frame.time_base = self._pushed, 1 / self._rate
        self._entry.push(frame)
        self._pushed += 1

    def _pictures(self, end: int | None) -> Iterator[Any]:
        """Those that are ready, before a place if it is given."""
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
