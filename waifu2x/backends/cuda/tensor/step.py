"""Defines the base of the steps on matrix units, with their context, tasks and launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from waifu2x.backends.cuda.arguments import Address, address_of, structs
from waifu2x.backends.cuda.runtime import CudaBuffer, CudaRuntime
from waifu2x.backends.cuda.tensor.layout import BatchGrid, FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.units import Units
from waifu2x.backends.cuda.tensor.vectors import VectorPlaces, Vectors
from waifu2x.backends.gpu.device.launch import Groups, KernelSpec, Launch, LaunchMaker
from waifu2x.backends.gpu.executor import Batch, BufferPlace
from waifu2x.backends.gpu.kernel_step import KernelStep, Kind
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, View
from waifu2x.system.lazy_dataclass import dataclass

BORDERS = {"replicate": 0, "reflect": 1, "zero": 2}
"""The values of the macro BORDER."""
LARGEST = float(np.finfo(np.float16).max)
"""The largest 16-bit float."""


class Range(NamedTuple):
    """`Range` in `kernels/tensor.cuh`."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0


class LayerExtent(NamedTuple):
    """`LayerExtent` in `kernels/tensor.cuh`."""

    rows: int
    columns: int
    tiles_across: int = 0
    tiles: int = 0
    across: int = 1
    pictures: int = 1


class SourceArguments(NamedTuple):
    """`Source` in `kernels/tensor.cuh`."""

    rows: int
    columns: int
    top: int
    left: int
    padding: int


def beyond(largest: float) -> int:
    """Returns `RangeCheck.beyond` for values up to `largest`, at most LARGEST."""
    bits = int(np.float16(largest).view(np.uint16))
    return (0x7FFF - bits) * 0x10001


class RangeCheck(NamedTuple):
    """The arguments by which kernels flag pictures with values too large for the executor."""

    flags: Address
    """The address of the words, one for each picture of the batch."""
    beyond: int
    """The limit, in the form of `add_sizes` in `kernels/tensor.cuh`."""

    @property
    def is_bounded(self) -> bool:
        """Whether the limit is below LARGEST."""
        return self.beyond != beyond(LARGEST)


class CudaFlags:
    """Flags in page-locked host memory, which kernels access by its host address, so that no copy
    is needed. If no more pages can be locked, they are in device memory."""

    def __init__(self, runtime: CudaRuntime, pictures: int) -> None:
        """Makes flags for `pictures` pictures. May raise OutOfMemoryError."""
        self._runtime = runtime
        self._words = runtime.host_array((pictures,), np.uint32)
        self._words[:] = 0
        self._buffer: CudaBuffer | None = None
        if runtime.is_locked(self._words):
            self.address = Address(self._words.ctypes.data)
        else:
            self._buffer = runtime.allocate(self._words.nbytes)
            runtime.upload(self._buffer, self._words)
            self.address = address_of(self._buffer)

    def take(self, pictures: int) -> list[int]:
        """Returns the indices of flagged ones among the first pictures, and clears all flags."""
        if self._buffer is not None:
            self._runtime.download(self._buffer, self._words)
        words = self._words[:pictures]
        if not words.any():
            return []
        found: list[int] = np.flatnonzero(words).tolist()
        words[:] = 0
        if self._buffer is not None:
            self._runtime.upload(self._buffer, self._words)
        return found


class TensorContext(NamedTuple):
    """The objects that the steps of one executor share."""

    runtime: CudaRuntime
    program: Program
    layouts: Sequence[MapLayout | FewLayout]
    """The layouts of all values."""
    units: Units
    terms: int
    """The 16-bit terms of a value."""
    choose: Choose
    vectors: Vectors


@dataclass(frozen=True)
class TensorTask:
    """One pass, as steps need it."""

    batch: Batch
    boxes: Mapping[int, Box]
    """The box of results to compute, by the number of each step that writes a map."""
    sums: Mapping[int, Box]
    """The box of the source to sum, by the number of each PictureSum step."""
    places: Mapping[int, BufferPlace]
    grid: BatchGrid
    vectors: VectorPlaces
    check: RangeCheck

    def address(self, value: int) -> Address:
        """Returns the address of a map."""
        place = self.places[value]
        return address_of(place.buffer, place.offset)


class KernelPart(NamedTuple):
    """The macros and fields that one map adds to a launch."""

    macros: dict[str, str | int]
    fields: dict[str, Any]
    """Values by the names of fields of the kernel's struct."""


