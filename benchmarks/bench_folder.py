"""Folders: pictures a second of `waifu2x batch`, against the network alone and codecs alone.

    python -m benchmarks.bench_folder [--pictures 2000] [--size 960x540] [--device 0,1] [-- OPTIONS]

Pictures are crops of the examples, as PNG; some fifty are different, the others links to them. What
stands behind -- goes to `waifu2x batch` as it is. The network alone: arrays in, arrays out, called
from so many threads. Codecs alone: each picture decoded and a result of its size encoded, in as
many processes as there are cores, without the rest of the program.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.codecs import encode
from waifu2x.api import Upscaler
from waifu2x.formats.read import first_picture
from waifu2x.system.machine import core_count

_EXAMPLES = Path(__file__).parent.parent / "examples"
_DIFFERENT = 50
_SECONDS = 3.0


def make_folder(folder: Path, count: int, size: tuple[int, int]) -> None:
    """So many pictures of a size."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    sources = [
        Image.open(_EXAMPLES / name).convert("RGB").resize((2 * size[0], 2 * size[1]))
        for name in ("drawn.png", "photo.jpg")
    ]
    for number in range(min(count, _DIFFERENT)):
        left, top = (int(rng.integers(0, side + 1)) for side in size)
        crop = sources[number % 2].crop((left, top, left + size[0], top + size[1]))
        crop.save(folder / f"{number:06}.png")
    for number in range(_DIFFERENT, count):
        os.link(folder / f"{number % _DIFFERENT:06}.png", folder / f"{number:06}.png")


def network_rate(upscaler: Upscaler, pixels: np.ndarray, threads: int) -> float:
    """Pictures a second, from arrays to arrays, in so many threads."""
    upscaler(pixels)
    end = time.perf_counter() + _SECONDS

    def work() -> int:
        done = 0
        while time.perf_counter() < end:
            upscaler(pixels)
            done += 1
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(future.result() for future in [pool.submit(work) for _ in range(threads)])
    return done / (time.perf_counter() - start)


def _code(arguments: tuple[Path, int]) -> None:
    path, scale = arguments
    picture = first_picture(path)
    pixels = picture.pixels.repeat(scale, 0).repeat(scale, 1)
    encode(replace(picture, pixels=pixels), "png", io.BytesIO(), threads=1)


def codec_rate(folder: Path, count: int, scale: int) -> float:
    """Pictures a second, decoded and encoded, on all cores."""
    paths = sorted(folder.iterdir())
    work = [(paths[number % len(paths)], scale) for number in range(count)]
    with multiprocessing.get_context("spawn").Pool(core_count()) as pool:
        pool.map(_code, work[: 4 * core_count()], chunksize=1)
        start = time.perf_counter()
        pool.map(_code, work, chunksize=4)
        return count / (time.perf_counter() - start)


def program_seconds(folder: Path, target: Path, options: list[str]) -> float:
    """Seconds of a whole `waifu2x batch`."""
    command = [sys.executable, "-m", "waifu2x", "batch", str(folder), str(target), *options]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    print("   ", *lines, sep="\n    ")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--model", default="vgg_7")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="0")
    parser.add_argument("--program-only", action="store_true")
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    devices = [int(number) for number in arguments.device.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        make_folder(folder, arguments.pictures, (width, height))
        pixels = np.asarray(Image.open(folder / "000000.png"))
        if not arguments.program_only:
            with Upscaler(
                2, model=arguments.model, backend=arguments.backend, device=devices
            ) as upscaler:
                name = upscaler.engine.backend.device.name
                print(f"{name}, {core_count()} cores, {arguments.model}")
                for threads in (1, 2, 3, 4, 8):
                    rate = network_rate(upscaler, pixels, threads * len(devices))
                    print(f"network alone, {threads} threads a device: {rate:.1f} pictures/s")
            rate = codec_rate(folder, min(arguments.pictures, 60 * core_count()), 2)
            print(f"codecs alone, {core_count()} processes: {rate:.1f} pictures/s", flush=True)
        options = ["-m", arguments.model, "--backend", arguments.backend, "-g", arguments.device]
        options += arguments.options
        seconds = program_seconds(folder, Path(name) / "out", options)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        rate = arguments.pictures / seconds
        print(
            f"batch {' '.join(arguments.options)}: {seconds:.2f} s, {rate:.1f} pictures/s,"
            f" largest process {memory} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
