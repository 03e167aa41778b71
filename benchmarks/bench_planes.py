"""Pictures as YUV planes through a network: what their conversion costs beside the network.

    python benchmarks/bench_planes.py [--backend cuda] [-m realesrgan/animevideo@2]
        [--size 1920x1080] [--bits 8] [--subsampling 420] [--precision auto] [--seconds 4]
        [--content drawn] [--stack 1]

First the codes are held to their definition, on a small picture. Then come, for a picture of the
size: ms of the conversions and of all else, on a GPU by the device's clock; GB/s of what the
conversions read and write; and pictures a second as planes and as pixels of 8 bits, in calls of
`--stack` pictures, as many at once as the backend wants, in page-locked memory. Beside them stand,
on a GPU, the network's kernels alone, without copies and conversions; and ms of the processor's
time for each picture.

Both ways get the same picture, and the kernels alone, too: matrix units take more power the more
bits change, and a GPU at its limit of power works slower then.
"""

from __future__ import annotations

import argparse
import math
import mmap
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.helpers.obvious_planes import Meaning, codes, from_rgb, to_rgb
from waifu2x.backends import Backend, Network, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.device.transfer import device_pixels
from waifu2x.backends.reference import planar
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat
from waifu2x.networks import model_set

ROUNDS = 20
CONVERSIONS = ("from_planes", "to_planes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("-m", "--model", default="realesrgan/animevideo@2")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--subsampling", default="420")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--content", choices=CONTENTS, default="drawn")
    parser.add_argument("--stack", type=int, default=1)
    arguments = parser.parse_args()
    name, _, scale = arguments.model.partition("@")
    models = model_set.find(name).models(int(scale), None)
    width, height = map(int, arguments.size.split("x"))
    kind = PlaneFormat(arguments.bits, arguments.subsampling)
    backend = open_backend(arguments.backend)
    network = backend.compile(models, arguments.precision)
    print(f"{backend.device.name}, {arguments.model}, {arguments.size}, {kind}")
    # In 16 bits, the last bit of a float of the picture may be worth two codes.
    exact = backend.compile(models, "fp32")
    check(exact, kind, int(scale))
    exact.close()
    pixels = CONTENTS[arguments.content](height, width)
    source = as_planes(kind, pixels)
    target = kind.empty(height * int(scale), width * int(scale))
    if backend.name == "cpu":
        conversion_on_cpu(network, source, target)
    elif backend.name != "numpy":
        conversion_on_gpu(backend, network, source, target)
    with ExitStack() as held:
        calls = [
            InMemory(held, backend, source, pixels, int(scale), arguments.stack)
            for _ in range(backend.calls_at_once)
        ]
        for turn in range(2):
            if backend.name in ("cuda", "opencl"):
                rate = alone(backend, network, calls[0].arrays[0], arguments.seconds)
                print(f"round {turn + 1}: kernels alone {rate:.1f} pictures a second")
            for way in ("pixels", "planes"):
                rate, own = rate_of(calls, network, way, arguments.seconds)
                print(f"round {turn + 1}: {way} {rate:.1f} pictures a second, {own:.3f} ms each")


def drawn(height: int, width: int) -> NDArray[np.uint8]:
    """RGB of soft shades, hard edges and thin lines, with a little grain."""
    rng = np.random.default_rng(height)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    made = np.empty((height, width, 3), np.float32)
    for plane in range(3):
        made[..., plane] = 128 + 60 * np.sin(x / (90 + 20 * plane)) * np.cos(y / (70 + 15 * plane))
    for _ in range(40):
        top, left, radius = (rng.random(3) * (height, width, height / 8)).astype(int)
        rows, columns = (slice(max(0, at - radius - 2), at + radius + 2) for at in (top, left))
        part = made[rows, columns]
        away = np.hypot(y[rows, columns] - top, x[rows, columns] - left)
        part[away < radius] = rng.integers(0, 256, 3)
        part[np.abs(away - radius) < 1.5] = 16
    made += rng.normal(0, 1.5, made.shape)
    return made.clip(0, 255).astype(np.uint8)


