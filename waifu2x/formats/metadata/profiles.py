"""Colour: ICC profiles, and PNG's chunks for the same.

Networks know sRGB. They see a picture of other colours through sRGB's tone curve, in float, and the
result is mapped back through the picture's own, so that shadows and lights look to them as in
training. Primaries stay: they matter little to a network, and a conversion would cut off colours
outside sRGB. The output has the input's profile, so nothing shifts. ICC.1:2022, sections 7, 8 and
10; PNG, third edition, 11.3.2; ITU-T H.273 for cICP.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Colours, Picture

Curve = Callable[[NDArray[Any]], NDArray[Any]]
"""A tone curve: from values in [0, 1] to light in [0, 1]."""
BAD_PROFILE = "its colour profile is damaged or for other colours, and is left out"
_NODES = 4096
_EVEN = np.linspace(0, 1, _NODES)
_NEAR = 1.5 / 255
"""Tone curves that differ from sRGB's by less than this, in [0, 1], count as sRGB's."""
_BAND = 1 << 22
"""Samples that are converted together."""
_D50 = (0.9642, 1.0, 0.8249)
_BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
_SRGB_PRIMARIES = (0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
"""x and y of white, red, green and blue, as in cHRM."""
_CICP_PRIMARIES = {
    1: _SRGB_PRIMARIES,
    9: (0.3127, 0.3290, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046),  # Rec. 2020
    11: (0.314, 0.351, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),  # DCI-P3
    12: (0.3127, 0.3290, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),  # Display P3
}
_CICP_GAMMA = {4: 2.2, 5: 2.8, 8: 1.0, 1: 2.4, 6: 2.4, 14: 2.4, 15: 2.4}
"""Gamma of displays by the code for transfer characteristics; PQ (16) and HLG (18) are no curves of
[0, 1]."""


def srgb_encoded(light: NDArray[Any]) -> NDArray[Any]:
    """Returns sRGB's values, in [0, 1], of light in [0, 1] (IEC 61966-2-1)."""
    return np.where(
        light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 0.0031308) ** (1 / 2.4) - 0.055
    )


