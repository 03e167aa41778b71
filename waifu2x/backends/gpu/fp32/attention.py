"""Attention in windows of the fp32 executor, by `kernels/attention.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import Arguments, Launch, plain
from waifu2x.backends.gpu.device.runtime import Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.maps import UNIT, Maps
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program

_GROUP = 64
_KEYS = 32
"""Keys of a chunk in local memory; fewer where heads have many planes."""
_LOCAL_FLOATS = 4096
"""The most of keys and of values together: what leaves room for other groups."""
_TOGETHER = 8


class Fp32AttentionStep:
    """Attention, its biases on the device."""

    def __init__(self, runtime: Runtime, program: Program, step: AttendWindows, block: int) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._runtime = runtime
        self._step = step
        windows, limits = step.windows, runtime.limits
        queries = windows.rows * windows.columns
        depth = step.planes // step.heads
        lanes = limits.vector if limits.is_cpu else 1
        group = 1 if limits.is_cpu else limits.group(_GROUP)
        keys = max(_TOGETHER, min(_KEYS, _LOCAL_FLOATS // (2 * depth) // _TOGETHER * _TOGETHER))
        part = program.values[step.target.value].parts[step.target.part]
        macros: dict[str, str | int] = {
            "GROUP": group,
            "UNIT": UNIT,
            "BLOCK": block,
            "LANES": lanes,
            "VECTOR": "float" if lanes == 1 else f"float{lanes}",
            "HEADS": step.heads,
            "DEPTH": depth,
            "QUERY_PLANE": step.first[0],
            "KEY_PLANE": step.first[1],
            "VALUE_PLANE": step.first[2],
            "PART_PLANES": round_up(part, block),
            "WINDOW_ROWS": windows.rows,
            "WINDOW_COLUMNS": windows.columns,
            "OVERLAP": windows.overlap,
            "CELL": windows.cell,
            "SCALE": f"{float(np.float32(step.scale))!r}f",
            "KEYS": keys,
        }
        if step.has_bias:
            macros["BIAS_ROWS"], macros["BIAS_COLUMNS"] = windows.bias_sides
        self._macros: Macros = macros
        self._group = group
        self._queries = queries
        self._kernel = runtime.build("attention", macros).kernel("attention", group)
        biases = np.ascontiguousarray(step.bias if step.has_bias else step.bias[:1, :1, :1])
        self._biases = runtime.allocate(biases.nbytes)
        runtime.upload(self._biases, biases)

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, box: Box, maps: Maps) -> Launch:
        """The launch for the results in a box of whole windows."""
        step, windows = self._step, self._step.windows
        down, across = box.height // windows.rows, box.width // windows.columns
        pictures = batch.source.shape[0]
        queries, keys, values = (maps[view.value] for view in (step.source, step.keys, step.values))
        target = maps[step.target.value]
        rows, columns = batch.sizes[step.source.value]
        filled = windows.filled(rows), windows.filled(columns)

        def arguments() -> Arguments:
            return plain(
                *(*queries.start, *keys.start, *values.start),
                *target.part_start(step.target.part),
                self._biases,
                *(*queries.corner, *keys.corner, *values.corner, *target.corner),
                *(box.top, box.left, down, rows, columns),
                *(*batch.sizes[step.keys.value], *filled),
            )

        groups = across, step.heads, down * pictures
        return Launch(None, lambda: self._kernel, groups, arguments)

    def close(self) -> None:
        """Frees the biases."""
        self._biases.release()
