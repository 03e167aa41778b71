"""Measures the start of the program for one picture, beside a process that only imports NumPy.

    python benchmarks/bench_start.py [CHECKOUT ...] [--rounds 15] [--size 240x160] [--cold 1]
        [--batch] [UPSCALE OPTIONS, such as --backend cpu]

Processes take turns, in another order each round: an empty one, `import numpy`, with `--backend
cuda` one that makes a context of the driver and nothing else, and of each checkout (this one if
none is given) `--help` and `upscale -m vgg_7` of a PNG to a PNG. With `--batch`, `batch` of a
folder with that one picture, too. Each checkout has new caches, which the first runs fill; `--cold`
is how many runs of each begin with empty ones.

Bytecode is kept beside the sources, as where pip has installed them: without it, two thirds of the
time of imports is compiling.

Prints medians of wall and processor time, the median of what wall time is above the NumPy of the
same round, and the median ratio to the first checkout; and by how much results differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent.parent
CONTEXT = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
"""
_EMPTY, _NUMPY = ["-c", "pass"], ["-c", "import numpy"]


class Taken(NamedTuple):
    """Seconds of a process."""

    wall: float
    processor: float


class Contender(NamedTuple):
    """A process that takes its turns."""

    name: str
    arguments: list[str]
    environment: dict[str, str]
    folder: Path = HERE
    """Where it runs: `python -m` looks there first."""


def run(contender: Contender) -> Taken:
    """One process, from its start to its end."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *contender.arguments],
        env=contender.environment,
        cwd=contender.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {contender.name}: {' '.join(contender.arguments)}")
    return Taken(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)


def picture(width: int, height: int) -> Image.Image:
    """The example drawing, tiled to a size."""
    drawn = Image.open(HERE / "examples" / "drawn.png").convert("RGB")
    made = Image.new("RGB", (width, height))
    for y in range(0, height, drawn.height):
        for x in range(0, width, drawn.width):
            made.paste(drawn, (x, y))
    return made


def plain_environment() -> dict[str, str]:
    """Returns the environment of all processes."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def environment(checkout: Path, cache: Path) -> dict[str, str]:
    """Returns the environment of a checkout's processes."""
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH", "")]))
    return plain_environment() | {"PYTHONPATH": path, "WAIFU2X_CACHE_DIR": str(cache)}


def stages(contender: Contender) -> str:
    """Returns the stages of a warm run, in milliseconds."""
    found = subprocess.run(
        [sys.executable, *contender.arguments, "--json"],
        env=contender.environment,
        cwd=contender.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    outcome = json.loads(found.stdout)
    parts = [f"{name} {1e3 * seconds:.0f}" for name, seconds in outcome["stages"].items()]
    return f"{', '.join(parts)}; on its clock {1e3 * outcome['seconds']:.0f}"


def measure(contenders: list[Contender], rounds: int) -> dict[str, list[Taken]]:
    """Returns the time of each in each round."""
    figures: dict[str, list[Taken]] = {one.name: [] for one in contenders}
    for turn in range(rounds):
        shift = turn % len(contenders)
        for one in contenders[shift:] + contenders[:shift]:
            figures[one.name].append(run(one))
    return figures


def show(figures: dict[str, list[Taken]], first: str, second: str) -> None:
    """A line for each contender; those of the second checkout on get ratios to the first."""
    numpy = [taken.wall for taken in figures["import numpy"]]
    for name, taken in figures.items():
        wall, processor = (statistics.median(column) * 1e3 for column in zip(*taken, strict=True))
        above = statistics.median(one.wall - base for one, base in zip(taken, numpy, strict=True))
        line = f"{name:24} {wall:7.1f} ms wall, {processor:7.1f} processor"
        line += f", {above * 1e3:+7.1f} to NumPy"
        before = figures.get(name.replace(second, first, 1)) if name.startswith(second) else None
        if before is not None and first != second:
            ratios = [
                statistics.median(b[side] / a[side] for a, b in zip(before, taken, strict=True))
                for side in (0, 1)
            ]
            line += f"; {ratios[0]:.3f} of {first} on the clock, {ratios[1]:.3f} of processor time"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkouts", type=Path, nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", default="240x160")
    parser.add_argument("--cold", type=int, default=0)
    parser.add_argument("--batch", action="store_true")
    arguments, options = parser.parse_known_args()
    checkouts = [folder.resolve() for folder in arguments.checkouts or [HERE]]
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        source = folder / "in" / "in.png"
        picture(width, height).save(source)
        contenders = [
            Contender("empty", _EMPTY, plain_environment()),
            Contender("import numpy", _NUMPY, plain_environment()),
        ]
        if "cuda" in options:
            contenders.append(Contender("context", ["-c", CONTEXT], plain_environment()))
        upscales: list[Contender] = []
        for number, checkout in enumerate(checkouts):
            used = environment(checkout, folder / f"cache{number}")
            program, request = ["-m", "waifu2x"], ["-m", "vgg_7", "--overwrite", *options]
            target = folder / f"{number}.png"
            upscale = [*program, "upscale", *request, str(source), str(target)]
            upscales.append(Contender(f"{number} upscale", upscale, used, checkout))
            contenders += [
                Contender(f"{number} --help", [*program, "--help"], used, checkout),
                upscales[-1],
            ]
            if arguments.batch:
                words = [*program, "batch", *request, str(folder / "in"), str(folder / "out")]
                contenders.append(Contender(f"{number} batch", words, used, checkout))
            print(f"checkout {number}: {checkout}")
        cold: dict[str, list[float]] = {one.name: [] for one in upscales}
        for _ in range(arguments.cold):
            for one in upscales:
                shutil.rmtree(one.environment["WAIFU2X_CACHE_DIR"], ignore_errors=True)
                cold[one.name].append(run(one).wall)
        for title, seconds in cold.items():
            if seconds:
                print(f"{title}, cold: {statistics.median(seconds):.2f} s")
        measure(contenders, 2)
        show(measure(contenders, arguments.rounds), "0", "1")
        for one in upscales:
            print(f"{one.name}: stages in ms: {stages(one)}")
        results = [
            np.asarray(Image.open(folder / f"{number}.png")).astype(int)
            for number in range(len(checkouts))
        ]
        for number, result in enumerate(results[1:], 1):
            off = abs(result - results[0]).max()
            print(f"{number}: results are at most {off} levels from those of 0")


if __name__ == "__main__":
    main()
