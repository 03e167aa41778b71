"""Pictures as YUV planes, the way films store them: formats, memory and coefficients.

The definition, with `s = 2**(bits - 8)`, `T = 2**bits - 1` and `kr`, `kb` of the matrix:

    limited range   y = (Y - 16 s) / (219 s)    u, v = (U, V - 128 s) / (224 s)
    full range      y = Y / T                   u, v = (U, V - 128 s) / T
    R = y + 2 (1 - kr) v    B = y + 2 (1 - kb) u    G = (y - kr R - kb B) / (1 - kr - kb)

and back, where a code is floor(x + 0.5), at least 0 and at most T. Where chroma has fewer samples,
sample j lies at luma 2 j + o, with an o of 0 or 1/2 as the siting says. To RGB it is interpolated
linearly between two samples. Back it is the mean (1 2 1) / 4 around the pixel for 0, and of two
pixels for 1/2. Edges are repeated.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.system.lazy_dataclass import dataclass

Subsampling = Literal["420", "422", "444"]
Matrix = Literal["bt601", "bt709", "bt2020", "smpte240m", "fcc"]
Siting = Literal["left", "topleft", "center"]

DEPTHS = (8, 10)
SUBSAMPLINGS: dict[Subsampling, tuple[int, int]] = {"420": (2, 2), "422": (1, 2), "444": (1, 1)}
"""Rows and columns of pixels that share a sample of chroma."""
MATRICES: dict[Matrix, tuple[float, float]] = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "smpte240m": (0.212, 0.087),
    "fcc": (0.30, 0.11),
}
"""The shares of red and of blue in luma."""
SITINGS: dict[Siting, tuple[bool, bool]] = {
    "left": (True, False),
    "topleft": (False, False),
    "center": (True, True),
}
"""Whether chroma lies midway between two rows, and between two columns."""


class Axis(NamedTuple):
    """How chroma lies along rows or columns."""

    step: int
    """Pixels for each sample: 1 or 2."""
    is_midway: bool
    """With a step of 2: whether a sample lies between its two pixels, or on the first."""

    def samples(self, pixels: int) -> int:
        """How many there are for so many pixels."""
        return -(-pixels // self.step)


class ToRgb(NamedTuple):
    """Factors from codes to RGB; chroma comes 16 times as large."""

    luma_zero: float
    luma_unit: float
    chroma_zero: float
    """16 times the code of 0."""
    red_v: float
    green_u: float
    green_v: float
    blue_u: float


class FromRgb(NamedTuple):
    """Factors from RGB to codes, for red, green and blue; for chroma RGB comes 16 times as
    large. Each zero holds the 0.5 with which codes are rounded."""

    luma: tuple[float, float, float]
    luma_zero: float
    u: tuple[float, float, float]
    v: tuple[float, float, float]
    chroma_zero: float
    peak: float


@dataclass(frozen=True)
class PlaneFormat:
    """What the numbers of YUV planes mean. Raises ValueError for what there is not."""

    bits: int = 8
    """8, in uint8, or 10, in the lower bits of uint16."""
    subsampling: Subsampling = "420"
    matrix: Matrix = "bt709"
    is_full_range: bool = False
    """0 to T, as in JPEG; else 16 s to 235 s."""
    siting: Siting = "left"
    """Where chroma lies; for 422 only its columns count, for 444 nothing."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("bits", DEPTHS),
            ("subsampling", SUBSAMPLINGS),
            ("matrix", MATRICES),
            ("siting", SITINGS),
        ):
            value = self.__dict__[name]
            if value not in choices:
                known = ", ".join(map(repr, choices))
                raise ValueError(f"Expected {name} to be one of {known}, but got {value!r}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its samples."""
        return np.dtype(np.uint8 if self.bits == 8 else np.uint16)

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns."""
        steps, midway = SUBSAMPLINGS[self.subsampling], SITINGS[self.siting]
        rows, columns = (Axis(s, m and s > 1) for s, m in zip(steps, midway, strict=True))
        return rows, columns

    def shapes(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """The shapes of the three planes of a picture of that size."""
        rows, columns = self.axes
        chroma = rows.samples(height), columns.samples(width)
        return (height, width), chroma, chroma

    def empty(self, height: int, width: int) -> PlanarPicture:
        """A picture of that size, uninitialised."""
        y, u, v = (np.empty(shape, self.dtype) for shape in self.shapes(height, width))
        return PlanarPicture(self, y, u, v)

    def to_rgb(self) -> ToRgb:
        """The factors from codes to RGB."""
        kr, kb = MATRICES[self.matrix]
        kg = 1 - kr - kb
        luma_zero, luma_range, chroma_zero, chroma_range = self._ranges()
        red, blue = 2 * (1 - kr) / chroma_range / 16, 2 * (1 - kb) / chroma_range / 16
        return ToRgb(
            luma_zero=luma_zero,
            luma_unit=1 / luma_range,
            chroma_zero=16 * chroma_zero,
            red_v=red,
            green_u=-kb / kg * blue,
            green_v=-kr / kg * red,
            blue_u=blue,
        )

    def from_rgb(self) -> FromRgb:
        """The factors from RGB to codes."""
        kr, kb = MATRICES[self.matrix]
        kg = 1 - kr - kb
        luma_zero, luma_range, chroma_zero, chroma_range = self._ranges()
        u, v = chroma_range / (2 * (1 - kb)) / 16, chroma_range / (2 * (1 - kr)) / 16
        return FromRgb(
            luma=(kr * luma_range, kg * luma_range, kb * luma_range),
            luma_zero=luma_zero + 0.5,
            u=(-kr * u, -kg * u, (1 - kb) * u),
            v=((1 - kr) * v, -kg * v, -kb * v),
            chroma_zero=chroma_zero + 0.5,
            peak=float((1 << self.bits) - 1),
        )

    def _ranges(self) -> tuple[float, float, float, float]:
        """The code of 0 and the codes from 0 to 1: of luma, and of chroma."""
        unit = float(1 << (self.bits - 8))
        if self.is_full_range:
            peak = float((1 << self.bits) - 1)
            return 0.0, peak, 128 * unit, peak
        return 16 * unit, 219 * unit, 128 * unit, 224 * unit


@dataclass(frozen=True, eq=False)
class PlanarPicture:
    """Three planes of samples, wherever they lie: those of a decoder's frame, or of an encoder's.

    Each is an array (rows, columns) of the format's dtype. The samples of a row are neighbours;
    from row to row there may be any step, and what lies between rows is never written. Raises
    ValueError for planes that do not fit the format or each other.
    """

    format: PlaneFormat
    y: NDArray[Any]
    u: NDArray[Any]
    v: NDArray[Any]

    def __post_init__(self) -> None:
        if self.y.ndim != 2:
            raise ValueError(f"Expected planes of 2 dimensions, but got {self.y.ndim}")
        shapes = self.format.shapes(*self.size)
        for name, plane, shape in zip("yuv", self.planes, shapes, strict=True):
            if plane.shape != shape or plane.dtype != self.format.dtype:
                raise ValueError(
                    f"Expected plane {name} of shape {shape} and dtype {self.format.dtype},"
                    f" but got {plane.shape} and {plane.dtype}"
                )
            is_apart = shape[1] > 1 and plane.strides[1] != plane.itemsize
            if is_apart or plane.strides[0] % plane.itemsize:
                raise ValueError(f"Expected the samples of a row of plane {name} to be neighbours")

    @property
    def planes(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Y, U and V."""
        return self.y, self.u, self.v

    @property
    def size(self) -> tuple[int, int]:
        """Its height and width in pixels."""
        height, width = self.y.shape
        return height, width
