"""What an engine runs: products, moves and means over values, in order.

A value is a map in memory of an engine's own layout. Places in it are counted from its pixel (0,
0), as in `waifu2x.networks.model`; cells and blocks of any kind are anchored there, never to a
tile, so that every tile computes the same numbers in the same order. A place beyond a value's size
is computed like any other, from a picture that goes on as its border says, unless the value is
`zero_outside`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.activations import Activation
from waifu2x.networks.model import Model


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
    fold: int = 1
    """Above 1: stored with fold x fold neighbouring pixels as the planes of one, in the order
    [dy][dx][plane], for products that read it at a stride. It has one part then."""
    zero_outside: bool = False
    """Beyond its size it holds zeros, for convolutions that are padded with them. The picture does
    so by the model's border."""

    @property
    def planes(self) -> int:
        """Of all parts, unfolded."""
        return sum(self.parts)


@dataclass(frozen=True)
class View:
    """How a step reads a value: pixel y of the view is pixel (y + offset) // enlarge of the value.

    A product reads a folded value as it is stored: pixels of the view are then those of the folded
    map, and `offset` counts them. All others read single pixels, folded or not.
    """

    value: int
    offset: int = 0
    """The same for rows and columns; may be negative."""
    enlarge: int = 1
    """Above 1 for the source of a move, and of a product that reads the picture."""
    first: int = 0
    """The first of the parts that it reads."""
    parts: int = 1
    """How many; above 1 only for the source of a product."""


@dataclass(frozen=True)
class Target:
    """Where a step writes: all places that later steps need."""

    value: int
    part: int = 0
    plane: int = 0
    """The first plane of that part; above 0 only for moves, several of which may fill a part."""


@dataclass(frozen=True, eq=False)
class Product:
    """activation(weight * source + bias) * factor + residual.

    A valid cross-correlation of one or nine taps, stored shuffled: the result at (y, x) of the
    product, planes [dy][dx][plane], are the pixels (y * shuffle + dy, x * shuffle + dx) of the
    target.
    """

    node: int
    """The model's value that it computes: for names and times."""
    source: View
    weight: NDArray[np.float32]
    """(out, in, taps, taps), taps 1 or 3. `in` goes as the source is stored, without padding, `out`
    as the product's result: [dy][dx][plane]."""
    bias: NDArray[np.float32]
    """(out,)."""
    activation: Activation
    """Of `out` planes."""
    target: Target
    shuffle: int = 1
    """Above 1 only where the target is not folded and has one part."""
    factor: float = 1.0
    residual: View | None = None
    """Of the target's planes and pixels, of a value other than the picture. Its fold equals the
    shuffle and divides its offset, so it lies in memory as the product's own result does: the pixel
    (y + offset / shuffle, x + offset / shuffle) of the folded map, all its planes [dy][dx][plane].
    The target is not folded."""

    @property
    def taps(self) -> int:
        """In each direction."""
        return int(self.weight.shape[-1])

    @property
    def in_planes(self) -> int:
        """Planes that it reads."""
        return int(self.weight.shape[1])

    @property
    def out_planes(self) -> int:
        """Planes of its result, before it is shuffled."""
        return int(self.weight.shape[0])


@dataclass(frozen=True)
class Move:
    """source * factors * factor + residual, plane by plane; whatever no product does on its way.

    With `shuffle`, plane c of pixel (y, x) is plane (c * shuffle + y % shuffle) * shuffle + x %
    shuffle of the source's pixel (y // shuffle, x // shuffle); with `unshuffle`, the other way
    round. The source is a view of single pixels of one part, and so is the residual, folded or not.
    """

    node: int
    source: View
    target: Target
    shuffle: int = 1
    unshuffle: int = 1
    factor: float = 1.0
    factors: int | None = None
    """A vector of as many elements as the source has planes."""
    residual: View | None = None
    """Of the target's pixels and as many planes; of a value other than the picture."""
    gate: bool = False
    """With a residual: (source + residual) * (sigmoid(source) - 1/2) instead."""
    resize: tuple[int, int] = (1, 1)
    """Up and down, see `networks.model.Resize`: other than (1, 1) for a source that is a whole
    value of one part, and neither folded nor the picture, with none of the above."""


@dataclass(frozen=True)
class Average:
    """The mean of each plane of a value over all of its size, into a vector."""

    node: int
    source: View
    """A value other than the picture, with one part and no offset."""
    vector: int


@dataclass(frozen=True, eq=False)
class DenseStep:
    """activation(weight @ source + bias), on vectors."""

    node: int
    source: int
    weight: NDArray[np.float32]
    """(out, in)."""
    bias: NDArray[np.float32]
    activation: Activation
    vector: int


MapStep = Product | Move
"""Steps that write maps."""
Step = Product | Move | Average | DenseStep


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


def reads(step: Step) -> tuple[View, ...]:
    """The maps that a step reads."""
    match step:
        case Product() | Move():
            return (step.source, step.residual) if step.residual else (step.source,)
        case Average():
            return (step.source,)
    return ()


def writes(step: Step) -> int:
    """The value that a step writes; -1 of one that makes a vector."""
    return step.target.value if isinstance(step, Product | Move) else -1


def label(step: Step) -> str:
    """A step for people: a product's planes, and its taps where they are not the usual 3x3."""
    match step:
        case Product():
            taps = "" if step.taps == 3 else f"{step.taps}x{step.taps} "
            return f"{taps}{step.in_planes} > {step.out_planes}"
        case Move():
            if step.gate or step.resize != (1, 1):
                return "gate" if step.gate else "resize"
            return "move" if step.factors is None else "scale"
        case Average():
            return "mean"
        case DenseStep():
            return "dense"
