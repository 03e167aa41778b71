"""The meaning of a picture's colours, however its file says it: for networks and for other formats.

Networks know sRGB. They see a picture of other colours through sRGB's tone curve, in float, and the
result is mapped back through the picture's own, so that shadows and lights look to them as in
training. Primaries stay: they matter little to a network, and a conversion would cut off colours
outside sRGB. The output has the input's colours, so nothing shifts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.metadata import code_points, icc
from waifu2x.formats.metadata.code_points import (
    PRIMARIES,
    SRGB_PRIMARIES,
    Chromaticities,
    Curve,
    Power,
    light_of,
    srgb_encoded,
    srgb_light,
)
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import CodePoints, Colours, Picture

BAD_PROFILE = "its colour profile is damaged or for other colours, and is left out"
_NODES = 4096
_EVEN = np.linspace(0, 1, _NODES)
_NEAR = 1.5 / 255
"""Tone curves that differ from sRGB's by less than this, in [0, 1], count as sRGB's."""
_BAND = 1 << 22
"""Samples that are converted together."""
_SAME = 0.002
"""The most by which curves and matrices differ that count as the same."""
_FARTHEST, _STEEPEST = 2.0, 100.0
"""Chromaticities and powers from which on JPEG XL cannot hold them."""
_WIDENED = "its samples of narrow range become such of full range"
_PLAIN_GAMMA = 45455
"""How PNG says sRGB, as an exponent in 1/100,000."""


class Tone(NamedTuple):
    """Rising tone curves of a picture's planes, as tables to sRGB's curve and back."""

    tables: tuple[NDArray[np.float64], ...]
    """For each plane, sRGB's value, in [0, 1], for 4096 values evenly from 0 to 1."""

    def forth(self, picture: Picture) -> Picture:
        """Returns the picture with sRGB's tone curve, in float32, as a network takes it."""
        return self._mapped(picture, [(_EVEN, table) for table in self.tables])

    def back(self, picture: Picture) -> Picture:
        """Returns a network's picture with the original tone curves, in float32."""
        return self._mapped(picture, [(table, _EVEN) for table in self.tables])

    @staticmethod
    def _mapped(
        picture: Picture, curves: list[tuple[NDArray[np.float64], NDArray[np.float64]]]
    ) -> Picture:
        pixels = picture.pixels
        result = np.empty(pixels.shape, np.float32)
        rows = max(1, _BAND // max(1, pixels.shape[1] * pixels.shape[2]))
        for top in range(0, len(pixels), rows):
            band = to_unit(pixels[top : top + rows], np.float32)
            for plane, (xs, ys) in enumerate(curves):
                result[top : top + rows, :, plane] = np.interp(band[..., plane], xs, ys)
        return replace(picture, pixels=result)


def in_srgb_tone(picture: Picture, work: Callable[[Picture], Picture]) -> Picture:
    """Calls `work` with the picture in sRGB's tone curve; returns its result in the original."""
    found = tone(picture.colours, picture.pixels.shape[-1])
    if found is None:
        return work(picture)
    result = found.back(work(found.forth(picture)))
    return replace(result, pixels=from_unit(result.pixels, picture.pixels.dtype))


def to_srgb(picture: Picture) -> Picture:
    """Converts a picture to sRGB; one of colours that cannot be computed is taken for it."""
    return converted(picture) or replace(picture, colours=Colours())


def converted(picture: Picture) -> Picture | None:
    """Converts a picture to sRGB: HDR as SDR shows it, other colours cut off where sRGB ends.

    None for colours that cannot be computed.
    """
    colours = picture.colours
    points = colours.code_points
    if points is not None and code_points.is_hdr(points):
        from waifu2x.formats.metadata import sdr

        return sdr.converted(picture, points)
    bare = replace(picture, colours=Colours())
    dtype, planes = picture.pixels.dtype, picture.pixels.shape[-1]
    if is_srgb(colours, planes):
        return bare
    if planes == 1:
        curves = _curves(colours, 1)
        if curves is None:
            return bare if plain_of(colours, 1) else None
        found = _tone(curves)
        return replace(bare, pixels=from_unit(found.forth(bare).pixels, dtype)) if found else bare
    profile = profile_of(colours, planes)
    if profile is None:
        return bare if plain_of(colours, planes) else None
    import imagecodecs

    try:
        converted = imagecodecs.cms_transform(
            picture.pixels,
            profile,
            imagecodecs.cms_profile("srgb"),
            colorspace="rgb",
            outcolorspace="rgb",
        )
    except imagecodecs.CmsError:
        return None
    return replace(bare, pixels=np.ascontiguousarray(converted))


def tone(colours: Colours, planes: int) -> Tone | None:
    """Returns the tone curves of a picture of `planes` planes, as networks are to see it.

    None where they are close to sRGB's, are not known, or do not rise everywhere. None for HDR too,
    whose highlights sRGB's curve has no place for.
    """
    if code_points.is_hdr(colours.code_points):
        return None
    curves = _curves(colours, planes)
    return None if curves is None else _tone(curves)


def _tone(curves: list[Curve]) -> Tone | None:
    tables = []
    for curve in curves:
        table = srgb_encoded(light_of(curve, _EVEN))
        # Only a curve that rises everywhere can be inverted.
        if np.diff(table).min() < 0 or table[-1] - table[0] < 0.5:
            return None
        tables.append(table + np.arange(_NODES) * 1e-12)
    if max(np.abs(table - _EVEN).max() for table in tables) < _NEAR:
        return None
    return Tone(tuple(tables))


def _known(colours: Colours) -> CodePoints | None:
    """Returns the code points if they can be computed; others are skipped, as PNG 3 has it."""
    points = colours.code_points
    return points if code_points.is_known(points) else None


def _curves(colours: Colours, planes: int) -> list[Curve] | None:
    """Returns the tone curve of each plane; None for sRGB's, and for those of tables alone."""
    points = _known(colours)
    if points is not None:
        is_srgb = points.full_range and points.transfer == code_points.SRGB
        return None if is_srgb else [code_points.curve_of(points, colours.hdr)] * planes
    if colours.icc_profile:
        return icc.curves_of(colours.icc_profile, planes)
    gamma = colours.gamma
    if colours.intent is not None or not gamma:
        return None
    if abs(gamma - _PLAIN_GAMMA) <= 500 and _near(_stated(colours), SRGB_PRIMARIES):
        return None
    return [Power(100_000 / gamma)] * planes


def profile_of(colours: Colours, planes: int) -> bytes | None:
    """Returns an ICC profile of the colours of 1 or 3 planes, made where the file has none.

    None for sRGB, and for colours that no profile can describe.
    """
    points = _known(colours)
    if colours.icc_profile and (points is None or _names(colours.icc_profile, points)):
        return colours.icc_profile
    curves, primaries, name = _curves(colours, planes), SRGB_PRIMARIES, ""
    if points is not None:
        primaries, name = PRIMARIES[points.primaries], code_points.name_of(points)
    elif colours.intent is not None:
        return None
    else:
        primaries = _stated(colours)
        exponent = f"gamma {100_000 / colours.gamma:.2f}" if curves and colours.gamma else "sRGB"
        name = f"primaries of its own, {exponent}" if primaries is not SRGB_PRIMARIES else exponent
    if curves is None and (planes == 1 or _near(primaries, SRGB_PRIMARIES)):
        return None
    try:
        return icc.made(curves or [srgb_light] * planes, primaries, name, points)
    except (ArithmeticError, ValueError, struct.error):
        return None


class Plain(NamedTuple):
    """Colours that are primaries and one tone curve."""

    primaries: Chromaticities
    transfer: int | None
    """H.273's number of the curve."""
    gamma: float = 1.0
    """The power that the curve is, where it has no number."""


def code_points_of(profile: bytes, planes: int) -> CodePoints | None:
    """Returns the colours of a profile of 1 or 3 planes by H.273's numbers; None for others."""
    named = icc.code_points_of(profile)
    found = _plain_profile(profile, planes) if icc.fits(profile, planes) else None
    if named is not None or found is None or found.transfer is None:
        return named
    known = (key for key, value in PRIMARIES.items() if value == found.primaries)
    primaries = next(known, None)
    return None if primaries is None else CodePoints(primaries, found.transfer)


def plain_of(colours: Colours, planes: int) -> Plain | None:
    """Returns the colours of 1 or 3 planes as primaries and a curve, as JPEG XL has them.

    None where they are more, or make no sense.
    """
    points = colours.code_points
    if points is not None and code_points.is_known(points):
        return Plain(PRIMARIES[points.primaries], points.transfer)
    if colours.icc_profile:
        return _plain_profile(colours.icc_profile, planes)
    if points is not None:
        return None
    if colours.intent is not None:
        return Plain(SRGB_PRIMARIES, code_points.SRGB)
    curves, primaries = _curves(colours, planes), _stated(colours)
    if not _are_lights(primaries):
        return None
    if curves is None:
        return Plain(primaries, code_points.SRGB)
    gamma = 100_000 / (colours.gamma or _PLAIN_GAMMA)
    return Plain(primaries, None, gamma) if 1 <= gamma <= _STEEPEST else None


def is_srgb(colours: Colours, planes: int) -> bool:
    """Returns whether the colours of 1 or 3 planes are sRGB, by whatever words."""
    points, found = colours.code_points, plain_of(colours, planes)
    is_full = points is None or points.full_range
    return is_full and found is not None and found[:2] == (SRGB_PRIMARIES, code_points.SRGB)


def _plain_profile(profile: bytes, planes: int) -> Plain | None:
    curves = icc.curves_of(profile, planes)
    primaries = SRGB_PRIMARIES if planes == 1 else _primaries_of(icc.matrix_of(profile))
    if curves is None or primaries is None:
        return None
    tables = [srgb_encoded(light_of(curve, _EVEN)) for curve in curves]
    middle = float(light_of(curves[0], np.array([0.5]))[0])
    gamma = math.log(middle) / math.log(0.5) if 0 < middle < 1 else 1.0
    for curve, transfer in ((srgb_light, code_points.SRGB), (Power(gamma), None)):
        wanted = srgb_encoded(light_of(curve, _EVEN))
        is_held = transfer is not None or 1 <= gamma <= _STEEPEST
        if is_held and max(np.abs(table - wanted).max() for table in tables) < _SAME:
            return Plain(primaries, transfer, gamma)
    return None


def _primaries_of(matrix: NDArray[np.float64] | None) -> Chromaticities | None:
    """Returns the primaries of a matrix from RGB to XYZ under D50: H.273's where they are those."""
    if matrix is None or not matrix.sum(axis=0).all():
        return None
    for known in PRIMARIES.values():
        if np.abs(icc.matrix(known) - matrix).max() < _SAME:
            return known
    white = matrix.sum(axis=1)
    if white.min() <= 0:
        return None
    columns = (column[:2] / column.sum() for column in (white, *matrix.T))
    found = tuple(float(value) for column in columns for value in column)
    return found if _are_lights(found) else None


def _are_lights(primaries: Chromaticities) -> bool:
    """Returns whether formats can hold primaries, and programs compute with them."""
    try:
        computed = np.isfinite(icc.matrix(primaries)).all()
    except (ArithmeticError, ValueError):
        return False
    is_white = all(0.01 <= value <= 1 for value in primaries[:2])
    return bool(computed) and is_white and max(map(abs, primaries)) < _FARTHEST


def for_rgb(colours: Colours) -> bytes | None:
    """Returns a profile of grey for three equal planes; None for one of tables alone."""
    if colours.icc_profile and _known(colours) is None:
        return icc.for_rgb(colours.icc_profile, SRGB_PRIMARIES)
    return profile_of(replace(colours, icc_profile=None), 3)


def full_range(picture: Picture) -> tuple[Picture, list[str]]:
    """Returns a picture whose samples use their whole range, and a notice if they did not."""
    points = picture.colours.code_points
    if points is None or points.full_range:
        return picture, []
    values = (to_unit(picture.pixels, np.float32) * 255 - 16) / 219
    pixels = from_unit(values.clip(0, 1), picture.pixels.dtype)
    colours = replace(picture.colours, code_points=points._replace(full_range=True))
    return replace(picture, pixels=pixels, colours=colours), [_WIDENED]


def _names(profile: bytes, points: CodePoints) -> bool:
    return icc.code_points_of(profile) == points


def _near(one: Chromaticities, other: Chromaticities) -> bool:
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) < _SAME


def _stated(colours: Colours) -> Chromaticities:
    if colours.primaries is None:
        return SRGB_PRIMARIES
    return tuple(value / 100_000 for value in colours.primaries)
