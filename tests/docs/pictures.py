"""The pictures that the documents name, so small that their commands take no time."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from tests.docs.documents import ROOT

SIZE = (24, 16)


def prepare(folder: Path) -> None:
    """Puts them into a folder, and the examples of this project as in a clone."""
    (folder / "examples").symlink_to(ROOT / "examples")
    drawing = Image.open(ROOT / "examples" / "drawn.png").convert("RGB").crop((60, 80, 84, 96))
    photo = Image.open(ROOT / "examples" / "photo.jpg").convert("RGB").crop((60, 80, 84, 96))
    for name in ("in.png", "input.png", "drawing.png", "a.png", "b.png"):
        drawing.save(folder / name)
    for name in ("photo.jpg", "scan.jpg"):
        photo.save(folder / name, quality=75)
    sprite = drawing.convert("RGBA")
    sprite.putalpha(Image.linear_gradient("L").resize(SIZE))
    sprite.save(folder / "sprite.png")
    deep = np.asarray(photo.convert("L"), np.uint16) * 257
    Image.fromarray(deep).save(folder / "scan.tif")
    drawing.save(
        folder / "animation.gif", save_all=True, append_images=[drawing.rotate(180)], duration=80
    )
    pictures = folder / "pictures"
    (pictures / "more").mkdir(parents=True)
    drawing.save(pictures / "drawing.png")
    photo.save(pictures / "photo.jpg", quality=75)
    drawing.save(pictures / "more" / "another.webp", lossless=True)
    with zipfile.ZipFile(folder / "book.cbz", "w") as book:
        book.write(pictures / "drawing.png", "01.png")
        book.write(pictures / "photo.jpg", "02.jpg")
