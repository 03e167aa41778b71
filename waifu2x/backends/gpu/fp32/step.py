"""Defines the base of the fp32 executor's steps, with their context and the task of a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.backends.gpu.device.launch import Launch, LaunchMaker
from waifu2x.backends.gpu.device.runtime import Argument, Buffer, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.maps import MapFormat, Maps, VectorLayout, bounds
from waifu2x.backends.gpu.fp32.matrix import MatrixUnit
from waifu2x.backends.gpu.kernel_step import KernelStep, Kind
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program


class Fp32Context(NamedTuple):
    """The objects that the steps of one executor share."""

    runtime: Runtime
    program: Program
    form: MapFormat
    layout: VectorLayout
    choose: Choose
    unit: MatrixUnit | None = None
    """The unit for products of matrices of maps of 16 bits."""


class Fp32Task(NamedTuple):
    """One pass, as steps need it."""

    batch: Batch
    boxes: Mapping[int, Box]
    """The box of results to compute, by the number of each step that writes a map."""
    sums: Mapping[int, Box]
    """The box of the source to sum, by the number of each PictureSum step."""
    maps: Maps
    vectors: Buffer

    @property
    def pictures(self) -> int:
        """The number of pictures of the batch."""
        return self.batch.source.shape[0]

    def whole(self, value: int, top: int, left: int) -> tuple[Argument, ...]:
        """Returns the bounds of a value, in coordinates relative to (top, left)."""
        return bounds(Box(0, 0, *self.batch.sizes[value]), top, left)


class Fp32Step(KernelStep[Kind]):
    """A step whose maps and vectors are floats, with its weights in device memory."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        """Raises OutOfMemoryError."""
        super().__init__(context.runtime, context.program, number)
        self.form = context.form
        self.block = context.form.block
        self.layout = context.layout

    def upload(self, array: NDArray[Any]) -> Buffer:
        """Copies an array to device memory. May raise OutOfMemoryError."""
        return self.uploaded(len(self._buffers), lambda: array)

    def launches(self, task: Fp32Task) -> Sequence[LaunchMaker]:
        """Returns the makers of its launches in a pass."""
        return [partial(self.launch, task)]

    def finishing(self, task: Fp32Task) -> Sequence[LaunchMaker]:
        """Returns the makers of its launches behind the last pass of a phase."""
        return [partial(self.launch, task)]

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch of a step that has a single one."""
        raise NotImplementedError
