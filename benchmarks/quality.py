"""How good each model is: PSNR and SSIM against pictures whose truth is known, as a Markdown table.

python benchmarks/quality.py [--set NAME ...] [--picture FILE] [BACKEND]
                           (needs: pip install -e ".[bench]" && pip install --no-deps arcade==3.3.3)

Truths are halved by the mean of each 2x2 pixels, or twice, and enlarged again, or saved as JPEG and
cleaned, or both; sets that are not installed, or lack what a task takes, are left out; figures are
means over pictures, of 8-bit RGB. --picture writes crops side by side.

Drawings: the example of this project, and scenes of the CC0 sprites by Kenney that arcade comes
with. Photos: those of scikit-image's wheel that are in the public domain or CC0.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from skimage.metrics import structural_similarity

import waifu2x
from benchmarks.sprites import Pixels, package, scene
from waifu2x.errors import ModelError
from waifu2x.networks.catalogue import ENTRIES

Method = Callable[[Pixels], Pixels]

EXAMPLES = Path(__file__).parent.parent / "examples"
JPEG_QUALITY = {0: 90, 1: 75, 2: 50, 3: 30}
"""For each noise level, amid the range that it was trained for."""
PHOTOS = ("astronaut", "chelsea", "coffee")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--set", action="append", help="all sets of the catalogue without it")
    parser.add_argument("--picture", type=Path, help="write crops side by side to this file")
    parser.add_argument("backend", nargs="?", default="cpu")
    arguments = parser.parse_args()
    truths = {"drawings": list(drawings()), "photos": list(photos())}
    print("| task | method | drawings PSNR | SSIM | photos PSNR | SSIM |")
    print("|---|---|--:|--:|--:|--:|")
    for task in tasks():
        for name, method in methods(task, arguments.backend, arguments.set):
            scores = []
            for pictures in truths.values():
                cuts = [task.cut(truth) for truth in pictures]
                found = [score(method(task.degrade(truth)), truth) for truth in cuts]
                decibels, similarities = zip(*found, strict=True)
                means = statistics.mean(decibels), statistics.mean(similarities)
                scores.append("{:.2f} | {:.4f}".format(*means))
            print(f"| {task.name} | {name} | {' | '.join(scores)} |", flush=True)
    if arguments.picture:
        draw(arguments.picture, truths, arguments.backend, arguments.set)


@dataclass(frozen=True)
class Task:
    """A task: what is done to a truth, and asked of the methods."""

    scale: int
    noise: int | None

    @property
    def name(self) -> str:
        parts = [f"{self.scale}x"] if self.scale > 1 else []
        if self.noise is not None:
            parts.append(f"noise {self.noise} (JPEG {JPEG_QUALITY[self.noise]})")
        return ", ".join(parts)

    def cut(self, truth: Pixels) -> Pixels:
        """Returns the part of a truth that can be reduced."""
        height, width = (size - size % self.scale for size in truth.shape[:2])
        return truth[:height, :width]

    def degrade(self, truth: Pixels) -> Pixels:
        """Returns the input of a method."""
        pixels = truth
        for _ in range(self.scale.bit_length() - 1):
            pixels = halved(pixels)
        return pixels if self.noise is None else jpeg(pixels, JPEG_QUALITY[self.noise])


def tasks() -> Iterator[Task]:
    """Enlarging, cleaning, and both."""
    yield Task(2, None)
    yield Task(4, None)
    for scale in (1, 2):
        for noise in JPEG_QUALITY:
            yield Task(scale, noise)


def methods(
    task: Task, backend: str, sets: Sequence[str] | None = None
) -> Iterator[tuple[str, Method]]:
    """Yields the methods: doing nothing, or Lanczos, and every set of models that can."""
    if task.scale > 1:
        yield "Lanczos", partial(lanczos, scale=task.scale)
    else:
        yield "as it is", lambda pixels: pixels
    for name in sets or [entry.name for entry in ENTRIES]:
        try:
            upscaler = waifu2x.Upscaler(task.scale, task.noise, model=name, backend=backend)
        except ModelError as error:
            print(error, file=sys.stderr)
            continue
        with upscaler:
            yield name, upscaler


def drawings() -> Iterator[Pixels]:
    """Flat fills and lines."""
    yield even(np.asarray(Image.open(EXAMPLES / "drawn.png").convert("RGB")))
    for name in ("meadow", "street"):
        yield scene(name, 6, 128, stand=True)


def photos() -> Iterator[Pixels]:
    """Continuous tones."""
    for name in PHOTOS:
        path = package("skimage") / "data" / f"{name}.png"
        yield even(np.asarray(Image.open(path).convert("RGB")))


def even(pixels: Pixels) -> Pixels:
    """A picture that can be halved."""
    height, width = (size - size % 2 for size in pixels.shape[:2])
    return pixels[:height, :width]


def halved(pixels: Pixels) -> Pixels:
    height, width, planes = pixels.shape
    cells = pixels.reshape(height // 2, 2, width // 2, 2, planes)
    means: NDArray[np.float64] = cells.mean(axis=(1, 3))
    return np.round(means).astype(np.uint8)


def jpeg(pixels: Pixels, quality: int) -> Pixels:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream))


def lanczos(pixels: Pixels, scale: int) -> Pixels:
    height, width = pixels.shape[:2]
    size = (scale * width, scale * height)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))


def score(pixels: Pixels, truth: Pixels) -> tuple[float, float]:
    """PSNR in dB and SSIM."""
    error = np.mean((pixels.astype(float) - truth) ** 2)
    similarity = structural_similarity(
        pixels,
        truth,
        channel_axis=-1,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )
    return float(10 * np.log10(255**2 / error)), float(similarity)


SIDE = 96
CROPS = (
    (Task(2, None), "drawings", 0, (76, 72)),
    (Task(2, None), "drawings", 1, (16, 24)),
    (Task(2, 2), "drawings", 2, (20, 20)),
    (Task(2, None), "photos", 1, (128, 68)),
)
"""Task, truths, which of them, and column and row of the crop."""


def draw(
    path: Path, truths: dict[str, list[Pixels]], backend: str, sets: Sequence[str] | None
) -> None:
    """Crops of SIDE pixels, twice as large, a row for each task and a column for each method."""
    rows = []
    for task, kind, number, (left, top) in CROPS:
        truth = truths[kind][number]
        results = {"truth": truth}
        results |= {
            name: method(task.degrade(truth)) for name, method in methods(task, backend, sets)
        }
        cut = np.s_[top : top + SIDE, left : left + SIDE]
        rows.append((task.name, {name: pixels[cut] for name, pixels in results.items()}))
    width, head = 2 * SIDE + 4, 20
    sheet = Image.new("RGB", (width * len(rows[0][1]), (width + head) * len(rows)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for y, (task_name, crops) in enumerate(rows):
        for x, (name, pixels) in enumerate(crops.items()):
            label = f"{name}: {task_name}" if name == "truth" else name
            pen.text((x * width + 4, y * (width + head) + 2), label, "black", font)
            crop = Image.fromarray(pixels).resize((2 * SIDE, 2 * SIDE), Image.Resampling.NEAREST)
            sheet.paste(crop, (x * width + 2, y * (width + head) + head))
    sheet.save(path, optimize=True)


if __name__ == "__main__":
    main()
