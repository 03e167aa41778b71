"""Measures the size of Winograd's groups: cells whose inputs and products stay in a cache.

python benchmarks/bench_chunks.py [--size 480x270]

A group of cells goes through all 64 frequencies while the weights, 4 MB for 128 > 128, stream by:
small groups stream them too often, large ones push the group's own data out of L2. The engine sizes
groups from the L2 cache that the system reports; the last column marks that size for 128 > 128.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.pack.shapes import CHUNK, ROW_BLOCK
from waifu2x.backends.cpu.run import scratch
from waifu2x.networks import model_set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", default="480x270")
    width, height = map(int, parser.parse_args().size.split("x"))
    pixels = np.asarray(make_picture(width, height))
    (model,) = model_set.find("vgg_7/art").models(2, None)
    backend = open_backend("cpu")
    network = backend.compile([model], "fp32")
    own = scratch.group_size
    chosen = own(128, CHUNK, isa.l2_bytes())
    groups = [ROW_BLOCK * n for n in (1, 2, 3, 4, 5, 6)]
    seconds: dict[int, list[float]] = {group: [] for group in groups}
    expected = network.run(Call(pixels, np.uint8))
    for _ in range(4):
        for group in groups:
            scratch.group_size = lambda *_, group=group: group
            start = time.perf_counter()
            result = network.run(Call(pixels, np.uint8))
            seconds[group].append(time.perf_counter() - start)
            assert np.array_equal(result, expected), "the group size must not change a bit"
    scratch.group_size = own
    print(f"{isa.processor_name()}, {isa.l2_bytes() // 1024} KiB L2, {width}x{height}")
    print("cells  inputs and products of 128 > 128     ms")
    for group in groups:
        size = 4 * sum(scratch.winograd_floats(128, group)) // 1024
        mark = "  the engine's choice" if group == chosen else ""
        print(f"{group:5}  {size:5} KiB {min(seconds[group]) * 1e3:33.0f}{mark}")


if __name__ == "__main__":
    main()
