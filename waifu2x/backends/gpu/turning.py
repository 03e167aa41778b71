"""Pictures turned on the device, and the mean of what becomes of them, by `kernels/turn.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.maps import C_TYPES, target_macros
from waifu2x.backends.gpu.runtime import Kernel, Macros, Runtime
from waifu2x.backends.tta import Turn

_GROUP = 128


class Turning:
    """The kernels, built as they are asked for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._group = 1 if runtime.limits.is_cpu else min(_GROUP, runtime.limits.max_group)
        self._kernels: dict[object, Kernel] = {}

    def turn(self, source: DevicePixels, turn: Turn, target: DevicePixels) -> None:
        """Queues that `target`, of the turned size, becomes the source turned."""
        kernel = self._kernel("turn", source, source)
        buffers = source.buffer, target.buffer
        self._runtime.launch(kernel, _groups(source), *buffers, *_places(source, turn))

    def add(self, source: DevicePixels, turn: Turn, total: DevicePixels, first: bool) -> None:
        """Queues that the total grows by turned pictures, floats; the first time it is those."""
        kernel = self._kernel("add", total, total)
        arguments = source.buffer, total.buffer, np.int32(first)
        self._runtime.launch(kernel, _groups(total), *arguments, *_places(total, turn))

    def finish(self, total: DevicePixels, turns: int, target: DevicePixels) -> None:
        """Queues that `target` becomes the mean of so many pictures, which the total is."""
        kernel = self._kernel("finish", total, target)
        arguments = total.buffer, target.buffer, np.float32(1 / turns)
        size = map(np.int32, total.shape[1:3])
        self._runtime.launch(kernel, _groups(total), *arguments, *size)

    def _kernel(self, name: str, source: DevicePixels, target: DevicePixels) -> Kernel:
        planes = source.shape[-1]
        key = name, source.dtype, target.dtype, planes
        if key not in self._kernels:
            macros: Macros = {
                "GROUP": self._group,
                "PLANES": planes,
                "LEVEL": C_TYPES[source.dtype.name],
                **target_macros(target, planes),
            }
            self._kernels[key] = self._runtime.build("turn", macros).kernel(name, self._group)
        return self._kernels[key]


def turned_shape(shape: tuple[int, int, int, int], turn: Turn) -> tuple[int, int, int, int]:
    """Of pictures, when they are turned."""
    pictures, rows, columns, planes = shape
    return (pictures, columns, rows, planes) if turn.transposed else shape


def _groups(pixels: DevicePixels) -> tuple[int, int, int]:
    return pixels.shape[1], 1, pixels.shape[0]


def _places(pixels: DevicePixels, turn: Turn) -> tuple[np.int32, ...]:
    return tuple(np.int32(number) for number in (*pixels.shape[1:3], *turn))
