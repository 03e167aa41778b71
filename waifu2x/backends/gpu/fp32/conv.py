"""Convolutions of the fp32 executor: kernels with weights, and what all shapes of them share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.launch import Arguments, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument, Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch, DevicePixels
from waifu2x.backends.gpu.fp32.activation_text import cheapest, dialect_macro
from waifu2x.backends.gpu.fp32.maps import (
    UNIT,
    Maps,
    Margin,
    bounds,
    picture_arguments,
    places_of,
    result_arguments,
    source_macros,
    target_macros,
)
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import Box, round_up, scaled
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import MULTIPLY
from waifu2x.system.lazy_dataclass import dataclass

CELL = 4
"""Steps are computed in whole cells of so many pixels a side, for Winograd."""
NARROW = 4
"""Planes of a value so small that its only part is written by vectors of as many."""


@dataclass(frozen=True)
class Planes:
    """How the planes of a convolution lie in memory."""

    taps: int
    inputs: tuple[int, ...]
    """The place of each among those that it reads."""
    outputs: tuple[int, ...]
    """The place of each among its results: those of a pixel of the target are padded."""
    sub_planes: int
    """Planes of a pixel of a target that is stored after depth-to-space, padded."""
    block: int
    from_pixels: bool
    to_pixels: bool
    is_narrow: bool
    """Whether its vectors have NARROW planes, whatever the blocks of maps have."""

    @property
    def in_count(self) -> int:
        """Planes that it reads, with those between them."""
        return self.inputs[-1] + 1

    @property
    def out_count(self) -> int:
        """Planes that it makes, with those between them."""
        return self.outputs[-1] + 1


class ConvShape(Protocol):
    """How the work of a convolution is cut; its `repr` says all that makes it what it is."""

    @property
    def stem(self) -> str:
        """The name of the file in `kernels/`, and of its kernel."""
        ...

    @property
    def planes(self) -> int:
        """Output planes of a group."""
        ...

    @property
    def rows(self) -> int:
        """Rows of pixels of a group."""
        ...

    @property
    def columns(self) -> int:
        """Columns of pixels of a group."""
        ...

    @property
    def group(self) -> int:
        """Work-items of a group."""
        ...

    @property
    def plane_groups(self) -> bool:
        """Whether groups divide the planes among them; else each makes all."""
        ...

    @property
    def share(self) -> float:
        """How many multiply-adds it does, of those that a convolution has by definition."""
        ...

    def macros(self, planes: Planes) -> Macros:
        """The macros of the kernel, its planes among them."""
        ...

    def pack(self, planes: Planes, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """A weight (out, in, taps, taps) in the order in which the kernel reads it."""
        ...


def planes_of(program: Program, step: Conv, block: int) -> Planes:
    """The planes of a step."""
    view = step.source
    source = program.values[view.value]
    to_pixels = step.target.value == program.result
    own = step.out_planes // step.depth_to_space**2
    narrow = _is_narrow(program, step.target.value)
    width = NARROW if narrow and block > NARROW else block
    sub = own if to_pixels or step.depth_to_space == 1 else round_up(own, width)
    from_pixels = view.value == 0
    inputs = range(step.in_planes)
    return Planes(
        taps=step.taps,
        inputs=tuple(inputs if from_pixels else places_of(source, view.first, view.parts, block)),
        outputs=tuple(p // own * sub + p % own for p in range(step.out_planes)),
        sub_planes=sub,
        block=block,
        from_pixels=from_pixels,
        to_pixels=to_pixels,
        is_narrow=narrow,
    )


def _is_narrow(program: Program, value: int) -> bool:
    """Whether of each block of a map only the first NARROW planes are written and read.

    What adds such a map to its own result reads as many planes as it writes: so its result has to
    be narrow as well, else it would hold what lay in memory where the map has no planes.
    """
    stored = program.values[value]
    return (
        stored.planes <= NARROW
        and len(stored.parts) == 1
        and stored.space_to_depth == 1
        and all(
            _is_narrow(program, step.target.value)
            for step in program.steps
            if isinstance(step, Conv) and step.residual and step.residual.value == value
        )
    )


def padded_weight(
    planes: Planes, weight: NDArray[np.float32], inputs: int, outputs: int
) -> NDArray[np.float32]:
    """A weight (outputs, inputs, taps, taps), with zeros for planes that are not."""
    result = np.zeros((outputs, inputs, planes.taps, planes.taps), np.float32)
    result[np.ix_(planes.outputs, planes.inputs)] = weight
    return result


class Fp32ConvStep:
    """A convolution, its weights on the device."""

    def __init__(
        self, runtime: Runtime, program: Program, step: Conv, planes: Planes, shape: ConvShape
    ) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._runtime = runtime
        self._program = program
        self._step = step
        self._planes = planes
        self._shape = shape
        self.share = shape.share
        """The multiply-adds that it does, of those that it has by definition."""
        self._target = program.values[step.target.value]
        self._width = round_up(planes.out_count, shape.planes)
        self._kernels: dict[object, Kernel] = {}
        weight = shape.pack(planes, step.weight)
        epilogue = np.zeros((2, self._width), np.float32)
        epilogue[0, planes.outputs], epilogue[1, planes.outputs] = step.bias, step.activation.slopes
        self._weight, self._bias = (
            runtime.allocate(weight.nbytes),
            runtime.allocate(epilogue.nbytes),
        )
        runtime.upload(self._weight, weight)
        runtime.upload(self._bias, epilogue)

    @property
    def margin(self) -> Margin:
        """Pixels of its results beyond a box of whole cells, at most."""
        rows, columns = self._shape.rows, self._shape.columns
        return Margin(rows - math.gcd(rows, CELL), columns - math.gcd(columns, CELL))

    def _source(self, source: DevicePixels, target: DevicePixels) -> tuple[str, Macros]:
        """What has to be built for pixels of some dtypes, where it reads or writes any."""
        step, planes = self._step, self._planes
        macros = {**self._shape.macros(planes), **self._store_macros()}
        if planes.from_pixels:
            macros |= source_macros(source, self._program.model, step.source)
        if planes.to_pixels:
            macros |= target_macros(target, self._program.model.out_planes)
        return self._shape.stem, macros

    def _kernel(self, source: DevicePixels, target: DevicePixels) -> Kernel:
        """The kernel for pixels of some dtypes. Raises BackendError."""
        key = (
            source.dtype if self._planes.from_pixels else None,
            target.dtype if self._planes.to_pixels else None,
        )
        if key not in self._kernels:
            program = self._runtime.build(*self._source(source, target))
            self._kernels[key] = program.kernel(self._shape.stem, self._shape.group)
        return self._kernels[key]

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return any(own is kernel for own in self._kernels.values())

    def launch(self, batch: Batch, box: Box, maps: Maps) -> Launch:
        """The launch for the results in a box."""
        shape = self._shape
        row_groups = -(-box.height // shape.rows)
        groups = (
            self._width // shape.planes if shape.plane_groups else 1,
            -(-box.width // shape.columns),
            row_groups * batch.source.shape[0],
        )

        def arguments() -> Arguments:
            return plain(
                *self._source_arguments(batch, box, maps),
                self._weight,
                self._bias,
                row_groups,
                *self._target_arguments(batch, box, maps),
                *self._residual_arguments(box, maps),
                *self._bounds(batch, box),
            )

        ends = batch.source, batch.target
        return Launch(lambda: self._source(*ends), lambda: self._kernel(*ends), groups, arguments)

    def close(self) -> None:
        """Frees the weights."""
        self._weight.release()
        self._bias.release()

    def _store_macros(self) -> Macros:
        step, planes, target = self._step, self._planes, self._target
        own = step.out_planes // step.depth_to_space**2
        vector = NARROW if planes.is_narrow and planes.block > NARROW else planes.block
        macros: dict[str, str | int] = {
            "UNIT": UNIT,
            "BLOCK": planes.block,
            "SUB_PLANES": planes.sub_planes if step.depth_to_space > 1 else self._width,
            "SUB_BLOCKS": -(-own // planes.block),
            "STORED": planes.out_count if planes.to_pixels else round_up(planes.out_count, vector),
            "D2S": step.depth_to_space,
            "S2D": target.space_to_depth,
        }
        macros |= dialect_macro(cheapest(step.activation))
        slopes = step.activation.slopes
        if not step.activation.has_slopes:
            macros["SLOPE"] = "0.0f"
        elif (slopes == slopes[0]).all():
            macros["SLOPE"] = f"{float(slopes[0])!r}f"
        if step.factor != 1:
            macros["FACTOR"] = f"{float(np.float32(step.factor))!r}f"
        if step.residual is not None:
            macros["RESIDUAL"] = 1
        if step.join == MULTIPLY:
            macros["MULTIPLIED"] = 1
        if target.zero_outside and not planes.to_pixels:
            macros["ZERO_OUTSIDE"] = 1
        return macros

    def _source_arguments(self, batch: Batch, box: Box, maps: Maps) -> Sequence[Argument]:
        view = self._step.source
        if self._planes.from_pixels:
            return picture_arguments(batch, self._program.model, view, box.top, box.left)
        top, left = box.top + view.offset, box.left + view.offset
        return maps[view.value].arguments(top, left, view.first)

    def _target_arguments(self, batch: Batch, box: Box, maps: Maps) -> Sequence[Argument]:
        step, s2d = self._step, self._target.space_to_depth
        if self._planes.to_pixels:
            return result_arguments(batch, *scaled(box, step.depth_to_space)[:2])
        top, left = (place // s2d for place in scaled(box, step.depth_to_space)[:2])
        return maps[step.target.value].arguments(top, left, step.target.part)

    def _residual_arguments(self, box: Box, maps: Maps) -> Sequence[Argument]:
        view = self._step.residual
        if view is None:
            return ()
        offset = view.offset // self._step.depth_to_space
        return maps[view.value].arguments(box.top + offset, box.left + offset, view.first)

    def _bounds(self, batch: Batch, box: Box) -> Sequence[Argument]:
        step = self._step
        top, left = scaled(box, step.depth_to_space)[:2]
        if self._planes.to_pixels:
            return bounds(batch.tile, top, left)
        if self._target.zero_outside:
            return bounds(Box(0, 0, *batch.sizes[step.target.value]), top, left)
        return ()
