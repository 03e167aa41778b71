"""How pictures are worked on: which tiles, which phases, and where each map lies meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from waifu2x.backends.gpu.executor import Executor
from waifu2x.lowering import geometry, liveness, phases
from waifu2x.lowering.geometry import Work
from waifu2x.lowering.liveness import Span
from waifu2x.lowering.phases import Phase
from waifu2x.lowering.steps import Average, Move, Product, Program, writes
from waifu2x.model import Size
from waifu2x.tiling import Box

_SMALLEST_TILE = 64
"""Output pixels a side, below which tiles are mostly margin."""
_LARGEST_TILE = 1 << 15
"""Output pixels a side: libraries count groups of work-items in 16 bits."""
_ESTIMATED = 0.97
"""Of the room for kept maps: they reach a few pixels beyond their sizes."""


class NoRoomError(Exception):
    """Not even the smallest tile fits the memory."""


@dataclass(frozen=True)
class Room:
    """Memory for maps, in bytes."""

    total: int
    scratch: int
    """Of it, for the maps of a tile: a wish where no tile is small enough."""
    buffer: int
    """What a single buffer can have."""


@dataclass(frozen=True)
class Spot:
    """Where a map lies: as a Place, in one of two blocks of memory."""

    is_kept: bool
    offset: int
    box: Box


@dataclass(frozen=True)
class Pass:
    """One phase on one tile: see Executor.run."""

    work: Work
    spots: Mapping[int, Spot]
    sums: Mapping[int, Box]
    tile: Box


@dataclass(frozen=True, eq=False)
class Schedule:
    """All passes over pictures of one size."""

    pictures: int
    sizes: Sequence[Size]
    """Of every value: see `geometry.sizes`."""
    phases: Sequence[Phase]
    passes: Sequence[Sequence[Sequence[Pass]]]
    """By phase and row of tiles."""
    scratch: int
    """Bytes for the maps of a tile."""
    kept: int
    """Bytes for the maps that are kept from phase to phase."""
    cost: float
    """About the multiply-adds of all passes."""

    @property
    def is_single(self) -> bool:
        """Whether each phase is one pass."""
        return all(len(rows) == 1 and len(rows[0]) == 1 for rows in self.passes)

    @property
    def band_rows(self) -> int:
        """The most rows of the result that a row of tiles makes."""
        return max(row[0].tile.height for row in self.passes[-1])


def find(
    executor: Executor,
    size: Size,
    pictures: int,
    room: Room,
    tile: int | None = None,
    bands: int = 1,
) -> Schedule:
    """The fewest tiles that fit, for pictures of that size.

    `tile` is a wish for their side, in pixels of the result; they stand in at least `bands` rows.
    Several pictures are not divided. Where maps are kept from phase to phase, more tiles may leave
    room for more of them: then what costs least is taken. Raises NoRoomError.
    """
    program = executor.program
    sizes = geometry.sizes(program, *size)
    height, width = sizes[program.result]
    best: Schedule | None = None
    for down, across in _grids(height, width, tile, bands) if pictures == 1 else [(1, 1)]:
        last = max(height / down, width / across) <= _SMALLEST_TILE
        wish = min(room.total if last else room.scratch, room.total, room.buffer)
        cutter = _Cutter(executor, sizes, pictures, down, across)
        found = cutter.schedule(replace(room, scratch=wish))
        if found is not None and (best is None or found.cost < best.cost):
            best = found
        elif best is not None:
            break
        if best is not None and not cutter.repeats(best.phases):
            break
    if best is None:
        raise NoRoomError
    return best


def _grids(height: int, width: int, tile: int | None, bands: int) -> Iterator[tuple[int, int]]:
    """Numbers of tiles down and across, doubled one after the other."""
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


class _Cutter:
    """One way to cut pictures into tiles."""

    def __init__(
        self, executor: Executor, sizes: Sequence[Size], pictures: int, down: int, across: int
    ) -> None:
        self._executor = executor
        self._program = executor.program
        self._sizes = sizes
        self._pictures = pictures
        self._down = down
        self._across = across
        self._readers = geometry.read_by(executor.program)

    def schedule(self, room: Room) -> Schedule | None:
        """The passes that cost least, if any fit the room."""
        frame = _Frame(self, self._plan(math.inf))
        scratch = self._typical_scratch(frame)
        if scratch > room.scratch:
            return None
        if frame.kept_bytes + scratch > room.total:
            # What is computed again takes room of its own; with nothing kept it takes the most.
            again = self._typical_scratch(_Frame(self, self._plan(0)))
            for taken in (scratch, (scratch + again) // 2, again):
                frame = _Frame(self, self._plan((room.total - taken) * _ESTIMATED))
                if self._typical_scratch(frame) + frame.kept_bytes <= room.total:
                    break
            else:
                return None
        found = frame.schedule()
        if found.scratch > room.scratch or found.scratch + found.kept > room.total:
            return None
        if found.kept > room.buffer or not frame.is_countable:
            return None
        return found

    def repeats(self, planned: Sequence[Phase]) -> bool:
        """Whether any step runs in several phases."""
        numbers = [number for phase in planned for number in phase.steps]
        return len(numbers) > len(set(numbers))

    def _plan(self, budget: float) -> list[Phase]:
        def cost(number: int) -> float:
            return step_cost(self._program, number, self._made(number))

        def size(value: int) -> float:
            box = Box(0, 0, *self._sizes[value])
            return self._executor.map_bytes(value, box, self._pictures)

        return phases.plan(self._program, cost, size, budget)

    def _made(self, number: int) -> Box:
        """About what a step makes of whole pictures."""
        step = self._program.steps[number]
        if not isinstance(step, Product | Move):
            return Box(0, 0, 0, 0)
        rows, columns = self._sizes[step.target.value]
        shuffle = step.shuffle if isinstance(step, Product) else 1
        return Box(0, 0, rows // shuffle, columns // shuffle)

    def _typical_scratch(self, frame: _Frame) -> int:
        """Bytes of the tile in the middle."""
        row, column = self._down // 2, self._across // 2
        made = [frame.one(number, row, column) for number in range(len(frame.phases))]
        return max((size for one in made if one for size in one[1:]), default=0)

    # What _Frame asks.

    @property
    def executor(self) -> Executor:
        """For which it is."""
        return self._executor

    @property
    def sizes(self) -> Sequence[Size]:
        """Of every value."""
        return self._sizes

    @property
    def pictures(self) -> int:
        """That are computed together."""
        return self._pictures

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across."""
        return self._down, self._across

    @property
    def readers(self) -> Mapping[int, Sequence[int]]:
        """The steps that read each value."""
        return self._readers


