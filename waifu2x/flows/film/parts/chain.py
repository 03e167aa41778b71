"""Which parts of a film are missing, and which do not fit to each other.

Each part knows the frame before it and the one after it. So a film is complete when each part
follows from the one before it, whoever made them, and in whatever order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from waifu2x.errors import ImageError
from waifu2x.flows.film.parts.manifest import PartRecord
from waifu2x.flows.film.parts.part_run import PartRun


class Missing(NamedTuple):
    """What is to be made before a film can be joined."""

    runs: Sequence[PartRun]
    wrong: frozenset[int]
    """Parts that are there and have to be made again: seeking has come to another place."""


def missing(there: Mapping[int, PartRecord], first: int, part_ticks: int) -> Missing:
    """What is missing of a film that begins in part `first`.

    Raises ImageError where parts do not fit although all before them was decoded.
    """
    wrong = _wrong(there, part_ticks)
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
    return Missing(runs, wrong)


def within(runs: Sequence[PartRun], first: int, until: int | None) -> list[PartRun]:
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


def _wrong(there: Mapping[int, PartRecord], part_ticks: int) -> frozenset[int]:
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
