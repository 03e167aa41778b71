"""What every check of a program asks: see `verify`."""

from __future__ import annotations

from fractions import Fraction

from waifu2x.lowering.ops.attention import AttentionStep, MixPlanes
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import (
    BicubicResize,
    BilinearResize,
    DepthToSpace,
    PoolMaxima,
    SpaceToDepth,
)
from waifu2x.lowering.program import MapStep, Program
from waifu2x.lowering.step_facts import made_planes
from waifu2x.lowering.values import View


class InvalidProgramError(AssertionError):
    """A pass has made a program that cannot be run: a fault of ours, not of the network."""


class Checker:
    """The state of one walk through a program, and what is the same for steps of any class."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values = program.values
        self.written: dict[tuple[int, int], set[int]] = {}
        """The planes of each part of a value that steps so far have written."""
        self.vectors: set[int] = set()
        self.where = "program"

    def must(self, condition: bool, field: str, what: str) -> None:
        if not condition:
            name = self.program.model.name
            raise InvalidProgramError(f"{name}: {self.where}: {field}: {what}")

    def planes_read(self, view: View) -> int:
        """Planes of a view's single pixels."""
        return sum(self.values[view.value].parts[view.first : view.first + view.parts])

    def planes_made(self, step: MapStep) -> int:
        """Planes of a pixel of the target."""
        if isinstance(step, Depthwise | NormPlanes):
            return len(step.weight)
        if isinstance(step, Conv):
            return step.out_planes // step.depth_to_space**2
        if isinstance(step, AttentionStep | MixPlanes):
            return step.planes
        return made_planes(step, self.planes_read(step.source))

    def resolution_made(self, step: MapStep) -> Fraction:
        """Pixels of the target for each pixel of the picture."""
        source = self.values[step.source.value]
        made = source.resolution * step.source.enlarge
        match step:
            case Conv():
                return made / source.space_to_depth * step.depth_to_space
            case DepthToSpace():
                return made * step.block
            case SpaceToDepth():
                return made / step.block
            case BicubicResize() | BilinearResize():
                return made * step.up / step.down
            case PoolMaxima():
                return made / step.stride
        return made

    def joined(self, step: MapStep, view: View) -> None:
        self.must(view.enlarge == 1 or view.value == 0, "residual", "enlarged")
        self.must(view.parts == 1, "residual", "several parts")
        planes, made = self.planes_read(view), self.planes_made(step)
        self.must(planes == made, "residual", f"{planes} planes added to {made}")
        found = self.values[view.value].resolution * view.enlarge
        wanted = self.resolution_made(step)
        self.must(found == wanted, "residual", f"resolution {found} added to {wanted}")

    def vector_of(self, vector: int, size: int) -> None:
        found = self.program.vectors[vector : vector + 1]
        self.must(found == (size,), "vector", f"{vector} of {found}, not {size}")

    def whole(self, field: str, view: View) -> None:
        """A view of all of a value other than the picture."""
        self.must(view == View(view.value) and view.value != 0, field, f"{view}")
        parts = self.values[view.value].parts
        self.must(len(parts) == 1, field, f"a value of {len(parts)} parts")
