"""Makes docs/pictures/comparison.png: parts of a drawing and of a photo, as they are, enlarged four
times by Lanczos, and by this program as it does without options."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import waifu2x

FOLDER = Path(__file__).parent
RESULT = FOLDER.parent / "docs" / "pictures" / "comparison.png"
SCALE = 4
WIDTH, HEIGHT = 71, 60
"""Size of a part, in pixels of the input."""
PARTS = {"drawn.png": ("drawing, PNG", (56, 62)), "cat.jpg": ("photo, JPEG", (124, 76))}
"""Caption and upper left corner of the part of each picture."""
GAP, BAR = 4, 30
DARK, LIGHT = "#24292f", "#ffffff"
"""Captions have a ground of their own: the page may be light or dark."""


def main() -> None:
    cells = [cell for name, part in PARTS.items() for cell in row(name, *part)]
    width, height = WIDTH * SCALE, HEIGHT * SCALE + BAR
    sheet = Image.new("RGBA", (3 * width + 2 * GAP, 2 * height + GAP))
    for number, (caption, picture) in enumerate(cells):
        at = number % 3 * (width + GAP), number // 3 * (height + GAP)
        sheet.paste(labelled(caption, picture), at)
    sheet.save(RESULT, optimize=True)


def row(name: str, kind: str, corner: tuple[int, int]) -> list[tuple[str, Image.Image]]:
    """The three pictures of a file, with their captions."""
    whole = Image.open(FOLDER / name)
    left, top = corner
    box = left, top, left + WIDTH, top + HEIGHT
    size = WIDTH * SCALE, HEIGHT * SCALE
    large = whole.width * SCALE, whole.height * SCALE
    part = left * SCALE, top * SCALE, box[2] * SCALE, box[3] * SCALE
    ours = waifu2x.upscale(whole, scale=SCALE, noise="auto")
    return [
        (f"{kind}: input", whole.crop(box).convert("RGB").resize(size, Image.Resampling.NEAREST)),
        ("Lanczos, 4x", whole.convert("RGB").resize(large, Image.Resampling.LANCZOS).crop(part)),
        ("waifu2x-kernels, 4x", ours.crop(part)),
    ]


def labelled(caption: str, picture: Image.Image) -> Image.Image:
    """A picture with its caption above it."""
    cell = Image.new("RGB", (picture.width, picture.height + BAR), DARK)
    cell.paste(picture, (0, BAR))
    font = ImageFont.load_default(17)
    ImageDraw.Draw(cell).text((8, BAR / 2), caption, LIGHT, font, anchor="lm")
    return cell


if __name__ == "__main__":
    main()
