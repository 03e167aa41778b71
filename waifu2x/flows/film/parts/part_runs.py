"""Runs of parts of a film: which are missing, and how they are divided among those that make them.

A part is a stretch of the film's own time. Its maker finds it by seeking, and it comes out the
same whoever makes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from waifu2x.errors import ImageError
from waifu2x.flows.film.frames.repeated_frames import Duplicates
from waifu2x.flows.film.parts.manifest import PartRecord
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.selection import Selection, tick_of
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.lazy_dataclass import dataclass

_SHARES = 2
"""Everybody gets a share of what is left that is so many times smaller than an equal one: all end
at about the same time, and few places have to be sought."""
_BEYOND = 2
"""Parts of a run after the end that the film claims to have."""


@dataclass(frozen=True)
class PartRun:
    """Parts that follow each other and are missing."""

    first: int
    """Number of the first one."""
    until: int | None
    """Number of the one after the last; None: up to the end of the film."""
    before: str | None = None
    """A hash of the frame before the first one, if it is known; empty where there is none."""
    is_sought: bool = True
    """Whether the first one is sought in the film, or come to by decoding all that is before."""


@dataclass(frozen=True)
class FilmWork:
    """What all parts of a film have in common. It can be sent to other processes and machines."""

    source: Path
    folder: Path
    """Where the parts go."""
    shape: Shape
    selection: Selection
    part_ticks: int
    """How long a part is, in ticks of the film."""
    duplicates: Duplicates


def first_part(film: Film, selection: Selection, part_ticks: int) -> int:
    """The number of the part in which a selection begins."""
    return int(selection.start // (part_ticks * tick_of(film, selection.deinterlacing)))


def expected_parts(film: Film, work: FilmWork) -> int:
    """The number of the part after the last, by what the film says of itself; 0 if nothing."""
    seconds = film.seconds or 0.0
    if work.selection.end is not None:
        seconds = min(seconds, float(work.selection.end))
    return -int(-seconds // float(work.part_ticks * work.shape.tick))


class MissingRuns(NamedTuple):
    """What is to be made before a film can be joined."""

    runs: Sequence[PartRun]
    wrong: frozenset[int]
    """Parts that are there and have to be made again: seeking has come to another place."""


def missing_runs(there: Mapping[int, PartRecord], first: int, part_ticks: int) -> MissingRuns:
    """What is missing_runs of a film that begins in part `first`.

    Raises ImageError where parts do not fit although all before them was decoded.
    """
    wrong = _wrong_parts(there, part_ticks)
    runs = []
    at: int | None = first
    before: str | None = None
    for number in sorted(there.keys() - wrong):
        told = there[number]
        begins = at == first and not told.before
        if at is not None and at < number and not begins:
            runs.append(PartRun(at, number, before))
        at = None if told.following is None else told.following // part_ticks
        before = told.last
    if at is not None:
        runs.append(PartRun(at, None, before))
    return MissingRuns(runs, wrong)


def runs_within(runs: Sequence[PartRun], first: int, until: int | None) -> list[PartRun]:
    """What of some runs is among the parts from `first` up to and without `until`."""
    found = []
    for run in runs:
        begin = max(run.first, first)
        ends = [end for end in (run.until, until) if end is not None]
        end = min(ends, default=None)
        if end is None or begin < end:
            before = run.before if begin == run.first else None
            found.append(PartRun(begin, end, before, run.is_sought))
    return found


def _wrong_parts(there: Mapping[int, PartRecord], part_ticks: int) -> frozenset[int]:
    found: set[int] = set()
    for earlier, later in pairwise(sorted(there)):
        one, other = there[earlier], there[later]
        follows = None if one.following is None else one.following // part_ticks
        if follows is not None and follows < later:
            continue  # there are others between them
        meets = one.following == other.encoded.pts[0]
        if meets and one.last == other.before:
            continue
        sought = {number for number in (earlier, later) if there[number].is_sought}
        if sought:
            found |= sought
        elif not (meets and (one.damaged or other.damaged)):  # damage is concealed by chance
            raise ImageError("the film decodes otherwise than when its parts were made: --restart")
    return frozenset(found)


class RunQueue:
    """Runs that are to be made. Threads share it."""

    def __init__(
        self, runs: Sequence[PartRun], expected: int, makers: int, most: int | None = None
    ) -> None:
        """`expected` is the number of the part after the last, as far as is known; `makers` is how
        many there are; no run has more than `most` parts, unless it cannot be divided."""
        self._changed = threading.Condition()
        self._waiting = deque(runs)
        self._expected = expected
        self._makers = makers
        self._most = most
        self._under_way = 0
        self._has_ended = False
        self._is_stopped = False

    def take(self) -> PartRun | None:
        """A run to make, as soon as there is one; None when nothing is left.

        Whoever takes one has to tell how it ended.
        """
        with self._changed:
            while not self._is_stopped:
                run = self._taken()
                if run is not None or not self._under_way:
                    return run
                self._changed.wait()
            return None

    def take_now(self) -> PartRun | None:
        """A run to make, if there is one now."""
        with self._changed:
            return self._taken()

    def _taken(self) -> PartRun | None:
        run = self._cut()
        if run is not None:
            self._under_way += 1
        return run

    def done(self, *, has_ended: bool) -> None:
        """A run was made; whether the end of the film was found with it."""
        with self._changed:
            self._under_way -= 1
            self._has_ended |= has_ended
            self._changed.notify_all()

    def give_back(self, left: Sequence[PartRun]) -> None:
        """A run was not made, or not all of it: others make what is left."""
        with self._changed:
            self._under_way -= 1
            self._waiting.extendleft(reversed(left))
            self._changed.notify_all()

    def stop(self) -> None:
        """Hands out nothing more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _cut(self) -> PartRun | None:
        """The next run, of a size that is fair."""
        while self._waiting:
            run = self._waiting.popleft()
            if run.until is None and self._has_ended:
                continue
            if not run.is_sought:
                return run  # all of it costs as much as its last part
            left = self._length(run) + sum(map(self._length, self._waiting))
            length = max(1, -(-left // (_SHARES * self._makers)))
            if run.until is None and run.first >= self._expected:
                length = _BEYOND
            length = min(length, self._most or length)
            end = run.first + length
            if run.until is not None and end >= run.until:
                return run
            self._waiting.appendleft(replace(run, first=end, before=None))
            return replace(run, until=end)
        return None

    def _length(self, run: PartRun) -> int:
        return max(0, (self._expected if run.until is None else run.until) - run.first)
