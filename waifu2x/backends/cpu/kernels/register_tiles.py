"""Emits register tiles on vectors: the inner products of convolutions, and their epilogue.

The epilogue is bias, leaky ReLU, an addition and the store. In all layouts of the target (a plain
map, depth-to-space, or space-to-depth of two), the pixels of even columns are evenly spaced, and so
are those of odd columns, so two strides reach all.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from waifu2x.backends.cpu.kernels.memory import KernelJob
from waifu2x.backends.cpu.kernels.vector import Emitter
from waifu2x.backends.cpu.pack.records import LINE_FLOATS
from waifu2x.backends.cpu.pack.shapes import LANES


def accumulate(
    v: Emitter,
    slots: list[ir.Value],
    width: int,
    pixels: ir.Value,
    pixel_stride: ir.Value,
    weights: ir.Value,
    depth: ir.Value,
    unroll: int,
) -> None:
    """Adds pixels (height, depth) times weights (depth, width vectors) to accumulators.

    Pixels are `pixel_stride` floats apart; `slots` are the height * width accumulators, row by
    row; `unroll` must divide the depth.
    """
    height = len(slots) // width
    with v.loop(depth, unroll) as first:
        for step in range(unroll):
            k = v.add(first, step)
            row = v.mul(k, width * LANES)
            vectors = [v.load(weights, v.add(row, n * LANES)) for n in range(width)]
            for m in range(height):
                value = v.splat(v.load_float(pixels, v.add(v.mul(pixel_stride, m), k)))
                for n in range(width):
                    slot = slots[m * width + n]
                    v.set(slot, v.fma(value, vectors[n], v.get(slot)))


def accumulate_apart(
    v: Emitter,
    slots: list[ir.Value],
    width: int,
    scalars: ir.Value,
    strides: tuple[ir.Value | int, ir.Value | int],
    vectors: ir.Value,
    step: ir.Value | int,
    depth: ir.Value,
) -> None:
    """Adds scalars (height, depth), `strides` floats apart, times vectors (depth, width), rows
    `step` floats apart, to height * width accumulators."""
    with v.loop(depth) as k:
        row = v.mul(k, step)
        factors = [v.load(vectors, v.add(row, n * LANES)) for n in range(width)]
        for m in range(len(slots) // width):
            place = v.add(v.mul(strides[0], m), v.mul(strides[1], k))
            value = v.splat(v.load_float(scalars, place))
            for n in range(width):
                slot = slots[m * width + n]
                v.set(slot, v.fma(value, factors[n], v.get(slot)))


def accumulate_pairs(
    v: Emitter,
    slots: list[ir.Value],
    width: int,
    pixels: ir.Value,
    weights: ir.Value,
    depths: tuple[ir.Value, ir.Value],
    ahead: ir.Value | None = None,
) -> None:
    """Adds products of pairs of 16-bit integers to 32-bit accumulators, otherwise as `accumulate`.

    `depths` are the stride between pixels, and the depth to add, in pairs. It is not unrolled: LLVM
    would load the pixels of all steps first, and spill them.
    """
    height = len(slots) // width
    with v.loop(depths[1]) as k:
        row = v.mul(k, width * LANES)
        vectors = [v.load_integers(weights, v.add(row, n * LANES)) for n in range(width)]
        if ahead is not None:
            v.prefetch(ahead, v.mul(k, LANES))
        for m in range(height):
            value = v.load_pair(pixels, v.add(v.mul(depths[0], m), k))
            for n in range(width):
                slot = slots[m * width + n]
                v.set(slot, v.dot(value, vectors[n], v.get(slot)))


class Epilogue:
    """Emits the end of the sums of some vectors of planes of a task; made once for many pixels."""

    def __init__(self, v: Emitter, job: KernelJob, plane: ir.Value) -> None:
        """`plane` is the first plane of the vectors."""
        task = job.task
        self._v, self._scratch, self._constants = v, job.scratch, job.constants
        self._bias = v.add(v.field(task, "bias"), plane)
        self._slope = v.add(v.field(task, "slopes"), plane)
        self._target = [v.field(task, f"target_{name}") for name in ("pixel", "pair")]
        self._residual = [v.field(task, f"residual_{name}") for name in ("pixel", "pair")]
        self._has_residual = v.at_least(v.field(task, "residual"), 0)
        self._factor = v.splat(v.narrow(v.field(task, "factor")))

    def bias(self, vector: int) -> ir.Value:
        """Loads the biases of one vector of planes."""
        return self._v.load_constant(self._constants, self._v.add(self._bias, vector * LANES))

    def store(
        self, sums: Sequence[ir.Value], vector: int, target: ir.Value, residual: ir.Value
    ) -> None:
        """Completes and stores one vector of planes of neighbouring pixels, from an even one on;
        the sums include the biases.

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
        """Prefetches the targets and residuals of later calls of `store`, which are a pixel apart,
        where no hardware prefetches them."""
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
        """Prefetches one vector of pixel `x` in several rows."""
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
