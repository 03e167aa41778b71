"""Converts HDR (PQ and HLG) to SDR: sRGB for pictures, BT.709 for films.

White on paper of HDR, 203 cd/m² (ITU-R BT.2408, table 1), is the brightest that the SDR display
shows. Each of red, green and blue is compressed from a knee on, as in ITU-R BT.2390, section 5.4.1,
with black at 0. HLG is shown on a display of 1000 cd/m² first (BT.2100, table 5). Colours that the
primaries of BT.709 do not reach move towards grey of their luminance until they do, so that
shades of a saturated colour stay apart: ITU-R BT.2407 leaves the method open.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.metadata import code_points, icc, profiles
from waifu2x.formats.metadata.code_points import HLG, PRIMARIES, SRGB_PRIMARIES
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import CodePoints, Colours, Hdr, Picture

_LEVELS = 65535
"""Entries of a table, less one: more than any file has."""
_ROWS = 16
"""Rows that are converted together, so that they stay in a core's cache."""
_GAMMA = 2.4
"""The exponent of displays for BT.709: ITU-R BT.1886 with black at 0."""
_OOTF = 0.2
"""The exponent, less 1, of HLG's system gamma on a display of 1000 cd/m²."""
_TINY = np.float32(1e-9)
_USUAL = 9
"""H.273's number of BT.2020's primaries."""

_Floats = NDArray[np.float32]


class SdrConversion:
    """Converts RGB or grey of PQ or HLG to SDR; unknown primaries are those of BT.2020. Threads may
    share it."""

    def __init__(self, points: CodePoints, hdr: Hdr | None, *, is_film: bool) -> None:
        """`points` are those of HDR in full range; `hdr` tells how bright PQ is. Films get
        the curve of BT.1886, pictures that of sRGB."""
        self._is_hlg = points.transfer == HLG
        self._light = _light_table(points.transfer, None if self._is_hlg else hdr)
        self._scene = _scene_table() if self._is_hlg else None
        self._encoded = _encoded_table(is_film)
        primaries = PRIMARIES.get(points.primaries, PRIMARIES[_USUAL])
        self._luminance = icc.own_matrix(primaries)[1].astype(np.float32)
        to_srgb = np.linalg.solve(icc.matrix(SRGB_PRIMARIES), icc.matrix(primaries))
        self._to_srgb = to_srgb.astype(np.float32)

    def __call__(self, values: _Floats) -> _Floats:
        """Returns the SDR values of HDR values, both (H, W, 1 or 3) in [0, 1]."""
        made = np.empty_like(values)
        for first in range(0, len(values), _ROWS):
            rows = slice(first, first + _ROWS)
            planes = self._shown(np.moveaxis(values[rows], -1, 0))
            if len(planes) == 3:
                planes = self._within(planes)
            for plane, light in enumerate(planes):
                made[rows, :, plane] = _looked_up(self._encoded, np.sqrt(light))
        return made

    def _shown(self, planes: _Floats) -> list[_Floats]:
        """Returns light from 0 to 1, at white on paper, in the source's primaries."""
        if self._scene is None:
            return [_looked_up(self._light, plane) for plane in planes]
        scene = [_looked_up(self._scene, plane) for plane in planes]
        whole = _sum(self._luminance, scene) if len(scene) == 3 else scene[0]
        gain = np.maximum(whole, _TINY) ** np.float32(_OOTF)
        return [_looked_up(self._light, np.sqrt(np.sqrt(plane * gain))) for plane in scene]

    def _within(self, light: list[_Floats]) -> list[_Floats]:
        """Returns light in [0, 1] of the primaries of BT.709, less colourful where it was
        outside."""
        luma = _sum(self._luminance, light).clip(0, 1)
        away = [_sum(row, light) - luma for row in self._to_srgb]
        least, most = (reduce(choose, away) for choose in (np.minimum, np.maximum))
        share = np.minimum(luma / np.maximum(-least, _TINY), (1 - luma) / np.maximum(most, _TINY))
        np.minimum(share, 1, out=share)
        return [(luma + share * plane).clip(0, 1) for plane in away]


def _sum(weights: _Floats, planes: list[_Floats]) -> _Floats:
    red, green, blue = (weight * plane for weight, plane in zip(weights, planes, strict=True))
    return np.asarray(red + green + blue)


def converted(picture: Picture, points: CodePoints) -> Picture:
    """Returns a picture of HDR, whose code points are `points`, as sRGB of the same dtype."""
    picture, _ = profiles.full_range(picture)
    convert = SdrConversion(points, picture.colours.hdr, is_film=False)
    pixels = picture.pixels
    made = np.empty_like(pixels)
    for first in range(0, len(pixels), _ROWS):
        rows = slice(first, first + _ROWS)
        made[rows] = from_unit(convert(to_unit(pixels[rows], np.float32)), pixels.dtype)
    return replace(picture, pixels=made, colours=Colours())


def _looked_up(table: _Floats, values: _Floats) -> _Floats:
    places = (values * np.float32(_LEVELS) + np.float32(0.5)).astype(np.uint16)
    return table.take(places)


@functools.cache
def _light_table(transfer: int, hdr: Hdr | None) -> _Floats:
    """Returns light up to white on paper, 1, for even values of PQ, or for even fourth roots of
    HLG's light on a display."""
    values = np.linspace(0, 1, _LEVELS + 1)
    curve = code_points.curve_of(CodePoints(_USUAL, code_points.PQ), hdr)
    if transfer == HLG:
        values = code_points.pq_encoded(code_points.BRIGHTEST * values**4)
    return curve(values).clip(0, 1).astype(np.float32)


@functools.cache
def _scene_table() -> _Floats:
    """Returns the scene's light for even values of HLG."""
    return code_points.hlg_scene(np.linspace(0, 1, _LEVELS + 1)).astype(np.float32)


@functools.cache
def _encoded_table(is_film: bool) -> _Floats:
    """Returns SDR values for even square roots of light."""
    light = np.linspace(0, 1, _LEVELS + 1) ** 2
    made = light ** (1 / _GAMMA) if is_film else code_points.srgb_encoded(light)
    return made.astype(np.float32)
