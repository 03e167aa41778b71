"""Plans the passes over pictures: their phases, their tiles, and the place of each map."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.plan import cuts
from waifu2x.backends.gpu.plan.cuts import step_cost
from waifu2x.backends.gpu.plan.lifetimes import MapPlace, Pass, together
from waifu2x.lowering.ops.base import PictureSum
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan import geometry, liveness, phases
from waifu2x.lowering.plan.box import Box, aligned, hull
from waifu2x.lowering.plan.liveness import Span
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.plan.symbols import example
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass

_KEPT_SHARES = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0)
"""The shares of the memory tried for kept maps, where not all of them fit."""
_LITTLE_MORE = 1.25
"""How much more work, as a factor, tiles of the wished size may cause."""
_ESTIMATED = 0.97
"""The share of the memory for kept maps that is planned: maps turn out a few pixels larger."""
_BANDS = (2, 4, 8)
"""The numbers of bands tried for enlarged maps, the fewest that help first."""
_LEAST_BAND = 128
"""The fewest rows of the result in a band."""
_TOO_MANY = sys.maxsize
"""The size that stands for a map that kernels cannot index."""


class MapMemoryError(Exception):
    """Says that not even the smallest tile fits into memory."""


@dataclass(frozen=True)
class MapMemory:
    """The memory for maps, in bytes."""

    total: int
    scratch: int
    """The bytes of it that the maps of a tile should take: a wish, worth little more work."""
    buffer: int
    """The bytes of the largest buffer."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """A plan of all passes over pictures of one size."""

    executor: Executor
    """The executor whose program runs."""
    pictures: int
    sizes: Sequence[Size]
    """Rows and columns of every value, as `geometry.sizes` gives them."""
    phases: Sequence[Phase]
    passes: Sequence[Sequence[Sequence[Pass]]]
    """By phase, row of tiles and tile."""
    scratch: int
    """The bytes for the maps of a tile."""
    kept: int
    """The bytes for maps kept from phase to phase."""

    @property
    def is_single(self) -> bool:
        """Whether each phase is one pass."""
        return all(len(rows) == 1 and len(rows[0]) == 1 for rows in self.passes)

    @cached_property
    def cost(self) -> float:
        """The estimated multiply-adds of all passes."""
        program = self.executor.program
        return sum(pass_cost(program, one) for rows in self.passes for row in rows for one in row)


def find(
    executor: Executor,
    size: Size,
    pictures: int,
    memory: MapMemory,
    tile: int | None = None,
    bands: int = 1,
    divided: Callable[[], Executor | None] = lambda: None,
) -> Schedule:
    """Returns the cheapest schedule that fits the memory, for pictures of that size.

    `tile` is the wished side of tiles, in pixels of the result; there are at least `bands` rows of
    tiles. Each phase has the fewest tiles that fit; several pictures are not divided. Where a phase
    needs several tiles, keeping fewer maps from phase to phase may leave memory for larger ones.
    `divided` returns an executor of the program with cuts, or None; it is called only where one
    tile does not fit. Raises MapMemoryError.
    """
    wish = _Wish(pictures, memory, tile, bands)
    planned = _plan(executor, size, pictures, math.inf)
    found = _Planner(executor, size, planned, wish).schedule(most_tiles=1)
    if found is None and pictures == 1 and (other := divided()) is not None:
        found = _in_segments(executor, other, size, wish)
    elif found is None:
        found = _keeping_less(executor, size, wish)
    if found is None:
        raise MapMemoryError
    return found


def whole(executor: Executor, size: Size, pictures: int) -> Schedule | None:
    """Returns a schedule of one pass for each phase, with all maps in one block of any size; None
    if kernels cannot index the maps.

    Where enlarged maps would take the most memory, they are made in bands of the picture, in the
    number needed. The size may be symbols.
    """
    start = cuts.enlarged(executor.program) if pictures == 1 else None
    program = replace(executor.program, cuts=() if start is None else (start,))
    planned = phases.plan(program, lambda step: 0.0, lambda value: 0.0, math.inf)
    memory = MapMemory(_TOO_MANY, _TOO_MANY, _TOO_MANY)
    planner = _Planner(executor, size, planned, _Wish(pictures, memory, None, 1))
    found = planner.whole(1)
    if found is None or start is None:
        return found
    rest = planner.whole(0)
    for bands in _BANDS:
        if rest is None or example(found.scratch) <= example(rest.scratch):
            break
        if found.sizes[program.result][0] < bands * _LEAST_BAND:
            break
        found = planner.whole(bands) or found
    return found


def _in_segments(executor: Executor, divided: Executor, size: Size, wish: _Wish) -> Schedule | None:
    """Returns a schedule with the worthwhile cuts; where their estimates were too low, the cheaper
    of those without cuts and with all cuts."""

    def made(some: tuple[int, ...]) -> Schedule | None:
        own = divided if some else executor
        return _Planner(own, size, _plan(own, size, 1, math.inf, some), wish).schedule()

    sizes = geometry.sizes(divided.program, *size)
    memory = wish.memory
    chosen = cuts.worthwhile(divided, sizes, memory.total, memory.scratch, wish.tile)
    found = made(chosen) if chosen else None
    if found is not None:
        return found
    rest = [made(()), made(divided.program.cuts)]
    return min((one for one in rest if one), key=lambda one: one.cost, default=None)


def _keeping_less(executor: Executor, size: Size, wish: _Wish) -> Schedule | None:
    """Returns the cheapest schedule over several shares of memory for kept maps."""
    best: Schedule | None = None
    tried = set()
    for share in (math.inf, *_KEPT_SHARES):
        budget = wish.memory.total * share * _ESTIMATED
        planned = _plan(executor, size, wish.pictures, budget)
        kept = tuple(phase.kept for phase in planned)
        if kept not in tried:
            tried.add(kept)
            found = _Planner(executor, size, planned, wish).schedule()
            if found is not None and (best is None or found.cost < best.cost):
                best = found
    return best


def pass_cost(program: Program, one: Pass) -> float:
    """Estimates the multiply-adds of a pass."""
    return sum(step_cost(program, step, box) for step, box in one.work.steps.items())


def _plan(
    executor: Executor,
    size: Size,
    pictures: int,
    budget: float,
    chosen: tuple[int, ...] = (),
) -> list[Phase]:
    """Returns the phases of the executor's program, cut at `chosen` ones of its cuts."""
    program = replace(executor.program, cuts=chosen)
    sizes = geometry.sizes(program, *size)

    def cost(number: int) -> float:
        return step_cost(program, number, cuts.whole(program, number, sizes))

    def bytes_of(value: int) -> float:
        return executor.map_bytes(value, Box(0, 0, *sizes[value]), pictures)

    return phases.plan(program, cost, bytes_of, budget)


