"""Measures the host's work for a picture of a new size, on a driver that computes nothing.

    python benchmarks/new_sizes.py [-m vgg_7 ...] [--sizes 300] [--precision fp16] [--opencl]

Calls of a compiled network, its pictures and results in page-locked memory: from the call to its
return, where the device takes no time. The slowest of the first 20 sizes makes the formulas of all;
then each size comes once, and the last one again: as a graph that is captured, and as a graph.
Needs no GPU: it is this machine's Python that is timed. With --opencl, programs are built by any
OpenCL (such as PoCL) and never run. In ms; `--profile` says where they go.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.fake_device import in_place_of_the_driver
from tests.helpers.fake_cuda import FakeDriver, FakeLibrary
from waifu2x.backends import Precision
from waifu2x.backends.call import Call
from waifu2x.backends.cuda import backend as cuda
from waifu2x.backends.gpu.backend import GpuBackend
from waifu2x.backends.gpu.device.runtime import ReadyLaunch
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.networks import model_set

_MODELS = ["vgg_7", "cunet", "realesrgan/animevideo", "realesrgan/anime"]
_WARM = 20
_REPEATS = 200


class IdleLibrary(FakeLibrary):
    """Neither looks at what is queued nor keeps it."""

    # The names are the driver's.
    # ruff: noqa: N802

    def cuLaunchKernel(self, *arguments: Any) -> int:
        return 0

    def cuMemcpyHtoDAsync_v2(self, *arguments: Any) -> int:
        return 0

    def cuMemcpyDtoHAsync_v2(self, *arguments: Any) -> int:
        return 0


def different_sizes(count: int, least: int, most: int) -> list[tuple[int, int]]:
    """Returns `count` (rows, columns), none twice."""
    rng = np.random.default_rng(0)
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        columns = int(rng.integers(least, most + 1))
        found[int(columns * rng.uniform(0.5, 0.8)), columns] = None
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", action="append", help=f"default: {', '.join(_MODELS)}")
    parser.add_argument("--sizes", type=int, default=300)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--opencl", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    columns = ("first", "median", "worst", "again", "graph")
    print(f"{'model':24} {' '.join(f'{column:>8}' for column in columns)}")
    if arguments.opencl:
        measure_opencl(arguments)
        return
    driver = FakeDriver()
    driver.capability, driver.total = (9, 0), 140 << 30
    with in_place_of_the_driver(IdleLibrary(driver)):
        backend: Any = cuda.create(0)
        for name in arguments.model or _MODELS:
            show(backend, arguments.precision, name, arguments)
        backend.close()


def measure_opencl(arguments: argparse.Namespace) -> None:
    """All lines for the first OpenCL device."""
    from waifu2x.backends.opencl import platforms
    from waifu2x.backends.opencl.runtime import OpenClRuntime

    class IdleRuntime(OpenClRuntime):
        """Sets arguments, and queues nothing."""

        def queue(self, launches: Sequence[ReadyLaunch]) -> None:
            for kernel, _, packed in launches:
                kernel.handle.set_args(*packed)

        def upload(self, buffer: Any, array: NDArray[Any]) -> None: ...

        def download(self, buffer: Any, array: NDArray[Any]) -> None: ...

        def free_memory(self) -> int:
            return 1 << 40

    runtime = IdleRuntime(platforms.pick(0))
    # As for a graphics card: on a processor, tiles are to stay in its caches.
    runtime.limits = replace(runtime.limits, is_cpu=False, vector=32, max_buffer=1 << 40)
    backend = GpuBackend("opencl", runtime, {"fp32": [partial(Fp32Executor, runtime)]})
    for name in arguments.model or _MODELS:
        show(backend, "fp32", name, arguments)
    backend.close()


def show(
    backend: GpuBackend, precision: Precision, name: str, arguments: argparse.Namespace
) -> None:
    """A line of the table, for one model."""
    found = model_set.find(name)
    factor = found.factors(2, None)[0]
    network = backend.compile(found.models(factor, None), precision)
    sizes = different_sizes(arguments.sizes + _WARM, 300, 1620)
    rows, columns = (max(size) for size in zip(*sizes, strict=True))
    source = np.zeros(rows * columns * 3, np.uint8)
    target = np.empty(source.size * factor**2, np.uint8)
    with backend.pin(source), backend.pin(target):

        def call(size: tuple[int, int]) -> float:
            count = size[0] * size[1] * 3
            pixels = source[:count].reshape(*size, 3)
            out = target[: count * factor**2].reshape(size[0] * factor, size[1] * factor, 3)
            start = time.perf_counter()
            network.run(Call(pixels, np.uint8, out=out))
            return (time.perf_counter() - start) * 1e3

        first = [call(size) for size in sizes[:_WARM]]
        new = [call(size) for size in sizes[_WARM:]]
        again = [call(sizes[-1]) for _ in range(_REPEATS)]
        times = max(first), statistics.median(new), max(new), again[0], statistics.median(again[5:])
        print(f"{name:24} {' '.join(f'{time:8.3f}' for time in times)}", flush=True)
        if arguments.profile:
            profile(lambda: [call(size) for size in sizes[_WARM:]], len(sizes) - _WARM)
    network.close()


def profile(work: Callable[[], object], count: int) -> None:
    """Prints what takes longest."""
    profiler = cProfile.Profile()
    profiler.runcall(work)
    stats = pstats.Stats(profiler)
    print(
        f"{sum(one.callcount for one in profiler.getstats()) / count:.0f} calls of functions each"
    )
    stats.sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
