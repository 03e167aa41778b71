"""Emits the epilogue of convolutions on AMX tiles: leaky ReLU, an addition, the store.

A block is finished while the tile unit computes the next one: meanwhile its arguments are kept as
integers, at the indices below. Its sums are floats, (pixel, BLOCK outputs). Pixels are finished in
pairs of an even and an odd column: in maps stored by space-to-depth, the stride within a pair
differs from that between pairs.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from waifu2x.backends.cpu.kernels.memory import KernelJob
from waifu2x.backends.cpu.kernels.vector import Emitter
from waifu2x.backends.cpu.pack.shapes import BLOCK, LANES

PAIRS, PER_STEP, SUMS, PLANE, INNER, TARGET, RESIDUAL, WIDTH = range(8)
"""The arguments of a pending block: the number of pairs of pixels, and of those to finish in each
step; the place of its sums; its first plane among all, and in a pixel of the target; the places of
the first pixel and of its residual, in values of their maps; the number of tiles of outputs."""


class Variant(NamedTuple):
    """The options that decide the code of an epilogue."""

    adds: bool
    """Whether there is an addition."""
    terms: int
    """The bf16 terms of stored results; 0: floats."""


class TileEpilogue:
    """Finishes BLOCK planes of the pixels of a pending block, pair by pair."""

    def __init__(self, v: Emitter, job: KernelJob, pending: ir.Value, variant: Variant) -> None:
        self._v, self._scratch, self._variant = v, job.scratch, variant
        self._vectors = range(0, BLOCK, LANES)
        self.pairs = v.integer(pending, PAIRS)
        """The number of pairs of pixels, and of those to finish in each step of the next block."""
        self.per_step = v.integer(pending, PER_STEP)
        self._width = v.integer(pending, WIDTH)
        inner = v.integer(pending, INNER)

        def constant(name: str, offset: ir.Value) -> list[ir.Value]:
            first = v.add(v.field(job.task, name), offset)
            return [v.load(job.constants, v.add(first, n)) for n in self._vectors]

        def strides(name: str) -> list[ir.Value]:
            return [v.field(job.task, f"{name}_{what}") for what in ("pixel", "pair", "lo")]

        self._slopes = constant("slopes", v.integer(pending, PLANE))
        places = [v.integer(pending, n) for n in (SUMS, TARGET, RESIDUAL)]
        self._sums, self._to, self._added = v.accumulators(places)
        self._target = strides("target")
        if variant.terms:
            self._zero_points = constant("target_zero", inner)
        if variant.adds:
            self._residual = strides("residual")
            self._residual_terms = v.field(job.task, "residual_terms")
            self._added_zero_points = constant("residual_zero", inner)
            self._factor = v.splat(v.narrow(v.field(job.task, "factor")))

    def finish_pair(self) -> None:
        """Finishes the next two pixels."""
        v, (pixel, pair, lo) = self._v, self._target
        sums = [
            v.load(self._scratch, v.add(v.get(self._sums), x * BLOCK + n))
            for x in range(2)
            for n in self._vectors
        ]
        results = [v.leaky(s, slope) for s, slope in zip(sums, 2 * self._slopes, strict=True)]
        v.set(self._sums, v.add(v.get(self._sums), 2 * BLOCK))
        if self._variant.adds:
            results = self._with_residual(results)
        if self._variant.terms:
            zeros = 2 * self._zero_points
            results = [v.minus(r, zero) for r, zero in zip(results, zeros, strict=True)]
        count = len(self._vectors)
        for n in range(count):
            for x in range(2):
                place = v.add(v.get(self._to), v.add(v.mul(pixel, x), n * LANES))
                self._store(n, results[x * count + n], place, lo)
        v.set(self._to, v.add(v.get(self._to), pair))

    def _store(self, n: int, result: ir.Value, place: ir.Value, lo: ir.Value) -> None:
        """Stores vector `n` of a pixel, if the block has it; only maps of floats end within one."""
        v, terms = self._v, self._variant.terms
        if n == 0 or terms or self._variant.adds:
            v.store_terms(result, self._scratch, place, terms, lo)
            return
        for _ in v.cases(self._width, (len(self._vectors),)):
            v.store(result, self._scratch, place)

    def _with_residual(self, results: list[ir.Value]) -> list[ir.Value]:
        v, (pixel, pair, lo) = self._v, self._residual
        slots = v.accumulators(results)
        count = len(self._vectors)
        for terms in v.cases(self._residual_terms, (2, 1, 0)):
            for index, slot in enumerate(slots):
                x, n = index // count, index % count
                place = v.add(v.get(self._added), v.add(v.mul(pixel, x), n * LANES))
                added = v.load_terms(self._scratch, place, terms, lo)
                if terms:
                    added = v.plus(added, self._added_zero_points[n])
                v.set(slot, v.fma(v.get(slot), self._factor, added))
        v.set(self._added, v.add(v.get(self._added), pair))
        return [v.get(slot) for slot in slots]