class _Frame:
    """The phases of a cut: which part of each kept map there must be, and where it lies."""

    def __init__(self, cutter: _Cutter, planned: Sequence[Phase]) -> None:
        self._cutter = cutter
        self.phases = planned
        executor = cutter.executor
        self._program = program = executor.program
        self._roots: list[dict[int, Box]] = [{} for _ in planned]
        """Of each phase: the values that it makes for others, whole."""
        # A value may be kept, dropped, computed again and kept once more: each time by itself.
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
                extent = Box(0, 0, *cutter.sizes[value])
                roots[value] = geometry.hull(extent, roots.get(value))
            if index == len(planned) - 1:
                roots[program.result] = Box(0, 0, *cutter.sizes[program.result])
            self._roots[index] = roots
            made = geometry.work(program, phase.steps, roots, executor.unit, cutter.sizes)
            for value in set(phase.given) & made.needed.keys() - {0}:
                fold = program.values[value].fold
                box = geometry.aligned(made.needed[value], (fold, fold))
                wanted[value] = geometry.hull(box, wanted.get(value))
                box = geometry.aligned(made.values[value], (fold, fold))
                held[value] = geometry.hull(box, held.get(value))
                last.setdefault(value, index)
            for value in ending:
                boxes[value, index] = box = geometry.hull(made.values[value], held.pop(value))
                spans[value, index] = Span(index, last.pop(value), self._bytes(value, box))
        offsets, self.kept_bytes = liveness.places(spans, executor.alignment)
        self._kept: list[dict[int, Spot]] = [{} for _ in planned]
        """Of each phase: where the kept maps lie that it writes or reads."""
        for (value, first), offset in offsets.items():
            for index in range(first, spans[value, first].last + 1):
                self._kept[index][value] = Spot(True, offset, boxes[value, first])
        self.is_countable = all(span.size <= executor.map_limit for span in spans.values())
        """Whether all maps are within what kernels can count."""

    def _bytes(self, value: int, box: Box) -> int:
        return self._cutter.executor.map_bytes(value, box, self._cutter.pictures)

    def schedule(self) -> Schedule:
        """All passes."""
        down, across = self._cutter.grid
        passes: list[list[list[Pass]]] = []
        scratch, cost = 0, 0.0
        for number in range(len(self.phases)):
            rows: list[list[Pass]] = []
            for row in range(down):
                made = [self.one(number, row, column) for column in range(across)]
                tiles = [one for one in made if one is not None]
                if tiles:
                    rows.append([one[0] for one in tiles])
                    scratch = max(scratch, *(one[1] for one in tiles))
                for one in tiles:
                    cost += sum(
                        step_cost(self._program, step, box)
                        for step, box in one[0].work.steps.items()
                    )
            passes.append(rows)
        return Schedule(
            self._cutter.pictures,
            self._cutter.sizes,
            self.phases,
            passes,
            scratch,
            self.kept_bytes,
            cost,
        )

    def one(self, number: int, row: int, column: int) -> tuple[Pass, int] | None:
        """A phase on one tile and the bytes of its own maps; None if there is nothing to do."""
        phase, program = self.phases[number], self._program
        executor = self._cutter.executor
        sums = {n: self._part(_averaged(program, n), row, column) for n in phase.averages}
        roots: dict[int, Box] = {}
        for value, extent in self._roots[number].items():
            part = self._part(value, row, column, extent)
            if part.height > 0 and part.width > 0:
                roots[value] = part
        if not roots:
            return None
        work = geometry.work(program, phase.steps, roots, executor.unit, self._cutter.sizes)
        kept = self._kept[number]
        spans = {}
        times = {*work.steps, *(n for n, box in sums.items() if box.height and box.width)}
        for value, box in work.values.items():
            if value in (0, program.result) or value in kept:
                continue
            used = [n for n in self._cutter.readers[value] if n in times]
            used += [n for n in work.steps if writes(program.steps[n]) == value]
            size = self._bytes(value, box)
            self.is_countable &= size <= executor.map_limit
            spans[value] = Span(min(used), max(used), size)
        offsets, size = liveness.places(spans, executor.alignment)
        spots = {value: Spot(False, offsets[value], work.values[value]) for value in offsets}
        spots |= {value: spot for value, spot in kept.items() if value in work.values}
        tile = roots.get(program.result, Box(0, 0, 0, 0))
        return Pass(work, spots, sums, tile), size

    def _part(self, value: int, row: int, column: int, extent: Box | None = None) -> Box:
        """A value's part in a tile; the parts of all tiles are the extent, or the value's size."""
        down, across = self._cutter.grid
        size = self._cutter.sizes[value]
        everything = Box(0, 0, *size)
        tiles = list(geometry.tiles(size, down, across, self._unit(value)))
        box = tiles[row * across + column]
        if extent is None or extent == everything:
            return box
        top = extent.top if row == 0 else max(box.top, extent.top)
        bottom = extent.bottom if row == down - 1 else min(box.bottom, extent.bottom)
        left = extent.left if column == 0 else max(box.left, extent.left)
        right = extent.right if column == across - 1 else min(box.right, extent.right)
        return Box(top, left, max(bottom - top, 0), max(right - left, 0))

    def _unit(self, value: int) -> int:
        """Multiples at which a value can be cut without computing anything twice."""
        unit = math.lcm(*self._cutter.executor.unit, self._program.values[value].fold)
        shuffles = [
            step.shuffle
            for step in self._program.steps
            if isinstance(step, Product) and step.target.value == value
        ]
        return unit * max(shuffles, default=1)


def step_cost(program: Program, number: int, box: Box) -> float:
    """About the multiply-adds of a step for its results in a box."""
    step = program.steps[number]
    pixels = float(box.height * box.width)
    if isinstance(step, Product):
        return pixels * step.weight.size
    if isinstance(step, Move):
        # It moves memory, which takes about as long as some multiply-adds.
        return pixels * program.values[step.target.value].planes * 16
    return 0.0


def _averaged(program: Program, number: int) -> int:
    step = program.steps[number]
    assert isinstance(step, Average)
    return step.source.value
