"""Steps without weights: each plane of the result is made of one plane of the source."""

from __future__ import annotations

from waifu2x.lowering.values import Target, View
from waifu2x.system.lazy_dataclass import dataclass


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
    """(source * vector + shifts) * factor + residual: a plane times its element of a vector."""

    node: int
    source: View
    target: Target
    vector: int
    """It has as many elements as the source has planes."""
    factor: float = 1.0
    residual: View | None = None
    shifts: int | None = None
    """A vector as long, which is added to planes."""


@dataclass(frozen=True)
class GatedAdd:
    """(source + residual) * (sigmoid(source) - 1/2)."""

    node: int
    source: View
    target: Target
    residual: View


@dataclass(frozen=True)
class ScaleByMap:
    """source * residual, value by value."""

    node: int
    source: View
    target: Target
    residual: View


@dataclass(frozen=True)
class BicubicResize:
    """The map `up / down` times as large, as `networks.nodes.Interpolate` defines it.

    The source is a whole value of one part, stored by single pixels, other than the picture.
    """

    node: int
    source: View
    target: Target
    up: int
    down: int


@dataclass(frozen=True)
class BilinearResize:
    """The map enlarged to the size of its target, as `networks.pooling.InterpolateTo` defines it.

    The source is a whole value of one part, stored by single pixels, other than the picture; the
    target is not the result.
    """

    node: int
    source: View
    target: Target
    up: int
    """About up / down times as large: how much exactly depends on the sizes of both values."""
    down: int
    radius: int
    """Pixels of the source, beyond those that `up / down` tells and the next one, that a result may
    be made of."""


@dataclass(frozen=True)
class PoolMaxima:
    """Maxima over kernel x kernel pixels of the source, at every `stride` pixels, as
    `networks.pooling.MaxPool` defines them.

    The source is a whole value of one part, stored by single pixels, other than the picture; the
    target is not the result.
    """

    node: int
    source: View
    target: Target
    kernel: int
    stride: int


@dataclass(frozen=True)
class Rearrange:
    """Pixels at other places of the map, as `networks.nodes.Interleave` defines it.

    The source is a whole value of one part, stored by single pixels, other than the picture, and
    the target is not the result. Any pixel may be read for any tile: so the source is complete
    before the step runs. The target is zero outside its size.
    """

    node: int
    source: View
    target: Target
    parts: int
    inverse: bool

    def cells(self, length: int) -> int:
        """What rows, or columns, of a map of so many are divided into: place p of the target is
        p % cells * (length // cells) + p // cells of the source."""
        return length // self.parts if self.inverse else self.parts


ResamplingStep = BicubicResize | BilinearResize | PoolMaxima
"""Steps that make each pixel of several, whose places depend on the edges of the source."""
PlanewiseStep = (
    Copy | DepthToSpace | SpaceToDepth | Scale | GatedAdd | ScaleByMap | ResamplingStep | Rearrange
)
