"""Planewise steps of the fp32 executor, by `kernels/planewise.cl`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from waifu2x.backends.gpu.device.launch import Arguments, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument, Buffer, Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch, DevicePixels
from waifu2x.backends.gpu.fp32.maps import (
    UNIT,
    Maps,
    blocks_of,
    bounds,
    result_arguments,
    source_macros,
    target_macros,
)
from waifu2x.lowering.ops.planewise import (
    Planewise,
    PlanewiseStep,
    PoolMaxima,
    Rearrange,
    ResamplingStep,
    Resize,
)
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import GATE, MULTIPLY

_GROUP = 64


class Fp32PlanewiseStep:
    """A planewise step: its kernels, by the dtypes of pixels at its ends."""

    def __init__(self, runtime: Runtime, program: Program, number: int, block: int) -> None:
        step = program.steps[number]
        assert isinstance(step, PlanewiseStep)
        self._runtime = runtime
        self._program = program
        self._step = step
        self._residual = step.residual
        self._block = block
        self._group = runtime.limits.group(_GROUP)
        self._kernels: dict[object, Kernel] = {}
        values, target = program.values, program.values[step.target.value]
        source = values[step.source.value]
        self._from_pixels = step.source.value == 0
        self._to_pixels = step.target.value == program.result
        self._planes = step.planes_made(program)
        part = target.parts[step.target.part]
        end = step.target.plane + self._planes
        # Whoever ends a part makes its last block up with zeros.
        filled = round_up(part, block) if end == part and not self._to_pixels else end
        macros: dict[str, str | int] = {
            "GROUP": self._group,
            "UNIT": UNIT,
            "BLOCK": block,
            "VECTOR": "float" if block == 1 else f"float{block}",
            "PLANES": self._planes,
            "TARGET_PLANE": step.target.plane,
            "PART_PLANES": filled - step.target.plane,
            "STEP_D2S": 1,
            "STEP_S2D": 1,
            "ENLARGE": step.source.enlarge,
            "SOURCE_S2D": source.space_to_depth,
            "SOURCE_BLOCKS": blocks_of(source, block)[0],
            "TARGET_S2D": target.space_to_depth,
            "TARGET_BLOCKS": blocks_of(target, block)[0],
        }
        self._blocks = -(-(filled - step.target.plane) // block)
        match step:
            case Planewise():
                macros["STEP_D2S"], macros["STEP_S2D"] = step.depth_to_space, step.space_to_depth
                if step.vector is not None:
                    macros["FACTORS"] = 1
                if step.shifts is not None:
                    macros["SHIFTS"] = 1
            case Resize(taps="bicubic"):
                macros["UP"], macros["DOWN"] = step.up, step.down
            case Resize():
                macros["BILINEAR"] = 1
            case PoolMaxima():
                macros["POOL"], macros["POOL_STEP"] = step.kernel, step.stride
            case Rearrange():
                macros["PARTS"], macros["INVERSE"] = step.parts, int(step.inverse)
        if step.factor != 1:
            macros["FACTOR"] = f"{float(np.float32(step.factor))!r}f"
        if self._residual is not None:
            residual = values[self._residual.value]
            macros["RESIDUAL"] = 1
            if step.join == GATE:
                macros["GATE"] = 1
            elif step.join == MULTIPLY:
                macros["MULTIPLIED"] = 1
            macros["RESIDUAL_S2D"] = residual.space_to_depth
            macros["RESIDUAL_BLOCKS"] = blocks_of(residual, block)[0]
        if target.zero_outside and not self._to_pixels:
            macros["ZERO_OUTSIDE"] = 1
        self._macros: Macros = macros

    def _source(self, source: DevicePixels, target: DevicePixels) -> tuple[str, Macros]:
        """What has to be built for pixels of some dtypes, where it reads or writes any."""
        macros = dict(self._macros)
        model = self._program.model
        if self._from_pixels:
            macros |= source_macros(source, model, self._step.source)
        if self._to_pixels:
            macros |= target_macros(target, model.out_planes)
        return "planewise", macros

    def _kernel(self, source: DevicePixels, target: DevicePixels) -> Kernel:
        """The kernel for pixels of some dtypes. Raises BackendError."""
        key = (
            source.dtype if self._from_pixels else None,
            target.dtype if self._to_pixels else None,
        )
        if key not in self._kernels:
            program = self._runtime.build(*self._source(source, target))
            self._kernels[key] = program.kernel("planewise", self._group)
        return self._kernels[key]

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return any(own is kernel for own in self._kernels.values())

    def launch(
        self, batch: Batch, box: Box, maps: Maps, vectors: Buffer, first: Sequence[int], step: int
    ) -> Launch:
        """The launch for the results in a box; the factors, and shifts if there are any, lie in
        `vectors` at `first`, in floats."""
        groups = (-(-box.width // self._group), self._blocks, box.height * batch.source.shape[0])
        factors: Sequence[Argument] = ()
        if self._step.vectors_read:
            factors = (vectors, first[0], step, *first[1:])

        def arguments() -> Arguments:
            return plain(
                *self._source_arguments(batch, maps),
                self._step.source.offset,
                *self._target_arguments(batch, maps),
                *box,
                *self._bounds(batch),
                *factors,
                *self._residual_arguments(maps),
            )

        ends = batch.source, batch.target
        return Launch(lambda: self._source(*ends), lambda: self._kernel(*ends), groups, arguments)

    def close(self) -> None:
        """Nothing to free."""

    def _source_arguments(self, batch: Batch, maps: Maps) -> Sequence[Argument]:
        view = self._step.source
        if self._from_pixels:
            _, height, width, _ = batch.source.shape
            sizes = (height, width, self._program.model.padding)
            return (batch.source.buffer, *sizes)
        source = maps[view.value]
        place = (*source.part_start(view.first), *source.corner)
        if isinstance(self._step, ResamplingStep | Rearrange):
            return (*place, *batch.sizes[view.value], *batch.sizes[self._step.target.value])
        return place

    def _target_arguments(self, batch: Batch, maps: Maps) -> Sequence[Argument]:
        target = self._step.target
        if self._to_pixels:
            box = batch.target_box
            return (*result_arguments(batch, box.top, box.left), *box[:2])
        made = maps[target.value]
        return (*made.part_start(target.part), *made.corner)

    def _bounds(self, batch: Batch) -> Sequence[Argument]:
        if self._to_pixels:
            return bounds(batch.tile, 0, 0)
        return bounds(Box(0, 0, *batch.sizes[self._step.target.value]), 0, 0)

    def _residual_arguments(self, maps: Maps) -> Sequence[Argument]:
        view = self._residual
        if view is None:
            return ()
        residual = maps[view.value]
        top, left = residual.corner
        corner = (top - view.offset, left - view.offset)
        return (*residual.part_start(view.first), *corner)
