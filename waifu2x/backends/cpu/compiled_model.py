"""Runs one model that is packed for the processor."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress, scaled
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.run import kept_memory, kernels
from waifu2x.backends.cpu.run.blocks import Block, blocks
from waifu2x.backends.cpu.run.execution import StripExecution
from waifu2x.backends.cpu.run.plans import SizePlan, size_plan
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.lowering.passes.segments import is_segmented
from waifu2x.lowering.plan import box as boxes
from waifu2x.lowering.plan.box import Box
from waifu2x.networks.model import Model

_MOST_PLANS = 16
"""The number of sizes of pictures whose plans are cached."""


class CpuModel:
    """A packed model: its tasks and weights, and plans for the most recent sizes of pictures."""

    def __init__(self, model: Model, packed: PackedProgram, workers: Workers) -> None:
        """`packed` is the model's packed program, whose code begins to be compiled."""
        kernels.begin_for(packed)
        self.model = model
        self.packed = packed
        self.ticks: dict[int, int] = {}
        """The time of each convolution so far, summed over threads; that of all else at -1."""
        self.cost = sum(self.packed.costs)
        """The multiply-adds for a pixel of the picture."""
        self._workers = workers
        self._lock = threading.Lock()
        self._plans = lru_cache(_MOST_PLANS)(self._new_plan)

    def run(
        self,
        tile: int | None,
        stack: NDArray[Any],
        out: NDArray[Any],
        on_progress: Progress,
        *,
        inner: Box | None = None,
    ) -> None:
        """Runs pictures (N, H, W, planes), all of one size, and writes the results into `out`,
        C-contiguous; for `inner`, see Call."""
        _, height, width, _ = stack.shape
        found = self.blocks(height, width)
        if len(found) == 1:
            self._whole(stack, out, tile, on_progress, inner)
            return
        scale = self.model.scale
        for box, halo in found:
            rows, columns = slice(halo.top, halo.bottom), slice(halo.left, halo.right)
            share = scaled(on_progress, box.height * box.width / (height * width))
            part = stack[:, rows, columns]
            sides = halo.height * scale, halo.width * scale
            made = np.empty((len(stack), *sides, out.shape[-1]), out.dtype)
            self._whole(part, made, tile, share)
            top, left = (box.top - halo.top) * scale, (box.left - halo.left) * scale
            place = boxes.scaled(box, scale)
            part = made[:, top : top + place.height, left : left + place.width]
            out[:, place.top : place.bottom, place.left : place.right] = part

    def plan(self, height: int, width: int, inner: Box | None = None) -> SizePlan:
        """Returns the plan for pictures of that size, or for what `inner` of them needs. Raises
        BackendError if it is too large."""
        return self._plans(height, width, inner)

    def blocks(self, height: int, width: int) -> list[Block]:
        """Returns the blocks of a picture that run one after the other, each as a picture."""
        program, size = self.packed.program, (height, width)
        held = 4 * self.plan(height, width).kept.floats if is_segmented(program) else 0
        return blocks(program, size, held, kept_memory.budget(self.packed))

    def _new_plan(self, height: int, width: int, inner: Box | None) -> SizePlan:
        return size_plan(self.packed, height, width, inner)

    def _whole(
        self,
        stack: NDArray[Any],
        out: NDArray[Any],
        tile: int | None,
        on_progress: Progress,
        inner: Box | None = None,
    ) -> None:
        """Runs pictures whose kept maps fit the budget, the most at once that do."""
        count, height, width, _ = stack.shape
        plan = self.plan(height, width, inner)
        floats = plan.kept.floats
        together = max(1, min(count, kept_memory.budget(self.packed) // max(4 * floats, 1)))
        with self._workers.kept_maps(together, floats, self.packed.weights) as kept:
            for first in range(0, count, together):
                part = slice(first, first + together)
                report = scaled(on_progress, len(stack[part]) / count)
                execution = StripExecution(
                    self.packed, plan, self._workers, stack[part], out[part], kept
                )
                execution.run(tile, report)
                self._add_ticks(execution.ticks)

    def _add_ticks(self, ticks: dict[int, int]) -> None:
        with self._lock:
            for number, spent in ticks.items():
                self.ticks[number] = self.ticks.get(number, 0) + spent
