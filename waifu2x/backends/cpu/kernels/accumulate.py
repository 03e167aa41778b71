"""The inner products on vector registers that the convolutions are made of."""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.kernels.vector import Emitter
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

    Pixels lie `pixel_stride` floats apart; `slots` are the height * width accumulators, row by
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
    pixel_stride: ir.Value,
    weights: ir.Value,
    depth: ir.Value,
    ahead: ir.Value | None = None,
) -> None:
    """Adds products of pairs of 16-bit integers, which are what depth and stride count, to 32-bit
    accumulators: otherwise as `accumulate`.

    It is not unrolled: LLVM would load the pixels of all steps first, and spill them.
    """
    height = len(slots) // width
    with v.loop(depth) as k:
        row = v.mul(k, width * LANES)
        vectors = [v.load_integers(weights, v.add(row, n * LANES)) for n in range(width)]
        if ahead is not None:
            v.prefetch(ahead, v.mul(k, LANES))
        for m in range(height):
            value = v.load_pair(pixels, v.add(v.mul(pixel_stride, m), k))
            for n in range(width):
                slot = slots[m * width + n]
                v.set(slot, v.dot(value, vectors[n], v.get(slot)))
