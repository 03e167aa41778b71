"""Orders a program's steps so that few maps are alive at once.

Attention reads several maps made from one, and its result joins others made from the same. Each
step moves to just before its first reader, and sums of attention between planes as early as
possible, since they free the queries and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from waifu2x.lowering.ops.attention import AttendWindows, CrossSums
from waifu2x.lowering.ops.base import MapStep, Step, VectorStep
from waifu2x.lowering.program import Program


def ordered(program: Program) -> Program:
    """Returns the program with its steps in another order, between the same cuts; the program
    itself if it has no attention."""
    if not any(isinstance(step, AttendWindows | CrossSums) for step in program.steps):
        return program
    ends = (0, *program.cuts, len(program.steps))
    order = [number for first, end in pairwise(ends) for number in _segment(program, first, end)]
    return replace(program, steps=tuple(program.steps[number] for number in order))


def _segment(program: Program, first: int, end: int) -> list[int]:
    """Returns the numbers of the steps of a segment, in order."""
    numbers = range(first, end)
    sources = _sources(program.steps, numbers)
    wanted = {source for number in numbers for source in sources[number]}
    sums = [n for n in numbers if isinstance(program.steps[n], CrossSums)]
    found: dict[int, None] = {}
    for root in (*sums, *(n for n in numbers if n not in wanted)):
        _add(root, sources, found)
    return list(found)


def _sources(steps: Sequence[Step], numbers: range) -> dict[int, list[int]]:
    """Returns, for each step of a segment, the steps of the segment that it depends on: those of
    its source first, of its vectors last."""
    makers: dict[tuple[int, int], list[int]] = {}
    vectors: dict[int, int] = {}
    found: dict[int, list[int]] = {}
    for number in numbers:
        step = steps[number]
        made = list[int]()
        for view in step.reads:
            for part in range(view.first, view.first + view.parts):
                made += makers.get((view.value, part), [])
        made += [vectors[vector] for vector in sorted(step.vectors_read) if vector in vectors]
        found[number] = made
        if isinstance(step, VectorStep):
            vectors[step.vector] = number
        else:
            assert isinstance(step, MapStep)
            makers.setdefault((step.writes, step.target.part), []).append(number)
    return found


def _add(root: int, sources: dict[int, list[int]], found: dict[int, None]) -> None:
    """Adds a step to `found`, behind those that it depends on."""
    waiting = [root]
    while waiting:
        number = waiting[-1]
        missing = [source for source in sources[number] if source not in found]
        if missing:
            waiting.append(missing[0])
        else:
            found[number] = None
            waiting.pop()
