"""Draws pictures side by side: the whole, and magnified crops where they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from waifu2x.imaging import resample
from waifu2x.imaging.comparison import Comparison, worst_boxes
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.sizes import Part
from waifu2x.lowering.plan.box import Box

SIDE, COUNT = 64, 4
"""The side of a sheet's crops in pixels, and their number."""
_GAP = 4
_GREY = np.float32(0.5)
_LEAST_CELL = 256
"""The least width of a crop on a sheet in pixels."""
_LEAST_BOX = 4
"""The least side of a crop's outline in pixels."""
_TEXT, _LINE, _MARGIN = 15, 20, 8
_INK, _FAINT = (0, 0, 0), (104, 104, 104)
_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class Column(NamedTuple):
    """A picture on a sheet."""

    name: str
    caption: str
    """A second line below its name; may be empty."""
    crop: Callable[[Box], NDArray[Any]]
    """Returns a box of it, (H, W, 1 or 3), in a pixel dtype."""


def whole(pixels: NDArray[Any], name: str, caption: str) -> Column:
    """Returns a column for a picture (H, W, 1 or 3)."""
    return Column(name, caption, partial(_crop, pixels))


def of_two(
    comparison: Comparison, names: tuple[str, str], captions: tuple[str, str], title: Sequence[str]
) -> tuple[NDArray[np.uint8], list[Box]]:
    """Draws a sheet (H, W, 1 or 3) that compares two pictures; returns it and its crops' boxes.

    The second picture is to the left; then there are columns of the first one, of the second, and
    of their difference, on grey.
    """
    pictures = comparison.first, comparison.second
    boxes = worst_boxes(pictures, SIDE, COUNT)
    differences = [abs(_difference(comparison, box)).max() for box in boxes]
    gain = 0.5 / max(differences, default=0.5)
    columns = [
        *(whole(*each) for each in zip(pictures, names, captions, strict=True)),
        Column(
            "difference",
            f"{gain:.1f} times as strong",
            lambda box: _GREY + _difference(comparison, box) * np.float32(gain),
        ),
    ]
    return of_columns(title, columns, boxes, comparison.second), boxes


def _difference(comparison: Comparison, box: Box) -> NDArray[np.float32]:
    one, other = (
        to_unit(_crop(pixels, box), np.float32) for pixels in (comparison.first, comparison.second)
    )
    return other - one


def of_columns(
    title: Sequence[str], columns: Sequence[Column], boxes: Sequence[Box], first: NDArray[Any]
) -> NDArray[np.uint8]:
    """Draws a sheet (H, W, 1 or 3) that compares several pictures.

    It has a column for each picture, under its name, with crops of the `boxes`, each pixel
    repeated. To the left are the lines of the title and the whole picture `first`, with numbered
    outlines of the crops.
    """
    side = boxes[0].width if boxes else _LEAST_CELL
    magnified = -(-_LEAST_CELL // side)
    cell = side * magnified
    head = _MARGIN + 2 * _LINE + _GAP
    left = _MARGIN + cell + 2 * _LINE
    width = left + len(columns) * (cell + _GAP) - _GAP + _MARGIN
    height = head + max(1, len(boxes)) * (cell + _GAP) - _GAP + _MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(_TEXT)
    for number, line in enumerate(title):
        pen.text((_MARGIN, _MARGIN + number * _LINE), _fitted(line, font, cell), _INK, font)
    top = max(head, _MARGIN + len(title) * _LINE + _GAP)
    sheet.paste(_overview(first, boxes, cell, height - top - _MARGIN, font), (_MARGIN, top))
    for row, box in enumerate(boxes):
        y = head + row * (cell + _GAP)
        pen.text((left - _LINE, y + cell // 2), str(row + 1), _INK, font, anchor="mm")
        for place, column in enumerate(columns):
            crop = column.crop(box).repeat(magnified, 0).repeat(magnified, 1)
            sheet.paste(_image(crop), (left + place * (cell + _GAP), y))
    for place, column in enumerate(columns):
        x = left + place * (cell + _GAP)
        pen.text((x, _MARGIN), _fitted(column.name, font, cell), _INK, font)
        pen.text((x, _MARGIN + _LINE), _fitted(column.caption, font, cell), _FAINT, font)
    return np.atleast_3d(np.asarray(sheet.convert("L") if first.shape[-1] == 1 else sheet))


def _overview(
    pixels: NDArray[Any], boxes: Sequence[Box], width: int, height: int, font: _Font
) -> Image.Image:
    """Returns a picture reduced to fit into `width` x `height`, with numbered outlines of the
    boxes."""
    factor = min(Fraction(width, pixels.shape[1]), Fraction(height, pixels.shape[0]))
    rows, columns = (max(1, math.floor(size * factor)) for size in pixels.shape[:2])
    part = Part.of(*pixels.shape[:2])
    small = _image(resample.lanczos(pixels, part, 1, rows, columns, np.uint8))
    pen = ImageDraw.Draw(small)
    for number, box in enumerate(boxes, 1):
        corners = box.left, box.top, box.right, box.bottom
        x, y, right, bottom = (math.floor(place * factor) for place in corners)
        right, bottom = max(right, x + _LEAST_BOX), max(bottom, y + _LEAST_BOX)
        # Black beside white is visible on any picture.
        pen.rectangle((x, y, right - 1, bottom - 1), outline="black")
        pen.rectangle((x + 1, y + 1, right - 2, bottom - 2), outline="white")
        middle = (x + right) // 2, (y + bottom) // 2
        pen.text(middle, str(number), "white", font, "mm", stroke_width=2, stroke_fill="black")
    return small


def _fitted(text: str, font: _Font, width: int) -> str:
    """Returns the end of a text that is too wide: the end of a path says more than its
    beginning."""
    if font.getlength(text) <= width:
        return text
    start = next(
        start for start in range(1, len(text) + 1) if font.getlength(f"...{text[start:]}") <= width
    )
    return f"...{text[start:]}"


def _image(pixels: NDArray[Any]) -> Image.Image:
    """Converts pixels (H, W, 1 or 3) of any pixel dtype to an 8-bit RGB image."""
    levels = from_unit(to_unit(pixels, np.float32), np.uint8)
    return Image.fromarray(levels.repeat(3 // levels.shape[-1], axis=-1))


def _crop(values: NDArray[Any], box: Box) -> NDArray[Any]:
    return values[box.top : box.bottom, box.left : box.right]
