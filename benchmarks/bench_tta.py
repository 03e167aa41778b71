"""A mean over turned pictures (`--tta`) below the seam, against as many calls averaged above it.

python benchmarks/bench_tta.py [--backend auto] [--size 960x540] [--rounds 5] [MODEL...]

Both are compared with each other to the bit before they are timed, by the clock, from 8-bit pixels
to 8-bit pixels, in rounds; medians and ratios to one plain call are shown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from benchmarks.rounds import measure
from waifu2x.backends import Network, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.tta import TRANSFORMS, inverse, transformed
from waifu2x.imaging.dtypes import from_unit
from waifu2x.networks import model_set

COUNT = 8


def above(network: Network, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The mean of as many calls, each with its own transfers."""
    total: Any = 0
    for transform in TRANSFORMS[COUNT]:
        laid = np.ascontiguousarray(transformed(pixels[np.newaxis], transform))
        total = total + inverse(network.run(Call(laid, np.float32)), transform)[0]
    return from_unit(total * np.float32(1 / COUNT), np.uint8)


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one run of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("models", nargs="*", default=["vgg_7", "upconv_7", "cunet"])
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    pixels = np.asarray(make_picture(width, height))
    backend = open_backend(arguments.backend)
    print(f"{backend.name}: {backend.device.name}; {arguments.size} -> twice as large, ms")
    print(f"{'model':10} {'plain':>9} {'turned':>9} {'of plain':>9} {'above':>9} {'of plain':>9}")
    for name in arguments.models:
        network = backend.compile(model_set.find(name).models(2, None), "auto")
        call = Call(pixels, np.uint8)
        if not np.array_equal(network.run(replace(call, tta=COUNT)), above(network, pixels)):
            sys.exit(f"{name}: the mean below the seam is not the mean above it")
        timers: dict[str, Callable[[], float]] = {
            "plain": partial(seconds, partial(network.run, call)),
            "below": partial(seconds, partial(network.run, replace(call, tta=COUNT))),
            "above": partial(seconds, partial(above, network, pixels)),
        }
        found = measure(timers, arguments.rounds)
        plain, below, outside = (found[label] * 1e3 for label in timers)
        print(
            f"{name:10} {plain:9.2f} {below:9.2f} {below / plain:9.2f}"
            f" {outside:9.2f} {outside / plain:9.2f}",
            flush=True,
        )
    backend.close()


if __name__ == "__main__":
    main()
