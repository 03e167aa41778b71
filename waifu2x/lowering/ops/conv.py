"""Defines the steps of convolutions: of all planes together, and depthwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import PLANEWISE_COST, Checker, Levels, MapStep, activated
from waifu2x.lowering.plan.box import Box, scaled, viewed
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import ADD, JOINS, Expression
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass

MOST_TAPS = 18
"""The most taps of a convolution in each direction."""


class _TapStep(MapStep):
    """A valid cross-correlation: each result reads a window of taps x taps source pixels."""

    weight: NDArray[np.float32]

    @property
    def taps(self) -> int:
        """The side of its kernel."""
        return int(self.weight.shape[-1])

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        return self.weight.size

    def receptive_radius(self, program: Program, unit: int) -> float:
        source = program.values[self.source.value]
        cells = -(-(self.taps - 1) * source.space_to_depth // (2 * unit))
        return float(cells * unit / source.resolution)

    def source_box(self, program: Program, box: Box) -> Box:
        more = self.taps - 1
        grown = Box(box.top, box.left, box.height + more, box.width + more)
        stored = program.values[self.source.value].space_to_depth
        return scaled(viewed(self.source, grown), stored)


@dataclass(frozen=True, eq=False)
class Resized:
    """The weights of a convolution that also resizes its result by one half, made by `resizing`.

    Kinds of rows, and of columns, of the target: the first one, other even ones, other odd ones,
    the last one.
    """

    weight: NDArray[np.float32]
    """(4, 4, planes, in, taps, taps), by the kinds of row and column."""
    bias: NDArray[np.float32]
    """(4, 4, planes)."""
    blend: float
    """In the picture that is added, the share of the neighbour of the nearest pixel, in each
    direction."""


@dataclass(frozen=True, eq=False)
class OwnGate:
    """A gate that a convolution makes from its own result and multiplies it by: activation(weight *
    made + bias), a 1x1 convolution."""

    weight: NDArray[np.float32]
    """(out planes, in planes)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    activation: Activation


