"""Runs test-time augmentation on a device, by `kernels/transform.cl`: averages a model's results
for transformed pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import scaled
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.compiled_model import (
    CompiledModel,
    Execution,
    StackShape,
    TooManyError,
    words_for_memory,
)
from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.device.launch import KernelOwner, KernelSpec
from waifu2x.backends.gpu.device.memory_pool import MemoryPool, ScopedAllocation
from waifu2x.backends.gpu.device.runtime import Argument, Macros, OutOfMemoryError
from waifu2x.backends.gpu.device.transfer import device_pixels
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.fp32.maps import C_TYPES, target_macros
from waifu2x.backends.tta import IDENTITY, TRANSFORMS, Transform, inverse, write_mean

_GROUP = 128


class TransformedMean:
    """Averages results for a caller that has the device to itself."""

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool
        self._runtime = pool.runtime
        self._transforms = Transforms(pool.runtime)

    def on_device(
        self,
        compiled: CompiledModel,
        source: DevicePixels,
        dtype: np.dtype[Any],
        call: Call[NDArray[Any]],
        taken: ScopedAllocation,
        flags: Flags,
    ) -> DevicePixels:
        """Computes, on the device, the mean of a model's results for pictures transformed as the
        call asks.

        Raises BackendError, TooManyError.
        """
        report = scaled(call.on_progress, 1 / call.tta)
        shape = compiled.result_shape(source.shape)
        with words_for_memory(self._runtime, shape):
            total = device_pixels(taken, np.dtype(np.float32), shape)
            for number, transform in enumerate(TRANSFORMS[call.tta]):
                laid = self._transformed(source, transform, taken) if number else source
                execution = Execution(compiled, laid, total.dtype, call.tile, report, flags)
                made = execution.to_device(taken)
                self._transforms.add(made, transform, total, first=number == 0)
                taken.drop(made.buffer)
                if number:
                    taken.drop(laid.buffer)
            result = device_pixels(taken, dtype, shape)
            self._transforms.finish(total, call.tta, result)
            taken.drop(total.buffer)
        return result

    def on_host(
        self,
        compiled: CompiledModel,
        source: DevicePixels,
        call: Call[NDArray[Any]],
        flags: Flags,
    ) -> None:
        """Writes the same mean into `call.out`, for results that do not fit the device: it sums in
        the same order, so the bits are equal."""
        report = scaled(call.on_progress, 1 / call.tta)
        total = np.empty(call.results.shape, np.float32)
        for transform in TRANSFORMS[call.tta]:
            with self._pool.taken() as taken:
                laid = source
                if transform != IDENTITY:
                    with words_for_memory(self._runtime, source.shape):
                        laid = self._transformed(source, transform, taken)
                shape = compiled.result_shape(laid.shape)
                made = total
                if transform != IDENTITY:
                    made = self._runtime.host_array(shape, np.float32)
                dtype = np.dtype(np.float32)
                Execution(compiled, laid, dtype, call.tile, report, flags).to_host(made)
            if transform != IDENTITY:
                np.add(total, inverse(made, transform), out=total)
        write_mean(total, call.tta, call.results)

    def _transformed(
        self, source: DevicePixels, transform: Transform, taken: ScopedAllocation
    ) -> DevicePixels:
        """Returns transformed pictures. May raise OutOfMemoryError."""
        target = device_pixels(taken, source.dtype, transformed_shape(source.shape, transform))
        self._transforms.transform(source, transform, target)
        return target

    def has_room(self, shape: StackShape, taken: ScopedAllocation) -> bool:
        """Returns whether the device has memory for the sum, an addend and the result. Raises
        TooManyError for several pictures that do not fit."""
        buffers = []
        try:
            for _ in range(3):
                buffers.append(device_pixels(taken, np.dtype(np.float32), shape).buffer)
        except OutOfMemoryError as error:
            if shape[0] > 1:
                raise TooManyError from error
            return False
        finally:
            for buffer in buffers:
                taken.drop(buffer)
        return True


class Transforms(KernelOwner):
    """The kernels of test-time augmentation."""

    def transform(self, source: DevicePixels, transform: Transform, target: DevicePixels) -> None:
        """Queues the transform of `source` into `target`, which has the transformed size."""
        spec = self._spec("transform", source, source)
        self._queue(spec, source, source.buffer, target.buffer, *_places(source, transform))

    def add(
        self, source: DevicePixels, transform: Transform, total: DevicePixels, first: bool
    ) -> None:
        """Queues the addition of results, transformed back, to the floats of `total`; with `first`,
        they replace `total`."""
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
