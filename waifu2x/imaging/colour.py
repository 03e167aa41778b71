"""Luma and chroma, for networks that see one plane.

The YUV of Torch and OpenCV (Rec. 601 luma), which the original waifu2x and waifu2x-caffe use: its
chroma is not clipped, which costs waifu2x-converter-cpp its saturated reds. Chroma is enlarged by
bicubic interpolation straight to the final size, as in waifu2x-caffe.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""The shares of red, green and blue."""
_U, _V = np.float32(0.492), np.float32(0.877)


def luma(rgb: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the luma (H, W, 1) of RGB (H, W, 3), both in [0, 1]."""
    return (rgb @ LUMA)[..., np.newaxis]


def chroma(rgb: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the chroma (H, W, 2), U and V, of RGB (H, W, 3) in [0, 1]; 0 for grey."""
    y = luma(rgb)[..., 0]
    return np.stack([_U * (rgb[..., 2] - y), _V * (rgb[..., 0] - y)], axis=-1)


def to_rgb(y: NDArray[np.float32], uv: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the RGB (H, W, 3) of luma (H, W, 1) and chroma (H, W, 2), not clipped."""
    y, u, v = y[..., 0], uv[..., 0], uv[..., 1]
    return np.stack(
        [
            y + np.float32(1.14) * v,
            y - np.float32(0.395) * u - np.float32(0.581) * v,
            y + np.float32(2.032) * u,
        ],
        axis=-1,
    )
