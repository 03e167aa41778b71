"""What an engine runs: convolutions, planewise steps and means over values, in order.

A value is a map in memory of an engine's own layout. Places in it are counted from its pixel (0,
0), as in `waifu2x.networks.model`; cells and blocks of any kind are anchored there, never to a
tile, so that every tile computes the same numbers in the same order. A place beyond a value's size
is computed like any other, from a picture that goes on as its border says, unless the value is
`zero_outside`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.activations import Activation
from waifu2x.networks.model import Model
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Value:
    """A map that steps write and read. Value 0 is the picture, the last one the result."""

    graph: int
    """The model's value whose size it has: see `Model.sizes`."""
    parts: tuple[int, ...]
    """Planes, divided as they are written: several where maps are concatenated. An engine may pad
    each part with planes that are zero."""
    resolution: Fraction
    """Its pixels for each pixel of the picture."""
    space_to_depth: int = 1
    """Above 1: stored with so many pixels a side as the planes of one, in the order
    [dy][dx][plane], for convolutions that read it at a stride. It has one part then."""
    zero_outside: bool = False
    """Beyond its size it holds zeros, for convolutions that are padded with them. The picture does
    so by the model's border."""

    @property
    def planes(self) -> int:
        """Planes of a single pixel, those of all parts together."""
        return sum(self.parts)


@dataclass(frozen=True)
class View:
    """How a step reads a value: pixel y of the view is pixel (y + offset) // enlarge of the value.

    A convolution reads a value as it is stored: where that is by space-to-depth, pixels of the view
    are stored ones, and `offset` counts them. All others read single pixels, however stored.
    """

    value: int
    offset: int = 0
    """The same for rows and columns; may be negative."""
    enlarge: int = 1
    """Above 1 for the source of a planewise step, and of a convolution that reads the picture."""
    first: int = 0
    """The first of the parts that it reads."""
    parts: int = 1
    """How many; above 1 only for the source of a convolution."""


@dataclass(frozen=True)
class Target:
    """Where a step writes: all places that later steps need."""

    value: int
    part: int = 0
    plane: int = 0
    """The first plane of that part; above 0 only for copies, several of which may fill a part."""


@dataclass(frozen=True, eq=False)
class Resized:
    """What a convolution makes that resizes by one half on the way: see `resizing`.

    Kinds of rows, and of columns, of the target: the first one, other even ones, other odd ones,
    the last one.
    """

    weight: NDArray[np.float32]
    """(4, 4, planes, in, taps, taps), by the kinds of row and column."""
    bias: NDArray[np.float32]
    """(4, 4, planes)."""
    blend: float
    """What of the picture that is added comes from the pixel next to the nearest one, in each
    direction."""


@dataclass(frozen=True, eq=False)
class Conv:
    """activation(weight * source + bias) * factor + residual; gated: see `gated`.

    A valid cross-correlation of one or nine taps, 25 if `resized`, stored by depth-to-space: the
    result at (y, x), planes [dy][dx][plane], are the pixels (y * block + dy, x * block + dx) of the
    target, where block is `depth_to_space`.
    """

    node: int
    """The model's value that it computes: for names and times."""
    source: View
    weight: NDArray[np.float32]
    """(out, in, taps, taps), taps 1, 3, or 5 if `resized`. `in` goes as the source is stored,
    without padding, `out` as the sums: [dy][dx][plane]."""
    bias: NDArray[np.float32]
    """(out,)."""
    activation: Activation
    """It has `out` planes."""
    target: Target
    depth_to_space: int = 1
    """Above 1 only where the target is stored by single pixels."""
    factor: float = 1.0
    residual: View | None = None
    """It has the target's planes and pixels, and is of a value other than the picture. Its
    space-to-depth equals `depth_to_space` and divides its offset, so it lies in memory as the sums
    do: pixel (y + offset / block, x + offset / block) as stored, all its planes [dy][dx][plane].
    The target is stored by single pixels. `fusing` also adds the picture itself, enlarged
    `depth_to_space` times, to what becomes the result or a map of as few planes."""
    gated: bool = False
    """Whether it ends with a GatedAdd: (made + residual) * (sigmoid(made) - 1/2), where made is
    activation(weight * source + bias). Only `fusing` makes such steps."""
    factors: int | None = None
    """The vector that scales the planes of a single pixel of the source, one part, as a Scale
    before it would. Only `fusing` makes such steps, of one tap."""
    residual_factors: int | None = None
    """The same for the residual."""
    resized: Resized | None = None
    """The weights at the edges of the result, and how the picture is added, where `depth_to_space`
    is 2 and all pixels are those of a map twice as large, resized. Only `resizing` makes such
    steps."""

    @property
    def taps(self) -> int:
        """Taps in each direction."""
        return int(self.weight.shape[-1])

    @property
    def in_planes(self) -> int:
        """Planes that it reads."""
        return int(self.weight.shape[1])

    @property
    def out_planes(self) -> int:
        """Planes of its sums, before depth-to-space."""
        return int(self.weight.shape[0])


