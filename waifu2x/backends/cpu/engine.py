"""Models compiled for the processor, and their work cut into strips for its cores."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import (
    Device,
    LayerTime,
    Measurement,
    Pin,
    Precision,
    Progress,
    Trial,
    ignore,
    scaled,
)
from waifu2x.backends.cpu import closeness, isa, layout
from waifu2x.backends.cpu.forms import round_up
from waifu2x.backends.cpu.layout import (
    AVERAGE,
    BORDER_CODES,
    KEEP,
    LOAD,
    PICTURE,
    PIXEL_CODES,
    STOP,
)
from waifu2x.backends.cpu.pack import Arithmetic, PackedProgram
from waifu2x.backends.cpu.picture import with_picture
from waifu2x.backends.cpu.strips import Batch, PhaseStrips
from waifu2x.backends.cpu.tasks import Task
from waifu2x.backends.cpu.workers import Flight, Workers, run_strips
from waifu2x.backends.results import check_out, closed_network, result_shape
from waifu2x.backends.tta import mean
from waifu2x.errors import BackendError
from waifu2x.lowering import geometry
from waifu2x.lowering.box import Box
from waifu2x.lowering.lower import lower
from waifu2x.lowering.phases import Phase, plan
from waifu2x.lowering.segments import reach, segmented
from waifu2x.lowering.steps import Conv, GlobalAvgPool, Linear
from waifu2x.networks.model import Model, Size
from waifu2x.networks.nodes import Weighted
from waifu2x.system.machine import core_count, total_memory

KEPT_BYTES = 1100 << 20
"""The most memory for maps that are kept between phases."""
_KEPT_SHARE = 4
"""And the most of the machine's: one part of so many."""
_BLOCK_UNIT = 16 * layout.CELL
"""Pixels of a picture: whole cells in maps as small as a sixteenth of it."""
_FINER = 6
"""How many early products read maps in two terms where bf16 else keeps too little: 0.9 dB of
animevideov3 2x and 3x, which lack 0.6 and 0.2, of whose products that is a third."""
_LOG = logging.getLogger(__name__)