def noise(height: int, width: int) -> NDArray[np.uint8]:
    """Any RGB."""
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


def plain(height: int, width: int) -> NDArray[np.uint8]:
    """One grey."""
    return np.full((height, width, 3), 99, np.uint8)


CONTENTS = {"drawn": drawn, "noise": noise, "plain": plain}


def as_planes(kind: PlaneFormat, pixels: NDArray[np.uint8]) -> PlanarPicture:
    """The planes of RGB."""
    made = kind.empty(*pixels.shape[:2])
    planar.from_rgb(np.divide(pixels, 255, dtype=np.float32), made)
    return made


def picture(kind: PlaneFormat, height: int, width: int) -> PlanarPicture:
    """Any codes."""
    made, rng = kind.empty(height, width), np.random.default_rng(height)
    for plane in made.planes:
        plane[:] = rng.integers(0, 1 << kind.bits, plane.shape)
    return made


def check(network: Network, kind: PlaneFormat, scale: int) -> None:
    """Raises AssertionError where codes are not those of the network's pixels."""
    one, made = picture(kind, 36, 48), kind.empty(36 * scale, 48 * scale)
    network.run(Call([one], out=[made]))
    meant = Meaning(kind.bits, kind.subsampling, kind.matrix, kind.is_full_range, kind.siting)
    pixels = to_rgb(one.planes, meant).clip(0, 1).astype(np.float32)
    values = from_rgb(network.run(Call(pixels, np.float32)), meant)
    wrong = [
        np.abs(plane - wanted).max()
        for plane, wanted in zip(made.planes, codes(values, kind.bits), strict=True)
    ]
    assert max(wrong) <= 1, wrong


def conversion_on_gpu(
    backend: Backend, network: Network, source: PlanarPicture, target: PlanarPicture
) -> None:
    """By the device's clock."""
    opened: Any = backend
    found: dict[str, list[float]] = {name: [] for name in (*CONVERSIONS, "network")}
    for _ in range(ROUNDS):
        spent = dict.fromkeys(found, 0.0)
        with opened.runtime.timed() as times:
            network.run(Call([source], out=[target]))
        for kernel, seconds in times:
            spent[kernel.name if kernel.name in CONVERSIONS else "network"] += seconds
        for name, seconds in spent.items():
            found[name].append(seconds)
    read, write, rest = (statistics.median(found[name]) for name in (*CONVERSIONS, "network"))
    show(read, write, rest, moved_bytes(source), moved_bytes(target))


def conversion_on_cpu(network: Network, source: PlanarPicture, target: PlanarPicture) -> None:
    """On all cores."""
    from waifu2x.backends.cpu.run.planar import read_planes, write_planes
    from waifu2x.system.machine import core_count

    pixels, made = (np.zeros((*one.size, 3), np.float32) for one in (source, target))
    cores = core_count()

    def of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    read, write = (
        of(lambda: read_planes(source, pixels, cores)),
        of(lambda: write_planes(made, target, cores)),
    )
    whole = of(lambda: network.run(Call(pixels, np.float32, out=made)), 1)
    show(read, write, whole, moved_bytes(source), moved_bytes(target))


def moved_bytes(one: PlanarPicture) -> int:
    """Returns the bytes that a conversion reads or writes: planes, and floats of RGB."""
    return sum(plane.nbytes for plane in one.planes) + 12 * one.planes[0].size


def show(read: float, write: float, network: float, read_bytes: int, written: int) -> None:
    print(f"planes to RGB   {read * 1e3:9.3f} ms {read_bytes / read / 1e9:7.0f} GB/s")
    print(f"RGB to planes   {write * 1e3:9.3f} ms {written / write / 1e9:7.0f} GB/s")
    print(f"network         {network * 1e3:9.3f} ms, {(read + write) / network:.1%} on top of it")


