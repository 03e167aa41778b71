"""Pictures transformed on the device, and the mean of the results, by `kernels/transform.cl`."""

from __future__ import annotations

from waifu2x.backends.gpu.device.runtime import Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.fp32.maps import C_TYPES, target_macros
from waifu2x.backends.tta import Transform

_GROUP = 128


class Transforms:
    """The kernels of test-time augmentation, built when they are first asked for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._group = 1 if runtime.limits.is_cpu else runtime.limits.group(_GROUP)
        self._kernels: dict[object, Kernel] = {}

    def transform(self, source: DevicePixels, transform: Transform, target: DevicePixels) -> None:
        """Queues that `target`, of the transformed size, becomes the source transformed."""
        kernel = self._kernel("transform", source, source)
        buffers = source.buffer, target.buffer
        self._runtime.launch(kernel, _groups(source), *buffers, *_places(source, transform))

    def add(
        self, source: DevicePixels, transform: Transform, total: DevicePixels, first: bool
    ) -> None:
        """Queues that the total, floats, grows by transformed results put back; with `first`, it
        becomes them."""
        kernel = self._kernel("add", total, total)
        arguments = source.buffer, total.buffer, int(first)
        self._runtime.launch(kernel, _groups(total), *arguments, *_places(total, transform))

    def finish(self, total: DevicePixels, tta: int, target: DevicePixels) -> None:
        """Queues that `target` becomes the mean of `tta` results, of which the total is the sum."""
        kernel = self._kernel("finish", total, target)
        arguments = total.buffer, target.buffer, 1 / tta
        self._runtime.launch(kernel, _groups(total), *arguments, *total.shape[1:3])

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
            self._kernels[key] = self._runtime.build("transform", macros).kernel(name, self._group)
        return self._kernels[key]


def transformed_shape(
    shape: tuple[int, int, int, int], transform: Transform
) -> tuple[int, int, int, int]:
    """The shape (pictures, rows, columns, planes) of pictures after a transform."""
    pictures, rows, columns, planes = shape
    return (pictures, columns, rows, planes) if transform.transposed else shape


def _groups(pixels: DevicePixels) -> tuple[int, int, int]:
    return pixels.shape[1], 1, pixels.shape[0]


def _places(pixels: DevicePixels, transform: Transform) -> tuple[int, ...]:
    return (*pixels.shape[1:3], *map(int, transform))
