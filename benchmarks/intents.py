"""Which model is best for which use: PSNR, SSIM, GMSD and time, as Markdown tables.

python benchmarks/intents.py [--pictures N] [BACKEND]
    (needs: pip install -e ".[bench,video]" && pip install --no-deps arcade==3.3.3)

The twelve drawings and twelve photos of benchmarks/noise_pictures.py are halved, spoilt in several
ways, and enlarged twice by every set that comes with waifu2x, at every noise level that it has.
Figures are means against the picture before it was halved. GMSD is the deviation of the likeness of
gradients (Xue et al., 2014), which follows what people see more closely than PSNR: 0 is equal,
less is better. Shimmer is the PSNR of one frame's result against the next one's, moved back.
Seconds are of the processor, all cores together, for a megapixel of the result.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

import waifu2x
from benchmarks.film_models import FRAMES, STEP, film_of, part
from benchmarks.noise_pictures import Truth, deciding, testing
from benchmarks.quality import halved, jpeg, lanczos, score
from benchmarks.sprites import Pixels
from waifu2x.networks import model_set

SETS = (
    "cunet/art", "upconv_7/art", "upconv_7/photo", "vgg_7/art",
    "anime4k/l", "anime4k/m", "anime4k/s",
)  # fmt: skip
"""The sets of every installation."""
GRAIN = 6.0
"""Standard deviation of a film's grain, in levels of 255."""
SENSOR = 8.0
"""The same of a camera's noise in poor light."""
_FLOOR = 170.0
"""The constant of GMSD that keeps flat areas from counting."""

Example = tuple[list[Pixels], list[Pixels]]
"""Inputs of a method, one or two frames, and their truths."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pictures", type=int, help="of each kind; all without it")
    parser.add_argument("backend", nargs="?", default="cpu")
    arguments = parser.parse_args()
    truths = [*deciding(), *testing()]
    kinds: dict[str, list[Truth]] = {
        kind: [each for each in truths if each.kind == kind][: arguments.pictures]
        for kind in ("drawing", "photo")
    }
    examples = {
        (name, kind): [spoil(truth.pixels) for truth in found]
        for name, spoil in SPOILT.items()
        for kind, found in kinds.items()
    }
    columns = " | ".join(f"{kind}s PSNR | SSIM | GMSD | shimmer" for kind in kinds)
    print(f"| input | method | {columns} |\n|---|---|{'--:|' * 8}", flush=True)
    seconds: dict[str, float] = {}
    for name, upscale in methods(arguments.backend, seconds):
        for spoilt in SPOILT:
            cells = [row(upscale, examples[spoilt, kind]) for kind in kinds]
            print(f"| {spoilt} | {name} | {' | '.join(cells)} |", flush=True)
    print("\n| method | seconds |\n|---|--:|")
    for name, spent in seconds.items():
        print(f"| {name} | {spent:.2f} |")


def methods(
    backend: str, seconds: dict[str, float]
) -> Iterator[tuple[str, Callable[[Pixels], Pixels]]]:
    """Yields Lanczos, then each set at each level, whose seconds a megapixel it writes down."""
    yield "Lanczos", partial(lanczos, scale=2)
    for name in SETS:
        for level in (None, *model_set.find(name).noise_levels):
            words = name if level is None else f"{name} -n {level}"
            with waifu2x.Upscaler(2, level, model=name, backend=backend) as upscaler:
                seconds[words] = spent(upscaler)
                yield words, upscaler


def spent(upscaler: Callable[[Pixels], Pixels]) -> float:
    """Measures the processor's seconds for a megapixel of the result: the least of two."""
    pixels = np.random.default_rng(0).integers(0, 256, (512, 512, 3), np.uint8)
    upscaler(pixels)
    found = []
    for _ in range(2):
        start = time.process_time()
        upscaler(pixels)
        found.append(time.process_time() - start)
    return min(found) / (4 * pixels[..., 0].size / 1e6)


def row(upscale: Callable[[Pixels], Pixels], examples: Sequence[Example]) -> str:
    figures = []
    for inputs, wanted in examples:
        made = [upscale(pixels) for pixels in inputs]
        psnr, ssim = score(made[0], wanted[0])
        moved = score(made[0][:, STEP:], made[1][:, :-STEP])[0] if len(made) > 1 else 0.0
        figures.append((psnr, ssim, gmsd(made[0], wanted[0]), moved))
    psnr, ssim, deviation, moved = map(statistics.mean, zip(*figures, strict=True))
    return f"{psnr:.2f} | {ssim:.4f} | {deviation:.4f} | {f'{moved:.2f}' if moved else ''}"


def gmsd(pixels: Pixels, truth: Pixels) -> float:
    """Gradient magnitude similarity deviation of the luma, at half the size, by its definition."""
    one, other = (_gradients(each) for each in (pixels, truth))
    likeness = (2 * one * other + _FLOOR) / (one**2 + other**2 + _FLOOR)
    return float(likeness.std())


def _gradients(pixels: Pixels) -> NDArray[np.float64]:
    luma = pixels @ np.array([0.299, 0.587, 0.114])
    luma = luma[: len(luma) // 2 * 2, : luma.shape[1] // 2 * 2]
    small = (luma[::2, ::2] + luma[1::2, ::2] + luma[::2, 1::2] + luma[1::2, 1::2]) / 4
    rows = (small[:-2] + small[1:-1] + small[2:]) / 3
    columns = (small[:, :-2] + small[:, 1:-1] + small[:, 2:]) / 3
    found: NDArray[np.float64] = np.hypot(rows[:, 2:] - rows[:, :-2], columns[2:] - columns[:-2])
    return found


def _noisy(pixels: Pixels, deviation: float) -> Pixels:
    """Adds a camera's noise, which is different in each plane of each pixel."""
    noise = np.random.default_rng(0).normal(0, deviation, pixels.shape)
    return np.clip(np.round(pixels + noise), 0, 255).astype(np.uint8)


def _grainy(pixels: Pixels, frame: int) -> Pixels:
    """Adds a film's grain: of the luma, two pixels wide, and new in each frame."""
    height, width = pixels.shape[:2]
    noise = np.random.default_rng(frame).normal(0, 2 * GRAIN, (height + 1, width + 1, 1))
    grain = (noise[1:, 1:] + noise[1:, :-1] + noise[:-1, 1:] + noise[:-1, :-1]) / 4
    return np.clip(np.round(pixels + grain), 0, 255).astype(np.uint8)


def _alone(spoil: Callable[[Pixels], Pixels], truth: Pixels) -> Example:
    height, width = (size - size % 2 for size in truth.shape[:2])
    cut = truth[:height, :width]
    return [spoil(halved(cut))], [cut]


def _film(spoil: Callable[[Pixels, int], Pixels] | None, crf: int, truth: Pixels) -> Example:
    return [*film_of(truth, crf, spoil)], [part(truth, FRAMES - 2), part(truth, FRAMES - 1)]


SPOILT: dict[str, Callable[[Pixels], Example]] = {
    "clean": partial(_alone, lambda pixels: pixels),
    "JPEG 75": partial(_alone, partial(jpeg, quality=75)),
    "JPEG 40": partial(_alone, partial(jpeg, quality=40)),
    "noise, JPEG 90": partial(_alone, lambda pixels: jpeg(_noisy(pixels, SENSOR), 90)),
    "film, crf 20": partial(_film, None, 20),
    "grainy film, crf 28": partial(_film, _grainy, 28),
}
"""Ways in which a picture was spoilt after it was halved."""


if __name__ == "__main__":
    main()