def pages(size: int) -> NDArray[np.uint8]:
    """Returns memory whose pages hold nothing else."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


class InMemory:
    """The arrays of a stack's calls, one behind the other: a driver locks no page twice."""

    def __init__(
        self,
        held: ExitStack,
        backend: Backend,
        source: PlanarPicture,
        pixels: NDArray[np.uint8],
        scale: int,
        stack: int,
    ) -> None:
        kind, (height, width) = source.format, source.size
        ends = (height, width), (height * scale, width * scale)
        sizes = [kind.nbytes(*size) for size in ends]
        rgb = [3 * math.prod(size) for size in ends]
        memory = pages(stack * sum(sizes + rgb))
        held.enter_context(backend.pin(memory))
        self.pictures: list[list[PlanarPicture]] = []
        """Sources and results."""
        begin = 0
        for end, size in zip(ends, sizes, strict=True):
            starts = range(begin, begin + stack * size, size)
            self.pictures.append([kind.within(memory[start:], *end) for start in starts])
            begin += stack * size
        self.arrays: list[NDArray[np.uint8]] = []
        """The same as RGB."""
        for end, size in zip(ends, rgb, strict=True):
            part = memory[begin : begin + stack * size]
            self.arrays.append(part.reshape(stack, *end, 3))
            begin += stack * size
        self.arrays[0][:] = pixels
        for one in self.pictures[0]:
            for plane, of in zip(one.planes, source.planes, strict=True):
                plane[:] = of

    def run(self, network: Network, way: str) -> None:
        """Runs the stack as planes or as pixels."""
        if way == "planes":
            network.run(Call(self.pictures[0], out=self.pictures[1]))
        else:
            network.run(Call(self.arrays[0], np.uint8, out=self.arrays[1]))


def rate_of(
    calls: list[InMemory], network: Network, way: str, seconds: float
) -> tuple[float, float]:
    """Pictures a second, and ms of the processor's time for each."""
    end = 0.0
    own = [0.0] * len(calls)

    def work(number: int) -> int:
        done, start = 0, time.thread_time()
        while time.perf_counter() < end:
            calls[number].run(network, way)
            done += 1
        own[number] = time.thread_time() - start
        return done

    with ThreadPoolExecutor(len(calls)) as pool:
        for warm in (True, False):
            start = time.perf_counter()
            end = start + (0.5 if warm else seconds)
            done = sum(pool.map(work, range(len(calls)))) * len(calls[0].pictures[0])
            taken = time.perf_counter() - start
    return done / taken, sum(own) / done * 1e3


def alone(backend: Backend, network: Network, pixels: NDArray[np.uint8], seconds: float) -> float:
    """Stacks a second of the network's kernels, times their pictures, one after the other."""
    opened: Any = backend
    opened_network: Any = network
    pool, runtime = opened._pool, opened.runtime
    with runtime.current(), pool.working(), pool.taken() as taken:
        source = device_pixels(taken, pixels.dtype, pixels.shape)
        runtime.upload(source.buffer, pixels)
        chain = []
        for compiled in opened_network.models:
            dtype = np.dtype(np.uint8 if compiled is opened_network.models[-1] else np.float32)
            target = device_pixels(taken, dtype, compiled.result_shape(source.shape))
            plan = compiled.undivided(source.shape, source.dtype, dtype, pool.free())
            assert plan is not None
            chain.append((compiled, plan, source.buffer, target.buffer))
            source = target
        with opened_network._flags.taken(len(pixels)) as flags:
            done, start = 0, 0.0
            for end in (0.5, seconds):
                done, start = 0, time.perf_counter()
                while time.perf_counter() < start + end:
                    for _ in range(ROUNDS):
                        with pool.queueing() as scratch:
                            for compiled, plan, *ends in chain:
                                compiled.queue(plan, *ends, flags, scratch)
                    runtime.synchronize()
                    done += ROUNDS
                taken_seconds = time.perf_counter() - start
    return done * len(pixels) / taken_seconds


if __name__ == "__main__":
    main()
