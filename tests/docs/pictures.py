"""The files that the documents name, so small that their commands take no time."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from tests.docs.documents import ROOT
from tests.helpers.family_weights import filled, tspan
from tests.helpers.weight_files import compact, pth

SIZE = (24, 16)


def prepare(folder: Path) -> None:
    """Puts them into a folder, with the examples and models of this project as in a clone."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "models").symlink_to(ROOT / "models")
    drawing = Image.open(ROOT / "examples" / "drawn.png").convert("RGB").crop((60, 80, 84, 96))
    photo = Image.open(ROOT / "examples" / "photo.jpg").convert("RGB").crop((60, 80, 84, 96))
    drawing.resize((120, 80)).save(folder / "input.png")
    for name in ("a.png", "b.png"):
        drawing.save(folder / name)
    photo.save(folder / "photo.jpg", quality=75)
    sprite = drawing.convert("RGBA")
    sprite.putalpha(Image.linear_gradient("L").resize(SIZE))
    sprite.save(folder / "sprite.png")
    deep = np.asarray(photo.convert("L"), np.uint16) * 257
    Image.fromarray(deep).save(folder / "scan.tif")
    drawing.save(
        folder / "animation.gif", save_all=True, append_images=[drawing.rotate(180)], duration=80
    )
    (folder / "4x-compact.pth").write_bytes(pth(compact(scale=4)))
    (folder / "2x-tspan.pth").write_bytes(pth(filled(tspan(8, 4))))
    pictures = folder / "pictures"
    (pictures / "more").mkdir(parents=True)
    drawing.save(pictures / "drawing.png")
    photo.save(pictures / "photo.jpg", quality=75)
    drawing.save(pictures / "more" / "another.webp", lossless=True)
    if importlib.util.find_spec("av"):
        from tests.helpers import films

        films.film(folder / "film.mkv", size=(48, 64), sounds=[("aac", 0.0)], fonts=True)
        (folder / "mixed").mkdir()
        drawing.save(folder / "mixed" / "drawing.png")
        films.film(folder / "mixed" / "film.mkv", size=(16, 24), times=range(0, 200, 40))
    with zipfile.ZipFile(folder / "book.cbz", "w") as book:
        book.write(pictures / "drawing.png", "01.png")
        book.write(pictures / "photo.jpg", "02.jpg")
