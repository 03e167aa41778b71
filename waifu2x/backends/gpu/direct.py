"""Layers that run by `kernels/direct.cl`: any number of planes, pixels or maps at either end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.layer import PackedLayer, padded
from waifu2x.backends.gpu.road import Map, Source, Target, whole
from waifu2x.backends.gpu.runtime import Kernel, Limits, Macros, Runtime
from waifu2x.model import Convolution

_C_TYPES = {"uint8": "uchar", "uint16": "ushort", "float32": "float"}


@dataclass(frozen=True)
class Shape:
    """How the work is cut: see the macros of the kernel."""

    line: int
    vectors: int
    width: int
    lanes: int
    group_x: int
    group_y: int
    down: bool = False
    load: int = 4

    stem = "direct"

    @property
    def planes(self) -> int:
        """Output planes of a group."""
        return self.lanes * self.vectors * self.width

    @property
    def rows(self) -> int:
        """Rows of pixels of a group."""
        return self.group_y * (self.line if self.down else 1)

    @property
    def columns(self) -> int:
        """Columns of pixels of a group."""
        return self.group_x * (1 if self.down else self.line)

    @property
    def group(self) -> int:
        """Work-items of a group."""
        return self.lanes * self.group_x * self.group_y


def candidates(limits: Limits, out_planes: int, last: bool) -> list[Shape]:
    """Shapes for a layer on a device, the usual one first."""
    if limits.is_cpu:
        # Twelve vectors of sums at most, for the sixteen or more registers that processors have.
        width, load = limits.vector, 4 if limits.vector >= 4 else 1
        if last and out_planes <= 4:
            return [Shape(8, 1, load, 1, 1, 1, load=load)]
        if out_planes > 2 * width:
            return [Shape(3, 4, width, 1, 1, 1, load=load)]
        return [Shape(4, 2 if width < out_planes else 1, width, 1, 1, 1, load=load)]
    most = limits.max_group // 32
    if last and out_planes <= 4:
        cuts = ((4, 8), (4, 4), (8, 4), (2, 8))
        return [Shape(line, 1, 4, 1, 32, min(rows, most), down=True) for line, rows in cuts]
    vectors = 2 if out_planes > 32 else 1
    return [Shape(8, vectors, 4, 8, 4, min(rows, most)) for rows in (4, 8)]


class DirectLayer(PackedLayer):
    """One convolution, its weights on the device."""

    def __init__(
        self, runtime: Runtime, layer: Convolution, in_block: int, out_block: int, shape: Shape
    ) -> None:
        """`in_block` and `out_block` are the planes of a block of the maps at its ends."""
        super().__init__(runtime, *pack(layer, shape))
        self._layer = layer
        self._shape = shape
        self.planes = whole(layer.out_planes, shape.planes)
        self.rows, self.columns = shape.rows, shape.columns
        self._macros: Macros = {
            "IN_PLANES": whole(layer.in_planes, shape.load),
            "OUT_PLANES": self.planes,
            "LINE": shape.line,
            "VECTORS": shape.vectors,
            "WIDTH": shape.width,
            "VECTOR": "float" if shape.width == 1 else f"float{shape.width}",
            "LANES": shape.lanes,
            "GROUP_X": shape.group_x,
            "GROUP_Y": shape.group_y,
            "DOWN": int(shape.down),
            "LOAD": shape.load,
            "IN_BLOCK": in_block,
            "OUT_BLOCK": out_block,
            "SLOPE": f"{layer.slope!r}f",
        }

    def kernel(self, ends: Macros) -> Kernel:
        """The kernel for what is at its ends: see `ends_of`."""
        key = tuple(ends.items())
        if key not in self._kernels:
            program = self._runtime.build("direct", {**self._macros, **ends})
            self._kernels[key] = program.kernel("direct", self._shape.group)
        return self._kernels[key]

    def launch(self, source: Map | Source, target: Map | Target, rows: int, columns: int) -> None:
        """Queues the work on so many rows and columns."""
        groups = (
            self.planes // self._shape.planes,
            -(-columns // self.columns),
            -(-rows // self.rows),
        )
        self._queue(self.kernel(ends_of(source, target)), groups, source, target)


def ends_of(source: Map | Source, target: Map | Target) -> Macros:
    """The macros for pixels in the place of maps."""
    macros: dict[str, str | int] = {}
    if isinstance(source, Source):
        dtype = source.window.pixels.dtype
        unit = 1.0 if dtype == np.float32 else float(np.float32(1 / np.iinfo(dtype).max))
        macros["SOURCE_TYPE"] = _C_TYPES[dtype.name]
        macros["SOURCE_UNIT"] = f"{unit!r}f"
        macros["SOURCE_PLANES"] = source.window.pixels.shape[2]
        macros["ENLARGE"] = source.scale
    if isinstance(target, Target):
        dtype = target.window.pixels.dtype
        macros["TARGET_TYPE"] = _C_TYPES[dtype.name]
        macros["TARGET_PEAK"] = 0 if dtype == np.float32 else np.iinfo(dtype).max
        macros["TARGET_PLANES"] = target.window.pixels.shape[2]
    return macros


def pack(layer: Convolution, shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights and bias in the order in which the kernel reads them, padded with zeros."""
    inputs, outputs = whole(layer.in_planes, shape.load), whole(layer.out_planes, shape.planes)
    weight, bias = padded(layer, inputs, outputs)
    # The taps along the line of a work-item go innermost.
    order = (0, 3, 1, 2) if shape.down else (0, 2, 1, 3)
    taps = weight.transpose(order).reshape(-1, shape.planes, 3, inputs, 3)
    return np.ascontiguousarray(taps.transpose(0, 2, 3, 4, 1)), bias
