"""Measures fewer or smaller passes of a fractional scale: PSNR by three ways to one size.

python -m benchmarks.fewer_passes [--set NAME ...] [--scale SCALE ...] [--backend NAME]
                                                            (needs: pip install -e ".[bench]")

A truth is reduced by Lanczos by the scale and enlarged again in three ways. behind: networks
enlarge until the picture is large enough, and Lanczos reduces the result. between: Lanczos reduces
the input of the last pass, so that its result has the size. enlarged: one pass less, by the most
that enlarges less than the scale, and Lanczos enlarges its result. Figures are means of PSNR in dB
over the pictures of benchmarks/noise_pictures.py and unseen_pictures.py, without JPEG.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

import waifu2x
from benchmarks import noise_pictures, unseen_pictures
from waifu2x.backends.engine.engine import Engine
from waifu2x.imaging import resample
from waifu2x.imaging.sizes import Part
from waifu2x.networks import model_set

SCALES = ("2.1", "2.4", "3", "3.6", "4.5", "5", "5.5", "6", "6.5", "7", "7.5")
SETS = ("cunet/art", "upconv_7/art", "upconv_7/photo", "vgg_7/art")
Planes = NDArray[np.float32]


def resized(pixels: Planes, height: int, width: int) -> Planes:
    whole = Part.of(*pixels.shape[:2])
    return resample.lanczos(pixels, whole, 1, height, width, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--set", action="append")
    parser.add_argument("--scale", action="append", type=Fraction)
    parser.add_argument("--backend", default="cpu")
    arguments = parser.parse_args()
    truths = noise_pictures.deciding() + noise_pictures.testing() + unseen_pictures.unseen()
    print("| set | scale | factors | less | pictures | behind | between | enlarged | least |")
    print("|---|---|---|---|---|--:|--:|--:|--:|")
    with Engine(arguments.backend) as engine:
        for name in arguments.set or SETS:
            ways = Ways(name, engine)
            for scale in arguments.scale or map(Fraction, SCALES):
                for kind in ("drawing", "photo"):
                    found = [
                        ways.scores(truth.pixels, scale) for truth in truths if truth.kind == kind
                    ]
                    behind, between, enlarged = map(statistics.mean, zip(*found, strict=True))
                    least = min(enlarged - behind for behind, _, enlarged in found)
                    factors, less = (
                        "x".join(map(str, each)) or "1"
                        for each in (ways.factors(scale), ways.less(scale))
                    )
                    print(
                        f"| `{name}` | {float(scale):g} | {factors} | {less} | {kind}s"
                        f" | {behind:.3f} | {between - behind:+.3f} | {enlarged - behind:+.3f}"
                        f" | {least:+.2f} |",
                        flush=True,
                    )


class Ways:
    """A model set, and the three ways to a size."""

    def __init__(self, name: str, engine: Engine) -> None:
        self._models = model_set.find(name)
        self._passes = {
            factor: waifu2x.Upscaler(factor, noise=None, model=name, engine=engine)
            for factor in self._models.scales
            if factor > 1
        }

    def factors(self, scale: Fraction) -> tuple[int, ...]:
        """The passes of a scale."""
        return tuple(sorted(self._models.factors(scale)))

    def less(self, scale: Fraction) -> tuple[int, ...]:
        """Returns the factors with the largest product below the scale, in one pass less."""
        return max(
            itertools.combinations_with_replacement(self._passes, len(self.factors(scale)) - 1),
            key=lambda factors: (math.prod(factors) < scale) * math.prod(factors),
        )

    def scores(self, pixels: NDArray[np.uint8], scale: Fraction) -> tuple[float, float, float]:
        """PSNR by behind, between and enlarged."""
        small = [int(size / scale) for size in pixels.shape[:2]]
        rows, columns = (round(size * scale) for size in small)
        truth = pixels[:rows, :columns]
        given = resized((truth / np.float32(255)).astype(np.float32), *small)
        given = (np.round(given * 255) / 255).astype(np.float32)
        *first, last = self.factors(scale)
        before = self._run(given, first)
        half = resized(before, -(-rows // last), -(-columns // last))
        made = (
            self._run(before, [last]),
            self._run(half, [last]),
            self._run(given, self.less(scale)),
        )
        behind, between, enlarged = (_psnr(resized(each, rows, columns), truth) for each in made)
        return behind, between, enlarged

    def _run(self, pixels: Planes, factors: Sequence[int]) -> Planes:
        for factor in factors:
            pixels = self._passes[factor](pixels)
        return pixels


def _psnr(made: Planes, truth: NDArray[np.uint8]) -> float:
    error = float(np.mean((np.round(made * 255.0) - truth) ** 2))
    return 10 * math.log10(255**2 / error)


if __name__ == "__main__":
    main()