@dataclass(frozen=True, eq=False)
class Conv(_TapStep):
    """join(activation(weight * source + bias) * factor, residual), times `own_gate`.

    A valid cross-correlation, stored by depth-to-space: the result at (y, x), planes
    [dy][dx][plane], are the pixels (y * block + dy, x * block + dx) of the target, where block is
    `depth_to_space`.
    """

    weight: NDArray[np.float32]
    """(out, in, taps, taps), taps 1 or 3 to MOST_TAPS, 5 if `resized`. `in` has the order of the
    source as stored, without padding; `out` that of the sums, [dy][dx][plane]."""
    bias: NDArray[np.float32]
    """(out,)."""
    activation: Activation
    """It has `out` planes."""
    depth_to_space: int = 1
    """The side of the block of pixels that one result becomes; 1 unless the target is stored by
    single pixels."""
    factor: float = 1.0
    residual: View | None = None
    """It has the target's planes and pixels, and is of a value other than the picture. Its
    space-to-depth equals `depth_to_space` and divides its offset, so it lies in memory as the sums
    do: pixel (y + offset / block, x + offset / block) as stored, all its planes [dy][dx][plane].
    The target is stored by single pixels. `fusing` also adds the picture itself, enlarged
    `depth_to_space` times, to what becomes the result or a map of as few planes."""
    join: Expression = ADD
    """With any other than ADD, the factor and depth-to-space are 1."""
    own_gate: OwnGate | None = None
    """The gate by which the sum with the residual is multiplied; then the factor and depth-to-space
    are 1. Only `fusing` makes such steps."""
    factors: int | None = None
    """The vector that scales the planes of a single pixel of the source, one part. Only `fusing`
    makes such steps, of one tap."""
    residual_factors: int | None = None
    """The vector that scales the planes of the residual."""
    resized: Resized | None = None
    """The weights, also those at the edges, of a result that is a map twice as large, resized by
    one half; then `depth_to_space` is 2. Only `resizing` makes such steps."""

    @property
    def in_planes(self) -> int:
        """The number of planes that it reads."""
        return int(self.weight.shape[1])

    @property
    def out_planes(self) -> int:
        """The number of planes of its sums, before depth-to-space."""
        return int(self.weight.shape[0])

    @property
    def adds(self) -> bool:
        """Whether it only adds its residual."""
        return self.join == ADD and not self.own_gate

    @property
    def vectors_read(self) -> tuple[int, ...]:
        vectors = self.factors, self.residual_factors
        return tuple(vector for vector in vectors if vector is not None)

    @property
    def stored_block(self) -> int:
        return self.depth_to_space

    @property
    def label(self) -> str:
        taps = "" if self.taps == 3 else f"{self.taps}x{self.taps} "
        return f"{taps}{self.in_planes} > {self.out_planes}"

    def planes_made(self, program: Program) -> int:
        return self.out_planes // self.depth_to_space**2

    def resolution_made(self, program: Program) -> Fraction:
        source = program.values[self.source.value]
        made = super().resolution_made(program)
        return made / source.space_to_depth * self.depth_to_space

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        return self.weight.size + (self.own_gate.weight.size if self.own_gate else 0)

    def read_boxes(
        self, program: Program, box: Box, sizes: Sequence[Size] | None
    ) -> Iterator[tuple[int, Box]]:
        for value, wanted in super().read_boxes(program, box, sizes):
            if self.resized and self.residual and value == self.residual.value:
                wanted = Box(wanted.top - 1, wanted.left - 1, wanted.height + 2, wanted.width + 2)
            yield value, wanted

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        source = read(self.source)
        source = np.tile(source, self.in_planes // len(source))
        # Not by BLAS, whose sums depend on the machine.
        weight = self.weight.sum(axis=(2, 3), dtype=np.float64)
        sums = (weight * source).sum(axis=1) + self.bias
        made = activated(sums, self.activation) * self.factor
        # One for all places, though they may differ.
        level: NDArray[np.float64] = made.reshape(self.depth_to_space**2, -1).mean(axis=0)
        return level

    def check(self, check: Checker) -> None:
        weight, block, source = self.weight, self.depth_to_space, check.values[self.source.value]
        square = weight.ndim == 4 and weight.shape[2] == weight.shape[3]
        known = self.taps in ((5,) if self.resized else (1, *range(3, MOST_TAPS + 1)))
        check.must(square and known, "weight", f"shape {weight.shape}")
        planes = check.program.planes_read(self.source) * source.space_to_depth**2
        fits = self.in_planes == planes
        check.must(fits, "weight", f"reads {self.in_planes} planes of {planes}")
        check.shaped(self.out_planes, bias=self.bias, activation=self.activation.slopes)
        whole = block >= 1 and self.out_planes % block**2 == 0
        check.must(whole, "depth_to_space", f"{block}, of {self.out_planes} planes")
        is_picture = self.source.value == 0
        check.must(is_picture or self.source.enlarge == 1, "source", "a map that is enlarged")
        target = check.values[self.target.value]
        single = target.space_to_depth == 1
        check.must(block == 1 or single, "depth_to_space", "into a value by space-to-depth")
        self._check_factors(check)
        if self.resized:
            made = (4, 4, self.out_planes // 4, *weight.shape[1:])
            check.must(self.resized.weight.shape == made, "resized", f"not {made}")
            check.must(self.resized.bias.shape == made[:3], "resized", f"not {made[:3]}")
            last = block == 2 and self.target.value == check.program.result
            check.must(last, "resized", "other than the result, by blocks of 2")
        self._check_join(check)

    def _check_factors(self, check: Checker) -> None:
        for field, vector, view in (
            ("factors", self.factors, self.source),
            ("residual_factors", self.residual_factors, self.residual),
        ):
            if vector is not None:
                check.written(field, vector)
                check.must(view is not None and view.value != 0, field, "of no map")
                assert view is not None
                planes, size = check.program.planes_read(view), check.program.vectors[vector]
                check.must(planes == size, field, f"{size} for {planes} planes")
        check.must(self.factors is None or self.taps == 1, "factors", "with several taps")

    def _check_join(self, check: Checker) -> None:
        block = self.depth_to_space
        check.must(self.join in JOINS.values(), "join", f"{self.join}")
        plain = self.residual is not None and self.factor == block == 1
        check.must(plain or self.join == ADD, "join", "not of a residual alone")
        if self.own_gate:
            check.must(plain and self.join == ADD, "own_gate", "of other than a plain sum")
            gate, planes = self.own_gate, self.out_planes
            check.must(gate.weight.shape == (planes, planes), "own_gate", f"{gate.weight.shape}")
            check.shaped(planes, own_gate=gate.bias)
            check.shaped(planes, own_gate=gate.activation.slopes)
        if self.residual:
            added = check.values[self.residual.value]
            check.joined(self)
            is_picture = self.residual.value == 0
            alike = added.space_to_depth == block or (is_picture and self.residual.enlarge == block)
            fault = f"stored by blocks of {added.space_to_depth}, not {block}"
            check.must(alike, "residual", fault)
            aligned = self.residual.offset % block == 0
            check.must(aligned, "residual", f"offset {self.residual.offset} in blocks of {block}")
            single = check.values[self.target.value].space_to_depth == 1
            check.must(single, "residual", "with a target by space-to-depth")


@dataclass(frozen=True, eq=False)
class Depthwise(_TapStep):
    """join(activation(kernel * source + bias), residual), plane by plane.

    A valid cross-correlation, with one kernel for each plane. The source is a view of one part,
    other than the picture; a residual has the target's pixels and planes, and is of a value other
    than the picture. All are stored by single pixels, and the target is not the result.
    """

    weight: NDArray[np.float32]
    """(planes, taps, taps), taps MOST_TAPS at most."""
    bias: NDArray[np.float32]
    """(planes,)."""
    activation: Activation
    residual: View | None = None
    join: Expression = ADD
    is_inner = True

    @property
    def label(self) -> str:
        return f"{self.taps}x{self.taps} each of {len(self.weight)}"

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        weight = self.weight.sum(axis=(1, 2), dtype=np.float64)
        return activated(weight * read(self.source) + self.bias, self.activation)

    def check(self, check: Checker) -> None:
        planes = check.program.planes_read(self.source)
        shape = (planes, self.taps, self.taps)
        fits = self.weight.shape == shape and self.taps <= MOST_TAPS
        check.must(fits, "weight", f"shape {self.weight.shape}, not {shape}")
        check.shaped(planes, bias=self.bias, activation=self.activation.slopes)
        check.plain_part(self.source)
        check.must(self.residual is not None or self.join == ADD, "join", "without a residual")
        if self.residual:
            check.must(self.residual.value != 0, "residual", "of the picture")
            check.joined(self)
        check.single(self.target, self.residual)
