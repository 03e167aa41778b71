"""Turns pictures upright, as EXIF's orientation asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.imaging.picture import Picture, contiguous


def oriented(picture: Picture, orientation: int) -> Picture:
    """Returns a picture stored with an EXIF orientation, 1 to 8, as it is meant to be seen."""
    if not 2 <= orientation <= 8:
        return picture
    alpha = picture.alpha
    return replace(
        picture,
        pixels=contiguous(oriented_plane(picture.pixels, orientation)),
        alpha=None if alpha is None else np.ascontiguousarray(oriented_plane(alpha, orientation)),
    )


def oriented_size(height: int, width: int, orientation: int) -> tuple[int, int]:
    """Returns the upright (height, width) of a picture stored with an EXIF orientation."""
    return (width, height) if 5 <= orientation <= 8 else (height, width)


def oriented_plane(plane: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Returns an upright view of an array (H, W, ...) stored with an EXIF orientation."""
    if orientation in (3, 4, 6, 7):
        plane = plane[::-1]
    if orientation in (2, 3, 7, 8):
        plane = plane[:, ::-1]
    if orientation >= 5:
        plane = plane.swapaxes(0, 1)
    return plane
