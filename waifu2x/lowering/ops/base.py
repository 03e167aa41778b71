"""Defines the base of all steps: the questions that passes, plans and engines ask of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.plan.box import Box, aligned, scaled, viewed
from waifu2x.lowering.values import Target, Value, View
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import ADD, LEAKY, Expression, evaluate
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.lowering.program import Program

PLANEWISE_COST = 16
"""Multiply-adds that take about as long as loading and storing one plane of a pixel."""


Levels = Callable[[View], NDArray[np.float64]]
"""Returns the values of a view's planes, (planes,), where all of its pixels are equal."""


class InvalidProgramError(AssertionError):
    """Says that a pass has made an invalid program: a fault of ours, not of the network."""


class Checker:
    """Checks the steps of a program one after another, and offers the checks that several kinds of
    steps share."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values = program.values
        self.vectors: set[int] = set()
        """The vectors that earlier steps have written."""
        self.where = "program"

    def must(self, condition: bool, field: str, fault: str) -> None:
        """Raises InvalidProgramError, naming the step and its field, unless the condition holds."""
        if not condition:
            name = self.program.model.name
            raise InvalidProgramError(f"{name}: {self.where}: {field}: {fault}")

    def shaped(self, planes: int, **arrays: Any) -> None:
        """Checks that each array has one element for each plane."""
        for field, array in arrays.items():
            self.must(array.shape == (planes,), field, f"shape {array.shape} for {planes} planes")

    def joined(self, step: MapStep) -> None:
        """Checks the planes and the resolution of a step's residual."""
        view = step.residual
        assert view is not None
        self.must(view.enlarge == 1 or view.value == 0, "residual", "enlarged")
        self.must(view.parts == 1, "residual", "several parts")
        planes, made = self.program.planes_read(view), step.planes_made(self.program)
        self.must(planes == made, "residual", f"{planes} planes added to {made}")
        found = self.values[view.value].resolution * view.enlarge
        wanted = step.resolution_made(self.program)
        self.must(found == wanted, "residual", f"resolution {found} added to {wanted}")

    def vector_of(self, vector: int, size: int) -> None:
        """Checks that a vector exists and has that size."""
        found = self.program.vectors[vector : vector + 1]
        self.must(found == (size,), "vector", f"{vector} of {found}, not {size}")

    def written(self, field: str, vector: int) -> None:
        """Checks that an earlier step has written a vector."""
        self.must(vector in self.vectors, field, f"vector {vector} is not written yet")

    def single(self, *views: View | Target | None) -> None:
        """Checks that maps are stored by single pixels."""
        for view in views:
            alike = view is None or self.values[view.value].space_to_depth == 1
            field = "target" if isinstance(view, Target) else "source"
            self.must(alike, field, "stored by space-to-depth")

    def whole(self, field: str, view: View, first: int = 0, planes: int = 0) -> None:
        """Checks that a view is all of a value of one part, other than the picture, and that the
        value has the planes from `first` on."""
        self.must(view == View(view.value) and view.value != 0, field, f"{view}")
        stored = self.values[view.value]
        self.must(len(stored.parts) == 1, field, f"a value of {len(stored.parts)} parts")
        within = 0 <= first <= stored.planes - planes
        self.must(within, "first", f"{first} of {stored.planes} planes, for {planes}")

    def plain_part(self, view: View) -> None:
        """Checks that a view is of one part of a map stored by single pixels, not enlarged."""
        plain = self.values[view.value].space_to_depth == view.parts == view.enlarge == 1
        self.must(plain and view.value != 0, "source", "not a part of a plain map")

    def target(self, step: MapStep) -> None:
        """Checks that a step writes a part of a value that it may write."""
        target = step.target
        known = 0 < target.value < len(self.values)
        self.must(known, "target", f"no value to write: {target.value}")
        parts = self.values[target.value].parts
        self.must(0 <= target.part < len(parts), "target", f"no part {target.part}")
        result = target.value == self.program.result
        self.must(not (result and step.is_inner), "target", "the result")


@dataclass(frozen=True, eq=False)
class Step:
    """An operation of a program. Its fields define the result; its methods, what that requires."""

    node: int
    """The model's value that it computes, for messages and profiles."""
    is_inner: ClassVar[bool] = False
    """Whether it cannot write the result."""

    @property
    def reads(self) -> tuple[View, ...]:
        """The maps that it reads, its source first."""
        return ()

    @property
    def read_whole(self) -> tuple[View, ...]:
        """The maps whose pixels it may read anywhere: an earlier phase keeps them whole."""
        return ()

    @property
    def vectors_read(self) -> tuple[int, ...]:
        """The vectors that it reads."""
        return ()

    @property
    def writes(self) -> int:
        """The value that it writes; -1 if it makes a vector."""
        return -1

    @property
    def touched(self) -> set[int]:
        """The values that it reads or writes."""
        return {view.value for view in self.reads} | ({self.writes} - {-1})

    @property
    def label(self) -> str:
        """Its name for people."""
        raise NotImplementedError

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        """Returns the multiply-adds of one result, before depth-to-space; 0 if it makes a vector.

        `planewise` is the cost of each plane of a step that multiplies nothing.
        """
        return 0

    def check(self, check: Checker) -> None:
        """Raises InvalidProgramError if its fields contradict each other or the program."""
        raise NotImplementedError

    def redirected(
        self,
        view: Callable[[View], View] = lambda view: view,
        target: Callable[[Target], Target] = lambda target: target,
    ) -> Self:
        """Returns the same step on other maps: each view and the target replaced."""
        made: dict[str, Any] = {}
        for field in fields(self):
            found = getattr(self, field.name)
            if isinstance(found, View):
                made[field.name] = view(found)
            elif isinstance(found, Target):
                made[field.name] = target(found)
        return replace(self, **made) if made else self

    def renumbered(self, numbers: Mapping[int, int]) -> Self:
        """Returns the same step with its values renumbered; others keep their numbers."""
        return self.redirected(
            lambda view: replace(view, value=numbers.get(view.value, view.value)),
            lambda target: replace(target, value=numbers.get(target.value, target.value)),
        )


