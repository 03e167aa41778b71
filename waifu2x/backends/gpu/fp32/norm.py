"""Runs norms in fp32: layer norm, by `kernels/layer_norm.cl`, and the vectors of group norm, by
`kernels/norm_vector.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, plain
from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.backends.gpu.device.source import float_text, switches, vector_type
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.plan.box import round_up

_GROUP = 64


class Fp32LayerNormStep(Fp32Step[NormPlanes]):
    """A norm over the planes of a pixel."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, planes = self.step, len(self.step.weight)
        width = round_up(planes, self.block)
        self._zero_outside = self.program.values[step.target.value].zero_outside
        group = self.runtime.limits.group_on_gpu(_GROUP)
        macros = {
            **self.form.macros,
            "VECTOR": vector_type(self.block),
            "BLOCKS": width // self.block,
            "GROUP": group,
            "PLANES": planes,
            "EPS": float_text(step.eps),
            **switches(ZERO_OUTSIDE=self._zero_outside),
        }
        self._spec = KernelSpec("layer_norm", macros, group)
        weights = np.zeros((2, width), np.float32)
        weights[:, :planes] = step.weight, step.bias
        self._weights = self.upload(weights)

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the results in a box."""
        step, box, maps = self.step, task.boxes[self.number], task.maps
        arguments = plain(
            *maps.read(step.source, box),
            self._weights,
            box.height,
            box.width,
            *maps.written(step.target, box),
            *(task.whole(step.target.value, *box[:2]) if self._zero_outside else ()),
        )
        groups = -(-box.width // self._spec.group), box.height, task.pictures
        return self.launch_of(self._spec, groups, arguments)


class Fp32NormVectorStep(Fp32Step[NormVector]):
    """A vector made of the means of planes and of their squares."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step = self.step
        planes = len(step.bias)
        group = self.runtime.limits.group(_GROUP)
        macros: Macros = {
            "GROUP": group,
            "PLANES": planes,
            "EACH": planes // step.groups,
            "EPS": float_text(step.eps),
            "SHIFTS": int(step.shifts),
        }
        self._spec = KernelSpec("norm_vector", macros, group)
        weights = np.stack([step.weight, step.bias]).astype(np.float32)
        self._weights = self.upload(weights)

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the vectors of all pictures."""
        step, layout = self.step, self.layout
        vectors = (layout.vectors[vector] for vector in (step.source, step.squares, step.vector))
        groups = -(-len(step.bias) // self._spec.group), 1, task.pictures
        arguments = plain(task.vectors, *vectors, layout.step, self._weights)
        return self.launch_of(self._spec, groups, arguments)
