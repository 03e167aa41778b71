"""How the fp32 kernels' ways of cutting the work compare on a device, layer by layer.

python benchmarks/bench_shapes.py [--device N] [--size 1920x1080] [--layer 128,128] [--shape ...]

Each candidate's result is first compared with a float64 run on a small region; then launches are
timed by the device's clock, and medians shown. TFLOP/s count multiply-adds by the definition of
convolution. The defaults in `waifu2x/backends/gpu/` come from runs of this.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.obvious import psnr
from waifu2x.backends.gpu.direct import DirectLayer
from waifu2x.backends.gpu.direct import Shape as DirectShape
from waifu2x.backends.gpu.peak import multiply_add_peak
from waifu2x.backends.gpu.road import Layer, Map, whole
from waifu2x.backends.gpu.runtime import OutOfMemoryError, Runtime
from waifu2x.backends.gpu.winograd import MAP_BLOCK, WinogradLayer
from waifu2x.backends.gpu.winograd import Shape as WinogradShape
from waifu2x.backends.opencl import platforms
from waifu2x.backends.opencl.runtime import OpenClRuntime
from waifu2x.backends.reference import convolve
from waifu2x.errors import BackendError
from waifu2x.model import Convolution

LAYERS = ("128,128", "64,128", "64,64", "32,64", "32,32")
SHAPES = (
    "d,8,2,4,8,4,8",
    "d,8,2,4,8,4,4",
    "w,2,2,4,8,32,8,8,1,4",
    "w,2,2,4,8,32,8,8,1,8",
    "w,2,2,4,8,64,8,8,2,4",
    "w,2,2,4,8,64,8,4,4,4",
    "w,2,2,4,8,64,8,8,1,4",
    "w,2,4,4,8,32,8,8,1,4",
    "w,2,4,4,8,32,8,4,2,4",
    "w,2,4,4,4,64,8,8,1,4",
    "w,4,4,4,8,32,8,4,3,4",
    "w,4,4,4,8,32,8,8,1,4",
    "w,4,4,4,4,64,8,4,3,4",
    "w,4,4,4,4,64,8,8,1,4",
)
RUNS = 5
CHECKED = 48
SPARE = 64
MOST_PLANES = 128


def make(runtime: Runtime, layer: Convolution, shape: str) -> Layer:
    """A layer from its description: d or w, then the fields of its Shape."""
    kind, *fields = shape.split(",")
    numbers = [int(field) for field in fields]
    if kind == "w":
        return WinogradLayer(runtime, layer, WinogradShape(*numbers))
    line, vectors, width, lanes, group_x, group_y = numbers
    chosen = DirectShape(line, vectors, width, lanes, group_x, group_y)
    return DirectLayer(runtime, layer, MAP_BLOCK, MAP_BLOCK, chosen)


def convolution(name: str) -> Convolution:
    """A layer with random weights, from its planes in and out."""
    in_planes, out_planes = map(int, name.split(","))
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(out_planes, in_planes, 3, 3)) / np.sqrt(9 * in_planes)
    return Convolution(weight.astype("f4"), rng.random(out_planes, np.float32), 0.1)


class Bench:
    """A device and two buffers on it, large enough for every layer."""

    def __init__(self, device: int, rows: int, columns: int) -> None:
        self.runtime = OpenClRuntime(platforms.pick(device))
        self._rows, self._columns = rows, columns
        self.pixels = rows * columns
        size = (rows + SPARE) * (columns + SPARE) * MOST_PLANES * 4
        self._buffers = [self.runtime.allocate(size) for _ in range(2)]
        noise = np.random.default_rng(2).random(size // 4 // 64 + 1, np.float32)
        self.runtime.upload(self._buffers[0], np.resize(noise, size // 4))

    def quality(self, layer: Layer, definition: Convolution) -> float:
        """PSNR of a small region, in dB."""
        runtime, rows, columns = self.runtime, CHECKED + SPARE, CHECKED + SPARE
        planes = definition.in_planes
        inputs = np.random.default_rng(1).random((rows, columns, planes), np.float32)
        blocks = inputs.reshape(rows, columns, planes // MAP_BLOCK, MAP_BLOCK)
        small = runtime.allocate(inputs.nbytes)
        runtime.upload(small, np.ascontiguousarray(blocks.transpose(2, 0, 1, 3)))
        target = Map(self._buffers[1], rows, columns)
        layer.launch(Map(small, rows, columns), target, CHECKED, CHECKED)
        stored = np.zeros((layer.planes // MAP_BLOCK, rows, columns, MAP_BLOCK), np.float32)
        runtime.download(target.buffer, stored)
        small.release()
        result = stored.transpose(1, 2, 0, 3).reshape(rows, columns, -1)
        expected = convolve(inputs.astype(np.float64), definition)[:CHECKED, :CHECKED]
        return psnr(result[:CHECKED, :CHECKED, : definition.out_planes], expected)

    def seconds(self, layer: Layer) -> float:
        """Of one launch on random data, a median."""
        rows = whole(self._rows, layer.rows) + 2
        columns = whole(self._columns, layer.columns) + 2
        source, target = (Map(buffer, rows, columns) for buffer in self._buffers)
        layer.launch(source, target, self._rows, self._columns)
        with self.runtime.timed() as launches:
            for _ in range(RUNS):
                layer.launch(source, target, self._rows, self._columns)
        return statistics.median(time for _, time in launches)


def prepare(task: tuple[int, str, str]) -> None:
    """Builds a kernel, for the cache: a process each, since drivers build one at a time."""
    device, name, shape = task
    with contextlib.suppress(BackendError):
        bench = Bench(device, CHECKED, CHECKED)
        bench.quality(make(bench.runtime, convolution(name), shape), convolution(name))


def compare(bench: Bench, name: str, shapes: Sequence[str], peak: float) -> list[str]:
    """The table of one layer; the shapes that work, the fastest first."""
    definition = convolution(name)
    times: dict[str, float] = {}
    for shape in shapes:
        try:
            layer = make(bench.runtime, definition, shape)
            decibels = bench.quality(layer, definition)
            taken = bench.seconds(layer)
        except (BackendError, OutOfMemoryError) as error:
            print(f"{name:8} {shape:24} {error}", flush=True)
            continue
        layer.close()
        rate = 2 * definition.weight.size * bench.pixels / taken / 1e12
        print(
            f"{name:8} {shape:24} {taken * 1e3:8.3f} ms {rate:7.1f} TFLOP/s"
            f" {rate / peak:5.2f} of peak  {decibels:.0f} dB{'' if decibels > 100 else '  WRONG'}",
            flush=True,
        )
        if decibels > 100:
            times[shape] = taken
    return sorted(times, key=lambda shape: times[shape])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--size", default="1920x1080", help="of the layer's output")
    parser.add_argument("--layer", action="append", help="like 128,128")
    parser.add_argument("--shape", action="append", help="like w,2,4,4,8,32,8,8,1,4")
    parser.add_argument("--best", type=int, help="after the first layer, only so many shapes")
    parser.add_argument("--jobs", type=int, default=1, help="processes that build kernels")
    arguments = parser.parse_args()
    columns, rows = map(int, arguments.size.split("x"))
    shapes = arguments.shape or list(SHAPES)
    layers = arguments.layer or list(LAYERS)
    if arguments.jobs > 1:
        tasks = [(arguments.device, name, shape) for name in layers for shape in shapes]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.jobs, context) as pool:
            list(pool.map(prepare, tasks))
    bench = Bench(arguments.device, rows, columns)
    peak = 2 * multiply_add_peak(bench.runtime) / 1e12
    print(f"{bench.runtime.device.name}, {bench.runtime.device.detail}; peak {peak:.1f} TFLOP/s")
    for name in layers:
        shapes = compare(bench, name, shapes, peak)[: arguments.best]


if __name__ == "__main__":
    main()
