"""Two checkouts' whole programs against each other: one 8-bit RGB PNG, and `--help`.

    git worktree add ../before COMMIT
    python benchmarks/program_commits.py ../before . [--rounds 9] [--size 960x540] [OPTIONS]

Processes of the two take turns. Prints medians of wall and processor time of each and the median of
the ratios of neighbours. Their results must be the same to the bit, or it ends with 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.program import make_picture


def timed(checkout: Path, words: list[str]) -> tuple[float, float]:
    """Seconds of wall and processor time of one run."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "waifu2x", *words]
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)} in {checkout}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def compare(checkouts: list[Path], words: list[list[str]], rounds: int, title: str) -> None:
    """Prints what both take for their command."""
    for checkout, command in zip(checkouts, words, strict=True):
        timed(checkout, command)
    figures: list[list[tuple[float, float]]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            figures[side].append(timed(checkouts[side], words[side]))
    for kind, name in enumerate(("wall", "processor")):
        before, after = ([figure[kind] for figure in side] for side in figures)
        ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
        medians = statistics.median(before), statistics.median(after)
        print(
            f"{title}, {name}: {medians[0] * 1e3:.0f} ms before, {medians[1] * 1e3:.0f} after,"
            f" {(medians[1] - medians[0]) * 1e3:+.1f} ms, ratio {ratio:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Two checkouts' whole programs.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--size", default="960x540")
    arguments, options = parser.parse_known_args()
    checkouts = [arguments.before.resolve(), arguments.after.resolve()]
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.png"
        make_picture(width, height).save(source)
        targets = [Path(folder) / f"{side}.png" for side in ("before", "after")]
        words = [
            ["upscale", "--overwrite", *options, str(source), str(target)] for target in targets
        ]
        compare(checkouts, words, arguments.rounds, f"{arguments.size} PNG")
        results = [np.asarray(Image.open(target)) for target in targets]
        if not np.array_equal(results[0], results[1]):
            sys.exit("the results differ")
        sizes = [target.stat().st_size / 1e6 for target in targets]
        print(f"the same pixels; {sizes[0]:.2f} MB before, {sizes[1]:.2f} after")
    compare(checkouts, [["--help"]] * 2, 3 * arguments.rounds, "--help")


if __name__ == "__main__":
    main()
