"""Runs a packed program over pictures of one size, phase by phase and strip by strip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress, scaled
from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.records import (
    BORDER_CODES,
    CROSS_BITS,
    PICTURE,
    PIXEL_CODES,
    SUM_BITS,
)
from waifu2x.backends.cpu.pack.tasks import CpuTask
from waifu2x.backends.cpu.run.plans import SizePlan
from waifu2x.backends.cpu.run.strips import PhaseStrips, StripBatch
from waifu2x.backends.cpu.run.work_queue import TaskBatch
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.lowering.ops.attention import AttentionStep, CrossSums, MixPlanes
from waifu2x.lowering.ops.base import InnerVectorStep, PictureSum, VectorStep
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.phases import Phase
from waifu2x.networks.model import Model
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class _RunningStrips:
    """Strips under way, and the arrays whose addresses compiled code has."""

    running: TaskBatch
    batch: StripBatch
    tasks: NDArray[Any]
    """(pictures, strips, tasks)."""
    sums: NDArray[np.int64]
    """(pictures, strips, elements of vectors that the phase adds to)."""


class StripExecution:
    """Runs all phases once, and holds the kept maps, the vectors and the sums of means."""

    def __init__(
        self,
        packed: PackedProgram,
        plan: SizePlan,
        workers: Workers,
        pictures: NDArray[Any],
        results: NDArray[Any],
        kept: NDArray[np.float32],
    ) -> None:
        """`kept` is the memory for kept maps, (pictures, floats)."""
        self.ticks: dict[int, int] = {}
        """The time of each step, summed over threads; that of all but convolutions is under -1."""
        self._packed, self._plan, self._workers = packed, plan, workers
        self._pictures, self._results = np.ascontiguousarray(pictures), results
        self._kept = kept
        count = len(pictures)
        self._vectors = np.zeros((count, max(1, packed.vector_starts[-1])), np.float32)
        self._sums = np.zeros(self._vectors.shape, np.int64)
        model = packed.program.model
        self._ends = np.array(
            [
                [_source_record(pixels, model), _result_record(result)]
                for pixels, result in zip(self._pictures, self._results, strict=True)
            ],
            PICTURE,
        )

    def run(self, tile: int | None, on_progress: Progress) -> None:
        """Runs all phases; for `tile`, see Call."""
        phases = self._plan.phases
        total = sum(self._cost(strips.phase) for strips in phases)
        for strips in phases:
            share = self._cost(strips.phase) / total
            self._run_phase(strips, tile, scaled(on_progress, share))
            for vectors, sums in zip(self._vectors, self._sums, strict=True):
                self._make_vectors(strips.phase, vectors, sums)

    def _cost(self, phase: Phase) -> float:
        return sum(self._packed.costs[number] for number in phase.steps)

    def _run_phase(self, strips: PhaseStrips, tile: int | None, on_progress: Progress) -> None:
        down, across = self._division(strips, tile)
        reported = 0.0

        def report(strips_done: int) -> None:
            nonlocal reported
            share = strips_done / (down * across * len(self._pictures))
            reported += share
            on_progress(share)

        under_way: list[_RunningStrips] = []
        try:
            # The tables of a batch are made while the previous batch runs.
            for batch in strips.batches(down, across):
                while (begun := self._start(strips, batch, waits=not under_way)) is None:
                    self._finish(strips, under_way.pop(0), report)
                under_way.append(begun)
                if len(under_way) > 1:
                    self._finish(strips, under_way.pop(0), report)
            while under_way:
                self._finish(strips, under_way.pop(0), report)
        finally:
            for left in under_way:
                left.running.stop()
                self._workers.finish(left.running, lambda done: None)
        on_progress(1 - reported)

    def _division(self, strips: PhaseStrips, tile: int | None) -> tuple[int, int]:
        """Returns the number of strips of each picture, down and across."""
        down, across = strips.division(len(self._pictures), self._workers.cores)
        if tile is not None:
            height, width = self._results.shape[1:3]
            down, across = max(down, -(-height // tile)), max(across, -(-width // tile))
        return down, across

    def _start(
        self, strips: PhaseStrips, batch: StripBatch, *, waits: bool
    ) -> _RunningStrips | None:
        """Starts a batch of strips of all pictures; see Workers.start."""
        pictures = len(self._pictures)
        table = np.repeat(batch.records[np.newaxis], pictures, axis=0)
        tasks = np.repeat(batch.tasks[np.newaxis], pictures, axis=0)
        sums = np.zeros((*table.shape, len(strips.sums)), np.int64)
        for number, task in enumerate(strips.tasks):
            self._locate(tasks[:, :, number], task, strips.sums.start)
        table["tasks"], table["sums"] = records.addresses(tasks, 2), records.addresses(sums, 2)
        table["vectors"] = records.addresses(self._vectors, 1)[:, np.newaxis]
        table["pictures"] = records.addresses(self._ends, 1)[:, np.newaxis]
        arrays = self._packed.weights, self._packed.constants
        running = self._workers.start(table, batch.floats, *arrays, waits=waits)
        return None if running is None else _RunningStrips(running, batch, tasks, sums)

    def _locate(self, table: NDArray[Any], task: CpuTask, first: int) -> None:
        """Fills in the addresses of the memory outside strips that a task reads or writes, in a
        table (pictures, strips); strips sum the elements of vectors from `first` on."""
        packed = self._packed
        if task.kind in (records.LOAD, records.KEEP, records.REARRANGE):
            value = task.schedule.step
            if task.kind == records.REARRANGE:
                value = task.fields["source"]
            rows, columns = packed.maps.layouts[value].memory_size(self._plan.sizes[value])
            start = self._plan.kept.starts[value]
            table["memory"] = records.addresses(self._kept[:, start:], 1)[:, np.newaxis]
            table["memory_rows"], table["memory_columns"] = rows, columns
            table["memory_floats"] = columns * packed.maps.kept_floats(value)
        elif task.kind in (records.POOL, records.CROSS):
            step = packed.program.steps[task.schedule.step]
            assert isinstance(step, PictureSum)
            table["memory"] = packed.vector_starts[step.vector] - first

    def _finish(
        self, strips: PhaseStrips, under_way: _RunningStrips, report: Callable[[int], None]
    ) -> None:
        """Waits for strips, and adds up their sums and times."""
        self._workers.finish(under_way.running, report)
        found = strips.sums
        self._sums[:, found.start : found.stop] += under_way.sums.sum(axis=1)
        ticks = under_way.tasks["ticks"].sum(axis=(0, 1)).tolist()
        for task, spent in zip(strips.tasks, ticks, strict=True):
            number = task.schedule.step if self._is_of_layer(task) else -1
            self.ticks[number] = self.ticks.get(number, 0) + spent

    def _is_of_layer(self, task: CpuTask) -> bool:
        """Returns whether a task computes maps for a convolution or for attention."""
        steps = self._packed.program.steps
        layers = Conv | AttentionStep | MixPlanes
        return task.kind < records.READ and isinstance(steps[task.schedule.step], layers)

    def _make_vectors(
        self, phase: Phase, vectors: NDArray[np.float32], sums: NDArray[np.int64]
    ) -> None:
        """Computes the means and linear layers behind a phase, in float64 and a fixed order."""
        starts, sizes = self._packed.vector_starts, self._packed.program.vectors
        for number in (*phase.averages, *phase.dense):
            step = self._packed.program.steps[number]
            assert isinstance(step, VectorStep)
            start, size = starts[step.vector], sizes[step.vector]
            if isinstance(step, GlobalAvgPool):
                height, width = self._plan.sizes[step.source.value]
                parts = sums[start : starts[step.vector + 1]].reshape(2, -1)[:, :size]
                made = _joined(parts, SUM_BITS) / (height * width)
            elif isinstance(step, CrossSums):
                made = _joined(sums[start : start + 2 * size].reshape(2, size), CROSS_BITS)
            else:
                assert isinstance(step, InnerVectorStep)
                read = (
                    vectors[starts[vector] :][: sizes[vector]].astype(np.float64)
                    for vector in step.vectors_read
                )
                made = step.made(*read)
            vectors[start : start + size] = made


def _joined(sums: NDArray[np.int64], bits: tuple[int, int]) -> NDArray[np.float64]:
    """Joins sums (2, n) of integers, which are scaled by two to the power of `bits`, to numbers."""
    made: NDArray[np.float64] = np.ldexp(sums.astype(np.float64), -np.array([bits]).T).sum(axis=0)
    return made


def _source_record(pixels: NDArray[Any], model: Model) -> tuple[int, ...]:
    """Returns the record of a source picture."""
    return (*_pixels_record(pixels), model.padding, BORDER_CODES[model.border])


def _result_record(pixels: NDArray[Any]) -> tuple[int, ...]:
    """Returns the record of a result."""
    return (*_pixels_record(pixels), 0, 0)


def _pixels_record(pixels: NDArray[Any]) -> tuple[int, ...]:
    rows, columns, planes = pixels.shape
    assert pixels.flags.c_contiguous
    return pixels.ctypes.data, PIXEL_CODES[pixels.dtype], rows, columns, planes