class TensorStep(KernelStep[Kind]):
    """A step whose maps hold 16-bit terms, or few planes of floats."""

    runtime: CudaRuntime
    makes_own_pixels = False
    """Whether each block makes all planes of its pixels from these pixels only."""

    def __init__(self, context: TensorContext, number: int) -> None:
        super().__init__(context.runtime, context.program, number)
        self.context = context
        self.layouts = context.layouts

    def launches(self, task: TensorTask) -> Sequence[LaunchMaker]:
        """Returns the makers of its launches in a pass."""
        return [partial(self.launch, task)]

    def launch(self, task: TensorTask) -> Launch:
        """Returns the launch for the results that a task computes."""
        raise NotImplementedError

    def launch_with(self, spec: KernelSpec, blocks: Groups, *values: Any) -> Launch:
        """Returns a launch of a kernel with `values` as its structs of arguments."""
        return self.launch_of(spec, blocks, structs(spec.stem, *values))

    def layout(self, value: int) -> MapLayout:
        """Returns the layout of a value of many planes."""
        layout = self.layouts[value]
        assert isinstance(layout, MapLayout)
        return layout

    def reaches_out(self, value: int, box: Box, task: TensorTask) -> bool:
        """Returns whether a box reaches beyond a value's size, where it is zero."""
        rows, columns = task.batch.sizes[value]
        inside = box.top >= 0 and box.left >= 0 and box.bottom <= rows and box.right <= columns
        return self.program.values[value].zero_outside and not inside

    def vector(self, task: TensorTask, vector: int | None) -> Address | None:
        """Returns the address of a vector of the first picture; None for no vector."""
        if vector is None:
            return None
        return Address(task.vectors.vectors + 4 * self.context.vectors.vector_places[vector])

    # For kernels that include `kernels/tensor_cells.cuh`, which iterate over single pixels.

    def seen(self, task: TensorTask, view: View) -> MapArguments:
        """Returns the arguments of the map that a view reads, for the first result's pixel."""
        box, held = task.boxes[self.number], task.places[view.value].box
        top = box.top + view.offset - held.top * view.enlarge
        left = box.left + view.offset - held.left * view.enlarge
        return self.layout(view.value).arguments(held, task.grid, top, left)

    def read(self, task: TensorTask, view: View) -> KernelPart:
        """Returns the macros and fields of the map of many planes that the step reads."""
        layout = self.layout(view.value)
        macros: dict[str, str | int] = {
            "GROUP": layout.group,
            "STORED": layout.stored,
            "TERMS": layout.terms,
        }
        return KernelPart(macros, {"in": task.address(view.value), "from": self.seen(task, view)})

    def written(self, task: TensorTask, target: Target) -> KernelPart:
        """Returns those of the map of many planes that the step writes, with its range check."""
        box, held, grid = task.boxes[self.number], task.places[target.value].box, task.grid
        rows, columns = task.batch.sizes[target.value]
        layout = self.layout(target.value)
        macros: dict[str, str | int] = {
            "OUT_GROUP": layout.group,
            "OUT_STORED": layout.stored,
            "EACH": layout.parts[target.part],
            "PART": layout.start(target.part) + target.plane,
            "S2D": layout.space_to_depth,
            "RESIDUAL": 0,
            "ZERO": int(self.reaches_out(target.value, box, task)),
        }
        fields = {
            "out": task.address(target.value),
            "to": layout.arguments(held, grid, box.top - held.top, box.left - held.left),
            "extent": LayerExtent(
                box.height, box.width, across=grid.across, pictures=grid.pictures
            ),
            "valid": Range(-box.top, -box.left, rows - box.top, columns - box.left),
            "flags": task.check.flags,
            "beyond": task.check.beyond,
        }
        return KernelPart(macros, fields)

    def added(self, task: TensorTask, view: View | None) -> KernelPart:
        """Returns those of the map of many planes that the step adds, if any."""
        if view is None:
            return KernelPart({}, {"residual": None, "added": None})
        macros = {**residual_macros(self.layout(view.value), view), "RESIDUAL": 1}
        fields = {"residual": task.address(view.value), "added": self.seen(task, view)}
        return KernelPart(macros, fields)


def within(box: Box, held: Box) -> Range:
    """Returns `box` in coordinates of a map that holds the box `held`."""
    return Range(
        box.top - held.top, box.left - held.left, box.bottom - held.top, box.right - held.left
    )


def residual_macros(layout: MapLayout, view: View) -> dict[str, str | int]:
    """Returns the macros of a map of many planes that a kernel adds."""
    return {
        "RESIDUAL_GROUP": layout.group,
        "RESIDUAL_STORED": layout.stored,
        "RESIDUAL_EACH": layout.parts[view.first],
        "RESIDUAL_S2D": layout.space_to_depth,
        "RESIDUAL_PART": layout.start(view.first),
    }
