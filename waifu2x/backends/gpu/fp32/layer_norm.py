"""Norms over the planes of a pixel, of the fp32 executor, by `kernels/layer_norm.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import Arguments, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument, Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.maps import UNIT, Maps, bounds
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program

_GROUP = 64


class Fp32LayerNormStep:
    """A norm over the planes of a pixel, its weights on the device."""

    def __init__(self, runtime: Runtime, program: Program, step: NormPlanes, block: int) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._runtime = runtime
        self._step = step
        self._target = program.values[step.target.value]
        self._group = 1 if runtime.limits.is_cpu else runtime.limits.group(_GROUP)
        self._kernel: Kernel | None = None
        planes = len(step.weight)
        width = round_up(planes, block)
        macros: dict[str, str | int] = {
            "UNIT": UNIT,
            "BLOCK": block,
            "VECTOR": "float" if block == 1 else f"float{block}",
            "BLOCKS": width // block,
            "GROUP": self._group,
            "PLANES": planes,
            "EPS": f"{float(np.float32(step.eps))!r}f",
        }
        if self._target.zero_outside:
            macros["ZERO_OUTSIDE"] = 1
        self._macros: Macros = macros
        weights = np.zeros((2, width), np.float32)
        weights[:, :planes] = step.weight, step.bias
        self._weights = runtime.allocate(weights.nbytes)
        runtime.upload(self._weights, weights)

    def built(self) -> Kernel:
        """The kernel. Raises BackendError."""
        if self._kernel is None:
            program = self._runtime.build("layer_norm", self._macros)
            self._kernel = program.kernel("layer_norm", self._group)
        return self._kernel

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, box: Box, maps: Maps) -> Launch:
        """The launch for the results in a box."""
        step = self._step
        groups = -(-box.width // self._group), box.height, batch.source.shape[0]

        def arguments() -> Arguments:
            view, target = step.source, step.target
            top, left = box.top + view.offset, box.left + view.offset
            edges: tuple[Argument, ...] = ()
            if self._target.zero_outside:
                edges = bounds(Box(0, 0, *batch.sizes[target.value]), box.top, box.left)
            return plain(
                *maps[view.value].arguments(top, left, view.first),
                self._weights,
                box.height,
                box.width,
                *maps[target.value].arguments(box.top, box.left, target.part),
                *edges,
            )

        return Launch(lambda: ("layer_norm", self._macros), self.built, groups, arguments)

    def close(self) -> None:
        """Frees the weights."""
        self._weights.release()
