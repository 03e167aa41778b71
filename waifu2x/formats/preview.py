"""Small pictures for people to look through."""

from __future__ import annotations

import io
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sizes import Part

SIDE = 192
"""Pixels of the longer side of a thumbnail, at most."""
_OVER = 4
"""Samples a side for each pixel of a thumbnail."""
_SAMPLES = 256
"""Samples a side by which the most detailed part is found."""
_MARGIN = 8
"""Pixels of a source around a detail that a resize reads, at least."""


class Preview(NamedTuple):
    """A result as a thumbnail, and a detail of it beside the source, all JPEGs."""

    height: int
    width: int
    """Pixels of the result."""
    thumbnail: bytes
    before: bytes = b""
    after: bytes = b""
    """The same detail of one size, before enlarged by Lanczos; the whole of a small picture. Both
    empty where nothing was computed."""
    name: str = ""
    """A page's name in its archive; empty for a picture file."""


def preview(result: Picture, side: int) -> Preview:
    """Returns a result alone, as a thumbnail of at most `side` pixels a side."""
    height, width = result.pixels.shape[:2]
    return Preview(height, width, _thumbnail(result, min(side, SIDE)))


def previews(
    source: Picture,
    result: Picture,
    shown: Part,
    side: int,
) -> Preview:
    """Returns a result's thumbnail, and a detail of it beside the source, of at most `side` a side.

    `shown` is the part of the source that the result shows. The detail is where the result varies
    most. It takes a few milliseconds for any size.
    """
    height, width = result.pixels.shape[:2]
    rows, columns = min(side, height), min(side, width)
    top, left = _busiest(result, rows, columns)
    after = _opaque(result, slice(top, top + rows), slice(left, left + columns))
    across, down = shown.width / width, shown.height / height
    corner = shown.left + left * across, shown.top + top * down
    before = _enlarged(source, Part(*corner, columns * across, rows * down), rows, columns)
    return preview(result, side)._replace(before=_jpeg(before), after=_jpeg(after))


def _enlarged(source: Picture, part: Part, rows: int, columns: int) -> NDArray[Any]:
    from waifu2x.imaging import resample

    left, top, width, height = part.left, part.top, part.width, part.height
    # A resize that reduces reads more around it.
    beyond = _MARGIN + math.ceil(_MARGIN * max(width / columns, height / rows))
    first, start = (max(0, math.floor(place) - beyond) for place in (top, left))
    last, end = math.ceil(top + height) + beyond, math.ceil(left + width) + beyond
    near = _opaque(source, slice(first, last), slice(start, end))
    return resample.lanczos(
        near, Part(left - start, top - first, width, height), 1, rows, columns, np.uint8
    )


def _busiest(picture: Picture, rows: int, columns: int) -> tuple[int, int]:
    """Returns top and left of the box of that size in which neighbours differ most."""
    height, width = picture.pixels.shape[:2]
    step = max(1, max(height, width) // _SAMPLES)
    grey = to_unit(picture.pixels[::step, ::step], np.float32).mean(axis=-1)
    detail = np.zeros(grey.shape)
    detail[1:] += abs(np.diff(grey, axis=0))
    detail[:, 1:] += abs(np.diff(grey, axis=1))
    sums = np.pad(detail, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    tall, wide = (max(1, size // step) for size in (rows, columns))
    tall, wide = min(tall, len(grey)), min(wide, grey.shape[1])
    found = sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]
    y, x = np.unravel_index(int(found.argmax()), found.shape)
    return min(int(y) * step, height - rows), min(int(x) * step, width - columns)


def _thumbnail(picture: Picture, side: int) -> bytes:
    """Returns the whole picture as a JPEG, of some of its pixels if it is large."""
    from PIL import Image

    step = max(1, max(picture.pixels.shape[:2]) // (_OVER * side))
    image = _image(_opaque(picture, slice(None, None, step), slice(None, None, step)))
    image.thumbnail((side, side), Image.Resampling.BOX)
    return _written(image, 75)


def _opaque(picture: Picture, rows: slice, columns: slice) -> NDArray[np.uint8]:
    """Returns some of the pixels in 8 bits, transparency over white."""
    pixels = np.ascontiguousarray(picture.pixels[rows, columns])
    if picture.alpha is not None:
        alpha = to_unit(picture.alpha[rows, columns], np.float32)[..., np.newaxis]
        pixels = to_unit(pixels, np.float32) * alpha + (1 - alpha)
    if pixels.dtype != np.uint8:
        pixels = from_unit(to_unit(pixels, np.float32), np.uint8)
    return pixels


def _image(pixels: NDArray[np.uint8]) -> Any:
    from PIL import Image

    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def _jpeg(pixels: NDArray[np.uint8]) -> bytes:
    """Codes a detail well, so that it shows how good a result is, unless it is large."""
    return _written(_image(pixels), 85 if max(pixels.shape) > SIDE else 70)


def _written(image: Any, quality: int) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()
