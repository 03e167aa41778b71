"""Reads what files of all formats but PNG say about their colours.

An ICC profile counts before code points in AVIF and HEIF (ISO/IEC 23000-22, section 7.3.6.4), and
before everything else in other formats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from waifu2x.formats.headers import boxes, gif
from waifu2x.formats.limits import Budget, OverBudgetError
from waifu2x.formats.metadata import code_points, icc, tags
from waifu2x.imaging.picture import CodePoints, Colours, Hdr

_UNSPECIFIED = 2
ADOBE_RGB = Colours(
    gamma=round(100_000 * 256 / 563),
    primaries=(31270, 32900, 64000, 33000, 21000, 71000, 15000, 6000),
)
"""Adobe RGB (1998), sections 4.2 and 4.3."""
_DAMAGE = (ValueError, struct.error, IndexError, OverBudgetError)
_TRANSFER, _WHITE, _PRIMARIES = 301, 318, 319
"""Tags of a TIFF. TIFF 6.0, section 20."""


def of_file(data: bytes, info: Mapping[Any, Any], form: str) -> Colours:
    """Returns the colours that a file states, whatever its pixels.

    `info` is Pillow's, `form` its name of the format. Statements that are damaged count as missing.
    """
    stated = Colours()
    if form in _READERS:
        try:
            stated = _READERS[form](data)
        except _DAMAGE:
            stated = Colours()
    elif form in ("JPEG", "MPO"):
        stated = of_exif(info.get("exif"))
    elif "chromaticity" in info or "gamma" in info:  # a PNG that Pillow has read
        stated = _of_png_info(info)
    profile = info.get("icc_profile")
    if not profile:
        return stated
    return with_profile(bytes(profile), stated.hdr)


def with_profile(profile: bytes, hdr: Hdr | None = None) -> Colours:
    """Returns the colours of a profile, with the code points that it names."""
    return Colours(profile, icc.code_points_of(profile), hdr=hdr)


def of_exif(block: Any) -> Colours:
    """Returns Adobe RGB if an EXIF block says so, and sRGB by no word otherwise."""
    from waifu2x.formats.metadata import exif

    if not isinstance(block, bytes):
        return Colours()
    return ADOBE_RGB if exif.is_adobe_rgb(block.removeprefix(b"Exif\0\0")) else Colours()


def of_tiff(data: bytes, at: int, budget: Budget, planes: int, exif: bytes | None) -> Colours:
    """Returns the colours in the directory at an offset of a TIFF file, of 1 or 3 planes.

    `exif` is the block of its metadata. Statements that are damaged count as missing.
    """
    try:
        order = tags.layout(data).order
        wanted = (_TRANSFER, _WHITE, _PRIMARIES, tags.ICC_PROFILE)
        found = tags.values(data, at, wanted, budget)
        if found.get(tags.ICC_PROFILE):
            return with_profile(found[tags.ICC_PROFILE])
        white, corners = (
            _ratios(found.get(tag, b""), order, count)
            for tag, count in ((_WHITE, 2), (_PRIMARIES, 6))
        )
        stated = Colours(primaries=(white or _D65) + corners if corners else None)
        table = np.frombuffer(found.get(_TRANSFER, b""), order + "u2").astype(np.float64) / 65535
    except _DAMAGE:
        return Colours()
    if len(table) < 2:
        return stated if stated.primaries else of_exif(exif)
    curves = _tables(table, planes)
    primaries = code_points.SRGB_PRIMARIES
    if stated.primaries:
        primaries = tuple(value / 100_000 for value in stated.primaries)
    try:
        return Colours(icc_profile=icc.made(curves, primaries, "as the TIFF says"))
    except (ArithmeticError, ValueError, struct.error):
        return Colours()


_D65 = (31270, 32900)


def _ratios(value: bytes, order: str, count: int) -> tuple[int, ...]:
    """Returns rational numbers in 1/100,000; empty for another number of them."""
    if len(value) != 8 * count:
        return ()
    numbers = struct.unpack(f"{order}{2 * count}I", value)
    if not all(numbers[1::2]):
        return ()
    return tuple(
        round(100_000 * top / bottom)
        for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)
    )


def _tables(table: Any, planes: int) -> list[code_points.Curve]:
    """Returns a curve for each plane of a table for all of them, or of three in a row."""
    parts = 3 if len(table) % 3 == 0 else 1
    columns = table.reshape(parts, -1)
    nodes = np.linspace(0, 1, columns.shape[1])

    def curve(plane: int) -> code_points.Curve:
        return lambda values: np.interp(values, nodes, columns[plane % parts])

    return [curve(plane) for plane in range(planes)]


def _of_items(data: bytes) -> Colours:
    """Returns the colours of an AVIF or HEIF by the properties of its primary picture."""
    points = None
    display: tuple[int, ...] = ()
    light: tuple[int, ...] = ()
    for kind, content in boxes.primary_properties(data):
        if kind == b"colr" and content[:4] == b"nclx" and len(content) >= 11:
            primaries, transfer = struct.unpack_from(">2H", content, 4)
            if primaries < 256 and transfer < 256:
                points = CodePoints(primaries, transfer)
        elif kind == b"mdcv" and len(content) == 24:
            # Green, blue, red and white there: ISO/IEC 14496-12, section 12.1.7.
            numbers = struct.unpack(">8H2I", content)
            display = (*numbers[4:6], *numbers[:4], *numbers[6:])
        elif kind == b"clli" and len(content) == 4:
            light = struct.unpack(">2H", content)
    if points is not None and _UNSPECIFIED in points[:2]:
        points = None
    return Colours(None, points, hdr=code_points.hdr_of(display, light, 1))


def _of_jp2(data: bytes) -> Colours:
    """Returns the colours of a JPEG 2000: the first method that is understood, as its writers
    order them."""
    for content in boxes.jp2_colours(data):
        method = content[0]
        if method in (2, 3):
            return with_profile(content[3:])
        if method == 5 and len(content) >= 7:
            return Colours(None, CodePoints(content[3], content[4]))
        if method == 1:
            return Colours()
    return Colours()


def _of_bmp(data: bytes) -> Colours:
    """Returns the colours of a bitmap header of version 4 or 5."""
    size, kind = struct.unpack_from("<I52xI", data, 14)
    if size >= 124 and kind == int.from_bytes(b"MBED"):
        start, length = struct.unpack_from("<2I", data, 126)
        return with_profile(data[14 + start : 14 + start + length])
    if size < 108 or kind != 0:
        return Colours()
    ends = struct.unpack_from("<9i", data, 74)
    gammas = [value / 65536 for value in struct.unpack_from("<3I", data, 110)]
    corners: list[int] = []
    for at in (0, 3, 6):
        total = sum(ends[at : at + 3])
        if total <= 0:
            return Colours()
        corners += (round(100_000 * value / total) for value in ends[at : at + 2])
    gamma = sum(gammas) / 3
    return Colours(
        gamma=round(100_000 / gamma) if 0.1 < gamma < 10 else None,
        primaries=(*_D65, *corners),
    )


def _of_gif(data: bytes) -> Colours:
    profile = gif.profile(data)
    return with_profile(profile) if profile else Colours()


def _of_tga(data: bytes) -> Colours:
    """Returns the gamma in the extension area of a TGA. Truevision's specification, version 2.0."""
    if data[-18:-2] != b"TRUEVISION-XFILE":
        return Colours()
    (start,) = struct.unpack_from("<I", data, len(data) - 26)
    if not start:
        return Colours()
    top, bottom = struct.unpack_from("<2H", data, start + 478)
    if not (top and bottom and 0.1 < top / bottom < 10):
        return Colours()
    return Colours(gamma=round(100_000 * bottom / top))


_READERS: dict[str, Callable[[bytes], Colours]] = {
    "AVIF": _of_items,
    "HEIF": _of_items,
    "JPEG2000": _of_jp2,
    "BMP": _of_bmp,
    "DIB": _of_bmp,
    "GIF": _of_gif,
    "TGA": _of_tga,
}


def _of_png_info(info: Mapping[Any, Any]) -> Colours:
    gamma, primaries = info.get("gamma"), info.get("chromaticity")
    return Colours(
        intent=info.get("srgb"),
        gamma=round(100_000 * gamma) if gamma else None,
        primaries=tuple(round(100_000 * value) for value in primaries) if primaries else None,
    )