class CpuBackend:
    """Runs models on all cores."""

    name = "cpu"
    calls_at_once = 1

    def __init__(self) -> None:
        self.device = processor()
        self._workers = Workers(core_count())

    def compile(self, models: Sequence[Model], precision: Precision) -> CpuNetwork:
        """See Backend. `auto` is the fastest that keeps 60 dB: bf16 on tiles, int16, fp32."""
        offered = arithmetics()
        ways = offered if precision == "auto" else [way for way in offered if way == precision]
        if not ways:
            raise BackendError(
                f"backend cpu has no precision {precision} on this processor:"
                f" use auto or {' or '.join(offered)}, or another backend"
            )
        run_strips.load()
        packed: dict[int, CpuModel] = {}
        for model in models:
            if id(model) not in packed:
                packed[id(model)] = self._close_enough(model, ways)
        return CpuNetwork([packed[id(model)] for model in models], self._workers)

    def _close_enough(self, model: Model, ways: Sequence[Arithmetic]) -> CpuModel:
        """The model by the first of these ways that keeps what `auto` promises, or the last."""

        def run(made: CpuModel, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
            result = np.empty(result_shape([model], picture.shape), np.float32)
            with self._workers.working():
                made.run(None, picture[np.newaxis], result[np.newaxis], ignore)
            return result

        def exactly(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
            return run(CpuModel(model, "fp32", self._workers), picture)

        for arithmetic in ways[:-1]:
            for finer in (0, _FINER) if arithmetic == "bf16" else (0,):
                made = CpuModel(model, arithmetic, self._workers, finer)
                if not (made.packed.in_integers or made.packed.on_tiles):
                    return made
                way = f"{arithmetic} {finer}" if finer else arithmetic
                program = made.packed.program
                kept = closeness.decibels(program, way, partial(run, made), exactly)
                if kept >= closeness.PROMISED:
                    return made
            _LOG.warning(
                "%s: %s would keep %.1f dB of a drawing where %.0f are promised: computed more"
                " exactly, which takes longer",
                model.name,
                arithmetic,
                kept,
                closeness.PROMISED,
            )
        return CpuModel(model, ways[-1], self._workers)

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Does nothing: pixels are used where they are."""
        return Pin()

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """See Backend: the best of three."""
        from waifu2x.backends.cpu import peak

        network = self.compile([model], precision)
        (stage,) = network.models
        runs = []
        for _ in range(4):  # the first one warms up
            stage.ticks.clear()
            start = time.perf_counter()
            network(pixels, pixels.dtype)
            runs.append((time.perf_counter() - start, dict(stage.ticks)))
        seconds, ticks = min(runs[1:], key=lambda run: run[0])
        share = seconds / max(1, sum(ticks.values()))
        cores = self._workers.cores
        on_vectors = peak.vector_peak(cores)
        in_integers = peak.integer_peak(cores) if stage.packed.in_integers else 0.0
        on_tiles = peak.tile_peak(cores) if stage.packed.on_tiles else 0.0
        out_pixels = pixels.shape[0] * pixels.shape[1] * model.scale**2
        layers = []
        lowered = stage.packed.program.model
        for number, step in enumerate(stage.packed.program.steps):
            if isinstance(step, Conv):
                node = lowered.nodes[step.node - 1]
                assert isinstance(node, Weighted)
                unit, reached = "", on_vectors
                if number in stage.packed.in_integers:
                    unit, reached = " int16", in_integers
                elif number in stage.packed.on_tiles:
                    unit, reached = " bf16", on_tiles
                name = f"{node.weight.shape[1]} > {node.weight.shape[0]}"
                if node.weight.shape[-1] != 3:
                    name += f" {node.weight.shape[-1]}x{node.weight.shape[-1]}"
                work = float(lowered.node_multiply_adds(step.node)) * out_pixels
                layers.append(
                    LayerTime(
                        name + unit,
                        ticks.pop(number, 0) * share,
                        work,
                        reached,
                    )
                )
        rest = LayerTime("pixels", sum(ticks.values()) * share, 0, on_vectors)
        return Measurement(seconds, (rest, *layers))

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """See Backend: there is nothing to choose."""
        yield from ()

    def close(self) -> None:
        """Ends the threads."""
        self._workers.close()


def arithmetics() -> list[Arithmetic]:
    """What this processor computes products in, fastest first."""
    found: list[Arithmetic] = ["fp32"]
    if isa.VECTOR.integers:
        found.insert(0, "int16")
    if isa.VECTOR.tiles:
        found.insert(0, "bf16")
    return found


def processor() -> Device:
    """This machine's."""
    cores = core_count()
    return Device(
        isa.processor_name(),
        f"{cores} core{'s' if cores > 1 else ''}, {isa.VECTOR.name},"
        f" {isa.l2_bytes() // 1024} KiB L2",
    )


class CpuNetwork:
    """Models one after the other: see Network."""

    def __init__(self, models: Sequence[CpuModel], workers: Workers) -> None:
        self.models = tuple(models)
        """Empty once it is closed."""
        self._workers = workers

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> NDArray[Any]:
        """Runs whole pictures on all cores."""
        with self._workers.working():
            models = self.models  # `close` may empty it meanwhile
            if not models:
                raise closed_network()
            shape = result_shape([model.model for model in models], pixels.shape)
            check_out(out, shape, out_dtype, pixels)
            result = np.empty(shape, out_dtype) if out is None else out
            stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
            last = result if pixels.ndim == 4 else result[np.newaxis]
            costs, area = [], 1.0
            for model in models:
                costs.append(area * model.cost)
                area *= model.model.scale**2
            for index, model in enumerate(models):
                report = scaled(on_progress, costs[index] / sum(costs))
                made = last
                if index < len(models) - 1:
                    made = np.empty(result_shape([model.model], stack.shape), np.float32)
                mean(partial(model.run, tile), stack, made, tta, report)
                stack = made
        return result

    def close(self) -> None:
        """Lets go of the packed weights; calls under way end with what they hold."""
        self.models = ()


class CpuModel:
    """One model, packed for the processor."""

    def __init__(
        self, model: Model, arithmetic: Arithmetic, workers: Workers, finer: int = 0
    ) -> None:
        """For `finer`, see PackedProgram."""
        self.model = model
        self.packed = PackedProgram(segmented(with_picture(lower(model))), arithmetic, finer)
        self.ticks: dict[int, int] = {}
        """Time spent on each step so far, by all threads; all that belongs to no product as -1."""
        self._costs = self.packed.costs
        self.cost = sum(self._costs)
        """Of a pixel of its picture, in multiply-adds."""
        self._workers = workers
        self._lock = threading.Lock()
        self._plans = lru_cache(16)(self._plan)

    def run(
        self, tile: int | None, stack: NDArray[Any], out: NDArray[Any], on_progress: Progress
    ) -> None:
        """Runs pictures (N, H, W, planes), all of one size, and writes the results into `out`,
        C-contiguous."""
        _, height, width, _ = stack.shape
        blocks = self._blocks(height, width)
        if len(blocks) == 1:
            self._whole(stack, out, tile, on_progress)
            return
        scale = self.model.scale
        for box, around in blocks:
            rows, columns = slice(around.top, around.bottom), slice(around.left, around.right)
            share = scaled(on_progress, box.height * box.width / (height * width))
            part = stack[:, rows, columns]
            made = np.empty(result_shape([self.model], part.shape), out.dtype)
            self._whole(part, made, tile, share)
            top, left = box.top - around.top, box.left - around.left
            inner = made[:, top * scale :, left * scale :][
                :, : box.height * scale, : box.width * scale
            ]
            place = geometry.scaled(box, scale)
            out[:, place.top : place.bottom, place.left : place.right] = inner

    def _blocks(self, height: int, width: int) -> list[tuple[Box, Box]]:
        """Blocks that large pictures are cut into where a deep network keeps maps, each with all
        that its result depends on: pictures of their own, whose maps fit the budget.

        They begin at multiples of a unit at which every map has whole cells.
        """
        program = self.packed.program
        whole = Box(0, 0, height, width)
        if not program.cuts:
            return [(whole, whole)]
        _, floats = self._places(self._plans(height, width))
        unit = int(np.lcm(_BLOCK_UNIT, self.model.multiple))
        more = round_up(reach(program), unit)
        down = across = 1
        while True:
            rows, columns = height / down, width / across
            grown = min(height, rows + 2 * more) * min(width, columns + 2 * more)
            if 4 * floats * grown <= _budget() * height * width or max(rows, columns) <= unit:
                break
            if rows >= columns:
                down += 1
            else:
                across += 1
        found = []
        for box in geometry.tiles((height, width), down, across, unit):
            if box.height > 0 and box.width > 0:
                top, left = max(0, box.top - more), max(0, box.left - more)
                bottom, right = min(height, box.bottom + more), min(width, box.right + more)
                found.append((box, Box(top, left, bottom - top, right - left)))
        return found

    def _whole(
        self, stack: NDArray[Any], out: NDArray[Any], tile: int | None, on_progress: Progress
    ) -> None:
        """Runs pictures whose maps fit the budget."""
        count, height, width, _ = stack.shape
        phases = self._plans(height, width)
        starts, floats = self._places(phases)
        together = max(1, min(count, _budget() // max(4 * floats, 1)))
        maps = self._workers.borrow_maps(together * floats)
        kept = maps[: together * floats].reshape(together, floats)
        for first in range(0, count, together):
            part = slice(first, first + together)
            share = len(stack[part]) / count
            report = scaled(on_progress, share)
            Pass(self, phases, stack[part], out[part], kept, starts, tile, report).run()
        self._workers.give_back_maps(maps)

    def _places(self, phases: Sequence[PhaseStrips]) -> tuple[dict[int, int], int]:
        """Where each map that is kept begins, in floats, and how many they take together: those
        that are never needed at the same time share memory."""
        held: dict[int, tuple[int, int]] = {}
        starts, total = {}, 0
        for strips in phases:
            for value in strips.phase.kept:
                floats = round_up(self._map_bytes(value, strips.sizes), layout.LINE_BYTES) // 4
                start = 0
                for first, end in sorted(held.values()):
                    if first - start >= floats:
                        break
                    start = end
                starts[value], held[value] = start, (start, start + floats)
                total = max(total, start + floats)
            held = {value: place for value, place in held.items() if value in strips.phase.live}
        return starts, total

    def _map_bytes(self, value: int, sizes: Sequence[Size]) -> int:
        rows, columns = self.packed.forms[value].memory_size(sizes[value])
        return rows * columns * self.packed.kept_floats(value) * 4

    def _plan(self, height: int, width: int) -> list[PhaseStrips]:
        """The phases for pictures of a size."""
        program = self.packed.program
        sizes = geometry.sizes(program, height, width)
        phases = plan(
            program,
            self._costs.__getitem__,
            lambda value: self._map_bytes(value, sizes),
            # Of a network that is cut, all is kept: see _blocks.
            math.inf if program.cuts else _budget(),
        )
        return [PhaseStrips(self.packed, phase, sizes) for phase in phases]

    def phase_cost(self, phase: Phase) -> float:
        """The same for the steps of a phase."""
        return sum(self._costs[number] for number in phase.steps)

    def add_ticks(self, strips: PhaseStrips, ticks: NDArray[np.int64]) -> None:
        """Counts the time that a strip took."""
        steps = self.packed.program.steps
        with self._lock:
            for task, spent in zip(strips.tasks, ticks.tolist(), strict=True):
                inner = task.kind < layout.READ and isinstance(steps[task.step], Conv)
                number = task.step if inner else -1
                self.ticks[number] = self.ticks.get(number, 0) + spent


@dataclass(frozen=True, eq=False)
class _Strips:
    """Strips under way, and the memory that compiled code knows the address of."""

    flight: Flight
    batch: Batch
    tasks: NDArray[Any]
    """(pictures, strips, tasks)."""
    sums: NDArray[np.int64]
    """(pictures, strips, elements of all vectors)."""


class Pass:
    """One run over pictures of one size: what is kept between phases, the vectors, the progress."""

    def __init__(
        self,
        model: CpuModel,
        phases: Sequence[PhaseStrips],
        pictures: NDArray[Any],
        results: NDArray[Any],
        kept: NDArray[np.float32],
        starts: Mapping[int, int],
        tile: int | None,
        on_progress: Progress,
    ) -> None:
        """`kept` is memory for the maps of each picture, which begin at `starts`."""
        self._kept, self._starts = kept, starts
        self._model, self._phases, self._tile = model, phases, tile
        self._pictures, self._results = np.ascontiguousarray(pictures), results
        self._on_progress = on_progress
        packed = model.packed
        count = len(pictures)
        self._vectors = np.zeros((count, max(1, packed.vector_starts[-1])), np.float32)
        self._sums = np.zeros(self._vectors.shape, np.int64)
        self._ends = np.array(
            [
                [_picture(pixels, model.model), _picture(result, None)]
                for pixels, result in zip(self._pictures, self._results, strict=True)
            ],
            PICTURE,
        )

    def run(self) -> None:
        """All phases."""
        total = sum(self._model.phase_cost(strips.phase) for strips in self._phases)
        for strips in self._phases:
            phase = strips.phase
            share = self._model.phase_cost(phase) / total
            self._run_phase(strips, scaled(self._on_progress, share))
            for picture in range(len(self._pictures)):
                self._finish(phase, strips.sizes, self._vectors[picture], self._sums[picture])

    def _run_phase(self, strips: PhaseStrips, on_progress: Progress) -> None:
        down, across = self._division(strips)
        reported = 0.0

        def report(strips_done: int) -> None:
            nonlocal reported
            share = strips_done / (down * across * len(self._pictures))
            reported += share
            on_progress(share)

        under_way: list[_Strips] = []
        try:
            # Tables are made while the strips before run.
            for batch in strips.batches(down, across):
                while (begun := self._start(strips, batch, waits=not under_way)) is None:
                    self._finish_strips(strips, under_way.pop(0), report)
                under_way.append(begun)
                if len(under_way) > 1:
                    self._finish_strips(strips, under_way.pop(0), report)
            while under_way:
                self._finish_strips(strips, under_way.pop(0), report)
        finally:
            for left in under_way:
                left.flight.row[STOP] = 1
                self._model._workers.finish(left.flight, lambda done: None)
        on_progress(1 - reported)

    def _division(self, strips: PhaseStrips) -> tuple[int, int]:
        """Into how many strips each picture is cut, down and across."""
        down, across = strips.division(len(self._pictures), self._model._workers.cores)
        if self._tile is not None:
            scale = self._model.model.scale
            height, width = (side * scale for side in self._pictures.shape[1:3])
            down, across = max(down, -(-height // self._tile)), max(across, -(-width // self._tile))
        return down, across

    def _start(self, strips: PhaseStrips, batch: Batch, *, waits: bool) -> _Strips | None:
        """Begins to run some strips of all pictures; see Workers.start."""
        pictures, packed = len(self._pictures), self._model.packed
        records = np.repeat(batch.records[np.newaxis], pictures, axis=0)
        tasks = np.repeat(batch.tasks[np.newaxis], pictures, axis=0)
        sums = np.zeros((*records.shape, *self._sums.shape[1:]), np.int64)
        for number, task in enumerate(strips.tasks):
            self._locate(tasks[:, :, number], task, strips.sizes)
        records["tasks"], records["sums"] = layout.addresses(tasks, 2), layout.addresses(sums, 2)
        records["vectors"] = layout.addresses(self._vectors, 1)[:, np.newaxis]
        records["pictures"] = layout.addresses(self._ends, 1)[:, np.newaxis]
        arrays = packed.weights, packed.constants
        flight = self._model._workers.start(records, batch.floats, *arrays, waits=waits)
        return None if flight is None else _Strips(flight, batch, tasks, sums)

    def _locate(self, records: NDArray[Any], task: Task, sizes: Sequence[Size]) -> None:
        """Fills in where the memory outside strips lies that a task reads or writes; (pictures,
        strips)."""
        packed = self._model.packed
        if task.kind in (LOAD, KEEP):
            form = packed.forms[task.step]
            rows, columns = form.memory_size(sizes[task.step])
            starts = layout.addresses(self._kept[:, self._starts[task.step] :], 1)
            records["memory"] = starts[:, np.newaxis]
            records["memory_rows"], records["memory_columns"] = rows, columns
            records["memory_floats"] = columns * packed.kept_floats(task.step)
        elif task.kind == AVERAGE:
            step = packed.program.steps[task.step]
            assert isinstance(step, GlobalAvgPool)
            records["memory"] = packed.vector_starts[step.vector]

    def _finish_strips(
        self, strips: PhaseStrips, under_way: _Strips, report: Callable[[int], None]
    ) -> None:
        """Waits for strips and adds up what they have found."""
        self._model._workers.finish(under_way.flight, report)
        self._sums += under_way.sums.sum(axis=1)
        self._model.add_ticks(strips, under_way.tasks["ticks"].sum(axis=(0, 1)))

    def _finish(
        self,
        phase: Phase,
        sizes: Sequence[Size],
        vectors: NDArray[np.float32],
        sums: NDArray[np.int64],
    ) -> None:
        """The means and dense layers behind a phase, in float64 and one fixed order."""
        packed = self._model.packed
        starts = packed.vector_starts
        for number in (*phase.averages, *phase.dense):
            step = packed.program.steps[number]
            if isinstance(step, GlobalAvgPool):
                start, planes = starts[step.vector], packed.program.vectors[step.vector]
                height, width = sizes[step.source.value]
                part = slice(start, start + planes)
                vectors[part] = sums[part] / (height * width * float(1 << layout.SUM_BITS))
            elif isinstance(step, Linear):
                first = starts[step.source]
                source = vectors[first : first + step.weight.shape[1]].astype(np.float64)
                values = (step.weight * source).sum(axis=1) + step.bias
                values = step.activation(values)
                start = starts[step.vector]
                vectors[start : start + len(values)] = values


@cache
def _budget() -> int:
    """Bytes for maps that are kept."""
    memory = total_memory()
    return KEPT_BYTES if memory is None else min(KEPT_BYTES, memory // _KEPT_SHARE)


def _picture(pixels: NDArray[Any], model: Model | None) -> tuple[int, ...]:
    """What compiled code reads of a picture; of the result, without a model."""
    rows, columns, planes = pixels.shape
    assert pixels.flags.c_contiguous
    code = PIXEL_CODES[pixels.dtype]
    if model is None:
        return (pixels.ctypes.data, code, rows, columns, planes, 0, 0)
    border = BORDER_CODES[model.border]
    return (pixels.ctypes.data, code, rows, columns, planes, model.padding, border)
