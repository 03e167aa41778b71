"""A network: a graph in single assignment form, with every size read from its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, field
from fractions import Fraction
from functools import cached_property
from typing import Literal

from waifu2x.errors import ModelError
from waifu2x.networks.demand import check_demand
from waifu2x.networks.nodes import (
    Convolution,
    DepthwiseConvolution,
    Node,
    ValueShape,
    Weighted,
)
from waifu2x.system.lazy_dataclass import dataclass

Border = Literal["replicate", "reflect", "zero"]
"""Pixels beyond the picture's edges: the nearest one inside; the picture mirrored at the middle of
its last pixel, again and again; or 0."""

MOST_OFFSET = 64
"""The most output pixels at each side for which a deep network's own zero padding counts: it shows
no further from the edge."""

Size = tuple[int, int]
"""Rows and columns."""

_CHECKED = (1, 2, 3, 4, 5, 7, 16, 17, 100)
"""Lengths of pictures, in multiples, for which a model's sizes are computed."""


@dataclass(frozen=True)
class Surround:
    """Mirrored pixels around a picture, half of them on each side; the odd one is above or left.

    They make rows and columns up to a multiple, and more. A network counts them as the picture's.
    """

    multiple: int = 1
    more: int = 0

    def before(self, length: int) -> int:
        """Returns how many pixels stand before `length` ones."""
        return -(-self.added(length) // 2)

    def added(self, length: int) -> int:
        """Returns how many pixels are added to `length` ones."""
        return -length % self.multiple + self.more


@dataclass(frozen=True, eq=False)
class Model:
    """A network: planes of a picture in [0, 1] in, planes of a picture out.

    The last node's value is the result: its pixel (0, 0) belongs to the picture's, and it is
    `scale` times as large. Raises ModelError, which names the node, unless the nodes fit together
    and make a picture of a picture of any size.
    """

    name: str
    """For messages: the file that it came from."""
    in_planes: int
    """Planes of the pictures that it takes: 1 or 3 for each frame, anything for tests."""
    nodes: tuple[Node, ...]
    padding: int
    """Pixels that the picture is padded with on each side."""
    border: Border = "replicate"
    """The content of those pixels."""
    multiple: int = 1
    """Rows and columns of the picture are made up to a multiple of it, below and on the right, by
    more of the border; the result is cut to size."""
    taken: str = ""
    """Which of the networks in its file it is, and why; empty where the file is one network."""
    frames: int = 1
    """Frames in a row that it takes, the earliest first, as the planes of one picture: it makes the
    middle one of them."""
    surround: Surround | None = None
    """Pixels that a picture gets around it before the network takes it; None for none."""

    inferred: InitVar[Sequence[ValueShape] | None] = None
    """The shapes of all values, if the caller has inferred them from these nodes."""
    shapes: tuple[ValueShape, ...] = field(init=False, repr=False)
    """The shape of every value: the picture's, then that of each node."""

    def __post_init__(self, inferred: Sequence[ValueShape] | None) -> None:
        if not self.nodes:
            raise ModelError(f"{self.name}: a network without nodes")
        object.__setattr__(self, "shapes", tuple(inferred or self._infer_shapes()))
        try:
            check_demand(self.nodes, self.shapes, self.frames)
        except ModelError as error:
            raise error.of(self.name) from None
        self._check()

    @cached_property
    def out_planes(self) -> int:
        """Planes of the pictures that it makes."""
        return self.shapes[-1].planes

    @cached_property
    def scale(self) -> int:
        """Returns the output pixels for each input pixel, in each direction."""
        resolution = self.shapes[-1].resolution
        assert resolution is not None
        return int(resolution)

    @cached_property
    def offset(self) -> int:
        """Returns the output pixels at each side in which what lies beyond the picture shows.

        Those are the pixels that the network would lose without padding, of the picture or of its
        layers; of the layers' at most MOST_OFFSET.
        """
        paddings = [
            node.padding * self.scale / resolution
            for node, shape in zip(self.nodes, self.shapes[1:], strict=True)
            if isinstance(node, Convolution | DepthwiseConvolution)
            and (resolution := shape.resolution)
        ]
        return self.padding * self.scale + min(MOST_OFFSET, math.ceil(sum(paddings)))

    @property
    def weighted(self) -> tuple[tuple[int, Weighted], ...]:
        """Returns the nodes with weights, with the values that they make, in order."""
        return tuple((v, n) for v, n in enumerate(self.nodes, 1) if isinstance(n, Weighted))

    @property
    def multiply_adds(self) -> int:
        """Returns the multiply-adds for one output pixel, by the definition of convolution and
        attention, rounded."""
        return round(sum(map(self.node_multiply_adds, range(1, len(self.nodes) + 1))))

    def node_multiply_adds(self, value: int) -> Fraction:
        """Returns multiply-adds of the node that makes a value, for one output pixel."""
        resolution = self.shapes[value].resolution or Fraction(0)
        return self.nodes[value - 1].multiply_adds * resolution**2 / self.scale**2

    def sizes(self, height: int, width: int) -> tuple[Size, ...]:
        """Returns rows and columns of every value for a picture of that size; (1, 1) of vectors."""
        rows, columns = self._lengths(height), self._lengths(width)
        return tuple(zip(rows, columns, strict=True))

    def _lengths(self, length: int) -> list[int]:
        """Returns rows, or columns, of every value."""
        lengths = [-(-length // self.multiple) * self.multiple + 2 * self.padding]
        for value, node in enumerate(self.nodes, 1):
            try:
                lengths.append(node.infer_length(lengths))
            except ModelError as error:
                raise error.of(f"{self.name}: {node.label(value)}") from None
        return lengths

    def _infer_shapes(self) -> list[ValueShape]:
        shapes, makers = [ValueShape(self.in_planes, Fraction(1), Fraction(0))], ["the picture"]
        shapes[0].check_bounds()
        for value, node in enumerate(self.nodes, 1):
            makers.append(node.label(value))
            try:
                shapes.append(node.infer_shape(shapes, makers))
            except ModelError as error:
                raise error.of(f"{self.name}: {makers[-1]}") from None
        return shapes

    def _check(self) -> None:
        """Raises ModelError unless the result is a picture that lies on the picture."""
        last = self.shapes[-1]
        if last.resolution is None:
            raise ModelError(f"{self.name}: its result is a vector, but expected a picture")
        if last.resolution.denominator != 1:
            raise ModelError(f"{self.name}: its result is {last.resolution} times the picture")
        if last.origin != self.padding:
            off = last.origin - self.padding
            raise ModelError(f"{self.name}: its result begins {off} pixels off the picture's")
        for count in _CHECKED:
            length = count * self.multiple
            made = self._lengths(length)[-1]
            if made != length * self.scale:
                raise ModelError(
                    f"{self.name}: it makes {made} pixels of {length}, not {length * self.scale}"
                )
