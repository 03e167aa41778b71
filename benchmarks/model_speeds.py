"""How fast every installed model set is: what stands in the catalogue, as a Markdown table.

python benchmarks/model_speeds.py [--size 480x270] [--rounds 5] [--precision auto] [--set NAME ...]
                                  [BACKEND]

Each set's network that enlarges least, without removing noise, from 8-bit pixels to 8-bit pixels by
the clock, in rounds that go through all sets; medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from benchmarks.rounds import measure
from waifu2x.backends import Network, open_backend
from waifu2x.backends.call import Call
from waifu2x.networks import model_set


def seconds(network: Network, pixels: NDArray[np.uint8]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    network.run(Call(pixels, np.uint8))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="480x270", help="of the picture that is enlarged")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--set", action="append", help="all that are installed without it")
    parser.add_argument("backend", nargs="?", default="auto")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    pixels = np.asarray(make_picture(width, height))
    backend = open_backend(arguments.backend)
    scales: dict[str, int] = {}
    timers: dict[str, Callable[[], float]] = {}
    for each in model_set.available():
        if arguments.set and each.name not in arguments.set:
            continue
        scales[each.name] = min(scale for scale in each.scales if scale > 1)
        network = backend.compile(each.models(scales[each.name], None), arguments.precision)
        timers[each.name] = partial(seconds, network, pixels)
    print(f"{backend.name}: {backend.device.name}; {arguments.size}, {arguments.precision}\n")
    print("| set | scale | ms | output megapixels a second |")
    print("|---|--:|--:|--:|")
    for name, found in measure(timers, arguments.rounds).items():
        made = width * height * scales[name] ** 2 / 1e6
        print(f"| {name} | {scales[name]}x | {found * 1e3:.1f} | {made / found:.2f} |")
    backend.close()


if __name__ == "__main__":
    main()
