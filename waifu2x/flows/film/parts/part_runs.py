"""Runs of missing parts of a film, divided among their makers.

A part is a stretch of the film's own time. Its maker finds it by seeking, and every maker writes
the same file. Each part knows the frame before it and the one after it, so a film is complete when
each part follows from the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.selection import Selection, tick_of
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.film.parts.part_files import PartRecord

Duplicates = Literal["off", "exact", "tolerant"]
"""Computes every frame, frames that differ from the last computed one, or those that differ by more
than a codec's noise."""
_SHARES = 2
"""The factor by which a run is smaller than an equal share of what is left: so all makers end at
about the same time, with few seeks."""
_BEYOND = 2
"""Parts of a run behind the end that the film claims."""


@dataclass(frozen=True)
class PartRun:
    """Consecutive missing parts."""

    first: int
    """Number of the first part."""
    until: int | None
    """Number after the last part; None: up to the end of the film."""
    before: str | None = None
    """Hash of the frame before the first one, if known; empty if there is none."""
    is_sought: bool = True
    """Whether the first part is reached by seeking, instead of by decoding all before it."""


@dataclass(frozen=True)
class FilmWork:
    """The settings of all parts of a film. It can be sent to other processes and machines."""

    source: Path
    folder: Path
    """The folder of the parts."""
    shape: Shape
    selection: Selection
    part_ticks: int
    """Length of a part in ticks of the film."""
    duplicates: Duplicates


def first_part(film: Film, selection: Selection, part_ticks: int) -> int:
    """Returns the number of the part in which a selection begins."""
    return int(selection.start // (part_ticks * tick_of(film, selection.deinterlacing)))


def expected_parts(film: Film, work: FilmWork) -> int:
    """Returns the number after the last part by the length that the film claims, or 0."""
    seconds = film.seconds or 0.0
    if work.selection.end is not None:
        seconds = min(seconds, float(work.selection.end))
    return -int(-seconds // float(work.part_ticks * work.shape.tick))


class MissingRuns(NamedTuple):
    """Runs to make before a film can be joined."""

    runs: Sequence[PartRun]
    wrong: frozenset[int]
    """Parts to make again, since seeking has found another place."""


def missing_runs(there: Mapping[int, PartRecord], first: int, part_ticks: int) -> MissingRuns:
    """Returns what a film that begins in part `first` lacks. Raises ImageError where parts do not
    fit although all before them was decoded."""
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
    """Returns the runs as far as they lie from part `first` up to and without `until`."""
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
            raise ImageError(
                "the film's frames differ from when these parts were written",
                "run again with --restart",
            )
    return frozenset(found)


class RunQueue:
    """Runs to make, each of a fair length for several makers. It is used up by iteration."""

    def __init__(
        self, runs: Sequence[PartRun], expected: int, makers: int, most: int | None = None
    ) -> None:
        """`expected` is the number after the last part, as far as known. No run has more than
        `most` parts, unless it cannot be divided."""
        self._waiting = deque(runs)
        self._expected = expected
        self._makers = makers
        self._most = most
        self._has_ended = False

    def __iter__(self) -> Iterator[PartRun]:
        while (run := self._cut()) is not None:
            yield run

    def end(self) -> None:
        """Notes that the end of the film was found: nothing is looked for behind it."""
        self._has_ended = True

    def _cut(self) -> PartRun | None:
        """Returns the next run, of a fair length."""
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
