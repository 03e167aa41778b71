"""Divides a program into phases at its means, and chooses the maps that each phase keeps.

A mean over the picture must be complete before the maps that it scales can be computed. So the work
falls into phases: each goes over the whole picture, tile by tile, adds to the sums of the means
that end it, and keeps some of its maps whole for later phases. Other maps are recomputed from the
picture or from kept maps. Without means there is one phase and nothing is kept, except in deep
networks, which are cut (see `segments`).

A map that is read whole ends a phase as a mean does. It is always kept, and so is each map that
could not be recomputed without it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from waifu2x.lowering.ops.base import InnerVectorStep, MapStep, PictureSum, Step, VectorStep
from waifu2x.lowering.passes.rematerialization import cheap_values
from waifu2x.lowering.program import Program
from waifu2x.system.lazy_dataclass import dataclass

_MOST_TRIED = 12
"""The most values for which every choice of kept ones is tried: each further value doubles them."""


@dataclass(frozen=True)
class Phase:
    """A pass over the whole picture."""

    steps: tuple[int, ...]
    """The steps that write maps in every tile, in order, with those that are recomputed."""
    given: tuple[int, ...]
    """Kept values that it reads, and the picture, if it reads that."""
    kept: tuple[int, ...]
    """Values that it writes whole for later phases."""
    averages: tuple[int, ...]
    """The steps of means whose sums its tiles add to."""
    dense: tuple[int, ...]
    """The steps on vectors that run when all tiles are done."""
    live: frozenset[int]
    """Kept values that a later phase reads: all others can be freed when it ends."""

    def roots(self, program: Program) -> tuple[int, ...]:
        """Returns the values whose tiles divide its work."""
        averaged = (
            step.source.value
            for step in map(program.steps.__getitem__, self.averages)
            if isinstance(step, PictureSum)
        )
        makes = any(program.steps[number].writes == program.result for number in self.steps)
        last = (program.result,) if makes else ()
        return tuple(dict.fromkeys((*self.kept, *averaged, *last)))


def plan(
    program: Program,
    cost: Callable[[int], float],
    size: Callable[[int], float],
    budget: float,
    keeping: Callable[[int], float] | None = None,
) -> list[Phase]:
    """Returns the phases of a program.

    `cost` gives the cost of a step, `size` that of a kept value, each in any unit. Kept maps never
    take more than `budget`; where they would, those are dropped that are cheapest to recompute.

    `keeping` gives the cost of keeping a value, in the unit of `cost`: values that cost less to
    recompute are dropped as well, and where a budget would make all later phases begin far before,
    more is kept.
    """
    depths = _depths(program)
    writers = _writers(program)
    count = max(depths) + 1
    own = [[n for n, depth in enumerate(depths) if depth == phase] for phase in range(count)]
    phases: list[Phase] = []
    before: frozenset[int] = frozenset()
    for phase in range(count):
        after = frozenset[int]()
        if phase < count - 1:
            after = _choice(program, writers, own, phase, before, cost, size, budget, keeping)
        steps_of = {n: program.steps[n] for n in own[phase]}
        pools = {n: step for n, step in steps_of.items() if isinstance(step, PictureSum)}
        wanted = {pool.source.value for pool in pools.values()}
        wanted |= after - before
        if phase == count - 1:
            wanted.add(program.result)
        dense = tuple(n for n, step in steps_of.items() if isinstance(step, InnerVectorStep))
        if wanted or dense:
            steps, given = _needed(program, writers, _parts(program, wanted), before)
            phases.append(
                Phase(
                    steps=tuple(steps),
                    given=tuple(sorted(given)),
                    kept=tuple(sorted(after - before)),
                    averages=tuple(pools),
                    dense=dense,
                    live=after,
                )
            )
        elif phases:  # all that it could make is made again where it is needed
            phases[-1] = replace(phases[-1], live=after)
        before = after
    return phases


def crossing(program: Program) -> frozenset[int]:
    """Returns the values that are read, or may be read, in a later phase than the first that can
    make them."""
    depths = _depths(program)
    made: dict[int, int] = {}
    found: set[int] = set()
    for step, depth in zip(program.steps, depths, strict=True):
        found.update(v.value for v in step.reads if made.get(v.value, depth) < depth)
        if isinstance(step, MapStep):
            made[step.target.value] = max(made.get(step.target.value, 0), depth)
    if any(step.read_whole for step in program.steps):
        # Steps that write an unfinished value will be run again.
        for step, depth in zip(program.steps, depths, strict=True):
            if isinstance(step, MapStep) and depth < made[step.target.value]:
                found.update(view.value for view in step.reads)
    return frozenset(found - {0})


def with_zeros_around(program: Program) -> Program:
    """Returns the program in which values that a later phase reads are zero outside their size:
    kept and recomputed ones must be equal there."""
    found = crossing(program)
    values = (
        replace(value, zero_outside=value.zero_outside or number in found)
        for number, value in enumerate(program.values)
    )
    return replace(program, values=tuple(values))


def _depths(program: Program) -> list[int]:
    """Returns the phase in which each step first runs: the length of the longest chain of means,
    maps that are read whole and cuts that it depends on.

    A mean belongs to the phase that ends with it, and so do the steps on its vector.
    """
    values = [0] * len(program.values)
    vectors = [0] * len(program.vectors)
    depths: list[int] = []
    floor = 0
    for number, step in enumerate(program.steps):
        if number in program.cuts:
            floor = max(depths) + 1
        far = step.read_whole
        depth = max((values[view.value] + (view in far) for view in step.reads), default=floor)
        depth = max(depth, floor)
        if isinstance(step, VectorStep):
            if isinstance(step, InnerVectorStep):
                depth = max(vectors[vector] for vector in step.vectors_read)
            vectors[step.vector] = depth
        elif isinstance(step, MapStep):
            depth = max(depth, *(vectors[vector] + 1 for vector in step.vectors_read), 0)
            values[step.target.value] = max(values[step.target.value], depth)
        depths.append(depth)
    return _as_late_as_can_be(program, depths)


def _as_late_as_can_be(program: Program, depths: Sequence[int]) -> list[int]:
    """Returns the same depths, except that values cheaper to make from the picture than to keep are
    made in the phase of their first reader."""
    found = list(depths)
    cheap = cheap_values(program)
    first: dict[int, int] = {}
    for number in reversed(range(len(found))):
        step = program.steps[number]
        if step.writes in cheap:
            found[number] = first.get(step.writes, found[number])
        for view in step.reads:
            there = found[number] - (view in step.read_whole)
            first[view.value] = min(there, first.get(view.value, there))
    return found


def _writers(program: Program) -> dict[tuple[int, int], list[int]]:
    """Returns the steps that write each part of each value."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, MapStep):
            found.setdefault((step.target.value, step.target.part), []).append(number)
    return found


