"""Cuts deep networks into segments, and keeps whole maps between them.

A tile's halo grows with every layer: 94 pixels on each side for six residual dense blocks, 349 for
twenty-three. A program that is cut goes over the whole picture once for each segment, as it does
between means (see `phases`), and tiles have the halo of one segment only. Kept maps are stored and
loaded again, so cuts lie where halos and kept maps together cost least.

Where a cut divides the parts of a map, such as those of a dense block, the parts before it are
copied: the copies are kept, and the parts behind the cut get a map of their own.

A layer of attention reads as far as seven convolutions: networks of windows are cut at their
residual streams, where the fewest planes are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from waifu2x.lowering.ops.attention import AttentionStep
from waifu2x.lowering.ops.base import MapStep, PictureSum, Step, compacted
from waifu2x.lowering.ops.planewise import Planewise, Resize
from waifu2x.lowering.plan.costs import cost_of_pixel, cost_to_keep
from waifu2x.lowering.plan.phases import with_zeros_around
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, Value, View
from waifu2x.system.lazy_dataclass import dataclass

TILE = (64, 128)
"""Rows and columns of the tiles by which cuts are costed for a processor. Its strips are larger;
but the weights and rings of maps of a short phase stay in caches nearer to a core."""
TILE_OF_ATTENTION = (128, 256)
"""The same for networks with attention, whose layers take longer than keeping a map."""
_FEW = 4
"""The most planes of a map behind which a network with means is cut."""
_FEWEST_PLANES = 5
"""The fewest planes of a part that is copied: engines may store fewer in another layout, and a cut
must not change a bit."""
_PLANEWISE_COST = 0
"""Planewise steps do not count: another number would move the cuts of shipped networks."""


def segmented(program: Program, tile: tuple[int, int] | None = None) -> Program:
    """Returns the program cut where that costs least for tiles of those rows and columns of the
    picture, by default a processor's; the same one if it is shallow, already has phases, or has
    maps whose ratio depends on the picture's size: blocks of a cut program run as pictures.

    Without attention, only values that are zero outside their size are kept: those that padded
    convolutions read.
    """
    if has_phases(program) or any(
        isinstance(step, Resize) and step.taps == "bilinear" for step in program.steps
    ):
        return program
    costs = [0.0]
    for step in program.steps:
        costs.append(costs[-1] + cost_of_pixel(program, step, _PLANEWISE_COST))
    far = receptive_radii(program)
    kept = {0: 0.0} | _kept_costs(program) | {len(program.steps): 0.0}
    around = sum(1 / side for side in tile or (TILE_OF_ATTENTION if attends(program) else TILE))

    def cost(start: int, end: int) -> float:
        again = (costs[end] - costs[start]) * (far[end] - far[start]) * around
        return again + kept[end]

    return cut(program, cheapest(list(kept), cost))


def at_bottlenecks(program: Program) -> Program:
    """Returns a program with means, cut behind each map of few planes that is the only input of all
    later steps; the same one if there are none.

    Such a map lies between two networks in a row. Kept maps of the first can be freed before those
    of the second are kept.
    """
    means = [n for n, step in enumerate(program.steps) if isinstance(step, PictureSum)]
    if not means:
        return program
    positions = []
    for position in range(means[0] + 1, means[-1] + 1):
        crossing = list(_crossing(program.values, program.steps, position))
        if len(crossing) == 1 and program.values[crossing[0]].planes <= _FEW:
            positions.append(position)
    return cut(program, positions) if positions else program


def is_segmented(program: Program) -> bool:
    """Returns whether a program is cut as by `segmented`: all maps between its phases are kept."""
    return bool(program.cuts) and not has_phases(program)


def has_phases(program: Program) -> bool:
    """Returns whether means over the picture, or maps that are read whole, end phases of a
    program."""
    return any(isinstance(step, PictureSum) or step.read_whole for step in program.steps)


def attends(program: Program) -> bool:
    """Returns whether a program has attention in windows."""
    return any(isinstance(step, AttentionStep) for step in program.steps)


def cheapest(positions: Sequence[int], cost: Callable[[int, int], float]) -> list[int]:
    """Returns the positions, between the first and the last, at which cuts make the sum of all
    segments' costs least.

    `cost` takes two positions; it must not decrease when steps are added to a segment.
    """
    best: dict[int, tuple[float, int]] = {positions[0]: (0.0, positions[0])}
    for index, end in enumerate(positions[1:], 1):
        options: list[tuple[float, int]] = []
        for start in reversed(positions[:index]):
            own = cost(start, end)
            if options and own > min(options)[0]:
                break
            options.append((best[start][0] + own, start))
        best[end] = min(options)
    cuts = []
    position = best[positions[-1]][1]
    while position != positions[0]:
        cuts.append(position)
        position = best[position][1]
    return cuts[::-1]


def cut(program: Program, positions: Sequence[int]) -> Program:
    """Returns the program cut before the steps at those positions, in ascending order."""
    made = _Cut(list(program.values), list(program.steps), list(positions))
    cuts: list[int] = []
    # Backwards: a part that gets a value of its own at a cut keeps it at all earlier cuts.
    while made.positions:
        added, first = made.cut()
        cuts = [first, *(later + added for later in cuts)]
    values, steps = compacted(made.values, made.steps, program.result)
    return with_zeros_around(replace(program, values=values, steps=steps, cuts=tuple(cuts)))


def receptive_radius(program: Program) -> int:
    """Returns the most pixels of the picture on each side of its own that a result depends on."""
    return -int(-receptive_radii(program)[-1] // 1)


@dataclass
class _Cut:
    """Holds a program while it is cut; new values are added at the end."""

    values: list[Value]
    steps: list[Step]
    positions: list[int]
    """The steps before which it is still to be cut, in order."""

    def cut(self) -> tuple[int, int]:
        """Cuts at the last position; returns the number of steps that it has added, and the
        position of the first step behind the cut."""
        position = self.positions.pop()
        before, after = self.steps[:position], self.steps[position:]
        starts: list[Step] = []
        for value, parts in _crossing(self.values, self.steps, position).items():
            written = any(step.writes == value for step in after)
            if not written and len(parts) == len(self.values[value].parts):
                continue
            copies = {part: self._copy(value, part, before) for part in sorted(parts)}
            views = [view for step in after for view in step.reads if view.value == value]
            if written or any(view.parts > 1 for view in views):
                own = value
                if any(value in step.touched for step in before):
                    own = self._add(self.values[value])
                for part, copy in copies.items():
                    node = self.values[value].graph
                    starts.append(Planewise(node, View(copy), Target(own, part)))
                after = [step.renumbered({value: own}) for step in after]
            else:
                after = [_reading(step, value, copies) for step in after]
        self.steps = [*before, *starts, *after]
        return len(before) + len(starts) - position, len(before)

    def _copy(self, value: int, part: int, before: list[Step]) -> int:
        """Returns the new value that keeps a part; adds its copy to the steps `before` the cut."""
        stored = self.values[value]
        copy = self._add(replace(stored, parts=(stored.parts[part],)))
        together = any(
            view.parts > 1 and view.first <= part < view.first + view.parts
            for step in before
            for view in step.reads
            if view.value == value
        )
        targets = {
            number: step.target
            for number, step in enumerate(before)
            if isinstance(step, MapStep) and (step.target.value, step.target.part) == (value, part)
        }
        made = Target(value, part)
        if together or list(targets.values()) != [made]:
            # As early as possible, so that earlier cuts keep only the copy.
            first = max(targets) + 1
            before.insert(first, Planewise(stored.graph, View(value, first=part), Target(copy)))
            self.positions = [each + (each >= first) for each in self.positions]
            return copy
        for n, step in enumerate(before):
            before[n] = step.redirected(
                lambda view: (
                    replace(view, value=copy, first=0)
                    if (view.value, view.first) == (value, part)
                    else view
                ),
                lambda target: Target(copy) if target == made else target,
            )
        return copy

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1


def receptive_radii(program: Program, unit: int = 1) -> list[float]:
    """Returns, before each step and at the end, the pixels of the picture on each side that the
    values so far depend on, if steps are computed in cells of `unit` x `unit` pixels."""
    values = [0.0] * len(program.values)
    found = [0.0]
    for step in program.steps:
        if isinstance(step, MapStep):
            far = max(values[view.value] for view in step.reads)
            far += step.receptive_radius(program, unit)
            values[step.target.value] = max(values[step.target.value], far)
        found.append(max(found[-1], *values))
    return found


def _kept_costs(program: Program) -> dict[int, float]:
    """Maps each position where a cut can be, in order, to the cost of the maps that it keeps, for a
    pixel of the picture."""
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, MapStep):
            first.setdefault((step.target.value, step.target.part), number)
        for view in step.reads:
            last |= {(view.value, view.first + part): number for part in range(view.parts)}
    windows = attends(program)
    # Pixels beyond a value's size do not matter, unless a step reads them there.
    bicubic = {
        step.source.value
        for step in program.steps
        if isinstance(step, Resize) and step.taps == "bicubic"
    }
    costs = [0.0] * (len(program.steps) + 1)
    for (value, part), end in last.items():
        stored, start = program.values[value], first.get((value, part))
        if start is not None:
            cost = cost_to_keep(program, value, part)
            is_few = len(stored.parts) > 1 and stored.parts[part] < _FEWEST_PLANES
            may_be_kept = stored.zero_outside or (windows and value not in bicubic)
            if is_few or not may_be_kept:
                cost = math.inf
            for position in range(start + 1, end + 1):
                costs[position] += cost
    return {n: cost for n, cost in enumerate(costs) if n and math.isfinite(cost)}


def _crossing(values: Sequence[Value], steps: Sequence[Step], position: int) -> dict[int, set[int]]:
    """Maps values to their parts that steps before a position write and steps behind it read."""
    written = {
        (step.target.value, step.target.part)
        for step in steps[:position]
        if isinstance(step, MapStep)
    }
    found: dict[int, set[int]] = {}
    for step in steps[position:]:
        for view in step.reads:
            for part in range(view.first, view.first + view.parts):
                if (view.value, part) in written:
                    found.setdefault(view.value, set()).add(part)
    return found


def _reading(step: Step, value: int, copies: Mapping[int, int]) -> Step:
    """Returns the step reading parts of a value from their copies."""

    def moved(view: View) -> View:
        if view.value != value:
            return view
        return replace(view, value=copies[view.first], first=0)

    return step.redirected(moved)