@dataclass(frozen=True, eq=False)
class _MapFields(Step):
    source: View
    target: Target


class MapStep(_MapFields):
    """A step that writes a map: join(made * factor, residual); without residual, made * factor."""

    residual: View | None = None
    """The map that is joined to the result, of the same planes and pixels."""
    join: Expression = ADD
    """One of `networks.expressions.JOINS`."""
    factor: float = 1.0
    """Scales the step's own result before it is joined."""

    @property
    def reads(self) -> tuple[View, ...]:
        return (self.source, self.residual) if self.residual else (self.source,)

    @property
    def writes(self) -> int:
        return self.target.value

    @property
    def stored_block(self) -> int:
        """The side of the block of target pixels that holds one result, for depth-to-space."""
        return 1

    def planes_made(self, program: Program) -> int:
        """Returns the planes of a pixel of the target."""
        return program.planes_read(self.source)

    def resolution_made(self, program: Program) -> Fraction:
        """Returns the pixels of the target for each pixel of the picture, in each direction."""
        return program.values[self.source.value].resolution * self.source.enlarge

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        return planewise * program.values[self.target.value].planes

    def receptive_radius(self, program: Program, unit: int) -> float:
        """Returns how many pixels of the picture it reads beyond its own on each side, if computed
        in cells of `unit` x `unit` pixels."""
        return 0.0

    def computed(self, box: Box, unit: tuple[int, int], size: Size | None) -> Box:
        """Returns the box that it computes to make `box`: the smallest one of whole units.

        `size` is its source's, None for a large one.
        """
        return aligned(box, unit)

    def source_box(self, program: Program, box: Box) -> Box:
        """Returns the pixels of its source that it reads for its results in a box."""
        return viewed(self.source, box)

    def read_boxes(
        self, program: Program, box: Box, sizes: Sequence[Size] | None
    ) -> Iterator[tuple[int, Box]]:
        """Yields each value that it reads for its results in `box`, with the box read, except for
        those that it reads whole. `sizes` are those of all values, if known."""
        yield self.source.value, self.source_box(program, box)
        if self.residual:
            yield self.residual.value, viewed(self.residual, scaled(box, self.stored_block))

    def level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Returns its result, (planes,), where all pixels of each map are equal: `read` returns the
        planes of a view."""
        made = self._level(read, vectors)
        if self.residual is None:
            return made
        return evaluate(self.join, made, operand=read(self.residual)[: len(made)])

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Returns the result before the residual is joined."""
        return read(self.source)


class VectorStep(Step):
    """A step that writes a vector."""

    vector: int


@dataclass(frozen=True, eq=False)
class PictureSum(VectorStep):
    """A step that sums over all pixels of a value, which ends a phase."""

    source: View
    """A value other than the picture, with one part and no offset."""
    vector: int

    @property
    def reads(self) -> tuple[View, ...]:
        return (self.source,)


@dataclass(frozen=True, eq=False)
class InnerVectorStep(VectorStep):
    """A step that makes a vector from other vectors."""

    source: int
    vector: int

    @property
    def vectors_read(self) -> tuple[int, ...]:
        return (self.source,)

    def made(self, *vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the vector made from `vectors`, for engines that keep them in NumPy arrays."""
        raise NotImplementedError


def activated(sums: NDArray[np.float64], activation: Activation) -> NDArray[np.float64]:
    """Applies an activation to sums, (planes,), with its slopes as decimals: 0.1, not the float32
    next to it."""
    if activation.function != LEAKY:
        return activation(sums)
    # Either would do, but every bit of the results in bf16 depends on which.
    slopes = activation.slopes.astype(str).astype(np.float64)
    return np.where(sums > 0, sums, sums * slopes)


def compacted(
    values: Sequence[Value], steps: Iterable[Step], result: int
) -> tuple[tuple[Value, ...], tuple[Step, ...]]:
    """Returns the values that steps touch, in their order with the picture first and `result` last;
    and the steps with the values renumbered."""
    steps = tuple(steps)
    found = {0, result}.union(*(step.touched for step in steps))
    order = [value for value in sorted(found) if value != result] + [result]
    numbers = {old: new for new, old in enumerate(order)}
    kept = tuple(values[value] for value in order)
    return kept, tuple(step.renumbered(numbers) for step in steps)
