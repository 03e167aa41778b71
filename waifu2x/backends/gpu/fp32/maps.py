"""Where the fp32 executor's maps lie, as `kernels/maps.h` says, and how kernels are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from waifu2x.backends.gpu.device.runtime import Argument, Limits, Macros
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.values import Value, View
from waifu2x.networks.model import Model
from waifu2x.system.lazy_dataclass import dataclass

FLOAT_BYTES = 4
UNIT = 64
"""Floats; places and steps of maps are counted in it."""
ALIGNMENT = UNIT * FLOAT_BYTES
MAP_LIMIT = (1 << 31) * FLOAT_BYTES - ALIGNMENT
"""Bytes: kernels count the floats of a picture's map in 31 bits."""
_GPU_BLOCK = 4

C_TYPES = {"uint8": "uchar", "uint16": "ushort", "float32": "float"}


def block_of(limits: Limits) -> int:
    """Planes of a block of maps."""
    return limits.vector if limits.is_cpu else _GPU_BLOCK


def blocks_of(value: Value, block: int) -> list[int]:
    """Blocks of each part of a value; after space-to-depth, those of one of its pixels each."""
    count = value.space_to_depth**2
    return [-(-planes // block) for planes in value.parts * count]


def places_of(value: Value, first: int, parts: int, block: int) -> list[int]:
    """Where the planes of some parts of a value are stored, from the first one's."""
    found: list[int] = []
    start = 0
    pixels = value.space_to_depth**2
    for planes in value.parts[first : first + parts] * pixels:
        found += range(start, start + planes)
        start += round_up(planes, block)
    return found


@dataclass(frozen=True)
class Margin:
    """Stored pixels beyond a map's own that whole groups of work-items write and read."""

    rows: int = 0
    columns: int = 0

    def hull(self, other: Margin) -> Margin:
        """Enough for both."""
        return Margin(max(self.rows, other.rows), max(self.columns, other.columns))


@dataclass(frozen=True)
class BlockLayout:
    """How much memory a part of a value takes."""

    pitch: int
    area: int
    step: int
    """UNITs from a picture to the next."""


def layout_of(value: Value, box: Box, margin: Margin, block: int) -> BlockLayout:
    """The layout of the pixels in a box."""
    rows = -(-box.height // value.space_to_depth) + margin.rows
    pitch = -(-box.width // value.space_to_depth) + margin.columns
    floats = sum(blocks_of(value, block)) * rows * pitch * block
    return BlockLayout(pitch, rows * pitch, -(-floats // UNIT))


@dataclass(frozen=True)
class Map:
    """A map in memory."""

    place: BufferPlace
    value: Value
    layout: BlockLayout
    block: int

    def arguments(self, y: int, x: int, part: int = 0) -> tuple[Argument, ...]:
        """MAP of a kernel whose coordinates begin at a stored pixel of a part of the value."""
        s2d, box = self.value.space_to_depth, self.place.box
        blocks = sum(blocks_of(self.value, self.block)[:part])
        first = (y - box.top // s2d) * self.layout.pitch + x - box.left // s2d
        numbers = (
            self.place.offset // ALIGNMENT,
            self.layout.step,
            first + blocks * self.layout.area,
            self.layout.pitch,
            self.layout.area,
        )
        return (self.place.buffer, *numbers)

    @property
    def corner(self) -> tuple[int, int]:
        """Its first pixel in the value."""
        return self.place.box.top, self.place.box.left

    @property
    def start(self) -> tuple[Argument, ...]:
        """MAP of a kernel whose coordinates begin where it does; see `part_start` for a part."""
        return self.part_start(0)

    def part_start(self, part: int) -> tuple[Argument, ...]:
        """The same for one part."""
        box, s2d = self.place.box, self.value.space_to_depth
        return self.arguments(box.top // s2d, box.left // s2d, part)


class Maps:
    """All maps of a pass."""

    def __init__(
        self,
        values: Sequence[Value],
        margins: Sequence[Margin],
        places: Mapping[int, BufferPlace],
        block: int,
    ) -> None:
        self._values = values
        self._margins = margins
        self._places = places
        self._block = block

    def __getitem__(self, value: int) -> Map:
        place, stored = self._places[value], self._values[value]
        layout = layout_of(stored, place.box, self._margins[value], self._block)
        return Map(place, stored, layout, self._block)


def picture_arguments(
    batch: Batch, model: Model, view: View, top: int, left: int
) -> tuple[Argument, ...]:
    """PICTURE of a kernel whose coordinates begin at a pixel of a view of the picture."""
    _, height, width, _ = batch.source.shape
    y, y_rest = divmod(top + view.offset, view.enlarge)
    x, x_rest = divmod(left + view.offset, view.enlarge)
    places = (height, width, y - model.padding, x - model.padding, y_rest, x_rest)
    return (batch.source.buffer, *places)


def result_arguments(batch: Batch, top: int, left: int) -> tuple[Argument, ...]:
    """PIXELS of a kernel whose coordinates begin at a pixel of the result."""
    _, rows, columns, _ = batch.target.shape
    box = batch.target_box
    places = (rows, columns, top - box.top, left - box.left)
    return (batch.target.buffer, *places)


def bounds(box: Box, top: int, left: int) -> tuple[Argument, ...]:
    """Arguments for the range of a box, in coordinates that begin at (top, left)."""
    return box.top - top, box.bottom - top, box.left - left, box.right - left


def source_macros(pixels: DevicePixels, model: Model, view: View) -> Macros:
    """Those of `pixels.h`."""
    unit = 1.0
    if pixels.dtype != np.float32:
        unit = float(np.float32(1 / np.iinfo(pixels.dtype).max))
    return {
        "SOURCE_TYPE": C_TYPES[pixels.dtype.name],
        "SOURCE_UNIT": f"{unit!r}f",
        "SOURCE_PLANES": model.in_planes,
        "ENLARGE": view.enlarge,
        **({} if model.border == "replicate" else {f"BORDER_{model.border.upper()}": 1}),
    }


def target_macros(pixels: DevicePixels, planes: int) -> Macros:
    """Those of `levels.h`."""
    peak = 0 if pixels.dtype == np.float32 else int(np.iinfo(pixels.dtype).max)
    return {
        "TARGET_TYPE": C_TYPES[pixels.dtype.name],
        "TARGET_PEAK": peak,
        "TARGET_PLANES": planes,
    }