@dataclass(frozen=True)
class _Wish:
    """The demands on a schedule: number of pictures, memory, and the wished tiles and bands."""

    pictures: int
    memory: MapMemory
    tile: int | None
    bands: int

    def grids(self, size: Size, is_last: bool) -> Iterator[Size]:
        """Yields the numbers of tiles down and across to try for a phase, fewest first, for results
        of that size."""
        if self.pictures > 1:
            return iter([(1, 1)])
        return cuts.grids(size, self.tile, self.bands if is_last else 1)


class _Planner:
    """Plans the phases of a program backwards: the box and the place of each kept map."""

    def __init__(
        self, executor: Executor, size: Size, planned: Sequence[Phase], wish: _Wish
    ) -> None:
        self._executor = executor
        self._phases = planned
        self._wish = wish
        self._program = program = executor.program
        self._sizes = geometry.sizes(program, *size)
        self._readers = geometry.read_by(program)
        self._tiles: dict[tuple[int, Size], list[Box]] = {}
        self._undivided: list[tuple[Pass, int] | None] = []
        """The pass of each phase but the last, in one tile, with the bytes of its maps."""
        self._roots: list[dict[int, Box]] = [{} for _ in planned]
        """For each phase, the boxes of the values that it makes for later phases."""
        # A value may be kept, dropped, recomputed and kept again: each time is a span of its own.
        spans: dict[tuple[int, int], Span] = {}
        boxes: dict[tuple[int, int], Box] = {}
        wanted: dict[int, Box] = {}
        held: dict[int, Box] = {}
        last: dict[int, int] = {}
        for index in range(len(planned) - 1, -1, -1):
            phase = planned[index]
            roots = {value: wanted.pop(value) for value in phase.kept if value in wanted}
            ending = tuple(roots)
            for number in phase.averages:
                value = _averaged(program, number)
                extent = Box(0, 0, *self._sizes[value])
                roots[value] = hull(extent, roots.get(value))
            if index == len(planned) - 1:
                roots[program.result] = Box(0, 0, *self._sizes[program.result])
            self._roots[index] = roots
            made = geometry.work(program, phase.steps, roots, executor.unit, self._sizes)
            for value in set(phase.given) & (made.needed.keys() | made.whole) - {0}:
                s2d = program.values[value].space_to_depth
                near = [(made.needed, wanted), (made.values, held)] if value in made.needed else []
                for boxes_of, found in near:
                    box = aligned(boxes_of[value], (s2d, s2d))
                    found[value] = hull(box, found.get(value))
                if value in made.whole:
                    for found in (wanted, held):
                        found[value] = hull(Box(0, 0, *self._sizes[value]), found.get(value))
                last.setdefault(value, index)
            for value in ending:
                boxes[value, index] = box = hull(made.values[value], held.pop(value))
                spans[value, index] = Span(index, last.pop(value), self._bytes(value, box))
        offsets, self._kept_bytes = liveness.places(spans, executor.alignment)
        self._kept: list[dict[int, MapPlace]] = [{} for _ in planned]
        """The places of the kept maps that each phase writes or reads."""
        for (value, first), offset in offsets.items():
            for index in range(first, spans[value, first].last + 1):
                self._kept[index][value] = MapPlace(True, offset, boxes[value, first])
        self._is_countable = all(span.size <= executor.map_limit for span in spans.values())
        """Whether kernels can index all kept maps."""

    def _bytes(self, value: int, box: Box) -> int:
        return self._executor.map_bytes(value, box, self._wish.pictures)

    def schedule(self, most_tiles: float = math.inf) -> Schedule | None:
        """Returns a schedule, each phase in the fewest tiles that fit; None if a phase does not
        fit, or needs more than `most_tiles`."""
        memory = self._wish.memory
        if not self._is_countable or self._kept_bytes > min(memory.buffer, memory.total):
            return None
        passes: list[list[list[Pass]]] = []
        scratch = 0
        for number in range(len(self._phases)):
            most = min(memory.total - self._kept_bytes, memory.buffer)
            made = self._passes(number, most, most_tiles)
            if made is None:
                return None
            passes.append(made[0])
            scratch = max(scratch, made[1])
        return Schedule(
            self._executor,
            self._wish.pictures,
            self._sizes,
            self._phases,
            passes,
            scratch,
            self._kept_bytes,
        )

    def whole(self, bands: int) -> Schedule | None:
        """Returns a schedule with each phase in one tile, but the last in `bands` bands, or without
        it for 0; None if kernels cannot index a map."""
        last = len(self._phases) - 1
        if not self._undivided:
            self._undivided = [self._one(number, (1, 1), 0, 0) for number in range(last)]
        rows = [[one] for one in self._undivided]
        rows.append([self._one(last, (bands, 1), row, 0) for row in range(bands)])
        made = [[one[0] for one in phase if one is not None] for phase in rows]
        passes = [one for phase in made for one in phase]
        placed, size, is_countable = together(self._executor, passes, self._wish.pictures)
        if not is_countable:
            return None
        left = iter(placed)
        return Schedule(
            self._executor,
            self._wish.pictures,
            self._sizes,
            self._phases,
            [[[next(left)] for _ in phase] for phase in made],
            size,
            0,
        )

    def _passes(
        self, number: int, most: int, most_tiles: float
    ) -> tuple[list[list[Pass]], int] | None:
        """Returns the passes of a phase, by rows of tiles, and the bytes of a tile's maps; None if
        it does not fit."""
        size = self._sizes[self._program.result]
        grids = list(self._wish.grids(size, number == len(self._phases) - 1))
        for grid in grids[self._first(number, grids, most) :]:
            if grid[0] * grid[1] > most_tiles:
                return None
            rows: list[list[Pass]] = []
            scratch = 0
            for row in range(grid[0]):
                made = [self._one(number, grid, row, column) for column in range(grid[1])]
                tiles = [one for one in made if one is not None]
                if tiles:
                    rows.append([one[0] for one in tiles])
                    scratch = max(scratch, *(one[1] for one in tiles))
            if scratch <= most:
                return rows, scratch
        return None

    def _first(self, number: int, grids: Sequence[Size], most: int) -> int:
        """Returns the index of the first grid whose tiles fit `most` bytes, or of a later one with
        tiles of the wished size for little more work; the middle tile stands for all."""
        least, found = math.inf, len(grids)
        for index, (down, across) in enumerate(grids):
            typical = self._one(number, (down, across), down // 2, across // 2)
            taken = typical[1] if typical else 0
            if taken > most:
                continue
            cost = pass_cost(self._program, typical[0]) * down * across if typical else 0.0
            least = min(least, cost)
            if cost > least * _LITTLE_MORE:
                break
            found = index
            if taken <= self._wish.memory.scratch:
                break
        return found

    def _one(self, number: int, grid: Size, row: int, column: int) -> tuple[Pass, int] | None:
        """Returns the pass of a phase on one tile, and the bytes of its own maps; None if it
        computes nothing."""
        phase, program = self._phases[number], self._program
        sums = {n: self._part(_averaged(program, n), grid, row, column) for n in phase.averages}
        roots: dict[int, Box] = {}
        for value, extent in self._roots[number].items():
            part = self._part(value, grid, row, column, extent)
            if part.height > 0 and part.width > 0:
                roots[value] = part
        if not roots:
            return None
        work = geometry.work(program, phase.steps, roots, self._executor.unit, self._sizes)
        kept = self._kept[number]
        spans = {}
        times = {*work.steps, *(n for n, box in sums.items() if box.height and box.width)}
        is_countable = True
        for value, box in work.values.items():
            if value in (0, program.result) or value in kept:
                continue
            used = [n for n in self._readers[value] if n in times]
            used += [n for n in work.steps if program.steps[n].writes == value]
            size = self._bytes(value, box)
            is_countable = is_countable and size <= self._executor.map_limit
            spans[value] = Span(min(used), max(used), size)
        offsets, size = liveness.places(spans, self._executor.alignment)
        places = {value: MapPlace(False, offsets[value], work.values[value]) for value in offsets}
        places |= {
            value: place
            for value, place in kept.items()
            if value in work.values or value in work.whole
        }
        tile = roots.get(program.result, Box(0, 0, 0, 0))
        return Pass(work, places, sums, tile), size if is_countable else _TOO_MANY

    def _part(
        self, value: int, grid: Size, row: int, column: int, extent: Box | None = None
    ) -> Box:
        """Returns a value's box in a tile; those of all tiles cover `extent`, or the value."""
        down, across = grid
        size = self._sizes[value]
        everything = Box(0, 0, *size)
        key = (value, grid)
        if key not in self._tiles:
            self._tiles[key] = list(geometry.tiles(size, down, across, self._unit(value)))
        box = self._tiles[key][row * across + column]
        if extent is None or extent == everything:
            return box
        top = extent.top if row == 0 else max(box.top, extent.top)
        bottom = extent.bottom if row == down - 1 else min(box.bottom, extent.bottom)
        left = extent.left if column == 0 else max(box.left, extent.left)
        right = extent.right if column == across - 1 else min(box.right, extent.right)
        return Box(top, left, max(bottom - top, 0), max(right - left, 0))

    def _unit(self, value: int) -> int:
        """Returns the unit at whose multiples a value can be cut without computing a cell twice."""
        unit = math.lcm(*self._executor.unit, self._program.values[value].space_to_depth)
        blocks = [
            step.depth_to_space
            for step in self._program.steps
            if isinstance(step, Conv) and step.target.value == value
        ]
        return unit * max(blocks, default=1)


def _averaged(program: Program, number: int) -> int:
    step = program.steps[number]
    assert isinstance(step, PictureSum)
    return step.source.value