def _parts(program: Program, values: Iterable[int]) -> set[tuple[int, int]]:
    """Returns all parts of values."""
    return {(value, part) for value in values for part in range(len(program.values[value].parts))}


def _parts_written(program: Program, numbers: Iterable[int]) -> set[tuple[int, int]]:
    """Returns the parts of values that some steps write."""
    steps = map(program.steps.__getitem__, numbers)
    return {(step.target.value, step.target.part) for step in steps if isinstance(step, MapStep)}


def _parts_read(step: Step) -> set[tuple[int, int]]:
    """Returns the parts of values that a step reads."""
    return {
        (view.value, part)
        for view in step.reads
        for part in range(view.first, view.first + view.parts)
    }


def _needed(
    program: Program,
    writers: Mapping[tuple[int, int], Sequence[int]],
    wanted: Iterable[tuple[int, int]],
    kept: frozenset[int],
) -> tuple[list[int], set[int]]:
    """Returns the steps that make the `wanted` parts of values, in order, and the kept values (or
    the picture) that they read."""
    steps: set[int] = set()
    given: set[int] = set()
    waiting = sorted(wanted)
    seen: set[tuple[int, int]] = set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        if place[0] == 0 or place[0] in kept:
            given.add(place[0])
            continue
        for number in writers[place]:
            steps.add(number)
            waiting += _parts_read(program.steps[number])
    return sorted(steps), given


