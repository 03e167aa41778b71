"""Blends results of networks with plain enlargements, by a strength and a mask."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.errors import ImageError
from waifu2x.imaging.dtypes import from_unit
from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.sizes import Part, rounded
from waifu2x.system.lazy_dataclass import dataclass

_BAND = 1 << 20
"""Pixels that are blended together."""
_BACK = {6: 8, 8: 6}
"""EXIF's orientations that undo those of their keys; all others undo themselves."""


class Mask:
    """The share that a network has in each pixel: of a picture, or of its result."""

    def __init__(self, levels: NDArray[Any], name: str) -> None:
        """`levels` (H, W) are uint8 or uint16 over their range or float32 in [0, 1], 0 for no
        network; `name` stands for it in messages."""
        self.levels = np.ascontiguousarray(levels)
        self.name = name
        self._digest = hashlib.sha256(self.levels.data).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        """Returns its size and a hash of its levels."""
        height, width = self.levels.shape
        return f"{width}x{height} {self.levels.dtype} {self._digest}"

    def fits(self, height: int, width: int) -> bool:
        """Returns whether it has the proportions of a size, but for the rounding of a side."""
        rows, columns = self.levels.shape
        return bool(abs(columns * height - rows * width) <= max(rows, columns, height, width))

    def part_for(self, source: tuple[int, int], result: tuple[int, int], part: Part) -> Part:
        """Returns its part for a result that shows `part` of a source; both sizes are (height,
        width). Raises ImageError if it fits neither."""
        rows, columns = self.levels.shape
        if self.fits(*source):
            across, down = Fraction(columns, source[1]), Fraction(rows, source[0])
            return Part(
                part.left * across, part.top * down, part.width * across, part.height * down
            )
        if self.fits(*result):
            return Part.of(rows, columns)
        height, width = source
        raise ImageError(
            f"{self.name}: a mask of {columns}x{rows} has other proportions than the picture of"
            f" {width}x{height}",
            "make it as large as the picture",
        )

    def stored(self, orientation: int, aspect: Fraction | None) -> Mask:
        """Returns a mask of frames as they are shown as one of frames as they are stored, which
        players turn by EXIF's `orientation`, and whose pixels have this `aspect`."""
        levels = oriented_plane(self.levels, _BACK.get(orientation, orientation))
        if aspect is not None and aspect != 1:
            from waifu2x.imaging.resample import lanczos

            rows, columns = levels.shape
            width = rounded(columns / aspect)
            planes = levels[..., np.newaxis]
            whole = Part.of(rows, columns)
            levels = lanczos(planes, whole, 1, rows, width, levels.dtype)[..., 0]
        return Mask(levels, self.name)


@dataclass(frozen=True)
class Blend:
    """The share of the network in results: `strength`, 0 to 1, times that of a mask."""

    strength: float = 1.0
    mask: Mask | None = None

    def __str__(self) -> str:
        """Returns it in words, such as "strength 0.5, masked"."""
        masked = "" if self.mask is None else ", masked"
        return f"strength {self.strength:g}{masked}"


def blended(
    network: tuple[NDArray[Any], NDArray[Any] | None],
    plain: tuple[NDArray[Any], NDArray[Any] | None],
    blend: Blend,
    part: Part | None,
    dtype: DTypeLike,
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Blends a picture of a network into a plain one: pixels (H, W, C) and alpha (H, W) or None,
    of float32; returns them in `dtype`.

    The result, laid over any background, is the blend of both laid over it. Values are blended as
    they are coded, and rounded once. `part` is that of the mask.
    """
    pixels, alpha = network
    height, width, _ = pixels.shape
    weights = None
    if blend.mask is not None:
        assert part is not None
        from waifu2x.imaging.resample import lanczos

        levels = blend.mask.levels[..., np.newaxis]
        weights = lanczos(levels, part, 1, height, width, np.float32)
    made = np.empty(pixels.shape, dtype)
    opacity = None if alpha is None else np.empty(alpha.shape, dtype)
    step = max(1, _BAND // width)
    for first in range(0, height, step):
        rows = slice(first, first + step)
        share = np.float32(blend.strength)
        one = share if weights is None else share * weights[rows]
        other = 1 - one
        if alpha is None or plain[1] is None or opacity is None:
            mixed = one * pixels[rows] + other * plain[0][rows]
        else:
            covers = one * alpha[rows, :, np.newaxis]
            beneath = other * plain[1][rows, :, np.newaxis]
            whole = covers + beneath
            opacity[rows] = from_unit(whole[..., 0], dtype)
            hidden = whole <= 0  # its colours count as they are
            covers, beneath = np.where(hidden, one, covers), np.where(hidden, other, beneath)
            mixed = covers * pixels[rows] + beneath * plain[0][rows]
            mixed /= np.where(hidden, np.float32(1), whole)
        made[rows] = from_unit(mixed, dtype)
    return made, opacity
