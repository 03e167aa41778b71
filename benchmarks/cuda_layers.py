"""Milliseconds of each layer of networks on CUDA, kernels alone, without a peer.

python benchmarks/cuda_layers.py [-p fp16] [--size 1920x1080] MODEL@SCALE ...

Layers of one name are one row: how many, milliseconds of one and of all, and their rate. What a
layer takes along (a gate, a factor for each plane) is in its time. Needs a GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from waifu2x.backends import open_backend
from waifu2x.networks import model_set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL@SCALE")
    parser.add_argument("-p", "--precision", default="fp16")
    parser.add_argument("--size", default="1920x1080")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    pixels = np.asarray(make_picture(width, height))
    backend = open_backend("cuda")
    for spec in arguments.models:
        name, _, scale = spec.partition("@")
        (model,) = model_set.find(name).models(int(scale or 2), None)
        found = backend.measure(model, arguments.precision, pixels)
        print(f"{spec} {arguments.precision}, {arguments.size}: {found.seconds * 1e3:.3f} ms")
        rows: dict[str, list[float]] = {}
        for layer in found.layers:
            row = rows.setdefault(layer.name, [0, 0.0, 0.0])
            row[0] += 1
            row[1] += layer.seconds
            row[2] += 2 * layer.multiply_adds
        for row_name, (count, seconds, flops) in rows.items():
            each, rate = seconds / count * 1e3, flops / max(seconds, 1e-9) / 1e12
            times = f"{each:8.3f} {seconds * 1e3:8.3f}"
            print(f"{count:4.0f} x {row_name:14} {times} {rate:6.0f} TFLOP/s")


if __name__ == "__main__":
    main()
