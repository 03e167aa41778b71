"""What the steps of a program on matrix units share: what one is asked for, and its launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, address_of
from waifu2x.backends.cuda.tensor.layout import BatchGrid
from waifu2x.backends.cuda.tensor.vectors import VectorPlaces
from waifu2x.backends.gpu.device.launch import Arguments, Groups, Launch
from waifu2x.backends.gpu.device.runtime import Buffer, Macros
from waifu2x.backends.gpu.executor import Batch, BufferPlace
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaKernel, CudaRuntime


BORDERS = {"replicate": 0, "reflect": 1, "zero": 2}
"""The macro BORDER."""


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


LARGEST = float(np.finfo(np.float16).max)
"""The largest 16-bit float."""


def beyond(largest: float) -> int:
    """`RangeCheck.beyond` where values of up to that size, LARGEST at most, are in the room."""
    bits = int(np.float16(largest).view(np.uint16))
    return (0x7FFF - bits) * 0x10001


class RangeCheck(NamedTuple):
    """Where kernels say that a value has left the room of 16 bits, and how large that is."""

    flags: Address
    """The address of a word for each picture of the batch."""
    beyond: int
    """As `add_sizes` in `kernels/tensor.cuh` has it."""

    @property
    def is_bounded(self) -> bool:
        """Whether values are too large that 16 bits could hold."""
        return self.beyond != beyond(LARGEST)


@dataclass(frozen=True)
class Task:
    """Everything about one pass that a step asks for."""

    batch: Batch
    boxes: Mapping[int, Box]
    """What is computed, by the numbers of steps."""
    places: Mapping[int, BufferPlace]
    grid: BatchGrid
    vectors: VectorPlaces
    check: RangeCheck

    def address(self, value: int) -> Address:
        """The address of a map."""
        place = self.places[value]
        return address_of(place.buffer, place.offset)


class TensorStep:
    """A step's data on the device, and the kernels that were built for it."""

    def __init__(self, runtime: CudaRuntime, program: Program, number: int) -> None:
        self.runtime = runtime
        self.program = program
        self.number = number
        self.kernels: dict[object, CudaKernel] = {}
        """By what they are compiled from."""
        self._buffers: dict[object, Buffer] = {}

    def launch_of(
        self,
        source: tuple[str, Macros],
        threads: int,
        shared: int,
        blocks: Groups,
        arguments: Callable[[], Arguments],
    ) -> Launch:
        """A launch of the kernel that a source has, of `threads` a block and `shared` bytes."""
        return Launch(
            lambda: source, partial(self._kernel, source, threads, shared), blocks, arguments
        )

    def _kernel(self, source: tuple[str, Macros], threads: int, shared: int) -> CudaKernel:
        stem, macros = source
        key = (stem, *macros.items())
        if key not in self.kernels:
            program = self.runtime.build(stem, macros)
            self.kernels[key] = program.kernel(stem, threads, shared)
        return self.kernels[key]

    def uploaded(self, key: object, make: Callable[[], NDArray[Any]]) -> Address:
        """Data on the device, made and sent the first time."""
        if key not in self._buffers:
            array = np.ascontiguousarray(make())
            buffer = self.runtime.allocate(array.nbytes)
            self.runtime.upload(buffer, array)
            self._buffers[key] = buffer
        return address_of(self._buffers[key])

    def close(self) -> None:
        """Frees its data."""
        for buffer in self._buffers.values():
            buffer.release()

    def reaches_out(self, value: int, box: Box, task: Task) -> bool:
        """Whether pixels of a value are zero that lie in a box of it."""
        rows, columns = task.batch.sizes[value]
        inside = box.top >= 0 and box.left >= 0 and box.bottom <= rows and box.right <= columns
        return self.program.values[value].zero_outside and not inside
