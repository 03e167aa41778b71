"""Runs attention in windows in fp32: between pixels, by `kernels/attention.cl`, and between planes,
by `kernels/plane_attention.cl`."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument, Buffer
from waifu2x.backends.gpu.device.source import float_text, vector_type
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows
from waifu2x.lowering.plan.box import round_up

_GROUP = 64
_KEYS = 32
"""The keys of a chunk in local memory; fewer where heads have many planes."""
_LOCAL_FLOATS = 4096
"""The most local memory of keys and values together, which leaves some for other groups."""
_TOGETHER = 8
_PLANES_LOCAL_FLOATS = 2048
"""The most local memory of a run of pixels in attention between planes."""
_PIXELS = 32

_Attention = TypeVar("_Attention", bound=AttendWindows | AttendPlanes)


class _AttentionStep(Fp32Step[_Attention]):
    """Attention with its biases or temperatures in device memory."""

    _spec: KernelSpec
    _table: Buffer

    def _macros(self) -> dict[str, str | int]:
        """Returns the macros that both kernels have."""
        step = self.step
        return {
            "GROUP": self.runtime.limits.group_on_gpu(_GROUP),
            **self.form.macros,
            "HEADS": step.heads,
            "DEPTH": step.planes // step.heads,
            "QUERY_PLANE": step.first[0],
            "KEY_PLANE": step.first[1],
            "VALUE_PLANE": step.first[2],
            "PART_PLANES": round_up(
                self.program.values[step.target.value].parts[step.target.part], self.block
            ),
        }

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the results in a box of whole windows."""
        step, box, maps = self.step, task.boxes[self.number], task.maps
        windows = step.windows
        down, across = box.height // windows.rows, box.width // windows.columns
        queries, keys, values = (maps[view.value] for view in (step.source, step.keys, step.values))
        target = maps[step.target.value]
        arguments = plain(
            *(*queries.start(), *keys.start(), *values.start()),
            *target.start(step.target.part),
            self._table,
            *(*queries.corner, *keys.corner, *values.corner, *target.corner),
            *(box.top, box.left, down, *task.batch.sizes[step.source.value]),
            *self._sizes(task),
        )
        return self.launch_of(self._spec, (across, step.heads, down * task.pictures), arguments)

    def _sizes(self, task: Fp32Task) -> tuple[Argument, ...]:
        """Returns further arguments of the kernel: sizes."""
        return ()


class Fp32AttentionStep(_AttentionStep[AttendWindows]):
    """Attention between the pixels of windows."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, limits = self.step, self.runtime.limits
        windows, depth = step.windows, step.planes // step.heads
        lanes = limits.vector if limits.is_cpu else 1
        keys = max(_TOGETHER, min(_KEYS, _LOCAL_FLOATS // (2 * depth) // _TOGETHER * _TOGETHER))
        macros: dict[str, str | int] = {
            **self._macros(),
            "LANES": lanes,
            "VECTOR": vector_type(lanes),
            "WINDOW_ROWS": windows.rows,
            "WINDOW_COLUMNS": windows.columns,
            "OVERLAP": windows.overlap,
            "CELL": windows.cell,
            "SCALE": float_text(step.scale),
            "KEYS": keys,
        }
        if step.has_bias:
            macros["BIAS_ROWS"], macros["BIAS_COLUMNS"] = windows.bias_sides
        self._spec = KernelSpec("attention", macros, limits.group_on_gpu(_GROUP))
        biases = step.bias if step.has_bias else step.bias[:1, :1, :1]
        self._table = self.upload(biases)

    def _sizes(self, task: Fp32Task) -> tuple[Argument, ...]:
        step, windows = self.step, self.step.windows
        rows, columns = task.batch.sizes[step.source.value]
        filled = windows.filled(rows), windows.filled(columns)
        return (*task.batch.sizes[step.keys.value], *filled)


class Fp32PlaneAttentionStep(_AttentionStep[AttendPlanes]):
    """Attention between the planes of windows."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, depth = self.step, self.step.planes // self.step.heads
        pixels = max(1, min(_PIXELS, _PLANES_LOCAL_FLOATS // (2 * depth)))
        macros = {**self._macros(), "WINDOW": step.windows.rows, "PIXELS": pixels}
        group = self.runtime.limits.group_on_gpu(_GROUP)
        self._spec = KernelSpec("plane_attention", macros, group)
        temperatures = np.asarray(step.temperature, np.float32)
        self._table = self.upload(temperatures)
