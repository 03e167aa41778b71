"""Runs depthwise convolutions in fp32, by `kernels/depthwise.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, plain
from waifu2x.backends.gpu.device.source import switches, vector_type
from waifu2x.backends.gpu.fp32.activation import activation_macro, cheapest, join_macro
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.lowering.ops.conv import Depthwise
from waifu2x.lowering.plan.box import round_up

_GROUP = 32
_LINE = 4


class Fp32DepthwiseStep(Fp32Step[Depthwise]):
    """A depthwise convolution."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, block = self.step, self.block
        planes, width = len(step.weight), round_up(len(step.weight), block)
        self._blocks = width // block
        self._zero_outside = self.program.values[step.target.value].zero_outside
        group = self.runtime.limits.group_on_gpu(_GROUP)
        macros: dict[str, str | int] = {
            **self.form.macros,
            "VECTOR": vector_type(block),
            "GROUP": group,
            "LINE": _LINE,
            "TAPS": step.taps,
            "PLANES": planes,
            "OUT_PLANES": width,
            "SUB_PLANES": width,
            "SUB_BLOCKS": self._blocks,
            "STORED": width,
            "D2S": 1,
            "S2D": 1,
            **activation_macro(cheapest(step.activation)),
            **join_macro(step.join),
            **switches(
                RESIDUAL=step.residual,
                ZERO_OUTSIDE=self._zero_outside,
            ),
        }
        if not step.activation.has_slopes:
            macros["SLOPE"] = "0.0f"
        self._spec = KernelSpec("depthwise", macros, group)
        weight = np.zeros((width, step.taps**2), np.float32)
        weight[:planes] = step.weight.reshape(planes, -1)
        blocks = weight.reshape(self._blocks, block, -1).transpose(0, 2, 1)
        epilogue = np.zeros((2, width), np.float32)
        epilogue[:, :planes] = step.bias, step.activation.slopes
        self._weight = self.upload(blocks)
        self._epilogue = self.upload(epilogue)

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the results in a box."""
        step, box, maps = self.step, task.boxes[self.number], task.maps
        columns = -(-box.width // (self._spec.group * _LINE))
        arguments = plain(
            *maps.read(step.source, box),
            self._weight,
            self._epilogue,
            box.height,
            box.width,
            *maps.written(step.target, box),
            *(maps.read(step.residual, box) if step.residual else ()),
            *(task.whole(step.target.value, *box[:2]) if self._zero_outside else ()),
        )
        groups = columns, self._blocks, box.height * task.pictures
        return self.launch_of(self._spec, groups, arguments)
