"""Resizes pictures by Pillow's filters, in float32.

Pixels are areas whose centres lie at half coordinates. If a picture is reduced, the filter grows
with the area that a pixel of the result covers, so that nothing aliases; at the edges it is cut
off, and the rest of it weighs 1. Work goes by bands of rows, whose limits depend on sizes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image

from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.sizes import Part

_BAND_FLOATS = 1 << 22
"""The most values of one plane's band of rows, of the source or the result."""
_LANCZOS = Image.Resampling.LANCZOS
_BICUBIC = Image.Resampling.BICUBIC
_RADIUS = {_LANCZOS: 3, _BICUBIC: 2}
"""Pixels on each side of the centre that a filter weighs when it enlarges."""
_SEEN = 1 / 1024
"""The least opacity from which a colour can be told."""

_Planes = NDArray[np.float32]


def bicubic(planes: _Planes, height: int, width: int) -> _Planes:
    """Resizes float32 planes (H, W, C) to (height, width, C) by bicubic interpolation (a = -0.5).
    The result is not clipped."""
    whole = (0.0, 0.0, planes.shape[1], planes.shape[0])
    return _Resize(_BICUBIC, whole, height, width)(planes, 0, height)


def lanczos(
    planes: NDArray[Any], part: Part, factor: int, height: int, width: int, dtype: DTypeLike
) -> NDArray[Any]:
    """Resizes pixels (H, W, C) to (height, width, C) in `dtype` by Lanczos (a = 3).

    The result shows `part` of a picture that was enlarged by `factor` before; it is clipped and
    rounded once.
    """
    resize = _Resize(_LANCZOS, _box(part, factor), height, width)
    result = np.empty((height, width, planes.shape[-1]), dtype)
    for rows in resize.bands():
        result[slice(*rows)] = from_unit(resize(planes, *rows), dtype)
    return result


def lanczos_with_alpha(
    planes: NDArray[Any],
    alpha: NDArray[Any],
    part: Part,
    factor: int,
    height: int,
    width: int,
    dtype: DTypeLike,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Resizes a picture and its alpha (H, W) as `lanczos` does, with premultiplied colours.

    Laid over any background, the result equals the resized picture laid over it. Its colours are
    not premultiplied; where it is transparent, they are those of the picture.
    """
    resize = _Resize(_LANCZOS, _box(part, factor), height, width)
    result = np.empty((height, width, planes.shape[-1]), dtype)
    shown = np.empty((height, width), dtype)
    opaque = alpha[..., np.newaxis]
    for rows in resize.bands():
        opacity = resize(opaque, *rows)
        light = resize(planes, *rows, weight=opaque)
        hidden = opacity < _SEEN
        colours = light / np.where(hidden, np.float32(1), opacity)
        if hidden.any():
            colours = np.where(hidden, resize(planes, *rows), colours)
        result[slice(*rows)] = from_unit(colours, dtype)
        shown[slice(*rows)] = from_unit(opacity[..., 0], dtype)
    return result, shown


def _box(part: Part, factor: int) -> tuple[float, float, float, float]:
    """Returns a part's left, top, right and bottom in pixels of the enlarged picture."""
    left, top = part.left * factor, part.top * factor
    right, bottom = left + part.width * factor, top + part.height * factor
    return float(left), float(top), float(right), float(bottom)


class _Resize:
    def __init__(
        self,
        kind: Image.Resampling,
        box: tuple[float, float, float, float],
        height: int,
        width: int,
    ) -> None:
        """The result, `height` rows of `width` pixels, shows `box` of the source."""
        self._kind = kind
        self._left, self._top, self._right, self._bottom = box
        self._height, self._width = height, width
        self._step = (self._bottom - self._top) / height

    def bands(self) -> Iterator[tuple[int, int]]:
        """Yields the bands of the result: first row and end of each."""
        longest = max(self._width, self._right - self._left)
        rows = max(16, int(_BAND_FLOATS / longest / max(1.0, self._step)))
        for first in range(0, self._height, rows):
            yield first, min(first + rows, self._height)

    def __call__(
        self, planes: NDArray[Any], first: int, end: int, weight: NDArray[Any] | None = None
    ) -> _Planes:
        """Returns rows `first` to `end` of the result, (end - first, width, C), not clipped. The
        planes are first multiplied by `weight`, (H, W, 1)."""
        top = self._top + first * self._step
        bottom = self._bottom if end == self._height else self._top + end * self._step
        beyond = math.ceil(_RADIUS[self._kind] * max(1.0, self._step)) + 1
        start = max(0, math.floor(top) - beyond)
        rows = slice(start, math.ceil(bottom) + beyond)
        source = to_unit(planes[rows], np.float32)
        if weight is not None:
            source *= to_unit(weight[rows], np.float32)
        box = (self._left, top - start, self._right, min(bottom - start, len(source)))
        size = (self._width, end - first)
        resized = [
            np.asarray(Image.fromarray(source[..., plane]).resize(size, self._kind, box))
            for plane in range(source.shape[-1])
        ]
        return np.stack(resized, axis=-1)