@dataclass(frozen=True)
class Copy:
    """source * factor + residual.

    The source of every planewise step is a view of single pixels of one part, and so is a residual,
    which has the target's pixels, as many planes, and is of a value other than the picture.
    """

    node: int
    source: View
    target: Target
    factor: float = 1.0
    residual: View | None = None


@dataclass(frozen=True)
class DepthToSpace:
    """Planes become pixels; then * factor + residual.

    Plane c of the result's pixel (y, x) is plane (c * block + y % block) * block + x % block of the
    source's pixel (y // block, x // block).
    """

    node: int
    source: View
    target: Target
    block: int
    factor: float = 1.0
    residual: View | None = None


@dataclass(frozen=True)
class SpaceToDepth:
    """Pixels become planes: the inverse of DepthToSpace."""

    node: int
    source: View
    target: Target
    block: int


@dataclass(frozen=True)
class Scale:
    """source * vector * factor + residual: a plane times its element of a vector."""

    node: int
    source: View
    target: Target
    vector: int
    """It has as many elements as the source has planes."""
    factor: float = 1.0
    residual: View | None = None


@dataclass(frozen=True)
class GatedAdd:
    """(source + residual) * (sigmoid(source) - 1/2)."""

    node: int
    source: View
    target: Target
    residual: View


@dataclass(frozen=True)
class BicubicResize:
    """The map `up / down` times as large, as `networks.model.Resize` defines it.

    The source is a whole value of one part, stored by single pixels, other than the picture.
    """

    node: int
    source: View
    target: Target
    up: int
    down: int


@dataclass(frozen=True)
class GlobalAvgPool:
    """The mean of each plane of a value over all of its size, into a vector."""

    node: int
    source: View
    """A value other than the picture, with one part and no offset."""
    vector: int


@dataclass(frozen=True, eq=False)
class Linear:
    """activation(weight @ source + bias), on vectors."""

    node: int
    source: int
    weight: NDArray[np.float32]
    """(out, in)."""
    bias: NDArray[np.float32]
    activation: Activation
    vector: int


PlanewiseStep = Copy | DepthToSpace | SpaceToDepth | Scale | GatedAdd | BicubicResize
"""Steps without weights: each plane of the result is made of one plane of the source."""
MapStep = Conv | PlanewiseStep
"""Steps that write maps."""
VectorStep = GlobalAvgPool | Linear
"""Steps that write vectors."""
Step = MapStep | VectorStep


@dataclass(frozen=True, eq=False)
class Program:
    """A model, lowered."""

    model: Model
    values: tuple[Value, ...]
    vectors: tuple[int, ...]
    """The sizes of all vectors."""
    steps: tuple[Step, ...]
    """In an order in which each reads what was written before."""
    cuts: tuple[int, ...] = ()
    """The steps with which phases begin, besides those that means end."""

    @property
    def result(self) -> int:
        """The value that becomes pixels, clipped to [0, 1] and rounded as they are stored. Only one
        step writes it, and none reads it."""
        return len(self.values) - 1


