"""Defines the feature maps of a program, and the views and targets by which steps access them.

A value is a map, in memory of an engine's own layout. Its pixels are counted from its pixel (0, 0),
as in `waifu2x.networks.model`; cells and blocks of any kind are anchored there, never to a tile, so
that every tile computes the same numbers in the same order. A pixel beyond a value's size is
computed like any other, from a picture extended by the model's border, unless the value is
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
    """The planes of each part: a concatenation has a part for each of its maps. An engine may pad
    each part with zero planes."""
    resolution: Fraction
    """Its pixels for each pixel of the picture, in each direction."""
    space_to_depth: int = 1
    """Above 1, each block of pixels of that side is stored as the planes of one pixel, in the order
    [dy][dx][plane], for convolutions that read it at that stride. It has one part then."""
    zero_outside: bool = False
    """Whether it holds zeros beyond its size, for zero-padded convolutions. The model's border says
    so of the picture."""

    @property
    def planes(self) -> int:
        """The planes of a single pixel, of all parts together."""
        return sum(self.parts)


@dataclass(frozen=True)
class View:
    """A view of a value that a step reads: its pixel y is the value's (y + offset) // enlarge.

    A convolution reads a value as stored: with space-to-depth, pixels of the view are blocks, and
    `offset` counts blocks. All other steps read single pixels, however stored.
    """

    value: int
    offset: int = 0
    """Equal for rows and columns; may be negative."""
    enlarge: int = 1
    """Above 1 for the source of a planewise step, and of a convolution that reads the picture."""
    first: int = 0
    """The first of the parts that it reads."""
    parts: int = 1
    """The number of parts that it reads; above 1 only for the source of a convolution."""


@dataclass(frozen=True)
class Target:
    """The part of a value that a step writes, at all pixels that later steps need."""

    value: int
    part: int = 0
    plane: int = 0
    """The first plane that it writes of the part; above 0 only for copies, which may fill a part
    together, and for attention whose results `attention_maps` joins."""
