"""Timing of what a GPU does, by its own clock, on pictures that are on it already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import ignore
from waifu2x.backends.cuda.runtime import CudaRuntime
from waifu2x.backends.gpu.compiled_model import Execution
from waifu2x.backends.gpu.device.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.device.runtime import Runtime
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.network import GpuNetwork


@contextmanager
def on_device(
    network: GpuNetwork, pixels: NDArray[np.uint8], out_dtype: DTypeLike
) -> Iterator[Callable[[], None]]:
    """Yields what queues all work on pixels that are on the device; results stay there.

    `pixels` are as for a call, and have to fit the memory undivided.
    """
    pictures = pixels[np.newaxis] if pixels.ndim == 3 else pixels
    count, height, width, planes = pictures.shape
    pool, runtime = network.pool, network.pool.runtime
    dtypes = [*[np.dtype(np.float32)] * (len(network.models) - 1), np.dtype(out_dtype)]
    with runtime.current(), pool.working(), pool.taken() as taken:
        buffer = taken.buffer(pictures.nbytes)
        source = DevicePixels(buffer, pictures.dtype, (count, height, width, planes))
        runtime.upload(buffer, pictures)
        flags = network.models[0].executor.new_flags(count)
        queued: list[Callable[[ScopedAllocation], None]] = []
        for compiled, dtype in zip(network.models, dtypes, strict=True):
            execution = Execution(compiled, source, dtype, None, ignore, flags)
            made = execution.to_device(taken)
            plan = compiled.undivided(source.shape, source.dtype, dtype, pool.free())
            assert plan is not None
            queued.append(partial(compiled.queue, plan, source.buffer, made.buffer, flags))
            source = made

        def queue() -> None:
            with pool.taken() as scratch:
                for one in queued:
                    one(scratch)

        yield queue
        runtime.synchronize()


def seconds_between(runtime: CudaRuntime, work: Callable[[], object]) -> float:
    """Seconds from what some work queues first to what it queues last, gaps included."""
    driver = runtime.driver
    with runtime.current():
        before, after = driver.create_event(), driver.create_event()
        driver.record_event(before, runtime.stream)
        work()
        driver.record_event(after, runtime.stream)
        seconds = driver.seconds(before, after)
        for event in (before, after):
            driver.destroy_event(event)
    return seconds


def seconds_in_kernels(runtime: Runtime, work: Callable[[], object]) -> float:
    """Seconds of all kernels that some work queues, without what lies between them."""
    with runtime.timed() as launches:
        work()
    return sum(seconds for _, seconds in launches)
