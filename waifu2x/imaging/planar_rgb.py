"""Converts planes of films to arrays of RGB and back, on the host: for more than a network.

Compiled code computes in float64, on all cores, without the interpreter lock. Any number of cores
gives the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.run.planar import read_planes, write_planes
from waifu2x.imaging.planar import PlanarPicture
from waifu2x.system.machine import core_count


def to_rgb(picture: PlanarPicture) -> NDArray[np.float32]:
    """Returns the RGB of planes (H, W, 3), or their grey (H, W, 1), clipped to [0, 1]."""
    pixels = np.empty((*picture.size, 3), np.float32)
    read_planes(picture, pixels, core_count(), exactly=True)
    return np.ascontiguousarray(pixels[..., :1]) if picture.format.is_grey else pixels


def from_rgb(pixels: NDArray[np.float32], out: PlanarPicture) -> None:
    """Writes RGB (H, W, 3) or grey (H, W, 1), in [0, 1], into planes."""
    if pixels.shape[-1] != 3 or not pixels.flags.c_contiguous:
        pixels = np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
    write_planes(pixels, out, core_count(), exactly=True)
