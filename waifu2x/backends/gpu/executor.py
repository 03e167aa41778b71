"""The interface of executors, which run a program's steps in one precision, and what `network`
hands them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from waifu2x.backends.gpu.device.flags import NO_FLAGS, Flags
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.geometry import Work
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class DevicePixels:
    """Pictures of one size in the memory of a device: C-contiguous."""

    buffer: Buffer
    dtype: np.dtype[Any]
    """uint8, uint16 or float32, as of a Network's pixels."""
    shape: tuple[int, int, int, int]
    """(pictures, rows, columns, planes)."""

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class BufferPlace:
    """Where a map lies."""

    buffer: Buffer
    offset: int
    """Bytes from the start of the buffer, a multiple of `Executor.alignment`."""
    box: Box
    """The pixels of the value that it holds, as `geometry` counts them: before space-to-depth and
    the executor's own padding."""


@dataclass(frozen=True)
class Batch:
    """Pictures, and the part of them that a pass computes.

    There are several only where each pass computes the whole of every map: a map in memory then
    holds all pictures, in a layout of the executor's choice. The rows of all of them are fewer than
    65,536, and so are those of the results.
    """

    source: DevicePixels
    target: DevicePixels
    """The results, or, with `target_box`, a part of each."""
    target_box: Box
    """The part of each result that `target` holds."""
    tile: Box
    """The part of each result that this pass computes; empty where it computes none."""
    sizes: Sequence[Size]
    """Rows and columns of every value, as `geometry.sizes` gives them."""
    flags: Flags = NO_FLAGS
    """Flags of the executor's `new_flags`, for at least as many pictures."""


@dataclass(frozen=True)
class PassWork:
    """One pass: some steps on one tile."""

    batch: Batch
    work: Work
    places: Mapping[int, BufferPlace]
    """Where each value of `work` lies that is neither the picture nor the result."""
    sums: Mapping[int, Box]
    """By the numbers of PictureSum steps: over which box of its source each adds to its sums in
    `vectors`. Boxes of all passes together are each value's whole size, and some may be empty."""
    vectors: Buffer
    ends: Phase | None
    """The phase whose last pass this is: its sums are complete then, and its means and the
    steps on vectors follow."""


class Executor(Protocol):
    """Runs a program on a device, with maps in a layout of its own.

    Making one uploads everything that does not depend on pixels; it raises OutOfMemoryError, and
    BackendError for kernels that cannot be built.
    """

    program: Program
    arithmetic: str
    """Its precision, and by which units where others make other bits: for people."""
    unit: tuple[int, int]
    """Rows and columns to which `geometry.work` aligns steps for it."""
    alignment: int
    """The alignment of maps in memory, in bytes."""
    map_limit: int
    """Bytes that a map may take: what its kernels can count."""
    in_place: Mapping[int, Sequence[int]]
    """By values, those that each may take the place of while it is written, where both hold the
    same box and nothing reads the other later."""
    clipped: frozenset[int]
    """Values that no kernel writes beyond the box that there is memory for."""

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        """Returns the bytes of a map, including pixels beyond the box that whole groups of
        work-items write and read."""

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        """Returns the makers of a pass's launches, in order.

        They depend on their arguments alone, and work with numbers and boxes made of symbols, too.
        Raises BackendError for kernels that cannot be built.
        """

    def new_flags(self, pictures: int) -> Flags:
        """Returns flags for at least that many pictures; NO_FLAGS if no value of a model can be too
        large. May raise OutOfMemoryError."""

    def vector_bytes(self, pictures: int) -> int:
        """Returns the bytes of all vectors and sums."""

    def clearing(self, vectors: Buffer, pictures: int) -> Sequence[LaunchMaker]:
        """Returns the makers of the launches that set all sums to zero, once for a batch before its
        first pass."""

    def step(self, kernel: Kernel) -> int:
        """Returns the number of the step that one of its kernels belongs to."""

    def peak(self) -> float:
        """Returns the multiply-adds a second that its units reach at best in its precision,
        measured now."""

    def share(self, number: int) -> float:
        """Returns the multiply-adds that a step does, divided by those of its convolution's
        definition."""

    def close(self) -> None:
        """Frees the weights."""
