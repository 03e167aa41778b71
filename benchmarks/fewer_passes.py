"""What it costs to reduce a picture before its last pass instead of behind it: PSNR and pixels.

python -m benchmarks.fewer_passes [--set NAME ...] [--backend NAME]
                                                            (needs: pip install -e ".[bench]")

A truth is reduced by Lanczos so many times and enlarged again in three ways. behind: networks
double until the picture is large enough, and Lanczos reduces the result. between: Lanczos reduces
the input of the last pass, so that its result has the size. enlarged: one pass less, and Lanczos
enlarges its result. Figures are means of PSNR in dB over the pictures of
benchmarks/noise_pictures.py, without JPEG.
"""

from __future__ import annotations

import argparse
import math
import statistics
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

import waifu2x
from benchmarks import noise_pictures
from waifu2x.backends.engine import Engine
from waifu2x.imaging import resample
from waifu2x.imaging.sizes import Part

SCALES = tuple(map(Fraction, ("2.1", "2.4", "3", "3.6", "5", "6")))
SETS = ("cunet/art", "upconv_7/art", "upconv_7/photo", "vgg_7/art")
Planes = NDArray[np.float32]


def resized(pixels: Planes, height: int, width: int) -> Planes:
    whole = Part.of(*pixels.shape[:2])
    return resample.lanczos(pixels, whole, 1, height, width, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--set", action="append")
    parser.add_argument("--backend", default="cpu")
    arguments = parser.parse_args()
    truths = noise_pictures.deciding() + noise_pictures.testing()
    print("| set | scale | pictures | behind | between | enlarged | least of between |")
    print("|---|---|---|--:|--:|--:|--:|")
    with Engine(arguments.backend) as engine:
        for name in arguments.set or SETS:
            with waifu2x.Upscaler(2, model=name, engine=engine) as double:
                for scale in SCALES:
                    for kind in ("drawing", "photo"):
                        found = [
                            _scores(double, truth.pixels, scale)
                            for truth in truths
                            if truth.kind == kind
                        ]
                        means = [statistics.mean(each) for each in zip(*found, strict=True)]
                        least = min(between - behind for behind, between, _ in found)
                        cells = " | ".join(f"{mean:.2f}" for mean in means)
                        print(
                            f"| `{name}` | {float(scale):g} | {kind}s | {cells} | {least:+.2f} |",
                            flush=True,
                        )


def _scores(
    double: waifu2x.Upscaler, pixels: NDArray[np.uint8], scale: Fraction
) -> tuple[float, float, float]:
    small = [int(size / scale) for size in pixels.shape[:2]]
    rows, columns = (round(size * scale) for size in small)
    truth = pixels[:rows, :columns]
    given = resized((truth / np.float32(255)).astype(np.float32), *small)
    given = (np.round(given * 255) / 255).astype(np.float32)
    passes = math.ceil(math.log2(scale))
    before = given
    for _ in range(passes - 1):
        before = double(before)
    behind = resized(double(before), rows, columns)
    half = resized(before, -(-rows // 2), -(-columns // 2))
    between = double(half)
    if between.shape[:2] != (rows, columns):
        between = resized(between, rows, columns)
    return (
        _psnr(behind, truth),
        _psnr(between, truth),
        _psnr(resized(before, rows, columns), truth),
    )


def _psnr(made: Planes, truth: NDArray[np.uint8]) -> float:
    error = float(np.mean((np.round(made * 255.0) - truth) ** 2))
    return 10 * math.log10(255**2 / error)


if __name__ == "__main__":
    main()
