"""Chooses the cuts of a deep network that are worth the memory of the maps that they keep.

A tile also computes its halo, which is larger for deeper networks and costs more for smaller tiles;
and the last maps, enlarged, take most of the memory. Between two cuts, only few steps decide the
size of tiles and halos. Costs are estimated from maps of the whole picture; `tile_plan` then finds
out what fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from waifu2x.backends.gpu.executor import Executor
from waifu2x.lowering.ops.attention import AttendWindows, CrossSums
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.passes import segments
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size

TILE = (512, 1024)
"""Rows and columns of the tile for which cuts are offered; these are enough cuts."""
_SMALLEST_TILE = 64
"""The side in output pixels below which tiles are mostly halo."""
_LARGEST_TILE = 1 << 15
"""The largest side in output pixels: libraries count groups of work-items in 16 bits."""


def worthwhile(
    executor: Executor, sizes: Sequence[Size], memory: int, scratch: int, tile: int | None
) -> tuple[int, ...]:
    """Returns the program's cuts by which a picture costs least, within `memory` bytes for all maps
    and `scratch` bytes for a tile's; `tile` as in `grids`."""
    program = executor.program
    spans = _Spans(executor, sizes)
    costs = [0.0]
    for number in range(len(program.steps)):
        costs.append(costs[-1] + step_cost(program, number, whole(program, number, sizes)))
    far = segments.receptive_radii(program, max(executor.unit))
    rows, columns = sizes[0]
    result = sizes[program.result]

    def cost(start: int, end: int) -> float:
        kept, peak = spans.bytes(start, end)
        reach = far[end] - far[start]
        for down, across in grids(result, tile, 1):
            grown = _part(rows, down, 2 * reach) * _part(columns, across, 2 * reach)
            if peak * grown <= min(memory - kept, scratch):
                computed = _part(rows, down, reach) * _part(columns, across, reach) * down * across
                return (costs[end] - costs[start]) * computed
        return float("inf")

    return tuple(segments.cheapest([0, *program.cuts, len(program.steps)], cost))


def grids(size: Size, tile: int | None, bands: int) -> Iterator[Size]:
    """Yields the numbers of tiles down and across for results of a size, fewest first; each time,
    one of the two doubles."""
    height, width = size
    side = min(tile or _LARGEST_TILE, _LARGEST_TILE)
    down, across = max(bands, -(-height // side)), -(-width // side)
    while True:
        yield down, across
        if max(height / down, width / across) <= _SMALLEST_TILE:
            return
        if height / down >= width / across:
            down *= 2
        else:
            across *= 2


def enlarged(program: Program) -> int | None:
    """Returns the first step whose maps are larger than the picture, if all later steps depend on
    one kept map only; else None. None also in networks without attention, where no other maps take
    as much memory."""
    attends = [n for n, s in enumerate(program.steps) if isinstance(s, AttendWindows | CrossSums)]
    larger = [
        number
        for number, step in enumerate(program.steps)
        if step.writes not in (-1, program.result) and program.values[step.writes].resolution > 1
    ]
    if not attends or not larger or larger[0] < attends[-1]:
        return None
    start = larger[0]
    before = {step.writes for step in program.steps[:start]}
    read = {view.value for step in program.steps[start:] for view in step.reads} & before
    plain = all(isinstance(step, MapStep) for step in program.steps[start:])
    whole = read.isdisjoint(step.writes for step in program.steps[start:])
    zero = all(program.values[value].zero_outside for value in read)
    return start if len(read) == 1 and plain and whole and zero else None


def step_cost(program: Program, number: int, box: Box) -> float:
    """Estimates the multiply-adds of a step for its results in a box."""
    return float(box.height * box.width) * program.steps[number].cost(program)


def whole(program: Program, number: int, sizes: Sequence[Size]) -> Box:
    """Estimates the box of a step's results for a whole picture."""
    step = program.steps[number]
    if not isinstance(step, MapStep):
        return Box(0, 0, 0, 0)
    rows, columns = sizes[step.target.value]
    block = step.stored_block
    return Box(0, 0, rows // block, columns // block)


class _Spans:
    """Holds the lifetimes of a program's maps, and their sizes for the whole picture."""

    def __init__(self, executor: Executor, sizes: Sequence[Size]) -> None:
        program = executor.program
        self._first = np.full(len(program.values), len(program.steps))
        self._last = np.full(len(program.values), -1)
        for number, step in enumerate(program.steps):
            for value in (step.writes, *(view.value for view in step.reads)):
                if value not in (-1, 0, program.result):
                    self._first[value] = min(self._first[value], number)
                    self._last[value] = number
        self._sizes = np.zeros(len(program.values))
        more = 2 * max(executor.unit)  # a cell on each side
        for value, (rows, columns) in enumerate(sizes):
            if self._last[value] >= 0:
                box = Box(0, 0, rows + more, columns + more)
                self._sizes[value] = executor.map_bytes(value, box, 1)

    def bytes(self, start: int, end: int) -> tuple[float, float]:
        """Returns the bytes of maps kept while the steps [start, end) run, and the peak bytes of
        those steps' own maps."""
        crossing = [(self._first < cut) & (self._last >= cut) for cut in (start, end)]
        kept = crossing[0] | crossing[1]
        own = ~kept & (self._first < end) & (self._last >= start)
        changes = np.zeros(end - start + 1)
        np.add.at(changes, self._first[own] - start, self._sizes[own])
        np.add.at(changes, self._last[own] - start + 1, -self._sizes[own])
        return float(self._sizes[kept].sum()), float(changes.cumsum().max())


def _part(length: int, count: int, more: float) -> float:
    """Returns the fraction of a side that one of `count` tiles covers with its halo."""
    return min(1.0, (length / count + more) / length) if count > 1 else 1.0
