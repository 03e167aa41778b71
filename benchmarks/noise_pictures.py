"""Pictures for benchmarks/noise_levels.py: twelve that decide and twelve that test, 288x288 each.

All are CC0 or in the public domain: the example of this project, scenes of Kenney's sprites that
arcade comes with, pages of text and hatching, and crops of photos from scikit-image's wheel. No
photo and no sprite is in both groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.quality import EXAMPLES
from benchmarks.sprites import Pixels, package, scene

Kind = Literal["drawing", "photo"]

SIDE = 288


@dataclass(frozen=True)
class Truth:
    """A picture without loss."""

    name: str
    kind: Kind
    pixels: Pixels


def deciding() -> list[Truth]:
    """The pictures that thresholds are chosen by."""
    drawn = np.asarray(Image.open(EXAMPLES / "drawn.png").convert("RGB"))
    return [
        Truth("drawn", "drawing", _cut(drawn, 0, 0)),
        *(_scene(name) for name in ("adventurers", "cards", "space", "aliens")),
        _page(
            "page", "Liberation_Sans_Regular", ("No two pages", "of this comic", "are alike!"), 5
        ),
        photo("astronaut", 0, 140, "face"),
        photo("astronaut", 224, 60, "suit"),
        photo("coffee", 80, 60),
        photo("retina", 500, 200),
        photo("camera", 60, 100),
        photo("gravel", 100, 100),
    ]


def testing() -> list[Truth]:
    """Returns the pictures that thresholds are judged by."""
    return [
        *(_scene(name) for name in ("people", "tanks", "hand", "pond", "walkers")),
        _page(
            "letter", "Liberation_Serif_Regular", ("Dear reader,", "what follows", "is true."), 6
        ),
        photo("chelsea", 10, 100),
        photo("coins", 10, 60),
        photo("rocket", 60, 200),
        photo("hubble_deep_field", 200, 300),
        photo("grass", 100, 100),
        photo("brick", 100, 100),
    ]


def _scene(name: str) -> Truth:
    """Nine sprites, three in a row."""
    return Truth(name, "drawing", scene(name, 3, SIDE // 3))


def _page(name: str, font: str, words: Sequence[str], gap: int) -> Truth:
    """A page as comics and letters have: text, frames, hatching and grey fills."""
    folder = package("arcade") / "resources" / "system" / "fonts" / "ttf" / "Liberation"
    side = 4 * SIDE  # drawn larger and reduced, so that edges are smooth
    page = Image.new("L", (side, side), 255)
    pen = ImageDraw.Draw(page)
    for row, line in enumerate(words):
        pen.text(
            (60, 60 + 130 * row),
            line,
            0,
            ImageFont.truetype(folder / f"{font}.ttf", 110 - 10 * row),
        )
    pen.rectangle((60, 560, 560, 1090), outline=0, width=12)
    for offset in range(0, 1000, 4 * gap):
        pen.line((60 + offset, 560, 60 + offset - 530, 1090), 40, 6)
    pen.rectangle((0, 540, 52, 1152), 255)
    pen.rectangle((568, 540, 1152, 1152), 255)
    pen.ellipse((640, 580, 1080, 1020), fill=190, outline=0, width=10)
    pen.ellipse((720, 700, 800, 780), fill=0)
    pen.ellipse((900, 700, 980, 780), fill=0)
    pen.arc((760, 780, 960, 940), 10, 170, 0, 12)
    small = page.resize((SIDE, SIDE), Image.Resampling.BOX)
    return Truth(name, "drawing", np.asarray(small.convert("RGB")))


def photo(name: str, top: int, left: int, part: str = "") -> Truth:
    """A crop of a photo of scikit-image's wheel."""
    folder = package("skimage") / "data"
    path = next(path for path in folder.glob(f"{name}.*") if path.suffix in (".png", ".jpg"))
    image = Image.open(path).convert("RGB")
    if path.suffix == ".jpg":  # halved: what its own coding has left is gone
        image = image.reduce(2)
        top, left = min(top, image.height - SIDE), min(left, image.width - SIDE)
    label = f"{name} ({part})" if part else name
    return Truth(label, "photo", _cut(np.asarray(image), max(top, 0), max(left, 0)))


def _cut(pixels: Pixels, top: int, left: int) -> Pixels:
    cut = pixels[top : top + SIDE, left : left + SIDE]
    height, width = (size - size % 4 for size in cut.shape[:2])
    return np.ascontiguousarray(cut[:height, :width])
