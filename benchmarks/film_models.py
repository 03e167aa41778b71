"""Which model is best for films: PSNR, SSIM and shimmer after x264, as a Markdown table.

python benchmarks/film_models.py [--picture FILE] [BACKEND]
    (needs: pip install -e ".[bench,video]" && pip install --no-deps arcade==3.3.3)

The pictures of benchmarks/quality.py, halved, move by one pixel a frame in a film of twelve frames
that x264 codes at a quality of discs (crf 16) or of streams (crf 24). The eleventh and the twelfth
frame are enlarged. PSNR and SSIM of the eleventh are against the picture before it was halved.
Shimmer is the PSNR of one result against the other, moved back: what flickers has less.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import waifu2x
from benchmarks.quality import Method, drawings, halved, lanczos, photos, score
from benchmarks.sprites import Pixels
from waifu2x.backends.reference import planar
from waifu2x.errors import ModelError
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat

FORMAT = PlaneFormat(8, "420", "bt709")
FRAMES = 12
STEP = 2
"""Pixels of the large picture that it moves by in a frame."""
CRFS = (16, 24)
METHODS = (
    ("cunet/art", None), ("cunet/art", 0), ("cunet/art", 1), ("upconv_7/art", None),
    ("upconv_7/art", 0), ("upconv_7/art", 1), ("upconv_7/photo", 1), ("vgg_7/art", None),
    ("vgg_7/art", 1), ("cugan/se", None), ("cugan/se", 1), ("cugan/se-conservative", None),
    ("cugan/pro", None), ("realesrgan/animevideo", None), ("span/photo", None),
)  # fmt: skip
"""Sets and noise levels."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="write crops side by side to this file")
    parser.add_argument("backend", nargs="?", default="cpu")
    arguments = parser.parse_args()
    kinds = {"drawings": list(drawings()), "photos": list(photos())}
    coded = {
        (kind, crf): [(truth, film_of(truth, crf)) for truth in truths]
        for kind, truths in kinds.items()
        for crf in CRFS
    }
    crops: dict[str, list[Pixels]] = {"truth": []}
    print("| film | method | PSNR | SSIM | shimmer |\n|---|---|--:|--:|--:|")
    for name, method in methods(arguments.backend):
        crops[name] = []
        for (kind, crf), films in coded.items():
            figures = []
            for truth, (before, last) in films:
                earlier, later = method(before), method(last)
                wanted = part(truth, FRAMES - 2)
                shimmer, _ = score(earlier[:, STEP:], later[:, :-STEP])
                figures.append((*score(earlier, wanted), shimmer))
                if name == "Lanczos":
                    crops["truth"].append(wanted)
                crops[name].append(earlier)
            psnr, ssim, shimmer = map(statistics.mean, zip(*figures, strict=True))
            print(
                f"| {kind}, crf {crf} | {name} | {psnr:.2f} | {ssim:.4f} | {shimmer:.2f} |",
                flush=True,
            )
    if arguments.picture:
        draw(arguments.picture, crops)


def part(truth: Pixels, index: int) -> Pixels:
    """Returns a frame's part of a picture, before it is halved."""
    height, width = (size - size % 4 for size in truth.shape[:2])
    width -= FRAMES * STEP
    return truth[:height, index * STEP : index * STEP + width - width % 4]


def film_of(
    truth: Pixels, crf: int, spoil: Callable[[Pixels, int], Pixels] | None = None
) -> tuple[Pixels, Pixels]:
    """The last two frames of a film as a decoder gives them; `spoil` changes each before it is
    coded, by its number."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        first = halved(part(truth, 0))
        stream = out.add_stream("libx264", rate=24, options={"crf": str(crf)})
        stream.width, stream.height, stream.pix_fmt = first.shape[1], first.shape[0], "yuv420p"
        for index in range(FRAMES):
            small = halved(part(truth, index))
            out.mux(stream.encode(frame_of(small if spoil is None else spoil(small, index))))
        out.mux(stream.encode())
    file.seek(0)
    with av.open(file) as container:
        *_, before, last = container.decode(video=0)
    return pixels_of(before), pixels_of(last)


def frame_of(pixels: Pixels) -> av.VideoFrame:
    height, width = pixels.shape[:2]
    made = FORMAT.empty(height, width)
    planar.from_rgb(pixels.astype(np.float32) / np.float32(255), made)
    frame = av.VideoFrame(width, height, "yuv420p")
    for plane, samples in zip(frame.planes, made.planes, strict=True):
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, -1)
        rows[:, : samples.shape[1]] = samples
    return frame


def pixels_of(frame: av.VideoFrame) -> Pixels:
    planes: list[NDArray[np.uint8]] = [
        np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width]
        for plane in frame.planes
    ]
    rgb = planar.to_rgb(PlanarPicture(FORMAT, *planes))
    return np.round(rgb * 255).astype(np.uint8)


def methods(backend: str) -> Iterator[tuple[str, Method]]:
    """Lanczos, and every set that is installed."""
    yield "Lanczos", partial(lanczos, scale=2)
    for model, noise in METHODS:
        try:
            upscaler = waifu2x.Upscaler(2, noise, model=model, backend=backend)
        except ModelError as error:
            print(error, file=sys.stderr)
            continue
        with upscaler:
            yield model if noise is None else f"{model} -n {noise}", upscaler


SIDE = 96
PLACES = ((0, (76, 72)), (4, (16, 24)), (5, (20, 20)), (9, (128, 68)), (10, (200, 100)))
"""Which film, and column and row of a crop."""


def draw(path: Path, crops: dict[str, list[Pixels]]) -> None:
    """Crops of SIDE pixels, twice as large: a row for each method, a column for each place."""
    width, head = 2 * SIDE + 4, 20
    sheet = Image.new("RGB", (width * len(PLACES), (width + head) * len(crops)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for y, (name, pictures) in enumerate(crops.items()):
        pen.text((4, y * (width + head) + 2), name, "black", font)
        for x, (number, (left, top)) in enumerate(PLACES):
            cut = pictures[number][top : top + SIDE, left : left + SIDE]
            crop = Image.fromarray(cut).resize((2 * SIDE, 2 * SIDE), Image.Resampling.NEAREST)
            sheet.paste(crop, (x * width + 2, y * (width + head) + head))
    sheet.save(path, optimize=True)


if __name__ == "__main__":
    main()