def srgb_light(values: NDArray[Any]) -> NDArray[Any]:
    """Returns light, in [0, 1], of sRGB's values in [0, 1]."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


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
    """Converts a picture from its colour profile to sRGB; colours outside sRGB are cut off."""
    bare = replace(picture, colours=Colours())
    dtype, planes = picture.pixels.dtype, picture.pixels.shape[-1]
    if planes == 1:
        found = tone(picture.colours, 1)
        if found is None:
            return bare
        return replace(bare, pixels=from_unit(found.forth(bare).pixels, dtype))
    if picture.colours.icc_profile is None:
        return bare
    import imagecodecs

    try:
        converted = imagecodecs.cms_transform(
            picture.pixels,
            picture.colours.icc_profile,
            imagecodecs.cms_profile("srgb"),
            colorspace="rgb",
            outcolorspace="rgb",
        )
    except imagecodecs.CmsError:
        return bare
    return replace(bare, pixels=np.ascontiguousarray(converted))


def tone(colours: Colours, planes: int) -> Tone | None:
    """Returns the tone curves of a picture of `planes` planes.

    None where they are close to sRGB's, are not known, or do not rise everywhere.
    """
    curves = _curves(colours, planes)
    if curves is None:
        return None
    tables = []
    for curve in curves:
        table = srgb_encoded(np.clip(curve(_EVEN), 0, 1))
        # Only a curve that rises everywhere can be inverted.
        if np.diff(table).min() < 0 or table[-1] - table[0] < 0.5:
            return None
        tables.append(table + np.arange(_NODES) * 1e-12)
    if max(np.abs(table - _EVEN).max() for table in tables) < _NEAR:
        return None
    return Tone(tuple(tables))


def _curves(colours: Colours, planes: int) -> list[Curve] | None:
    if colours.icc_profile:
        tags = _tags(colours.icc_profile)
        names = (b"kTRC",) if planes == 1 else (b"rTRC", b"gTRC", b"bTRC")
        try:
            return [_curve(colours.icc_profile[tags[name]]) for name in names]
        except (KeyError, struct.error, ValueError):
            return None  # a profile of tables alone
    chunks = dict(colours.chunks)
    cicp = chunks.get(b"cICP", b"")
    if len(cicp) == 4:
        gamma = _CICP_GAMMA.get(cicp[1])
    elif b"sRGB" not in chunks and len(chunks.get(b"gAMA", b"")) == 4:
        (value,) = struct.unpack(">I", chunks[b"gAMA"])
        # 1/2.2 is how PNG says sRGB.
        gamma = 100_000 / value if value and abs(value - 45455) > 500 else None
    else:
        gamma = None
    return None if gamma is None else [_power(gamma)] * planes


def _power(gamma: float) -> Curve:
    return lambda values: np.power(values, gamma)


def _curve(tag: bytes) -> Curve:
    """Returns the curve that a tag of a profile holds (curv or para).

    Raises ValueError or struct.error for anything else.
    """
    if tag[:4] == b"curv":
        (count,) = struct.unpack_from(">I", tag, 8)
        if count > 65536:
            raise ValueError("a curve too long")
        numbers = np.array(struct.unpack_from(f">{count}H", tag, 12), np.float64)
        if count == 0:
            return _power(1.0)
        if count == 1:
            return _power(float(numbers[0]) / 256)
        nodes = np.linspace(0, 1, count)
        return lambda values: np.interp(values, nodes, numbers / 65535)
    if tag[:4] == b"para":
        (kind,) = struct.unpack_from(">H", tag, 8)
        counts = (1, 3, 4, 5, 7)
        if kind >= len(counts):
            raise ValueError("an unknown parametric curve")
        given = [v / 65536 for v in struct.unpack_from(f">{counts[kind]}i", tag, 12)]
        return _parametric(kind, given)
    raise ValueError("not a curve")


def _parametric(kind: int, given: list[float]) -> Curve:
    """Returns the curve of a para tag (section 10.18): (a x + b)^g + e from d on, c x + f below."""
    g, a, b, c, d, e, f = given[0], 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if kind in (1, 2):
        a, b = given[1:3]
        e = f = given[3] if kind == 2 else 0.0
        d = -b / a if a else 0.0
    elif kind in (3, 4):
        a, b, c, d = given[1:5]
        e, f = given[5:7] if kind == 4 else (0.0, 0.0)

    def curve(values: NDArray[Any]) -> NDArray[Any]:
        return np.where(values >= d, np.maximum(a * values + b, 0) ** g + e, c * values + f)

    return curve


def fits(profile: bytes, planes: int) -> bool:
    """Returns whether a profile is whole and for pictures of 1, 3 or 4 (CMYK) planes."""
    space = {1: b"GRAY", 3: b"RGB ", 4: b"CMYK"}[planes]
    return profile[36:40] == b"acsp" and profile[16:20] == space and bool(_tags(profile))


def name_of(profile: bytes) -> str:
    """Returns the description in a profile; `unnamed` where it has none."""
    from PIL import ImageCms

    try:
        return str(ImageCms.getProfileDescription(io.BytesIO(profile))).strip() or "unnamed"
    except (ImageCms.PyCMSError, OSError):
        return "unnamed"


def _tags(profile: bytes) -> dict[bytes, slice]:
    """Returns where the tags of a profile are; empty if it is damaged. Tags may share a place."""
    try:
        size, count = (
            struct.unpack_from(">I", profile)[0],
            struct.unpack_from(">I", profile, 128)[0],
        )
        if size > len(profile) or count > 1000:
            return {}
        found = {}
        for i in range(count):
            name, start, length = struct.unpack_from(">4sII", profile, 132 + 12 * i)
            if start + length > size:
                return {}
            found[name] = slice(start, start + length)
        return found
    except struct.error:
        return {}


def profile_of(colours: Colours, planes: int) -> bytes | None:
    """Returns an ICC profile of a picture's colours, made from PNG's chunks where it has none.

    None for sRGB, and for colours that no profile can describe.
    """
    if colours.icc_profile:
        return colours.icc_profile
    chunks = dict(colours.chunks)
    cicp, primaries = chunks.get(b"cICP", b""), _SRGB_PRIMARIES
    if len(cicp) == 4:
        if cicp[1] != 13 and cicp[1] not in _CICP_GAMMA:
            return None
        primaries = _CICP_PRIMARIES.get(cicp[0], _SRGB_PRIMARIES)
    elif b"sRGB" in chunks:
        return None
    elif len(chunks.get(b"cHRM", b"")) == 32:
        primaries = tuple(v / 100_000 for v in struct.unpack(">8I", chunks[b"cHRM"]))
    curves = _curves(colours, planes)
    plain = max(abs(a - b) for a, b in zip(primaries, _SRGB_PRIMARIES, strict=True)) < 0.002
    if curves is None and (plain or planes == 1):
        return None
    try:
        return _made(curves[0] if curves else srgb_light, primaries, planes)
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return None


def cannot_be_said(colours: Colours) -> bool:
    """Returns whether the colours are HDR (PQ or HLG), which only PNG can say."""
    cicp = dict(colours.chunks).get(b"cICP", b"")
    return len(cicp) == 4 and cicp[1] in (16, 18)


def _made(curve: Curve, primaries: tuple[float, ...], planes: int) -> bytes:
    """Returns a matrix profile, version 2, of one curve and the primaries as cHRM has them."""
    steps = np.rint(np.clip(curve(np.linspace(0, 1, 1024)), 0, 1) * 65535).astype(">u2")
    trc = b"curv" + struct.pack(">II", 0, len(steps)) + steps.tobytes()
    text = b"made from the picture's own words\0"
    tags = {
        b"desc": b"desc" + struct.pack(">II", 0, len(text)) + text + bytes(78),
        b"cprt": b"text" + bytes(4) + b"no copyright\0",
        b"wtpt": _xyz(_D50),
    }
    if planes == 1:
        tags[b"kTRC"] = trc
    else:
        white, *corners = (
            np.array([x / y, 1.0, (1 - x - y) / y])
            for x, y in zip(primaries[::2], primaries[1::2], strict=True)
        )
        matrix = np.stack(corners, axis=-1)
        matrix = matrix * np.linalg.solve(matrix, white)
        cones = (_BRADFORD @ np.array(_D50)) / (_BRADFORD @ white)
        matrix = np.linalg.inv(_BRADFORD) @ (cones[:, np.newaxis] * (_BRADFORD @ matrix))
        for index, name in enumerate((b"r", b"g", b"b")):
            tags[name + b"XYZ"] = _xyz(matrix[:, index])
            tags[name + b"TRC"] = trc
    return _written(tags, b"GRAY" if planes == 1 else b"RGB ")


def _xyz(values: Any) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">3i", *(math.floor(v * 65536 + 0.5) for v in values))


def _written(tags: dict[bytes, bytes], space: bytes) -> bytes:
    table, body, places = b"", b"", dict[bytes, int]()
    start = 132 + 12 * len(tags)
    for name, content in tags.items():
        if content not in places:
            body += bytes(-len(body) % 4)
            places[content] = start + len(body)
            body += content
        table += struct.pack(">4sII", name, places[content], len(content))
    header = struct.pack(
        ">I4xI4s4s4s12x4s28x12s48x",
        start + len(body), 0x02400000, b"mntr", space, b"XYZ ", b"acsp", _xyz(_D50)[8:],
    )  # fmt: skip
    return header + struct.pack(">I", len(tags)) + table + body
