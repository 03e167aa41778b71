"""Several checkouts of this project on the processor: how long does a picture take, in turn?

    git worktree add ../before COMMIT
    python benchmarks/cpu_commits.py ../older ../before . [--cores 1 2] [--rounds 9]
        [vgg_7/art:960x540 cunet/art:480x270:fp32 ...]

Each checkout runs in a process that stays, and they take turns picture by picture, so that drift of
the machine's speed meets them alike. Prints the least and the median of each by the clock, and the
median of the ratios of the last checkout's times to those beside them. The results are not
compared: `compare_commits.py` does that. A set that a checkout lacks is left out there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "drawn.png"


class Checkout:
    """A process that runs one checkout on some cores."""

    def __init__(self, folder: Path, cores: int) -> None:
        environment = os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(cores)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def time(self, work: str) -> float | None:
        """Seconds of a picture; None where the checkout cannot."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("a checkout has ended; its messages stand above")
        seconds: float | None = json.loads(line)
        return seconds

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def serve(cores: int) -> None:
    """Answers names of work with seconds."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    import numpy as np
    from PIL import Image

    from waifu2x import Upscaler, Waifu2xError

    picture = np.asarray(Image.open(_EXAMPLE).convert("RGB"))
    opened: dict[str, tuple[Any, Any]] = {}
    for line in sys.stdin:
        work = line.strip()
        name, size, precision, scale = (*work.split(":"), "auto", "2")[:4]
        try:
            if work not in opened:
                width, height = map(int, size.split("x"))
                pixels = np.ascontiguousarray(np.resize(picture, (height, width, 3)))
                upscaler = Upscaler(int(scale), model=name, backend="cpu", precision=precision)
                upscaler(pixels)
                opened[work] = upscaler, pixels
            upscaler, pixels = opened[work]
            start = time.perf_counter()
            upscaler(pixels)
            print(json.dumps(time.perf_counter() - start), flush=True)
        except Waifu2xError:
            print("null", flush=True)


def compare(folders: list[Path], works: list[str], cores: int, rounds: int) -> None:
    """Prints the time of each checkout for each work on `cores` cores."""
    checkouts = [Checkout(folder, cores) for folder in folders]
    for work in works:
        times: list[list[float | None]] = [
            [checkout.time(work) for checkout in checkouts] for _ in range(rounds + 1)
        ][1:]
        columns = []
        for number, folder in enumerate(folders):
            own = [turn[number] for turn in times]
            found = [seconds for seconds in own if seconds is not None]
            if not found:
                columns.append(f"{folder.name} -")
                continue
            text = f"{folder.name} {min(found) * 1e3:.1f} {statistics.median(found) * 1e3:.1f} ms"
            pairs = [(turn[number], turn[-1]) for turn in times]
            ratios = [after / before for before, after in pairs if before and after]
            if ratios and number < len(folders) - 1:
                text += f" ({statistics.median(ratios):.3f})"
            columns.append(text)
        print(f"{work}, {cores} cores: " + "; ".join(columns), flush=True)
    for checkout in checkouts:
        checkout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", help="checkouts, then SET:SIZE[:PRECISION[:SCALE]]")
    parser.add_argument("--cores", type=int, nargs="*", default=[os.cpu_count() or 1])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    folders = [Path(each).resolve() for each in arguments.what if Path(each).is_dir()]
    works = [each for each in arguments.what if not Path(each).is_dir()]
    for cores in arguments.cores:
        compare(folders, works or ["vgg_7/art:960x540"], cores, arguments.rounds)


if __name__ == "__main__":
    main()
