"""Pictures as YUV planes through a network: what their conversion costs beside the network.

    python benchmarks/bench_planes.py [--backend cuda] [-m realesrgan/animevideo@2]
        [--size 1920x1080] [--bits 8] [--subsampling 420] [--precision auto] [--seconds 4]

First the codes are held to their definition, on a small picture. Then come, for a picture of the
size: ms of the conversions and of all else, on a GPU by the device's clock; GB/s of what the
conversions read and write; and pictures a second as planes and as pixels of 8 bits, with as many
calls at once as the backend wants, in page-locked memory.
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
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat
from waifu2x.networks import model_set

ROUNDS = 7
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
    source, target = (
        picture(kind, height, width),
        kind.empty(height * int(scale), width * int(scale)),
    )
    if backend.name == "cpu":
        conversion_on_cpu(network, source, target)
    elif backend.name != "numpy":
        conversion_on_gpu(backend, network, source, target)
    rates(backend, network, source, int(scale), arguments.seconds)


def picture(kind: PlaneFormat, height: int, width: int) -> PlanarPicture:
    """Any codes."""
    made, rng = kind.empty(height, width), np.random.default_rng(height)
    for plane in made.planes:
        plane[:] = rng.integers(0, 1 << kind.bits, plane.shape)
    return made


def check(network: Network, kind: PlaneFormat, scale: int) -> None:
    """Raises AssertionError where codes are not those of the network's pixels."""
    one, made = picture(kind, 36, 48), kind.empty(36 * scale, 48 * scale)
    network.run_planes([one], [made])
    meant = Meaning(kind.bits, kind.subsampling, kind.matrix, kind.is_full_range, kind.siting)
    pixels = to_rgb(one.planes, meant).clip(0, 1).astype(np.float32)
    values = from_rgb(network(pixels, np.float32), meant)
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
            network.run_planes([source], [target])
        for kernel, seconds in times:
            spent[kernel.name if kernel.name in CONVERSIONS else "network"] += seconds
        for name, seconds in spent.items():
            found[name].append(seconds)
    read, write, rest = (statistics.median(found[name]) for name in (*CONVERSIONS, "network"))
    show(read, write, rest, moved_bytes(source), moved_bytes(target))


def conversion_on_cpu(network: Network, source: PlanarPicture, target: PlanarPicture) -> None:
    """On all cores."""
    from waifu2x.backends.cpu.planar import read_planes, write_planes
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
    whole = of(lambda: network(pixels, np.float32, out=made), 1)
    show(read, write, whole, moved_bytes(source), moved_bytes(target))


def moved_bytes(one: PlanarPicture) -> int:
    """What a conversion reads and writes: planes, and floats of RGB."""
    return sum(plane.nbytes for plane in one.planes) + 12 * one.planes[0].size


def show(read: float, write: float, network: float, read_bytes: int, written: int) -> None:
    print(f"planes to RGB   {read * 1e3:9.3f} ms {read_bytes / read / 1e9:7.0f} GB/s")
    print(f"RGB to planes   {write * 1e3:9.3f} ms {written / write / 1e9:7.0f} GB/s")
    print(f"network         {network * 1e3:9.3f} ms, {(read + write) / network:.1%} on top of it")


def pages(size: int) -> NDArray[np.uint8]:
    """Memory on pages of its own."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


class Parts:
    """Arrays one after the other in some memory."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory, self._first = memory, 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The next one."""
        size = math.prod(shape) * dtype.itemsize
        part = self._memory[self._first : self._first + size]
        self._first += size
        return part.view(dtype).reshape(shape)


def rates(
    backend: Backend, network: Network, source: PlanarPicture, scale: int, seconds: float
) -> None:
    """Pictures a second."""
    height, width = source.size
    calls = backend.calls_at_once
    with ExitStack() as held:
        planes: list[tuple[PlanarPicture, PlanarPicture]] = []
        pixels = []
        for _ in range(calls):
            ends = (height, width), (height * scale, width * scale)
            # One segment for all that a call uses: a driver locks no page twice.
            sizes = [math.prod(shape) for size in ends for shape in source.format.shapes(*size)]
            sample = source.format.dtype.itemsize
            memory = pages(sum(sizes) * sample + sum(3 * math.prod(size) for size in ends))
            held.enter_context(backend.pin(memory))
            parts = Parts(memory)
            one, made = (
                PlanarPicture(
                    source.format,
                    *(parts.array(s, source.format.dtype) for s in source.format.shapes(*size)),
                )
                for size in ends
            )
            for plane, of in zip(one.planes, source.planes, strict=True):
                plane[:] = of
            planes.append((one, made))
            arrays = [parts.array((*size, 3), np.dtype(np.uint8)) for size in ends]
            arrays[0][:] = 99
            pixels.append(arrays)

        def rate(call: Callable[[int], object]) -> float:
            end = [0.0]

            def work(number: int) -> int:
                done = 0
                while time.perf_counter() < end[0]:
                    call(number)
                    done += 1
                return done

            with ThreadPoolExecutor(calls) as pool:
                for warm in (True, False):
                    start = time.perf_counter()
                    end[0] = start + (0.5 if warm else seconds)
                    done = sum(pool.map(work, range(calls)))
                    taken = time.perf_counter() - start
            return done / taken

        for turn in range(2):
            as_pixels = rate(lambda n: network(pixels[n][0], np.uint8, out=pixels[n][1]))
            as_planes = rate(lambda n: network.run_planes([planes[n][0]], [planes[n][1]]))
            print(
                f"pictures a second, round {turn + 1}: planes {as_planes:.1f},"
                f" pixels {as_pixels:.1f}, ratio {as_planes / as_pixels:.3f}"
            )


if __name__ == "__main__":
    main()
