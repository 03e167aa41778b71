"""Steps that are convolutions: of all planes together, and of each plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.values import Target, View
from waifu2x.networks.activations import Activation
from waifu2x.system.lazy_dataclass import dataclass

MOST_TAPS = 18
"""The most in each direction that a convolution has."""


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
class OwnGate:
    """The factor that a convolution makes of its own result: activation(weight * made + bias), of
    the planes of each pixel."""

    weight: NDArray[np.float32]
    """(planes, planes): out, in."""
    bias: NDArray[np.float32]
    """(planes,)."""
    activation: Activation


@dataclass(frozen=True, eq=False)
class Conv:
    """activation(weight * source + bias) * factor + residual; see also `gated`, `own_gate` and
    `multiplied`.

    A valid cross-correlation, stored by depth-to-space: the result at (y, x), planes
    [dy][dx][plane], are the pixels (y * block + dy, x * block + dx) of the target, where block is
    `depth_to_space`.
    """

    node: int
    """The model's value that it computes: for names and times."""
    source: View
    weight: NDArray[np.float32]
    """(out, in, taps, taps), taps 1 or 3 to MOST_TAPS, 5 if `resized`. `in` goes as the source
    is stored, without padding, `out` as the sums: [dy][dx][plane]."""
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
    own_gate: OwnGate | None = None
    """What multiplies the sum with the residual, if anything. Then no factor comes in between, and
    depth-to-space is 1. Only `fusing` makes such steps."""
    multiplied: bool = False
    """Whether what it makes is multiplied by the residual, instead of that being added. Then no
    factor comes in between, and depth-to-space is 1."""
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

    @property
    def adds(self) -> bool:
        """Whether all that it does with a residual is to add it."""
        return not (self.gated or self.multiplied or self.own_gate)


@dataclass(frozen=True, eq=False)
class Depthwise:
    """activation(kernel * source + bias) + residual, plane by plane; see also `multiplied`.

    A valid cross-correlation of each plane with a kernel of its own. The source is a view of one
    part, other than the picture; a residual has the target's pixels and planes, and is of a value
    other than the picture. All are stored by single pixels, and the target is not the result.
    """

    node: int
    source: View
    weight: NDArray[np.float32]
    """(planes, taps, taps), taps MOST_TAPS at most."""
    bias: NDArray[np.float32]
    """(planes,)."""
    activation: Activation
    target: Target
    residual: View | None = None
    multiplied: bool = False
    """Whether what it makes is multiplied by the residual, instead of that being added."""

    @property
    def taps(self) -> int:
        """Taps in each direction."""
        return int(self.weight.shape[-1])
