"""PNG's chunks for colours: read, and made. PNG 3, sections 4.3 and 11.3.2."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from waifu2x.formats.metadata import icc
from waifu2x.formats.metadata.code_points import CHROMATICITY, LUMINANCE, hdr_of
from waifu2x.formats.png.chunks import profile, profile_chunk
from waifu2x.imaging.picture import Chunk, CodePoints, Colours, Hdr


def colours_of(found: Mapping[bytes, bytes], planes: int) -> tuple[Colours, bool]:
    """Returns the colours in a file's chunks, and whether it has a profile that is of no use.

    `found` are contents by kind, `planes` is 1 or 3. Damaged chunks count as missing.
    """
    whole = icc_profile = None
    if b"iCCP" in found:
        whole = profile(found[b"iCCP"])
        icc_profile = whole if whole and icc.fits(whole, planes) else None
    points = None
    cicp = found.get(b"cICP", b"")
    if len(cicp) == 4 and cicp[2] == 0 and cicp[3] < 2:
        points = CodePoints(cicp[0], cicp[1], bool(cicp[3]))
    elif icc_profile:
        points = icc.code_points_of(icc_profile)
    intent, gamma, primaries = (found.get(kind, b"") for kind in (b"sRGB", b"gAMA", b"cHRM"))
    colours = Colours(
        icc_profile,
        points,
        intent[0] if len(intent) == 1 else None,
        int.from_bytes(gamma, "big") if len(gamma) == 4 else None,
        struct.unpack(">8I", primaries) if len(primaries) == 32 else None,
        _hdr(found.get(b"mDCV", b""), found.get(b"cLLI", b"")),
    )
    return colours, b"iCCP" in found and icc_profile is None


def chunks_of(colours: Colours) -> list[Chunk]:
    """Returns the chunks for colours, in the order that PNG has them in."""
    found: list[Chunk] = []
    points, hdr = colours.code_points, colours.hdr
    if points is not None:
        numbers = (points.primaries, points.transfer, 0, points.full_range)
        found.append((b"cICP", bytes(numbers)))
    if colours.icc_profile:
        found.append(profile_chunk(colours.icc_profile))
    elif colours.intent is not None:
        found.append((b"sRGB", bytes((colours.intent,))))
    if colours.gamma is not None:
        found.append((b"gAMA", struct.pack(">I", colours.gamma)))
    if colours.primaries is not None:
        found.append((b"cHRM", struct.pack(">8I", *colours.primaries)))
    if hdr is not None and hdr.primaries and hdr.luminance:
        display = (round(value * CHROMATICITY) for value in hdr.primaries)
        least, most = (round(value * LUMINANCE) for value in hdr.luminance)
        found += _packed(b"mDCV", ">8H2I", (*display, most, least))
    if hdr is not None and hdr.light:
        light = (round(value * LUMINANCE) for value in hdr.light)
        found += _packed(b"cLLI", ">2I", light)
    return found


def _packed(kind: bytes, form: str, numbers: Iterable[int]) -> list[Chunk]:
    """Returns a chunk of numbers; none for those of no display, which are too large for it."""
    try:
        return [(kind, struct.pack(form, *numbers))]
    except struct.error:
        return []


def _hdr(mastering: bytes, light: bytes) -> Hdr | None:
    display = struct.unpack(">8H2I", mastering) if len(mastering) == 24 else ()
    levels = struct.unpack(">2I", light) if len(light) == 8 else ()
    return hdr_of(display, levels, LUMINANCE)
