"""Layers that run by `kernels/winograd_vector.cl`: the middle of networks on processors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.layer import PackedLayer, padded
from waifu2x.backends.gpu.road import Map, whole
from waifu2x.backends.gpu.runtime import Limits, Runtime
from waifu2x.backends.winograd import transform_weights
from waifu2x.model import Convolution

_CELL = 4
_FREQUENCIES = (_CELL + 2) ** 2


@dataclass(frozen=True)
class Shape:
    """How the work is cut: see the macros of the kernel."""

    width: int
    vectors: int
    line: int
    cells: int

    stem = "winograd_vector"

    @property
    def planes(self) -> int:
        """Output planes of a product."""
        return self.width * self.vectors

    def local_bytes(self, layer: Convolution) -> int:
        """Local memory of a group."""
        columns = 6 * (self.cells * _CELL + 2)
        vectors = _FREQUENCIES * self.cells * (whole(layer.in_planes, self.width) // self.width)
        return 4 * self.width * (columns + vectors + _FREQUENCIES * self.cells * self.vectors)


def candidates(limits: Limits, layer: Convolution) -> list[Shape]:
    """Shapes for a layer in the middle of a network, the usual one first; none if it is too small.

    The sums of a product take twelve of the sixteen registers or more that processors have.
    """
    width = limits.vector
    if width < 4 or min(layer.in_planes, layer.out_planes) < 2 * width:
        return []
    shapes = [Shape(width, 2, 6, cells) for cells in (12, 6)]
    return [shape for shape in shapes if limits.local_bytes >= shape.local_bytes(layer)]


class VectorWinogradLayer(PackedLayer):
    """One convolution, its transformed weights on the device."""

    def __init__(self, runtime: Runtime, layer: Convolution, shape: Shape) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._shape = shape
        self.planes = whole(layer.out_planes, shape.planes)
        self.rows, self.columns = _CELL, shape.cells * _CELL
        program = runtime.build(
            "winograd_vector",
            {
                "IN_PLANES": whole(layer.in_planes, shape.width),
                "OUT_PLANES": self.planes,
                "WIDTH": shape.width,
                "VECTOR": f"float{shape.width}",
                "VECTORS": shape.vectors,
                "LINE": shape.line,
                "CELLS": shape.cells,
                "SLOPE": f"{layer.slope!r}f",
            },
        )
        super().__init__(runtime, *pack(layer, shape))
        self._kernel = self._kernels[()] = program.kernel("winograd_vector", 1)

    def launch(self, source: Map, target: Map, rows: int, columns: int) -> None:
        """See Layer."""
        groups = (1, -(-columns // self.columns), -(-rows // self.rows))
        self._queue(self._kernel, groups, source, target)


def pack(layer: Convolution, shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """U and bias in the order in which the kernel reads them, padded with zeros."""
    inputs, outputs = whole(layer.in_planes, shape.width), whole(layer.out_planes, shape.planes)
    weight, bias = padded(layer, inputs, outputs)
    transformed = transform_weights(weight, _CELL, _CELL)
    grouped = transformed.reshape(_FREQUENCIES, -1, shape.planes, inputs).transpose(1, 0, 3, 2)
    return np.ascontiguousarray(grouped), bias
