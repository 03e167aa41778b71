"""Convolutions by `kernels/winograd_vector.cl`: 3x3 ones of many planes, on processors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.runtime import Limits, Macros
from waifu2x.backends.gpu.fp32.conv import Planes, padded_weight
from waifu2x.backends.gpu.fp32.maps import FLOAT_BYTES
from waifu2x.backends.winograd import share, transform_weights
from waifu2x.lowering.plan.box import round_up
from waifu2x.system.lazy_dataclass import dataclass

_CELL = 4
_FREQUENCIES = (_CELL + 2) ** 2


@dataclass(frozen=True)
class WinogradVectorShape:
    """How the work is cut: see the macros of the kernel."""

    width: int
    vectors: int
    line: int
    cells: int

    stem = "winograd_vector"
    share = share(_CELL, _CELL)
    plane_groups = False
    rows = _CELL
    group = 1

    @property
    def planes(self) -> int:
        """Output planes of a matrix product."""
        return self.width * self.vectors

    @property
    def columns(self) -> int:
        """Columns of pixels of a group."""
        return self.cells * _CELL

    def local_bytes(self, planes: Planes) -> int:
        """Local memory of a group."""
        columns = 6 * (self.cells * _CELL + 2)
        vectors = _FREQUENCIES * self.cells * -(-planes.in_count // self.width)
        return (
            FLOAT_BYTES
            * self.width
            * (columns + vectors + _FREQUENCIES * self.cells * self.vectors)
        )

    def macros(self, planes: Planes) -> Macros:
        return {
            "IN_PLANES": round_up(planes.in_count, self.width),
            "OUT_PLANES": round_up(planes.out_count, self.planes),
            "WIDTH": self.width,
            "VECTOR": f"float{self.width}",
            "VECTORS": self.vectors,
            "LINE": self.line,
            "CELLS": self.cells,
            "LOCAL_FLOATS": self.local_bytes(planes) // FLOAT_BYTES,
        }

    def pack(self, planes: Planes, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """The weights transformed: U."""
        inputs = round_up(planes.in_count, self.width)
        full = padded_weight(planes, weight, inputs, round_up(planes.out_count, self.planes))
        transformed = transform_weights(full, _CELL, _CELL)
        grouped = transformed.reshape(_FREQUENCIES, -1, self.planes, inputs)
        return np.ascontiguousarray(grouped.transpose(1, 0, 3, 2))


def candidates(limits: Limits, planes: Planes) -> list[WinogradVectorShape]:
    """Shapes for a convolution, the usual one first; none for one that it is not made for.

    The sums of a matrix product take twelve of the sixteen registers or more that processors have.
    """
    width = limits.vector
    if planes.taps != 3 or planes.from_pixels or planes.to_pixels or planes.is_narrow:
        return []
    if width < 4 or min(planes.in_count, planes.out_count) < 2 * width:
        return []
    shapes = [WinogradVectorShape(width, 2, 6, cells) for cells in (12, 6)]
    return [shape for shape in shapes if limits.local_bytes >= shape.local_bytes(planes)]
