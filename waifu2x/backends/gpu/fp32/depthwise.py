"""Depthwise convolutions of the fp32 executor, by `kernels/depthwise.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import Arguments, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument, Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.activation_text import cheapest, dialect_macro
from waifu2x.backends.gpu.fp32.maps import UNIT, Maps, bounds
from waifu2x.lowering.ops.conv import Depthwise
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import MULTIPLY

_GROUP = 32
_LINE = 4


class Fp32DepthwiseStep:
    """A depthwise convolution, its weights on the device."""

    def __init__(self, runtime: Runtime, program: Program, step: Depthwise, block: int) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._runtime = runtime
        self._step = step
        self._group = 1 if runtime.limits.is_cpu else runtime.limits.group(_GROUP)
        self._target = program.values[step.target.value]
        self._kernel: Kernel | None = None
        planes, taps = len(step.weight), step.taps
        width = round_up(planes, block)
        self._blocks = width // block
        self._macros = self._made_macros(block, width)
        weight = np.zeros((width, taps**2), np.float32)
        weight[:planes] = step.weight.reshape(planes, -1)
        blocks = weight.reshape(self._blocks, block, -1).transpose(0, 2, 1)
        epilogue = np.zeros((2, width), np.float32)
        epilogue[:, :planes] = step.bias, step.activation.slopes
        self._weight = runtime.allocate(weight.nbytes)
        self._bias = runtime.allocate(epilogue.nbytes)
        runtime.upload(self._weight, np.ascontiguousarray(blocks))
        runtime.upload(self._bias, epilogue)

    def _made_macros(self, block: int, width: int) -> Macros:
        step, planes = self._step, len(self._step.weight)
        macros: dict[str, str | int] = {
            "UNIT": UNIT,
            "BLOCK": block,
            "VECTOR": "float" if block == 1 else f"float{block}",
            "GROUP": self._group,
            "LINE": _LINE,
            "TAPS": step.taps,
            "PLANES": planes,
            "OUT_PLANES": width,
            "SUB_PLANES": width,
            "SUB_BLOCKS": width // block,
            "STORED": width,
            "D2S": 1,
            "S2D": 1,
            **dialect_macro(cheapest(step.activation)),
        }
        if not step.activation.has_slopes:
            macros["SLOPE"] = "0.0f"
        if step.residual is not None:
            macros["RESIDUAL"] = 1
        if step.join == MULTIPLY:
            macros["MULTIPLIED"] = 1
        if self._target.zero_outside:
            macros["ZERO_OUTSIDE"] = 1
        return macros

    def built(self) -> Kernel:
        """The kernel. Raises BackendError."""
        if self._kernel is None:
            program = self._runtime.build("depthwise", self._macros)
            self._kernel = program.kernel("depthwise", self._group)
        return self._kernel

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, box: Box, maps: Maps) -> Launch:
        """The launch for the results in a box."""
        step = self._step
        columns = -(-box.width // (self._group * _LINE))
        groups = (columns, self._blocks, box.height * batch.source.shape[0])

        def arguments() -> Arguments:
            view, residual = step.source, step.residual
            source = maps[view.value]
            place = box.top + view.offset, box.left + view.offset
            target = maps[step.target.value].arguments(box.top, box.left, step.target.part)
            added: list[Argument] = []
            if residual is not None:
                top, left = box.top + residual.offset, box.left + residual.offset
                added += maps[residual.value].arguments(top, left, residual.first)
            if self._target.zero_outside:
                size = Box(0, 0, *batch.sizes[step.target.value])
                added += bounds(size, box.top, box.left)
            return plain(
                *source.arguments(*place, view.first),
                self._weight,
                self._bias,
                box.height,
                box.width,
                *target,
                *added,
            )

        return Launch(lambda: ("depthwise", self._macros), self.built, groups, arguments)

    def close(self) -> None:
        """Frees the weights."""
        self._weight.release()
        self._bias.release()