def _choice(
    program: Program,
    writers: Mapping[tuple[int, int], Sequence[int]],
    own: Sequence[Sequence[int]],
    phase: int,
    before: frozenset[int],
    cost: Callable[[int], float],
    size: Callable[[int], float],
    budget: float,
    keeping: Callable[[int], float] | None,
) -> frozenset[int]:
    """Returns the values to keep at the end of a phase: those that make all later phases cheapest,
    within the budget."""
    done = {n for earlier in own[: phase + 1] for n in earlier}
    made = {0} | {program.steps[n].writes for n in done} - {-1}
    unfinished = {s.writes for n, s in enumerate(program.steps) if n not in done} - {-1}
    later = {
        view.value for n, step in enumerate(program.steps) if n not in done for view in step.reads
    }
    if any(step.read_whole for step in program.steps):
        # Steps that write an unfinished value will be run again.
        redone = [program.steps[n] for n in done if program.steps[n].writes in unfinished]
        later |= {view.value for step in redone for view in step.reads}
    crossing = sorted((made - unfinished) & later - {0})
    everything = frozenset(crossing)
    sizes = {value: size(value) for value in everything | before}
    if sum(sizes.values()) <= budget and keeping is None:
        return everything
    again = _MadeAgain(program, writers, own, phase, cost)
    options: list[tuple[float, float, frozenset[int]]] = []
    for chosen in _choices(crossing, again, sizes):
        kept = frozenset(chosen)
        total = sum(sizes[value] for value in kept | before)
        if total <= budget or keeping:
            costs = again.cost(kept)
            costs += sum(map(keeping, kept - before)) if keeping else 0
            if math.isfinite(costs):
                options.append((costs, total, kept))
    best = min((one for one in options if one[1] <= budget), default=None)
    if keeping:
        near = sum(map(cost, (*own[phase], *own[phase + 1])))
        near += sum(map(keeping, everything - before))
        if best is None or best[0] > near:
            best = min((one for one in options if one[0] <= near), key=lambda one: one[1::-1])
    if best is None:
        return everything if any(step.read_whole for step in program.steps) else frozenset()
    return best[2]


def _choices(
    values: Sequence[int], again: _MadeAgain, sizes: Mapping[int, float]
) -> Iterator[Sequence[int]]:
    """Yields choices among `values`: all subsets where they are few, else only the first few in
    order of the work that each byte saves."""
    if len(values) <= _MOST_TRIED:
        for count in range(len(values) + 1):
            yield from itertools.combinations(values, count)
        return
    every = frozenset(values)

    def saved(value: int) -> float:
        return again.cost(every - {value}) / max(sizes[value], 1)

    ranked = sorted(values, key=saved, reverse=True)
    for count in range(len(ranked) + 1):
        yield ranked[:count]


class _MadeAgain:
    """Computes the cost of the steps that phases behind one rerun, for any set of kept values."""

    def __init__(
        self,
        program: Program,
        writers: Mapping[tuple[int, int], Sequence[int]],
        own: Sequence[Sequence[int]],
        phase: int,
        cost: Callable[[int], float],
    ) -> None:
        self._program = program
        self._cost = cost
        self._writers = writers
        there = _parts_written(program, (n for earlier in own[: phase + 1] for n in earlier))
        # Many phases want the same parts: most of a deep network's want none.
        self._wanted = Counter[frozenset[tuple[int, int]]]()
        self._whole = {view.value for step in program.steps for view in step.read_whole}
        """Values that are read whole."""
        fresh: set[int] = set()
        for index, later in enumerate(own[phase + 1 :], phase + 2):
            read = set[tuple[int, int]]().union(*(_parts_read(program.steps[n]) for n in later))
            ends = {value for value, _ in _parts_written(program, later)}
            if self._whole:
                # Parts made in earlier phases are made again where a value is finished.
                ends -= {
                    value for more in own[index:] for value, _ in _parts_written(program, more)
                }
                read |= {part for part in there if part[0] in ends}
            self._wanted[frozenset(part for part in read & there if part[0] not in fresh)] += 1
            fresh |= ends

    def cost(self, kept: frozenset[int]) -> float:
        """Returns the cost of reruns in all later phases, if only these values are kept, and each
        phase keeps what it makes first; infinite if a value read whole would be missing."""
        return sum(times * self._of_phase(wanted, kept) for wanted, times in self._wanted.items())

    def _of_phase(self, wanted: frozenset[tuple[int, int]], kept: frozenset[int]) -> float:
        missing = [place for place in wanted if place[0] not in kept]
        if any(value in self._whole for value, _ in missing):
            return math.inf
        numbers, _ = _needed(self._program, self._writers, missing, kept)
        steps = map(self._program.steps.__getitem__, numbers)
        if any(view.value not in kept for step in steps for view in step.read_whole):
            return math.inf
        return sum(map(self._cost, numbers))
