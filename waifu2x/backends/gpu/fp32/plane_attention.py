"""Attention between planes in windows of the fp32 executor, by `kernels/plane_attention.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import Arguments, Launch, plain
from waifu2x.backends.gpu.device.runtime import Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.maps import UNIT, Maps
from waifu2x.lowering.ops.attention import AttendPlanes
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program

_GROUP = 64
_LOCAL_FLOATS = 2048
"""The most that a run of pixels takes: what leaves room for other groups."""
_PIXELS = 32


class Fp32PlaneAttentionStep:
    """Attention between planes, its temperatures on the device."""

    def __init__(self, runtime: Runtime, program: Program, step: AttendPlanes, block: int) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._step = step
        limits = runtime.limits
        depth = step.planes // step.heads
        self._group = 1 if limits.is_cpu else limits.group(_GROUP)
        part = program.values[step.target.value].parts[step.target.part]
        macros: Macros = {
            "GROUP": self._group,
            "UNIT": UNIT,
            "BLOCK": block,
            "HEADS": step.heads,
            "DEPTH": depth,
            "QUERY_PLANE": step.first[0],
            "KEY_PLANE": step.first[1],
            "VALUE_PLANE": step.first[2],
            "PART_PLANES": round_up(part, block),
            "WINDOW": step.windows.rows,
            "PIXELS": max(1, min(_PIXELS, _LOCAL_FLOATS // (2 * depth))),
        }
        built = runtime.build("plane_attention", macros)
        self._kernel = built.kernel("plane_attention", self._group)
        temperatures = np.ascontiguousarray(step.temperature, np.float32)
        self._temperatures = runtime.allocate(temperatures.nbytes)
        runtime.upload(self._temperatures, temperatures)

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, box: Box, maps: Maps) -> Launch:
        """The launch for the results in a box of whole windows."""
        step, side = self._step, self._step.windows.rows
        down, across = box.height // side, box.width // side
        queries, keys, values = (maps[view.value] for view in (step.source, step.keys, step.values))
        target = maps[step.target.value]
        rows, columns = batch.sizes[step.source.value]

        def arguments() -> Arguments:
            return plain(
                *(*queries.start, *keys.start, *values.start),
                *target.part_start(step.target.part),
                self._temperatures,
                *(*queries.corner, *keys.corner, *values.corner, *target.corner),
                *(box.top, box.left, down, rows, columns),
            )

        groups = across, step.heads, down * batch.source.shape[0]
        return Launch(None, lambda: self._kernel, groups, arguments)

    def close(self) -> None:
        """Frees the temperatures."""
        self._temperatures.release()
