"""Small pictures for people to look through."""

from __future__ import annotations

import io

import numpy as np

from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture

SIDE = 128
"""Pixels of its longer side, at most."""
_OVER = 4
"""Times as many samples a side are looked at."""


def preview(picture: Picture) -> bytes:
    """A picture of at most SIDE pixels a side as a JPEG, transparency over white.

    Of a large one only some of the pixels are looked at: it takes a few milliseconds at most.
    """
    from PIL import Image

    step = max(1, max(picture.pixels.shape[:2]) // (_OVER * SIDE))
    samples = np.ascontiguousarray(picture.pixels[::step, ::step])
    if picture.alpha is not None:
        alpha = to_unit(picture.alpha[::step, ::step], np.float32)[..., np.newaxis]
        samples = to_unit(samples, np.float32) * alpha + (1.0 - alpha)
    if samples.dtype != np.uint8:
        samples = from_unit(to_unit(samples, np.float32), np.uint8)
    image = Image.fromarray(samples[..., 0] if samples.shape[-1] == 1 else samples)
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=70, optimize=True)
    return file.getvalue()
