"""Transfers metadata from a file to its result: read, corrected, and made ready for a format."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from waifu2x.formats.limits import Budget, OverBudgetError
from waifu2x.formats.png import chunks
from waifu2x.formats.table import Format, Kind
from waifu2x.imaging.picture import Chunk, Metadata

_XMP_KEYWORD = b"XML:com.adobe.xmp\0"
_XMP_ORIENTATION = (
    rb"""(\btiff:Orientation\s*=\s*["'])\s*([1-8])\s*(["'])""",
    rb"(<tiff:Orientation\s*>)\s*([1-8])\s*(</tiff:Orientation\s*>)",
)
"""Patterns of XMP's orientation, as an attribute and as an element.

Few files need them, so `re` compiles them when one does.
"""
_XMP_SIZES = tuple(
    (side, pattern.replace(b"NAME", name))
    for side, names in enumerate(
        (
            (b"exif:PixelYDimension", b"tiff:ImageLength"),
            (b"exif:PixelXDimension", b"tiff:ImageWidth"),
        )
    )
    for name in names
    for pattern in (
        rb"""(\bNAME\s*=\s*["'])\s*\d+\s*(["'])""",
        rb"(<NAME\s*>)\s*\d+\s*(</NAME\s*>)",
    )
)
"""Patterns of sizes in XMP, each with the side that it names: 0 is the height, 1 the width."""
_FIELDS: tuple[tuple[Kind, str], ...] = (
    ("EXIF", "exif"),
    ("XMP", "xmp"),
    ("IPTC", "iptc"),
    ("resolution", "dpi"),
    ("comment", "comment"),
)
_RAW_EXIF = (b"Raw profile type exif\0", b"Raw profile type APP1\0")
_RAW_IPTC = b"Raw profile type iptc\0"
_UUID_XMP = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")
_JP2_EXIF = (b"JpgTiffExif->JP2", bytes.fromhex("0537cdab9d0c4431a72afa561f2a113e"))
_JP2_IPTC = (
    bytes.fromhex("33c7a4d2b81d4723a0baf1a3e097ad38"),
    bytes.fromhex("09a14e97c0b442e0bebf36df6f0ce36f"),
)
"""Identifiers of uuid boxes, as exiftool knows them."""
_LARGEST_TEXT = 1 << 24
"""Bytes of a compressed text that are unpacked."""
_LONGEST = 65_000
"""Bytes that fit into one segment of a JPEG, without what surrounds them."""
_METRES = 0.0254
"""An inch, in metres."""
_INCH = {"<": b"\2\0", ">": b"\0\2"}
"""The unit of a TIFF's resolution that names none, by byte order."""


def of_file(data: bytes, info: Mapping[Any, Any], form: str) -> tuple[Metadata, int]:
    """Returns a file's metadata, corrected to upright, and the orientation that it names, 1 to 8.

    `info` is Pillow's, `form` its name of the format; PNG has all in its chunks. For TIFF, see
    `of_tiff`.
    """
    metadata = Metadata(
        exif=_exif(info.get("exif")),
        xmp=_bytes(info.get("xmp")),
        iptc=_iptc(info.get("photoshop")),
        dpi=_jfif_dpi(info) if form in ("JPEG", "MPO") else dpi(info.get("dpi")),
        comment=_bytes(info.get("comment")),
    )
    if form == "PNG":
        metadata = _of_png(metadata, data)
    elif form == "JXL":
        metadata = _of_jxl(metadata, data)
    elif form in _ELSEWHERE:
        metadata = _ELSEWHERE[form](metadata, data)
    said, orientation = upright(metadata)
    # These two are stored upright: the decoder has followed the orientation.
    return said, 1 if form in ("JXL", "HEIF") else orientation


def upright(metadata: Metadata) -> tuple[Metadata, int]:
    """Returns metadata corrected to upright, and the orientation that it names, 1 to 8.

    EXIF overrules XMP.
    """
    asked = 1
    if metadata.exif:
        from waifu2x.formats.metadata import exif

        asked = exif.orientation(metadata.exif)
    if asked == 1 and metadata.xmp:
        asked = _xmp_orientation(metadata.xmp)
    if asked == 1:
        return metadata, 1
    xmp = metadata.xmp
    for pattern in _XMP_ORIENTATION:
        xmp = xmp and re.sub(pattern, rb"\g<1>1\3", xmp)
    block = metadata.exif
    if block:
        block = exif.upright(block, asked)
    dpi = metadata.dpi and metadata.dpi[::-1] if asked >= 5 else metadata.dpi
    return replace(metadata, exif=block, xmp=xmp, dpi=dpi), asked


def of_tiff(data: bytes, at: int, budget: Budget) -> Metadata:
    """Returns the metadata in the directory at an offset of a TIFF file; empty if it is damaged."""
    from waifu2x.formats.metadata import tags

    wanted = {tags.XMP, tags.IPTC, tags.PHOTOSHOP} | tags.RESOLUTION
    try:
        order = tags.layout(data).order
        found = tags.values(data, at, wanted, budget)
        described = tags.described(data, at, budget, but=tags.RESOLUTION)
    except (ValueError, OverBudgetError):
        return Metadata()
    block = None
    if described.tags or described.children:
        block = tags.block(described, order)
    iptc = found.get(tags.IPTC) or _of_resources(found.get(tags.PHOTOSHOP, b""))
    return Metadata(exif=block, xmp=found.get(tags.XMP), iptc=iptc, dpi=_tiff_dpi(found, order))


def _tiff_dpi(found: Mapping[int, bytes], order: str) -> tuple[float, float] | None:
    """Returns the resolution that tags of a TIFF name, in pixels an inch; None without one."""
    from waifu2x.formats.metadata import tags

    try:
        unit = struct.unpack(order + "H", found.get(tags.RESOLUTION_UNIT, _INCH[order]))[0]
        factor = {2: 1.0, 3: 2.54}[unit]
        sides = (
            struct.unpack(order + "II", found[tag])
            for tag in (tags.X_RESOLUTION, tags.Y_RESOLUTION)
        )
        return dpi([dots / divisor * factor for dots, divisor in sides])
    except (KeyError, struct.error, ZeroDivisionError):
        return None


def sized(metadata: Metadata, height: int, width: int) -> Metadata:
    """Returns metadata in which EXIF and XMP name this size wherever they name one."""
    block = metadata.exif
    if block:
        from waifu2x.formats.metadata import exif

        block = exif.sized(block, height, width)
    xmp = metadata.xmp
    for side, pattern in _XMP_SIZES:
        xmp = xmp and re.sub(pattern, rb"\g<1>%d\2" % (height, width)[side], xmp)
    return replace(metadata, exif=block, xmp=xmp)


def kinds(metadata: Metadata) -> set[Kind]:
    """Returns the kinds of metadata that are there."""
    text = any(kind in (b"tEXt", b"zTXt", b"iTXt") for kind, _ in metadata.chunks)
    said: set[Kind] = {kind for kind, name in _FIELDS if getattr(metadata, name)}
    return said | {"text"} if text else said


def fitted(metadata: Metadata, form: Format) -> tuple[Metadata, set[Kind]]:
    """Returns the metadata that a format can hold, and the kinds that it cannot."""
    lost = kinds(metadata) & {"text"} - form.keeps
    for kind, name in _FIELDS:
        value = getattr(metadata, name)
        # In a JPEG, each is one segment.
        long = form.name == "JPEG" and kind != "resolution" and len(value or b"") > _LONGEST
        if value and (kind not in form.keeps or long):
            lost.add(kind)
            without: dict[str, Any] = {name: None}
            metadata = replace(metadata, **without)
    return metadata, lost


def save_options(metadata: Metadata, form: Format) -> dict[str, Any]:
    """Returns the metadata as arguments of Pillow's `save`, for a format that can hold it all."""
    options: dict[str, Any] = {}
    if metadata.exif:
        # The box of JPEG XL begins with an offset: ISO/IEC 18181-2, clause 9.
        head = bytes(4) if form.name == "JPEG XL" else b"Exif\0\0"
        options["exif"] = head + metadata.exif
    if metadata.xmp:
        options["xmp"] = metadata.xmp
    if metadata.dpi:
        options["dpi"] = metadata.dpi
    if metadata.comment:
        options["comment"] = metadata.comment
    if metadata.iptc:
        options["extra"] = _photoshop_segment(metadata.iptc)
    return options


def png_chunks(metadata: Metadata, planes: int, depth: int) -> list[Chunk]:
    """Returns the metadata as chunks of a PNG.

    The picture has 1 or 3 planes, transparency not counted, of 8 or 16 bits a sample.
    """
    found = []
    for kind, body in metadata.chunks:
        fitted = chunks.background_chunk(body, planes, depth) if kind == b"bKGD" else (kind, body)
        if fitted:
            found.append(fitted)
    if metadata.dpi:
        across, down = (round(dots / _METRES) for dots in metadata.dpi)
        found.append((b"pHYs", struct.pack(">IIB", across, down, 1)))
    if metadata.exif:
        found.append((b"eXIf", metadata.exif))
    if metadata.xmp:
        found.append((b"iTXt", _XMP_KEYWORD + bytes(4) + metadata.xmp))
    if metadata.iptc:
        found.append((b"zTXt", _raw_profile(b"iptc", _photoshop(metadata.iptc))))
    return found


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return bytes(value) if isinstance(value, bytes | bytearray) and value else None


def _exif(value: Any) -> bytes | None:
    block = _bytes(value)
    if block and block.startswith(b"Exif\0\0"):
        block = block[6:]
    if not block:
        return None
    from waifu2x.formats.metadata import exif

    return block if exif.readable(block) else None


def _jfif_dpi(info: Mapping[Any, Any]) -> tuple[float, float] | None:
    """Returns the resolution in a JPEG's own header; Pillow may take it from EXIF, or guess."""
    factor = {1: 1.0, 2: 2.54}.get(info.get("jfif_unit", 0))
    density = info.get("jfif_density")
    return None if not (factor and density) else dpi([dots * factor for dots in density])


def dpi(value: Any) -> tuple[float, float] | None:
    """Returns a resolution (across, down) in pixels an inch; None for values that make no sense."""
    try:
        across, down = (float(dots) for dots in value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    # A field of some format would overflow beyond.
    return (across, down) if 1 <= across < 65536 and 1 <= down < 65536 else None


def _iptc(value: Any) -> bytes | None:
    """Returns IIM records of Photoshop's resources, which Pillow has by their number."""
    return _bytes(value.get(0x0404)) if isinstance(value, Mapping) else None


def _of_png(metadata: Metadata, data: bytes) -> Metadata:
    kept: list[Chunk] = []
    budget = Budget(len(data))
    found = list(chunks.contents(data))
    background = chunks.background(dict(found))
    if background:
        kept.append((b"bKGD", background))
    for kind, body in chunks.other_chunks(found):
        if kind == b"eXIf":
            metadata = replace(metadata, exif=_exif(body))
        elif kind == b"iTXt" and body.startswith(_XMP_KEYWORD):
            metadata = replace(metadata, xmp=_text(kind, body, budget) or metadata.xmp)
        elif kind == b"pHYs" and (dots := _dots(body)):
            metadata = replace(metadata, dpi=dots)
        elif body.startswith(_RAW_EXIF) and (text := _text(kind, body, budget)):
            block = _exif(_unpacked(text))
            metadata = replace(metadata, exif=metadata.exif or block)
        elif body.startswith(_RAW_IPTC) and (text := _text(kind, body, budget)):
            records = _of_resources(_unpacked(text))
            metadata = replace(metadata, iptc=metadata.iptc or records)
        else:
            kept.append((kind, body))
    return replace(metadata, chunks=tuple(kept))


def _of_jxl(metadata: Metadata, data: bytes) -> Metadata:
    """Returns metadata with that of boxes that Pillow's plugin leaves: XMP, packed EXIF."""
    from waifu2x.formats.headers import jxl

    block = metadata.exif
    if block is None:
        content = jxl.content_of(data, b"Exif") or b""
        block = _exif(content[4 + int.from_bytes(content[:4], "big") :])
    return replace(metadata, exif=block, xmp=metadata.xmp or jxl.content_of(data, b"xml "))


def _of_psd(metadata: Metadata, data: bytes) -> Metadata:
    """Returns metadata with that of Photoshop's image resources."""
    from waifu2x.formats.headers import psd

    found = psd.resources(data)
    dots = None
    with suppress(struct.error):  # numbers of 16.16 bits, each behind one of its units
        dots = [
            side / 65536 for side in struct.unpack_from(">I4xI", found.get(psd.RESOLUTION, b""))
        ]
    return replace(
        metadata,
        exif=_exif(found.get(psd.EXIF)),
        xmp=found.get(psd.XMP) or None,
        iptc=found.get(psd.IPTC) or None,
        dpi=dpi(dots),
    )


def _of_jpeg_2000(metadata: Metadata, data: bytes) -> Metadata:
    """Returns metadata with that of the boxes in which exiftool and Adobe's programs put it."""
    from waifu2x.formats.headers import boxes

    found = boxes.uuids(data)
    blocks = [_exif(found.get(uuid)) for uuid in _JP2_EXIF]
    records = [_of_resources(found.get(uuid, b"")) for uuid in _JP2_IPTC]
    return replace(
        metadata,
        exif=next(filter(None, blocks), None),
        xmp=found.get(_UUID_XMP),
        iptc=next(filter(None, records), None),
    )


def _of_isobmff(metadata: Metadata, data: bytes) -> Metadata:
    """Returns metadata with the XMP that a file has beside its items, as films have it."""
    from waifu2x.formats.headers import boxes

    return replace(metadata, xmp=metadata.xmp or boxes.uuids(data).get(_UUID_XMP))


def _of_gif(metadata: Metadata, data: bytes) -> Metadata:
    from waifu2x.formats.headers import gif

    return replace(metadata, xmp=gif.xmp(data))


def _of_pnm(metadata: Metadata, data: bytes) -> Metadata:
    from waifu2x.formats import pnm

    return replace(metadata, comment=pnm.comment(data))


_ELSEWHERE = {
    "AVIF": _of_isobmff,
    "GIF": _of_gif,
    "HEIF": _of_isobmff,
    "JPEG2000": _of_jpeg_2000,
    "PPM": _of_pnm,
    "PSD": _of_psd,
}
"""Formats whose metadata Pillow leaves, by its names."""


def _dots(body: bytes) -> tuple[float, float] | None:
    """Returns the resolution in a pHYs chunk, in pixels an inch; None where it is only a ratio."""
    if len(body) != 9 or body[8] != 1:
        return None
    return dpi([dots * _METRES for dots in struct.unpack(">II", body[:8])])


def _text(kind: bytes, body: bytes, budget: Budget) -> bytes | None:
    """Returns the unpacked text of a chunk; None if it has none, is damaged or costs too much."""
    _, _, rest = body.partition(b"\0")
    if kind == b"tEXt":
        return rest
    packed = kind == b"zTXt" or (kind == b"iTXt" and rest[:1] == b"\1")
    if kind == b"iTXt":
        rest = rest[2:].partition(b"\0")[2].partition(b"\0")[2]
    elif kind == b"zTXt":
        rest = rest[1:]
    else:
        return None
    if not packed:
        return rest
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(rest, max(1, min(_LARGEST_TEXT, budget.bytes)))
        budget.copy(len(text))
    except (zlib.error, OverBudgetError):
        return None
    return text if unpacking.eof else None


def _xmp_orientation(xmp: bytes) -> int:
    for pattern in _XMP_ORIENTATION:
        found = re.search(pattern, xmp)
        if found:
            return int(found[2])
    return 1


def _raw_profile(name: bytes, content: bytes) -> bytes:
    """Returns a zTXt chunk for what PNG has no chunk for, as ImageMagick and exiftool write it."""
    digits = content.hex().encode()
    lines = b"\n".join(digits[i : i + 72] for i in range(0, len(digits), 72))
    text = b"\n%s\n%8d\n%s\n" % (name, len(content), lines)
    return b"Raw profile type %s\0\0" % name + zlib.compress(text)


def _unpacked(text: bytes) -> bytes:
    """Returns the content of a text of `_raw_profile`; empty if it is none."""
    try:
        return bytes.fromhex(text.split(None, 2)[2].decode("ascii"))
    except (ValueError, IndexError):
        return b""


def _photoshop(iptc: bytes) -> bytes:
    return b"8BIM\x04\x04\0\0" + struct.pack(">I", len(iptc)) + iptc + bytes(len(iptc) % 2)


def _photoshop_segment(iptc: bytes) -> bytes:
    content = b"Photoshop 3.0\0" + _photoshop(iptc)
    return b"\xff\xed" + struct.pack(">H", len(content) + 2) + content


def _of_resources(content: bytes) -> bytes | None:
    """Returns IIM records, bare or in one of Photoshop's resources; None without any."""
    if content[:1] == b"\x1c":
        return content
    at = content.find(b"8BIM\x04\x04")
    if at < 0 or at + 12 > len(content):
        return None
    named = content[at + 6] + 1
    at += 6 + named + named % 2
    if at + 4 > len(content):
        return None
    (length,) = struct.unpack_from(">I", content, at)
    return content[at + 4 : at + 4 + length] or None
