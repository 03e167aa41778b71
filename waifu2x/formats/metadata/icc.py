"""ICC profiles, read and made. ICC.1:2022, sections 7, 9 and 10.

Profiles that are made have a matrix and tone curves. Those of H.273's code points name them too, in
the tag cicp, so that they can be read again, and programs for HDR need not use the curves.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.metadata.code_points import (
    Chromaticities,
    Curve,
    Power,
    light_of,
    srgb_light,
)
from waifu2x.imaging.picture import CodePoints

_D50 = (0.9642, 1.0, 0.8249)
_BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
_SRGB_CURVE = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
_NODES = 1024
_COLORANTS = (b"rXYZ", b"gXYZ", b"bXYZ")
_TRCS = {1: (b"kTRC",), 3: (b"rTRC", b"gTRC", b"bTRC")}


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


def code_points_of(profile: bytes) -> CodePoints | None:
    """Returns the code points of RGB that a profile names; None for one that names none."""
    place = _tags(profile).get(b"cicp")
    tag = profile[place] if place else b""
    if len(tag) < 12 or tag[:4] != b"cicp" or tag[10] != 0 or tag[11] > 1:
        return None
    return CodePoints(tag[8], tag[9], bool(tag[11]))


def curves_of(profile: bytes, planes: int) -> list[Curve] | None:
    """Returns the tone curve of each of 1 or 3 planes; None for a profile of tables alone."""
    tags = _tags(profile)
    try:
        return [_curve(profile[tags[name]]) for name in _TRCS[planes]]
    except (KeyError, struct.error, ValueError):
        return None


def matrix_of(profile: bytes) -> NDArray[np.float64] | None:
    """Returns the matrix (3, 3) from RGB to XYZ under D50; None for a profile of tables."""
    tags = _tags(profile)
    if b"A2B0" in tags:  # which counts first
        return None
    try:
        columns = [struct.unpack(">3i", profile[tags[name]][8:20]) for name in _COLORANTS]
    except (KeyError, struct.error):
        return None
    return np.array(columns, np.float64).T / 65536


def matrix(primaries: Chromaticities) -> NDArray[np.float64]:
    """Returns the matrix (3, 3) from RGB of some primaries to XYZ under D50.

    Raises ArithmeticError and LinAlgError for those that are no lights.
    """
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        own = own_matrix(primaries)
        return np.asarray(_adaptation(own.sum(axis=1)) @ own)


def own_matrix(primaries: Chromaticities) -> NDArray[np.float64]:
    """Returns the matrix (3, 3) from RGB of some primaries to XYZ under their own white. Its second
    row has the shares of luminance. Raises as `matrix` does."""
    white, *corners = (
        np.array([x / y, 1.0, (1 - x - y) / y])
        for x, y in zip(primaries[::2], primaries[1::2], strict=True)
    )
    found = np.stack(corners, axis=-1)
    return np.asarray(found * np.linalg.solve(found, white))


def _adaptation(white: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns Bradford's matrix (3, 3) from a white to D50."""
    cones = (_BRADFORD @ np.array(_D50)) / (_BRADFORD @ white)
    return np.asarray(np.linalg.inv(_BRADFORD) @ (cones[:, np.newaxis] * _BRADFORD))


def made(
    curves: Sequence[Curve],
    primaries: Chromaticities,
    name: str,
    points: CodePoints | None = None,
) -> bytes:
    """Returns a profile of a tone curve for each of 1 or 3 planes, and of primaries for 3.

    `points` are the code points that it names. Raises as `matrix` does, and struct.error for
    numbers that no profile holds.
    """
    tags = {
        b"desc": _text(name),
        b"cprt": _text("no copyright"),
        b"wtpt": _xyz(_D50),
        **{key: _trc(curve) for key, curve in zip(_TRCS[len(curves)], curves, strict=True)},
    }
    if len(curves) == 1:
        return _written(tags, b"GRAY")
    x, y = primaries[:2]
    adaptation = _adaptation(np.array([x / y, 1.0, (1 - x - y) / y]))
    tags[b"chad"] = b"sf32" + bytes(4) + _fixed(adaptation.flat)
    for key, column in zip(_COLORANTS, matrix(primaries).T, strict=True):
        tags[key] = _xyz(column)
    if points is not None:
        numbers = bytes((points.primaries, points.transfer, 0, points.full_range))
        tags[b"cicp"] = b"cicp" + bytes(4) + numbers
    return _written(tags, b"RGB ")


def for_rgb(profile: bytes, primaries: Chromaticities) -> bytes | None:
    """Returns a profile for grey as one for three equal planes; None for one of tables alone."""
    curves = curves_of(profile, 1)
    return made(curves * 3, primaries, name_of(profile)) if curves else None


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
            return Power(1.0)
        if count == 1:
            return Power(float(numbers[0]) / 256)
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
    if kind == 0:
        return Power(g)
    if kind in (1, 2):
        a, b = given[1:3]
        e = f = given[3] if kind == 2 else 0.0
        d = -b / a if a else 0.0
    else:
        a, b, c, d = given[1:5]
        e, f = given[5:7] if kind == 4 else (0.0, 0.0)

    def curve(values: NDArray[Any]) -> NDArray[Any]:
        return np.where(values >= d, np.maximum(a * values + b, 0) ** g + e, c * values + f)

    return curve


def _trc(curve: Curve) -> bytes:
    if curve is srgb_light:
        return b"para" + struct.pack(">4xHxx", 3) + _fixed(_SRGB_CURVE)
    if isinstance(curve, Power) and curve.gamma < 32768:
        return b"para" + struct.pack(">4xHxx", 0) + _fixed([curve.gamma])
    values = np.rint(light_of(curve, np.linspace(0, 1, _NODES)) * 65535)
    return b"curv" + struct.pack(">4xI", _NODES) + bytes(values.astype(">u2").data)


def _text(text: str) -> bytes:
    content = text.encode("utf-16-be")
    return b"mluc" + struct.pack(">4xII4sII", 1, 12, b"enUS", len(content), 28) + content


def _xyz(values: Any) -> bytes:
    return b"XYZ " + bytes(4) + _fixed(values)


def _fixed(values: Any) -> bytes:
    """Returns numbers as s15Fixed16."""
    return b"".join(struct.pack(">i", math.floor(value * 65536 + 0.5)) for value in values)


def _written(tags: dict[bytes, bytes], space: bytes) -> bytes:
    table, body, places = b"", b"", dict[bytes, int]()
    start = 132 + 12 * len(tags)
    for name, content in tags.items():
        if content not in places:
            body += bytes(-len(body) % 4)
            places[content] = start + len(body)
            body += content
        table += struct.pack(">4sII", name, places[content], len(content))
    body += bytes(-len(body) % 4)
    header = struct.pack(
        ">I4xI4s4s4s12x4s28x12s48x",
        start + len(body), 0x04400000, b"mntr", space, b"XYZ ", b"acsp", _xyz(_D50)[8:],
    )  # fmt: skip
    return header + struct.pack(">I", len(tags)) + table + body
