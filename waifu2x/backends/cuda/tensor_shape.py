"""How the work of a layer on matrix units is cut: shapes that a chip can run, the usual one."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from waifu2x.backends.cuda.tensor_pack import group_of, padded
from waifu2x.backends.cuda.units import Units, is_old
from waifu2x.backends.gpu.road import whole
from waifu2x.backends.gpu.runtime import Macros
from waifu2x.model import Convolution

COLUMNS = 64
"""Of a tile; of the last layer's, two are lost to the taps of a row."""
MOST_ROWS = 8
"""Of a tile of any kernel."""
_PITCH = 72
_FLOAT_BYTES = 4
_BARRIER_BYTES = 8
_RESERVED_BYTES = 1 << 10
"""Shared memory that the driver takes of each block's share."""


@dataclass(frozen=True)
class Layer:
    """What a kernel has to compute."""

    inputs: int
    """Planes of the map that it reads."""
    outputs: int
    """Planes that it makes: of a map, or of a picture."""
    terms: int
    """16-bit terms of a value: 1, or 2 for fp32's precision."""
    last: bool
    """Whether it makes a picture."""

    @property
    def group(self) -> int:
        """Planes of a group of the map that it reads."""
        return group_of(self.inputs)

    @property
    def width(self) -> int:
        """Output planes of a tile."""
        if self.last:
            return whole(3 * self.outputs, 16)
        return next(width for width in (128, 64, 32) if self.outputs % width == 0)

    @property
    def taps(self) -> int:
        """Products of a group of planes."""
        return 3 if self.last else 9

    @property
    def steps(self) -> int:
        """Products of a tile, each with its own weights."""
        return self.inputs // self.group * self.taps * (3 if self.terms == 2 else 1)


def layer_of(layer: Convolution, terms: int, last: bool) -> Layer:
    """A convolution as a kernel sees it."""
    outputs = layer.out_planes if last else padded(layer.out_planes)
    return Layer(padded(layer.in_planes), outputs, terms, last)


@dataclass(frozen=True)
class WgmmaShape:
    """Macros of `kernels/tensor_wgmma.cu` that leave the result as it is."""

    rows: int
    blocks: int
    registers: int
    b_stages: int
    warpgroups: int = 2
    a_stages: int = 2

    stem = "tensor_wgmma"

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, and four warps of which two copy."""
        return (self.warpgroups + 1) * 128

    def width(self, layer: Layer) -> int:
        """Output planes of a tile."""
        return layer.width

    def shared(self, layer: Layer) -> int:
        """Bytes of shared memory of a block."""
        pixel = layer.group * 2
        pixels = self.a_stages * (self.rows + 2) * _PITCH * pixel
        weights = self.b_stages * layer.width * pixel
        barriers = (2 * self.a_stages + 2 * self.b_stages + 2) * _BARRIER_BYTES
        partial = self.rows * COLUMNS * (layer.width + 1) if layer.last else 0
        return pixels + weights + barriers + (layer.width + partial) * _FLOAT_BYTES

    def grid(self, tiles: int, deep: int, multiprocessors: int) -> int:
        """Blocks, which take one tile after the other."""
        return min(tiles, max(1, multiprocessors * self.blocks // deep)) * deep

    def macros(self) -> dict[str, str | int]:
        """Those of this shape."""
        return {name.upper(): value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class MmaShape:
    """Macros of `kernels/tensor_mma.cu` that leave the result as it is."""

    rows: int
    blocks: int
    old: bool
    """For sm_75."""

    stem = "tensor_mma"

    @property
    def threads(self) -> int:
        """Of a block: two warps to a row."""
        return self.rows * 64

    def width(self, layer: Layer) -> int:
        """Output planes of a tile: more would not fit the registers."""
        return min(layer.width, 64)

    def shared(self, layer: Layer) -> int:
        """Bytes of shared memory of a block."""
        pixel = layer.group * 2
        columns = COLUMNS if layer.last else COLUMNS + 2
        pixels = (self.rows + 2) * columns * pixel
        weights = 3 * self.width(layer) * pixel
        partial = self.rows * COLUMNS * (layer.width + 1) * _FLOAT_BYTES if layer.last else 0
        return max(pixels + weights, partial)

    def grid(self, tiles: int, deep: int, multiprocessors: int) -> int:
        """Blocks, one to a tile."""
        return tiles * deep

    def macros(self) -> dict[str, str | int]:
        """Those of this shape."""
        return {"ROWS": self.rows, "BLOCKS": self.blocks, "OLD": int(self.old)}


Shape = WgmmaShape | MmaShape


def macros(layer: Layer, shape: Shape) -> Macros:
    """All that the kernel of a layer is specialised by, but for the type of pixels."""
    planes = layer.width if layer.last else layer.outputs
    result: dict[str, str | int] = {
        "IN_PLANES": layer.inputs,
        "GROUP": layer.group,
        "WIDTH": shape.width(layer),
        "OUT_GROUP": group_of(planes),
        "TERMS": layer.terms,
        "LAST": int(layer.last),
        **shape.macros(),
    }
    if layer.last:
        result["PLANES"] = layer.outputs
    return result


def candidates(
    layer: Layer, units: Units, capability: tuple[int, int], shared_bytes: int
) -> list[Shape]:
    """Shapes that fit a block's shared memory, the usual one for large pictures first."""
    shapes: list[Shape]
    if units == "wgmma":
        shapes = list(_wgmma_shapes(layer))
    else:
        old = is_old(capability)
        shapes = [MmaShape(rows, blocks, old) for rows, blocks in ((4, 2), (4, 1), (2, 2), (2, 1))]
    return [
        shape
        for shape in shapes
        if (shape.shared(layer) + _RESERVED_BYTES) * shape.blocks <= shared_bytes + _RESERVED_BYTES
    ]


def _wgmma_shapes(layer: Layer) -> list[WgmmaShape]:
    """Measured on an H200, see benchmarks/results. Weights stay in shared memory where they fit."""
    all_of_them = layer.steps
    order: tuple[tuple[int, int], ...]
    if layer.last:
        order = ((8, 1), (4, 1))
    elif layer.width == 32:
        order = ((4, 2), (8, 1), (4, 1))
    elif layer.width == 64:
        order = ((8, 1), (6, 1), (4, 1)) if layer.group == 32 else ((6, 1), (4, 1))
    else:
        order = ((4, 1),)
    return [
        WgmmaShape(rows, blocks, 104 if blocks == 2 else 232, stages)
        for stages in dict.fromkeys((all_of_them, 4, 6, 9))
        if stages <= all_of_them
        for rows, blocks in dict.fromkeys((*order, (2, 1)))
    ]


def ranked(
    shapes: list[Shape], rows: int, columns: int, multiprocessors: int
) -> tuple[list[Shape], str]:
    """The usual shape first, and the class of sizes in which a measured one may be better.

    A small picture takes what keeps more of the chip busy.
    """
    across = -(-columns // COLUMNS)

    def rounds(shape: Shape) -> int:
        """Rows that the busiest multiprocessor computes."""
        tiles = across * -(-rows // shape.rows)
        return -(-tiles // multiprocessors) * shape.rows

    if rounds(shapes[0]) > 2 * MOST_ROWS:
        return shapes, "large"
    return sorted(shapes, key=rounds), "small"
