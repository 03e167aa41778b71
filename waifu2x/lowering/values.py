"""Maps that steps write and read, and how a step finds its place in them.

A value is a map in memory of an engine's own layout. Places in it are counted from its pixel (0,
0), as in `waifu2x.networks.model`; cells and blocks of any kind are anchored there, never to a
tile, so that every tile computes the same numbers in the same order. A place beyond a value's size
is computed like any other, from a picture that goes on as its border says, unless the value is
`zero_outside`.
"""

from __future__ import annotations

from fractions import Fraction

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
    """Above 1, the pixels of a block of that side are stored as the planes of one, in the order
    [dy][dx][plane], for convolutions that read it at that stride. It has one part then."""
    zero_outside: bool = False
    """Beyond its size it holds zeros, for convolutions that are padded with them. The picture does
    so by the model's border."""

    @property
    def planes(self) -> int:
        """Planes of a single pixel, those of all parts together."""
        return sum(self.parts)


@dataclass(frozen=True)
class View:
    """A way to read a value: pixel y of the view is pixel (y + offset) // enlarge of the value.

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
    """Their number; above 1 only for the source of a convolution."""


@dataclass(frozen=True)
class Target:
    """The part of a value that a step writes: all places that later steps need."""

    value: int
    part: int = 0
    plane: int = 0
    """The first plane of that part; above 0 only for copies, which may fill a part together, and
    for attention where `attention_maps` says so."""
