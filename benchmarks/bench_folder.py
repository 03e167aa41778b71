"""Folders: pictures a second of `waifu2x batch`, against the network alone and codecs alone.

    python -m benchmarks.bench_folder [--pictures 2000] [--size 960x540] [--mixed] [--kinds png,jpg]
        [--device 0,1] [-- OPTIONS]

Pictures are crops of the examples. With one size, some fifty differ, the others are links to them;
--mixed gives every picture another size, from a third of --size to 1.7 times, in no order, and
first runs as many pictures of that one size, for the ratio of their megapixels a second. Arguments
behind -- go to `waifu2x batch` as they are. The network alone: arrays in, arrays out, called
from as many threads. Codecs alone: each picture decoded and a result of its size encoded, in as
many processes as there are cores, without the rest of the program.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.codecs import encode
from waifu2x.api import Upscaler
from waifu2x.formats.read import first_picture
from waifu2x.system.machine import core_count

_EXAMPLES = Path(__file__).parent.parent / "examples"
_DIFFERENT = 50
_LEAST, _MOST = 0.3125, 1.6875
"""Sides of the smallest and of the largest picture of mixed sizes, as parts of --size."""
_SECONDS = 3.0


def make_folder(
    folder: Path,
    count: int,
    size: tuple[int, int],
    *,
    mixed: bool = False,
    kinds: Sequence[str] = ("png",),
) -> None:
    """Writes `count` pictures of a size, or all of different ones; formats take turns."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    large = 2 * size[0], 2 * size[1]
    sources = [
        Image.open(_EXAMPLES / name).convert("RGB").resize(large)
        for name in ("drawn.png", "photo.jpg")
    ]
    different = count if mixed else min(count, _DIFFERENT)
    corners = rng.random((different, 2))
    places = rng.permutation(count)

    def make(number: int) -> None:
        part = _LEAST + (_MOST - _LEAST) * places[number] / count if mixed else 1.0
        width, height = (max(1, round(part * side)) for side in size)
        height += number % 7 if mixed else 0
        left, top = (
            int(corner * (most - side))
            for corner, most, side in zip(corners[number], large, (width, height), strict=True)
        )
        crop = sources[number % 2].crop((left, top, left + width, top + height))
        crop.save(folder / f"{number:06}.{kinds[number % len(kinds)]}")

    with ThreadPoolExecutor(core_count()) as pool:
        list(pool.map(make, range(different)))
    made = sorted(folder.iterdir())
    for number in range(different, count):
        like = made[number % different]
        os.link(like, folder / f"{number:06}{like.suffix}")


def network_rate(upscaler: Upscaler, pixels: np.ndarray, threads: int) -> float:
    """Returns pictures a second, from arrays to arrays, in `threads` threads."""
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


class Ran(NamedTuple):
    """A run of a whole `waifu2x batch`."""

    seconds: float
    """From its start to its end."""
    clock: float
    """Seconds by its own clock, which begins when its devices are there."""
    rate: float
    """Megapixels of results a second, by that clock."""


def run_program(folder: Path, target: Path, options: Sequence[str]) -> Ran:
    """Runs `waifu2x batch`, and prints its last lines. Ends the script where it fails."""
    command = [sys.executable, "-m", "waifu2x", "batch", "-v", str(folder), str(target), *options]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    print(*lines, sep="\n    ")
    found = re.search(r"failed; ([\d.]+) s, ([\d.]+) Mpixel/s", lines[-1])
    assert found is not None, lines
    return Ran(seconds, float(found[1]), float(found[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--kinds", default="png")
    parser.add_argument("--model", default="vgg_7")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="0")
    parser.add_argument("--program-only", action="store_true")
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    kinds = arguments.kinds.split(",")
    devices = [int(number) for number in arguments.device.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        make_folder(folder, arguments.pictures, (width, height), kinds=kinds)
        pixels = np.asarray(Image.open(folder / f"000000.{kinds[0]}"))
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
        ran = run_program(folder, Path(name) / "out", options)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        print(
            f"batch {' '.join(options)}: {ran.seconds:.2f} s,"
            f" {arguments.pictures / ran.seconds:.1f} pictures/s, {ran.rate:.1f} Mpixel/s by its"
            f" own clock, largest process {memory} MiB",
            flush=True,
        )
        if arguments.mixed:
            mixed = Path(name) / "mixed"
            make_folder(mixed, arguments.pictures, (width, height), mixed=True, kinds=kinds)
            # Sizes may take kernels that one size did not: the first run compiles them.
            for turn in ("first", "again"):
                shutil.rmtree(Path(name) / "out")
                found = run_program(mixed, Path(name) / "out", options)
                print(
                    f"all of different sizes, {turn}: {found.rate:.1f} Mpixel/s,"
                    f" {found.rate / ran.rate:.3f} of one size",
                    flush=True,
                )


if __name__ == "__main__":
    main()
