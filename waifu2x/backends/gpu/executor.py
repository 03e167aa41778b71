"""Defines the interface of executors, which run a program's steps in one precision, and the
arguments that `network` hands them."""

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
    """Pictures of one size in device memory, C-contiguous."""

    buffer: Buffer
    dtype: np.dtype[Any]
    """uint8, uint16 or float32, as a Network's pixels."""
    shape: tuple[int, int, int, int]
    """(pictures, rows, columns, planes)."""

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class BufferPlace:
    """The place of a map in device memory."""

    buffer: Buffer
    offset: int
    """In bytes from the start of the buffer, a multiple of `Executor.alignment`."""
    box: Box
    """The pixels of the value that it holds, as `geometry` counts them: before space-to-depth and
    the executor's own padding."""


@dataclass(frozen=True)
class Batch:
    """Pictures, and the part of their results that a pass computes.

    Several pictures are batched only where each pass computes all of every map: a map in memory
    then holds all pictures, in a layout of the executor's choice. The rows of all pictures together
    are fewer than 65,536, and so are those of the results.
    """

    source: DevicePixels
    target: DevicePixels
    """The results, or the part `target_box` of each."""
    target_box: Box
    """The part of each result that `target` holds."""
    tile: Box
    """The part of each result that this pass computes; empty where it computes none."""
    sizes: Sequence[Size]
    """Rows and columns of every value, as `geometry.sizes` gives them."""
    flags: Flags = NO_FLAGS
    """Flags made by the executor's `new_flags`, for at least this number of pictures."""


@dataclass(frozen=True)
class PassWork:
    """One pass: the steps of a phase on one tile."""

    batch: Batch
    work: Work
    places: Mapping[int, BufferPlace]
    """The place of each value of `work` except the picture and the result."""
    sums: Mapping[int, Box]
    """By the numbers of PictureSum steps: the box of its source that each adds to its sums in
    `vectors`. The boxes of all passes together cover the value once; some may be empty."""
    vectors: Buffer
    ends: Phase | None
    """The phase, if this is its last pass: its sums are then complete, and its means and the steps
    on vectors follow."""


class Executor(Protocol):
    """Runs a program on a device, with maps in a layout of its own.

    Making one uploads everything that does not depend on pixels; it raises OutOfMemoryError, and
    BackendError for kernels that cannot be built.
    """

    program: Program
    arithmetic: str
    """Its precision for display, with its units where others would compute other bits."""
    unit: tuple[int, int]
    """Rows and columns to which `geometry.work` aligns steps for it."""
    alignment: int
    """The alignment of maps in memory, in bytes."""
    map_limit: int
    """The most bytes of a map that its kernels can index."""
    in_place: Mapping[int, Sequence[int]]
    """For each value, the values that it may overwrite in place, where both hold the same box and
    no later step reads the other."""
    clipped: frozenset[int]
    """Values that no kernel writes beyond the box in memory."""

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        """Returns the bytes of a map, with the pixels beyond the box that whole groups of
        work-items write and read."""

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        """Returns the makers of a pass's launches, in order.

        They depend only on `one`, whose numbers and boxes may be made of symbols. Raises
        BackendError for kernels that cannot be built.
        """

    def new_flags(self, pictures: int) -> Flags:
        """Returns flags for at least `pictures` pictures; NO_FLAGS if no value of a model can be
        too large. May raise OutOfMemoryError."""

    def vector_bytes(self, pictures: int) -> int:
        """Returns the bytes of all vectors and sums of a batch."""

    def clearing(self, vectors: Buffer, pictures: int) -> Sequence[LaunchMaker]:
        """Returns the makers of launches that zero all sums, once before a batch's first pass."""

    def step(self, kernel: Kernel) -> int:
        """Returns the number of the step that one of its kernels belongs to."""

    def peak(self) -> float:
        """Measures the most multiply-adds a second that its units reach in its precision."""

    def share(self, number: int) -> float:
        """Returns the multiply-adds that a step does, divided by those of the definition of its
        convolution."""

    def close(self) -> None:
        """Frees the weights."""