def residual_of(step: Step) -> View | None:
    """The map that a step adds to what it makes of its source."""
    match step:
        case Conv() | Copy() | DepthToSpace() | Scale() | GatedAdd():
            return step.residual
    return None


def factor_of(step: PlanewiseStep) -> float:
    """The number that a step multiplies all that it makes of its source by."""
    return step.factor if isinstance(step, Copy | DepthToSpace | Scale) else 1.0


def is_gated(step: Step) -> bool:
    """Whether what a step makes of its source also gates it, with its residual."""
    return isinstance(step, GatedAdd) or (isinstance(step, Conv) and step.gated)


def factors_of(step: Step) -> set[int]:
    """The vectors that a step which writes a map scales planes by."""
    if isinstance(step, Scale):
        return {step.vector}
    if isinstance(step, Conv):
        return {vector for vector in (step.factors, step.residual_factors) if vector is not None}
    return set()


def stored_block(step: MapStep) -> int:
    """Pixels of the target, in each direction, that one result of a step is stored as."""
    return step.depth_to_space if isinstance(step, Conv) else 1


def made_planes(step: PlanewiseStep, planes: int) -> int:
    """Planes that a step makes of so many."""
    match step:
        case DepthToSpace():
            return planes // step.block**2
        case SpaceToDepth():
            return planes * step.block**2
    return planes


def reads(step: Step) -> tuple[View, ...]:
    """The maps that a step reads, its source first."""
    if isinstance(step, Linear):
        return ()
    residual = residual_of(step)
    return (step.source, residual) if residual else (step.source,)


def writes(step: Step) -> int:
    """The value that a step writes; -1 if it makes a vector."""
    return step.target.value if isinstance(step, MapStep) else -1


def redirected(
    step: Step, view: Callable[[View], View], target: Callable[[Target], Target]
) -> Step:
    """The same step, its maps read by other views and written to another target."""
    match step:
        case Linear():
            return step
        case GlobalAvgPool():
            return replace(step, source=view(step.source))
        case SpaceToDepth() | BicubicResize():
            return replace(step, source=view(step.source), target=target(step.target))
        case GatedAdd():
            residual = view(step.residual)
            return replace(
                step, source=view(step.source), target=target(step.target), residual=residual
            )
        case Conv() | Copy() | DepthToSpace() | Scale():
            added = step.residual and view(step.residual)
            return replace(
                step, source=view(step.source), target=target(step.target), residual=added
            )


def renumbered(step: Step, numbers: Mapping[int, int]) -> Step:
    """The same step, its values found by other numbers where there are any."""
    return redirected(
        step,
        lambda view: replace(view, value=numbers.get(view.value, view.value)),
        lambda target: replace(target, value=numbers.get(target.value, target.value)),
    )


def touched(step: Step) -> set[int]:
    """The values that a step reads or writes."""
    return {view.value for view in reads(step)} | ({writes(step)} - {-1})


def compacted(
    values: Sequence[Value], steps: Sequence[Step], result: int
) -> tuple[tuple[Value, ...], tuple[Step, ...]]:
    """The picture, the values that steps touch in the same order, the result last; and the steps
    with the new numbers of their values."""
    found = {0, result}.union(*map(touched, steps))
    order = [value for value in sorted(found) if value != result] + [result]
    numbers = {old: new for new, old in enumerate(order)}
    kept = tuple(values[value] for value in order)
    return kept, tuple(renumbered(step, numbers) for step in steps)


def label(step: Step) -> str:
    """A step for people: a convolution's planes, and its taps where they are not the usual 3x3."""
    match step:
        case Conv():
            taps = "" if step.taps == 3 else f"{step.taps}x{step.taps} "
            return f"{taps}{step.in_planes} > {step.out_planes}"
        case Copy():
            return "copy"
        case DepthToSpace():
            return "depth to space"
        case SpaceToDepth():
            return "space to depth"
        case Scale():
            return "scale"
        case GatedAdd():
            return "gate"
        case BicubicResize():
            return "resize"
        case GlobalAvgPool():
            return "mean"
        case Linear():
            return "linear"
