"""Converts planes of film frames to RGB and back in float64, as `imaging.planar` defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.imaging.planar import MATRICES, Axis, PlanarPicture

_Taps = list[tuple[NDArray[np.int64], NDArray[np.float64]]]


def to_rgb(picture: PlanarPicture) -> NDArray[np.float32]:
    """Converts planes to RGB (H, W, 3), clipped to [0, 1]."""
    kr, kb = MATRICES[picture.format.matrix]
    scale, zero, luma_zero, luma_range, chroma_range = _ranges(picture)
    first, *others = picture.planes
    y = (first.astype(np.float64) - luma_zero) / luma_range
    if picture.format.is_rgb:
        green, (blue, red) = y, ((p.astype(np.float64) - luma_zero) / luma_range for p in others)
    elif picture.format.is_grey:
        red = green = blue = y
    else:
        u, v = ((_enlarged(p, picture) - zero * scale) / chroma_range for p in others)
        red, blue = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
        green = (y - kr * red - kb * blue) / (1 - kr - kb)
    rgb: NDArray[np.float32] = np.stack([red, green, blue], axis=-1).clip(0, 1).astype(np.float32)
    return rgb


def from_rgb(rgb: NDArray[np.float32], out: PlanarPicture) -> None:
    """Converts RGB (H, W, 3) in [0, 1] into the planes of `out`."""
    kr, kb = MATRICES[out.format.matrix]
    scale, zero, luma_zero, luma_range, chroma_range = _ranges(out)
    red, green, blue = np.moveaxis(rgb.astype(np.float64), -1, 0)
    y = kr * red + (1 - kr - kb) * green + kb * blue
    values = [y * luma_range + luma_zero]
    if out.format.is_rgb:
        values += [colour * luma_range + luma_zero for colour in (blue, red)]
    elif not out.format.is_grey:
        for chroma in (blue - y) / (2 * (1 - kb)), (red - y) / (2 * (1 - kr)):
            values.append(_reduced(chroma, out) * chroma_range + zero * scale)
    peak = (1 << out.format.bits) - 1
    for plane, codes in zip(out.planes, values, strict=True):
        plane[:] = np.floor(codes + 0.5).clip(0, peak)


def _ranges(picture: PlanarPicture) -> tuple[int, int, int, int, int]:
    """Returns the number of codes for one 8-bit code, and the code of zero chroma; then the code of
    black, and the numbers of codes from 0 to 1 of luma and of chroma."""
    scale, peak = 1 << (picture.format.bits - 8), (1 << picture.format.bits) - 1
    if picture.format.is_full_range:
        return scale, 128, 0, peak, peak
    return scale, 128, 16 * scale, 219 * scale, 224 * scale


def _enlarged(plane: NDArray[Any], picture: PlanarPicture) -> NDArray[np.float64]:
    """Interpolates chroma for every pixel."""
    values = plane.astype(np.float64)
    for number, (axis, pixels) in enumerate(zip(picture.format.axes, picture.size, strict=True)):
        values = _weighed(values, number, _up(axis, pixels))
    return values


def _reduced(values: NDArray[np.float64], picture: PlanarPicture) -> NDArray[np.float64]:
    """Reduces the chroma of every pixel to samples."""
    for number, (axis, pixels) in enumerate(zip(picture.format.axes, picture.size, strict=True)):
        values = _weighed(values, number, _down(axis, pixels))
    return values


def _weighed(values: NDArray[np.float64], axis: int, taps: _Taps) -> NDArray[np.float64]:
    shape = [1, 1]
    shape[axis] = -1
    made = np.zeros(1)
    for places, weights in taps:
        made = made + values.take(places, axis) * weights.reshape(shape)
    return made


def _up(axis: Axis, pixels: int) -> _Taps:
    """Returns the samples that make each pixel, and their weights."""
    if axis.step == 1:
        return [(np.arange(pixels), np.ones(pixels))]
    places = (np.arange(pixels) - (0.5 if axis.is_midway else 0)) / 2
    before = np.floor(places).astype(np.int64)
    last = axis.samples(pixels) - 1
    share = places - before
    return [(before.clip(0, last), 1 - share), ((before + 1).clip(0, last), share)]


def _down(axis: Axis, pixels: int) -> _Taps:
    """Returns the pixels that make each sample, and their weights."""
    if axis.step == 1:
        return [(np.arange(pixels), np.ones(pixels))]
    first = np.arange(axis.samples(pixels)) * 2
    weights = {0: 0.5, 1: 0.5} if axis.is_midway else {-1: 0.25, 0: 0.5, 1: 0.25}
    return [
        ((first + away).clip(0, pixels - 1), np.full(len(first), weight))
        for away, weight in weights.items()
    ]
