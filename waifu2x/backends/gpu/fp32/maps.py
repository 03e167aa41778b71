"""Lays out fp32 maps and vectors, and makes kernels' arguments of them: see `kernels/maps.h`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from waifu2x.backends.gpu.device.runtime import Argument, Limits, Macros
from waifu2x.backends.gpu.device.source import float_text, switches
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, Value, View
from waifu2x.networks.model import Model
from waifu2x.system.lazy_dataclass import dataclass

FLOAT_BYTES = 4
ALIGNMENT = 256
"""The unit, in bytes, of a map's offset and of the step between pictures."""
CELL = 4
"""The side in pixels of the cells of Winograd's algorithm."""
_GPU_BLOCK = 4
_HALF_BLOCK = 8
HALF_VECTOR = 4
"""The planes of a vector of maps of 16 bits, in registers."""
CHUNKS = 64
"""The chunks of a box that are summed separately."""
_SUM_BYTES = 8
_VECTOR_UNIT = 32
"""The alignment, in floats, of each vector."""

C_TYPES = {"uint8": "uchar", "uint16": "ushort", "float32": "float"}


class MapFormat(NamedTuple):
    """The form of a map's numbers."""

    block: int
    """The planes of a block."""
    is_half: bool = False
    """Whether they are floats of 16 bits."""

    @property
    def bytes(self) -> int:
        """The bytes of a number."""
        return FLOAT_BYTES // 2 if self.is_half else FLOAT_BYTES

    @property
    def cell(self) -> int:
        """The side in pixels of the cells by which steps are computed: those of Winograd. Of maps
        of 16 bits each pixel is checked, so each must be of pixels that were computed."""
        return 1 if self.is_half else CELL

    @property
    def limit(self) -> int:
        """The most bytes of a map: kernels index the numbers of a picture's map by 31 bits."""
        return (1 << 31) * self.bytes - ALIGNMENT

    @property
    def macros(self) -> dict[str, str | int]:
        """The macros of `maps.h`."""
        return {"UNIT": ALIGNMENT, "BLOCK": self.block, **switches(HALF_MAPS=self.is_half)}


def format_of(limits: Limits, *, is_half: bool = False) -> MapFormat:
    """Returns the form of maps on a device; those of 16 bits are for GPUs."""
    if is_half:
        return MapFormat(_HALF_BLOCK, is_half=True)
    return MapFormat(limits.vector if limits.is_cpu else _GPU_BLOCK)


