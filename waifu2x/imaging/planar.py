"""Pictures as planes, the way films store them: formats, memory and coefficients.

They are Y, U and V; or Y alone, which is grey; or G, B and R, in FFmpeg's order.

The definition, with `s = 2**(bits - 8)`, `T = 2**bits - 1` and `kr`, `kb` of the matrix:

    limited range   y = (Y - 16 s) / (219 s)    u, v = (U, V - 128 s) / (224 s)
    full range      y = Y / T                   u, v = (U, V - 128 s) / T
    R = y + 2 (1 - kr) v    B = y + 2 (1 - kb) u    G = (y - kr R - kb B) / (1 - kr - kb)

and back, where a code is floor(x + 0.5), at least 0 and at most T. Where chroma has fewer samples,
sample j lies at luma 2 j + o, with an o of 0 or 1/2 as the siting says. To RGB it is interpolated
linearly between two samples. Back it is the mean (1 2 1) / 4 around the pixel for 0, and of two
pixels for 1/2. Edges are repeated. Grey is three equal colours, and back it is y of the matrix. G,
B and R span the range of y.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from waifu2x.system.lazy_dataclass import dataclass

Subsampling = Literal["400", "420", "422", "444"]
Matrix = Literal["bt601", "bt709", "bt2020", "smpte240m", "fcc", "rgb"]
Siting = Literal["left", "topleft", "center"]

DEPTHS = (8, 9, 10, 12, 14, 16)
SUBSAMPLINGS: dict[Subsampling, tuple[int, int]] = {
    "400": (1, 1),
    "420": (2, 2),
    "422": (1, 2),
    "444": (1, 1),
}
"""Rows and columns of pixels that share a sample of chroma; 400 has none, and is grey."""
MATRICES: dict[Matrix, tuple[float, float]] = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "smpte240m": (0.212, 0.087),
    "fcc": (0.30, 0.11),
    "rgb": (0.0, 0.0),
}
"""The shares of red and of blue in luma; green alone is the first plane of RGB."""
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
        """Returns the number of samples for `pixels` pixels."""
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
    """Factors from RGB to codes, for red, green and blue.

    For chroma, RGB comes 16 times as large. Each zero holds the 0.5 with which codes are rounded.
    Planes of RGB each use the factor of one colour in luma.
    """

    luma: tuple[float, float, float]
    luma_zero: float
    u: tuple[float, float, float]
    v: tuple[float, float, float]
    chroma_zero: float
    peak: float


@dataclass(frozen=True)
class PlaneFormat:
    """The meaning of planes' numbers. Raises ValueError for unknown values."""

    bits: int = 8
    """8, in uint8, or 9 to 16, in the lower bits of uint16."""
    subsampling: Subsampling = "420"
    """With "400", there is Y alone."""
    matrix: Matrix = "bt709"
    """With "rgb", planes are G, B and R, of subsampling "444"; grey that comes from RGB is the luma
    of the matrix."""
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
        if self.is_rgb and self.subsampling != "444":
            raise ValueError(f"Expected RGB with subsampling 444, but got {self.subsampling}")

    @property
    def is_grey(self) -> bool:
        """Returns whether there is Y alone."""
        return self.subsampling == "400"

    @property
    def is_rgb(self) -> bool:
        """Returns whether the planes are G, B and R."""
        return self.matrix == "rgb"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Returns the dtype of its samples."""
        return np.dtype(np.uint8 if self.bits == 8 else np.uint16)

    @cached_property
    def axes(self) -> tuple[Axis, Axis]:
        """Returns the axes of rows and columns."""
        steps, midway = SUBSAMPLINGS[self.subsampling], SITINGS[self.siting]
        rows, columns = (Axis(s, m and s > 1) for s, m in zip(steps, midway, strict=True))
        return rows, columns

    def shapes(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Returns the shape of each plane of a picture of that size."""
        if self.is_grey:
            return ((height, width),)
        rows, columns = self.axes
        chroma = rows.samples(height), columns.samples(width)
        return (height, width), chroma, chroma

    def samples(self, height: int, width: int) -> int:
        """Returns the number of samples of all planes of a picture of that size."""
        return sum([rows * columns for rows, columns in self.shapes(height, width)])

    def nbytes(self, height: int, width: int) -> int:
        """Returns the bytes of all planes of a picture of that size."""
        return self.samples(height, width) * self.dtype.itemsize

    def empty(self, height: int, width: int) -> PlanarPicture:
        """Returns an uninitialised picture of that size, its planes adjacent in memory."""
        return self.within(np.empty(self.samples(height, width), self.dtype), height, width)

    def within(self, memory: NDArray[Any], height: int, width: int) -> PlanarPicture:
        """Returns a picture of that size in the first bytes of C-contiguous memory.

        The address is a multiple of a sample. The planes are adjacent: they cross to a device in
        one copy, together with a picture behind them. Raises ValueError if the memory is too small.
        """
        samples = memory.reshape(-1).view(np.uint8)[: self.nbytes(height, width)].view(self.dtype)
        planes, first = [], 0
        for shape in self.shapes(height, width):
            end = first + math.prod(shape)
            planes.append(samples[first:end].reshape(shape))
            first = end
        return PlanarPicture(self, *planes)

    def to_rgb(self) -> ToRgb:
        """Returns the factors from codes to RGB."""
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
        """Returns the factors from RGB to codes."""
        kr, kb = MATRICES[self.matrix]
        kg = 1 - kr - kb
        luma_zero, luma_range, chroma_zero, chroma_range = self._ranges()
        u, v = chroma_range / (2 * (1 - kb)) / 16, chroma_range / (2 * (1 - kr)) / 16
        luma = (1.0, 1.0, 1.0) if self.is_rgb else (kr, kg, kb)
        red, green, blue = (share * luma_range for share in luma)
        return FromRgb(
            luma=(red, green, blue),
            luma_zero=luma_zero + 0.5,
            u=(-kr * u, -kg * u, (1 - kb) * u),
            v=((1 - kr) * v, -kg * v, -kb * v),
            chroma_zero=chroma_zero + 0.5,
            peak=float((1 << self.bits) - 1),
        )

    def _ranges(self) -> tuple[float, float, float, float]:
        """Returns the code of 0, and the number of codes from 0 to 1: of luma, and of chroma."""
        unit = float(1 << (self.bits - 8))
        if self.is_full_range:
            peak = float((1 << self.bits) - 1)
            return 0.0, peak, 128 * unit, peak
        return 16 * unit, 219 * unit, 128 * unit, 224 * unit


