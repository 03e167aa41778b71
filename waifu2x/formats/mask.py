"""Reads masks: grey pictures that say where a network counts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from waifu2x.formats.read import content, open_content
from waifu2x.imaging import colour
from waifu2x.imaging.blend import Mask
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture


def read_mask(path: Path) -> Mask:
    """Returns the mask in a file. Raises ImageError."""
    with closing(open_content(content(path), str(path))) as source:
        return mask_of(source.first().picture, str(path))


def mask_of(picture: Picture, name: str) -> Mask:
    """Returns the luma of a picture as a mask, black where it is transparent; `name` stands for it
    in messages."""
    pixels, alpha, dtype = picture.pixels, picture.alpha, picture.pixels.dtype
    if pixels.shape[-1] == 1 and alpha is None:
        return Mask(pixels[..., 0], name)
    levels = to_unit(pixels, np.float32)
    levels = levels if levels.shape[-1] == 1 else colour.luma(levels)
    if alpha is not None:
        levels = levels * to_unit(alpha, np.float32)[..., np.newaxis]
    return Mask(from_unit(levels[..., 0], dtype), name)