def blocks_of(value: Value, block: int) -> list[int]:
    """Returns the number of blocks of each part of a value; with space-to-depth, of each pixel."""
    count = value.space_to_depth**2
    return [-(-planes // block) for planes in value.parts * count]


def places_of(value: Value, first: int, parts: int, block: int) -> list[int]:
    """Returns the stored index of each plane of a value's parts from `first` on, counted there."""
    found: list[int] = []
    start = 0
    pixels = value.space_to_depth**2
    for planes in value.parts[first : first + parts] * pixels:
        found += range(start, start + planes)
        start += round_up(planes, block)
    return found


@dataclass(frozen=True)
class Margin:
    """The stored pixels beyond a map that whole groups of work-items write and read."""

    rows: int = 0
    columns: int = 0

    def hull(self, other: Margin) -> Margin:
        """Returns the larger margin on each side."""
        return Margin(max(self.rows, other.rows), max(self.columns, other.columns))


@dataclass(frozen=True)
class BlockLayout:
    """The strides of a map in memory."""

    pitch: int
    """The row stride, in stored pixels."""
    area: int
    """The stored pixels of a block."""
    step: int
    """The stride between pictures, in ALIGNMENTs."""


def layout_of(value: Value, box: Box, margin: Margin, form: MapFormat) -> BlockLayout:
    """Returns the layout of the pixels in a box."""
    rows = -(-box.height // value.space_to_depth) + margin.rows
    pitch = -(-box.width // value.space_to_depth) + margin.columns
    numbers = sum(blocks_of(value, form.block)) * rows * pitch * form.block
    return BlockLayout(pitch, rows * pitch, -(-numbers * form.bytes // ALIGNMENT))


@dataclass(frozen=True)
class Map:
    """A map in memory."""

    place: BufferPlace
    value: Value
    layout: BlockLayout
    block: int

    def arguments(self, y: int, x: int, part: int = 0) -> tuple[Argument, ...]:
        """Returns the arguments MAP of a kernel whose pixel (0, 0) is stored pixel (y, x)."""
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
        """The first of the value's pixels that it holds."""
        return self.place.box.top, self.place.box.left

    def start(self, part: int = 0) -> tuple[Argument, ...]:
        """Returns the arguments MAP of a kernel whose pixel (0, 0) is the first of a part's map."""
        box, s2d = self.place.box, self.value.space_to_depth
        return self.arguments(box.top // s2d, box.left // s2d, part)


class Maps:
    """The maps of a pass, by values."""

    def __init__(
        self,
        values: Sequence[Value],
        margins: Sequence[Margin],
        places: Mapping[int, BufferPlace],
        form: MapFormat,
    ) -> None:
        self._values = values
        self._margins = margins
        self._places = places
        self._form = form

    def __getitem__(self, value: int) -> Map:
        place, stored = self._places[value], self._values[value]
        layout = layout_of(stored, place.box, self._margins[value], self._form)
        return Map(place, stored, layout, self._form.block)

    def read(self, view: View, box: Box) -> tuple[Argument, ...]:
        """Returns the arguments MAP of a kernel that makes a box of results from a view."""
        top, left = box.top + view.offset, box.left + view.offset
        return self[view.value].arguments(top, left, view.first)

    def written(self, target: Target, box: Box) -> tuple[Argument, ...]:
        """Returns the arguments MAP of a kernel that writes a box of single pixels of a target."""
        return self[target.value].arguments(box.top, box.left, target.part)


@dataclass(frozen=True)
class VectorLayout:
    """The layout of a picture's sums, vectors and partial sums, in this order."""

    vectors: tuple[int, ...]
    """The index of the first float of each vector."""
    sums: dict[int, int]
    """The index of the first 64-bit integer of the sums of each PictureSum step, by its number."""
    partial: int
    """The index of the first 64-bit integer of partial sums."""
    sum_count: int
    """The number of 64-bit integers of all sums."""
    size: int
    """The bytes of a picture."""

    @property
    def sum_step(self) -> int:
        """The stride between pictures, in 64-bit integers."""
        return self.size // _SUM_BYTES

    @property
    def step(self) -> int:
        """The stride between pictures, in floats."""
        return self.size // FLOAT_BYTES


def chunks_of(period: int) -> int:
    """Returns the chunks for each pixel of a cell of `period` x `period` pixels; each has sums of
    its own."""
    return max(1, CHUNKS // period**2)


def vector_layout(program: Program, block: int) -> VectorLayout:
    """Returns the layout of a program's vectors."""
    sums: dict[int, int] = {}
    count = partial = 0
    for number, step in enumerate(program.steps):
        if isinstance(step, GlobalAvgPool):
            sums[number] = count
            count += 2 * program.vectors[step.vector]
            blocks = blocks_of(program.values[step.source.value], block)[0]
            partial = max(partial, 2 * blocks * block * CHUNKS)
        elif isinstance(step, CrossSums):
            sums[number] = count
            own = 2 * program.vectors[step.vector]
            count += own
            partial = max(partial, own * chunks_of(step.period))
    at = count * _SUM_BYTES // FLOAT_BYTES
    vectors = []
    for length in program.vectors:
        vectors.append(round_up(at, _VECTOR_UNIT))
        at = vectors[-1] + length
    first = round_up(at, _VECTOR_UNIT) * FLOAT_BYTES // _SUM_BYTES
    size = (first + partial) * _SUM_BYTES
    return VectorLayout(tuple(vectors), sums, first, count, round_up(size, 256))


def picture_arguments(
    batch: Batch, model: Model, view: View, top: int, left: int
) -> tuple[Argument, ...]:
    """Returns the arguments PICTURE of a kernel whose pixel (0, 0) is (top, left) of a view of the
    picture."""
    _, height, width, _ = batch.source.shape
    y, y_rest = divmod(top + view.offset, view.enlarge)
    x, x_rest = divmod(left + view.offset, view.enlarge)
    places = (height, width, y - model.padding, x - model.padding, y_rest, x_rest)
    return (batch.source.buffer, *places)


def result_arguments(batch: Batch, top: int, left: int) -> tuple[Argument, ...]:
    """Returns the arguments PIXELS of a kernel whose pixel (0, 0) is (top, left) of the result."""
    _, rows, columns, _ = batch.target.shape
    box = batch.target_box
    places = (rows, columns, top - box.top, left - box.left)
    return (batch.target.buffer, *places)


def bounds(box: Box, top: int, left: int) -> tuple[Argument, ...]:
    """Returns the bounds of a box, in coordinates relative to (top, left)."""
    return box.top - top, box.bottom - top, box.left - left, box.right - left


def source_macros(pixels: DevicePixels, model: Model, view: View) -> Macros:
    """Returns the macros of `pixels.h`."""
    unit = 1.0
    if pixels.dtype != np.float32:
        unit = 1 / np.iinfo(pixels.dtype).max
    return {
        "SOURCE_TYPE": C_TYPES[pixels.dtype.name],
        "SOURCE_UNIT": float_text(unit),
        "SOURCE_PLANES": model.in_planes,
        "ENLARGE": view.enlarge,
        **({} if model.border == "replicate" else {f"BORDER_{model.border.upper()}": 1}),
    }


def target_macros(pixels: DevicePixels, planes: int) -> Macros:
    """Returns the macros of `levels.h`."""
    peak = 0 if pixels.dtype == np.float32 else int(np.iinfo(pixels.dtype).max)
    return {
        "TARGET_TYPE": C_TYPES[pixels.dtype.name],
        "TARGET_PEAK": peak,
        "TARGET_PLANES": planes,
    }
