"""Times the whole program: process start, reading, network, writing, as a user waits for it.

python benchmarks/program.py [--runs 7] [--size 960x540] [WAIFU2X OPTIONS]

The picture is drawn by this script. One run first fills the caches and is checked against the
float64 reference on a part of the picture; the runs after it are timed. Prints minimum, median and
maximum of the wall time, the peak memory of the process, and what `--help` takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from waifu2x.api import Upscaler
from waifu2x.backends.cpu.compile.isa import processor_name
from waifu2x.system.machine import core_count

_MODEL = "vgg_7"
"""Others take means over the whole picture, so that a corner tells nothing of the rest."""
EXAMPLES = Path(__file__).parent.parent / "examples"


def make_picture(width: int, height: int) -> Image.Image:
    """The two example pictures, tiled to a size."""
    parts = [Image.open(EXAMPLES / name).convert("RGB") for name in ("drawn.png", "photo.jpg")]
    picture = Image.new("RGB", (width, height))
    step_x, step_y = parts[0].size
    for y in range(0, height, step_y):
        for x in range(0, width, step_x):
            picture.paste(parts[(x // step_x + y // step_y) % 2], (x, y))
    return picture


def check(source: Path, result: Path) -> None:
    """The top left corner of the result against the float64 reference, loosely: any precision."""
    corner = np.asarray(Image.open(source))[:100, :120]
    with Upscaler(scale=2, model=_MODEL, backend="numpy") as reference:
        expected = reference(corner)[:150, :180].astype(int)
    difference = abs(np.asarray(Image.open(result))[:150, :180] - expected)
    if difference.max() > 3 or np.mean(difference) > 0.3:
        sys.exit(f"wrong result: off by up to {difference.max()} levels")


def run_once(command: list[str]) -> tuple[float, float]:
    """Seconds and MiB of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--size", default="960x540")
    arguments, options = parser.parse_known_args()
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.png", Path(folder) / "out.png"
        make_picture(width, height).save(source)
        command = [
            sys.executable,
            "-m",
            "waifu2x",
            "upscale",
            "-m",
            _MODEL,
            "--overwrite",
            *options,
        ]
        command += [*options, str(source), str(target)]
        run_once(command)
        # In a new process: a child's peak memory counts from its parent's size.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(check, source, target).result()
        figures = [run_once(command) for _ in range(arguments.runs)]
    nothing, help_ = (
        statistics.median(run_once([sys.executable, *words])[0] for _ in range(arguments.runs))
        for words in (["-c", "pass"], ["-m", "waifu2x", "--help"])
    )
    seconds = sorted(second for second, _ in figures)
    print(f"{processor_name()}, {core_count()} cores; {arguments.size}, {arguments.runs} runs")
    print(
        f"whole program: {statistics.median(seconds):.2f} s"
        f" ({seconds[0]:.2f} to {seconds[-1]:.2f}), {max(m for _, m in figures):.0f} MiB"
    )
    print(f"--help: {help_ - nothing:.2f} s more than an empty Python")


if __name__ == "__main__":
    main()