class PlanarPicture:
    """Planes of samples, in any memory: a decoder's frame, or an encoder's."""

    def __init__(self, plane_format: PlaneFormat, *planes: NDArray[Any]) -> None:
        """Takes planes in the order of FFmpeg: Y; Y, U and V; or G, B and R.

        Each is an array (rows, columns) of the format's dtype. The samples of a row are neighbours;
        rows may lie any distance apart, and the memory between rows is never written. Raises
        ValueError for planes that do not fit the format or each other.
        """
        self.format = plane_format
        self.planes = planes
        if not planes or planes[0].ndim != 2:
            found = planes[0].ndim if planes else "no plane"
            raise ValueError(f"Expected planes of 2 dimensions, but got {found}")
        height, width = planes[0].shape
        self.size: tuple[int, int] = height, width
        """Its height and width in pixels."""
        shapes = plane_format.shapes(height, width)
        if len(planes) != len(shapes):
            raise ValueError(f"Expected {len(shapes)} planes, but got {len(planes)}")
        dtype = plane_format.dtype
        for number, (plane, shape) in enumerate(zip(planes, shapes, strict=True)):
            if plane.shape != shape or plane.dtype != dtype:
                raise ValueError(
                    f"Expected plane {number} of shape {shape} and dtype {dtype},"
                    f" but got {plane.shape} and {plane.dtype}"
                )
            is_apart = shape[1] > 1 and plane.strides[1] != plane.itemsize
            if is_apart or plane.strides[0] % plane.itemsize:
                raise ValueError(
                    f"Expected the samples of a row of plane {number} to be neighbours"
                )

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Returns the address of each plane's first byte, and the first address behind it."""
        return tuple(map(_span, self.planes))

    def __repr__(self) -> str:
        height, width = self.size
        return f"PlanarPicture({self.format}, {width}x{height})"


def joined(planes: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Returns C-contiguous planes of one dtype as arrays (N,), in their order. Planes that are
    adjacent in memory, and views of one array, become one array."""
    made: list[NDArray[Any]] = []
    first: NDArray[Any] | None = None
    begin = end = 0
    for plane in planes:
        start = _address(plane)
        if first is not None and start == end and first.base is plane.base is not None:
            end += plane.nbytes
            continue
        if first is not None:
            made.append(_flat(first, end - begin))
        first, begin, end = plane, start, start + plane.nbytes
    if first is not None:
        made.append(_flat(first, end - begin))
    return made


def _flat(first: NDArray[Any], size: int) -> NDArray[Any]:
    """Returns `size` bytes from a plane on, of the array that it is a view of."""
    if size == first.nbytes:
        return first.reshape(-1)
    return as_strided(first, (size // first.itemsize,), (first.itemsize,))


def _span(plane: NDArray[Any]) -> tuple[int, int]:
    start = _address(plane)
    if plane.flags.c_contiguous or not plane.size:
        return start, start + plane.nbytes
    rows, columns = plane.shape
    reach = (rows - 1) * plane.strides[0]
    return start + min(reach, 0), start + max(reach, 0) + columns * plane.itemsize


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
