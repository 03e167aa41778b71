"""The epilogue of convolutions on vectors: bias, leaky ReLU, an addition, the store.

Results of a run of neighbouring pixels go where the task says: in a plain map, by
depth-to-space, or in a map stored by space-to-depth of two, pixels of even and of odd columns each
lie evenly spaced, so two strides reach all.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from waifu2x.backends.cpu.kernels.vector import Emitter
from waifu2x.backends.cpu.pack.records import LINE_FLOATS, TASK
from waifu2x.backends.cpu.pack.shapes import LANES


class Epilogue:
    """The epilogue of one task for some vectors of planes; made once for many pixels."""

    def __init__(
        self, v: Emitter, task: ir.Value, scratch: ir.Value, constants: ir.Value, plane: ir.Value
    ) -> None:
        """`plane` is the first of the vectors'."""
        self._v, self._scratch, self._constants = v, scratch, constants
        self._bias = v.add(v.field(task, TASK, "bias"), plane)
        self._slope = v.add(v.field(task, TASK, "slopes"), plane)
        self._target = [v.field(task, TASK, f"target_{name}") for name in ("pixel", "pair")]
        self._residual = [v.field(task, TASK, f"residual_{name}") for name in ("pixel", "pair")]
        self._has_residual = v.at_least(v.field(task, TASK, "residual"), 0)
        self._factor = v.splat(v.narrow(v.field(task, TASK, "factor")))

    def bias(self, vector: int) -> ir.Value:
        """The biases of one vector of planes."""
        return self._v.load_constant(self._constants, self._v.add(self._bias, vector * LANES))

    def store(
        self, sums: Sequence[ir.Value], vector: int, target: ir.Value, residual: ir.Value
    ) -> None:
        """One vector of planes of neighbouring pixels, from an even one on, with their biases.

        `target` and `residual` are the offsets of the first pixel's first vector of planes.
        """
        v, scratch = self._v, self._scratch
        slopes = v.load_constant(self._constants, v.add(self._slope, vector * LANES))
        results = v.accumulators([v.leaky(total, slopes) for total in sums])
        for _ in v.cases(self._has_residual, (1,)):
            other = v.opaque(scratch, v.add(residual, vector * LANES))
            for x, result in enumerate(results):
                added = v.load(other, self._offset(self._residual, x))
                v.set(result, v.fma(v.get(result), self._factor, added))
        to = v.opaque(scratch, v.add(target, vector * LANES))
        for x, result in enumerate(results):
            v.store(v.get(result), to, self._offset(self._target, x))

    def prefetch(self, pixels: int, vectors: int, target: ir.Value, residual: ir.Value) -> None:
        """Asks for the memory of what `store` will be handed for some vectors of planes, which
        lies a pixel apart, where no processor foresees it."""
        v, scratch = self._v, self._scratch
        lines = range(0, vectors * LANES, LINE_FLOATS)
        for x in range(pixels):
            start = v.add(target, self._offset(self._target, x))
            for n in lines:
                v.prefetch(scratch, v.add(start, n), to_write=True)
        for _ in v.cases(self._has_residual, (1,)):
            for x in range(pixels):
                start = v.add(residual, self._offset(self._residual, x))
                for n in lines:
                    v.prefetch(scratch, v.add(start, n))

    def prefetch_column(
        self, x: ir.Value, targets: Sequence[ir.Value], residuals: Sequence[ir.Value]
    ) -> None:
        """`prefetch` of one vector of pixel `x` in several rows."""
        v, scratch = self._v, self._scratch
        along = v.pixel(self._target, x)
        for target in targets:
            v.prefetch(scratch, v.add(target, along), to_write=True)
        for _ in v.cases(self._has_residual, (1,)):
            along = v.pixel(self._residual, x)
            for residual in residuals:
                v.prefetch(scratch, v.add(residual, along))

    def _offset(self, strides: list[ir.Value], x: int) -> ir.Value:
        pixel, pair = strides
        return self._v.add(self._v.mul(pair, x // 2), self._v.mul(pixel, x % 2))
