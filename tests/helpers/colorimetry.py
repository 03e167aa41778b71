"""Colours by formulas, as a judge that shares nothing with the program."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
XY = {
    1: (0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06),
    9: (0.3127, 0.3290, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046),
    12: (0.3127, 0.3290, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),
    "adobe": (0.3127, 0.3290, 0.64, 0.33, 0.21, 0.71, 0.15, 0.06),
    "prophoto": (0.3457, 0.3585, 0.7347, 0.2653, 0.1596, 0.8404, 0.0366, 0.0001),
}
"""x and y of white, red, green and blue, by H.273's number or a name."""
_D50 = np.array([0.9642, 1.0, 0.8249])
_CONES = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])


def to_xyz(primaries: int | str) -> Floats:
    """(3, 3): linear RGB to XYZ under D50, by Bradford's adaptation."""
    white, *lights = (
        np.array([x / y, 1, (1 - x - y) / y]) for x, y in np.reshape(XY[primaries], (4, 2))
    )
    columns = np.array(lights).T
    columns = columns * np.linalg.solve(columns, white)
    scale = np.diag(_CONES @ _D50 / (_CONES @ white))
    return np.asarray(np.linalg.inv(_CONES) @ scale @ _CONES @ columns)


def srgb_light(values: Any) -> Floats:
    values = np.asarray(values, np.float64)
    return np.asarray(
        np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    )


def srgb_values(light: Any) -> Floats:
    light = np.clip(light, 0, 1)
    return np.asarray(
        np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    )


def lab_of_light(light: Floats, primaries: int | str = 1) -> Floats:
    """CIE Lab under D50 of linear RGB (..., 3), 1 for white."""
    ratio = light @ to_xyz(primaries).T / _D50
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    x, y, z = f[..., 0], f[..., 1], f[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def delta_e(one: Floats, other: Floats) -> Floats:
    """CIEDE2000 (CIE 142-2001; Sharma, Wu and Dalal, 2005)."""
    (l1, a1, b1), (l2, a2, b2) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    c1, c2 = np.hypot((1 + g) * a1, b1), np.hypot((1 + g) * a2, b2)
    h1 = np.degrees(np.arctan2(b1, (1 + g) * a1)) % 360
    h2 = np.degrees(np.arctan2(b2, (1 + g) * a2)) % 360
    grey = c1 * c2 == 0
    turn = np.where(grey, 0, (h2 - h1 + 180) % 360 - 180)
    dl, dc = l2 - l1, c2 - c1
    dh = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    lightness, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = np.where(grey, h1 + h2, (h1 + turn / 2) % 360)
    t = (
        1 - 0.17 * np.cos(np.radians(h - 30)) + 0.24 * np.cos(np.radians(2 * h))
        + 0.32 * np.cos(np.radians(3 * h + 6)) - 0.20 * np.cos(np.radians(4 * h - 63))
    )  # fmt: skip
    sl = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    sc, sh = 1 + 0.045 * c, 1 + 0.015 * c * t
    rt = -np.sin(np.radians(60 * np.exp(-(((h - 275) / 25) ** 2))))
    rt = rt * 2 * np.sqrt(c**7 / (c**7 + 25.0**7))
    return np.asarray(
        np.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rt * (dc / sc) * (dh / sh))
    )
