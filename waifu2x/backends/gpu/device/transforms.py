"""Transforms of pictures on the device and means of results, by `kernels/transform.cl`."""

from __future__ import annotations

from waifu2x.backends.gpu.device.launch import KernelOwner, KernelSpec
from waifu2x.backends.gpu.device.runtime import Argument, Macros
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.fp32.maps import C_TYPES, target_macros
from waifu2x.backends.tta import Transform

_GROUP = 128


class Transforms(KernelOwner):
    """The kernels of test-time augmentation."""

    def transform(self, source: DevicePixels, transform: Transform, target: DevicePixels) -> None:
        """Queues the transform of `source` into `target`, which has the transformed size."""
        spec = self._spec("transform", source, source)
        self._queue(spec, source, source.buffer, target.buffer, *_places(source, transform))

    def add(
        self, source: DevicePixels, transform: Transform, total: DevicePixels, first: bool
    ) -> None:
        """Queues the sum of `total`, floats, and transformed results put back; with `first`, it
        becomes them."""
        spec = self._spec("add", total, total)
        buffers = source.buffer, total.buffer
        self._queue(spec, total, *buffers, int(first), *_places(total, transform))

    def finish(self, total: DevicePixels, tta: int, target: DevicePixels) -> None:
        """Queues the mean of `tta` results, whose sum is `total`, into `target`."""
        spec = self._spec("finish", total, target)
        self._queue(spec, total, total.buffer, target.buffer, 1 / tta, *total.shape[1:3])

    def _spec(self, name: str, source: DevicePixels, target: DevicePixels) -> KernelSpec:
        planes, group = source.shape[-1], self.runtime.limits.group_on_gpu(_GROUP)
        macros: Macros = {
            "GROUP": group,
            "PLANES": planes,
            "LEVEL": C_TYPES[source.dtype.name],
            **target_macros(target, planes),
        }
        return KernelSpec("transform", macros, group, name)

    def _queue(self, spec: KernelSpec, pixels: DevicePixels, *arguments: Argument) -> None:
        groups = pixels.shape[1], 1, pixels.shape[0]
        self.runtime.launch(self.kernel(spec), groups, *arguments)


def transformed_shape(
    shape: tuple[int, int, int, int], transform: Transform
) -> tuple[int, int, int, int]:
    """Returns the shape (pictures, rows, columns, planes) of pictures after a transform."""
    pictures, rows, columns, planes = shape
    return (pictures, columns, rows, planes) if transform.transposed else shape


def _places(pixels: DevicePixels, transform: Transform) -> tuple[int, ...]:
    return (*pixels.shape[1:3], *map(int, transform))
