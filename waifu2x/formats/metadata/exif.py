"""Changes EXIF blocks in place: their orientation, their sizes, their thumbnail.

Nothing else is changed or moved: makers' notes hold offsets of their own, which would break. EXIF
2.32, section 4.
"""

from __future__ import annotations

import contextlib
import io
import struct

import numpy as np

from waifu2x.formats.limits import Budget, OverBudgetError
from waifu2x.formats.metadata import tags
from waifu2x.formats.metadata.tags import LONG, SHORT, TiffLayout
from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.picture import contiguous

ORIENTATION = 0x0112
_WIDTH, _HEIGHT = 0x0100, 0x0101
_PIXELS_ACROSS, _PIXELS_DOWN = 0xA002, 0xA003
_THUMBNAIL, _THUMBNAIL_LENGTH = 0x0201, 0x0202
_COLOUR_SPACE, _INTEROPERABILITY, _RULE = 0xA001, 0xA005, 0x0001
_SRGB, _ADOBE_RGB = 1, 2
"""Values of the colour space: cameras use the second, which the standard lacks."""
_ADOBE_RULE, _SRGB_RULE = b"R03", b"R98"
"""Names of DCF's rules: those of its optional files are for Adobe RGB. DCF 2.0, section 4.4."""
_DAMAGE = (ValueError, struct.error, OverBudgetError)


def orientation(exif: bytes) -> int:
    """Returns the orientation that a block names, 1 to 8; 1 (upright) for nonsense."""
    with contextlib.suppress(*_DAMAGE):
        form = tags.layout(exif)
        for place in _places(exif, form, tags.first(exif, form)):
            if (place.tag, place.kind, place.count) == (ORIENTATION, SHORT, 1):
                (value,) = struct.unpack_from(form.order + "H", exif, place.at)
                return int(value) if 1 <= value <= 8 else 1
    return 1


def readable(exif: bytes) -> bool:
    """Returns whether a block's first directory is whole."""
    try:
        form = tags.layout(exif)
        return not form.big and bool(_places(exif, form, tags.first(exif, form)))
    except _DAMAGE:
        return False


def upright(exif: bytes, orientation: int) -> bytes:
    """Returns the block of a picture that was turned: orientation 1, the thumbnail turned along."""
    changed = bytearray(exif)
    with contextlib.suppress(*_DAMAGE):
        form = tags.layout(exif)
        first = tags.first(exif, form)
        _reset(changed, form, first)
        _turn_thumbnail(changed, form, first, orientation)
    return bytes(changed)


def sized(exif: bytes, height: int, width: int) -> bytes:
    """Returns the block with this size wherever it names one."""
    changed = bytearray(exif)
    sizes = {_WIDTH: width, _PIXELS_ACROSS: width, _HEIGHT: height, _PIXELS_DOWN: height}
    with contextlib.suppress(*_DAMAGE):
        form = tags.layout(exif)
        directories = [tags.first(exif, form)]
        for directory in directories:
            for place in _places(exif, form, directory):
                if place.tag in sizes and place.count == 1:
                    _put(changed, form, place, sizes[place.tag])
                elif place.tag == tags.EXIF and len(directories) == 1:
                    directories.append(struct.unpack_from(form.order + "I", exif, place.at)[0])
    return bytes(changed)


def is_adobe_rgb(exif: bytes) -> bool:
    """Returns whether a block says that the picture is Adobe RGB."""
    with contextlib.suppress(*_DAMAGE):
        form = tags.layout(exif)
        space, rule = _colour_places(exif, form)
        if space is not None:
            (value,) = struct.unpack_from(form.order + "H", exif, space.at)
            is_named = rule is not None and exif[rule.at : rule.at + 3] == _ADOBE_RULE
            return value == _ADOBE_RGB or (value != _SRGB and is_named)
    return False


def as_srgb(exif: bytes) -> bytes:
    """Returns the block of a picture that is sRGB now: it says nothing else."""
    if not is_adobe_rgb(exif):
        return exif
    changed = bytearray(exif)
    with contextlib.suppress(*_DAMAGE):
        form = tags.layout(exif)
        space, rule = _colour_places(exif, form)
        if space is not None:
            _put(changed, form, space, _SRGB)
        if rule is not None:
            changed[rule.at : rule.at + 3] = _SRGB_RULE
    return bytes(changed)


def _colour_places(exif: bytes, form: TiffLayout) -> tuple[tags.Place | None, tags.Place | None]:
    """Returns the entries for the colour space and for DCF's rule. Raises _DAMAGE."""
    below = _below(exif, form, tags.first(exif, form), tags.EXIF)
    space = _only(exif, form, below, _COLOUR_SPACE, SHORT, 1)
    rules = below and _below(exif, form, below, _INTEROPERABILITY)
    return space, _only(exif, form, rules, _RULE, 2, 4)


def _below(exif: bytes, form: TiffLayout, at: int, tag: int) -> int:
    """Returns where the directory below an entry is; 0 without one. Raises _DAMAGE."""
    found = _only(exif, form, at, tag, LONG, 1)
    return 0 if found is None else int(struct.unpack_from(form.order + "I", exif, found.at)[0])


def _only(
    exif: bytes, form: TiffLayout, at: int, tag: int, kind: int, count: int
) -> tags.Place | None:
    """Returns the entry of a directory at an offset, not 0, with a value of that kind."""
    wanted = (tag, kind, count)
    found = _places(exif, form, at) if at else []
    return next((one for one in found if (one.tag, one.kind, one.count) == wanted), None)


def _places(exif: bytes, form: TiffLayout, at: int) -> list[tags.Place]:
    """Returns the entries of a directory. Raises _DAMAGE."""
    return list(tags.places(exif, form, at, Budget(len(exif))))


def _put(data: bytearray, form: TiffLayout, place: tags.Place, value: int) -> None:
    """Writes a number over an entry's value; a SHORT becomes a LONG if it has to."""
    if place.kind == SHORT and value < 1 << 16:
        struct.pack_into(form.order + "H", data, place.at, value)
    elif place.kind in (SHORT, LONG) and not form.big:
        struct.pack_into(form.order + "H", data, place.at - 6, LONG)
        struct.pack_into(form.order + "I", data, place.at, value)


def _reset(data: bytearray, form: TiffLayout, directory: int) -> None:
    for place in _places(bytes(data), form, directory):
        if place.tag == ORIENTATION:
            _put(data, form, place, 1)


def _turn_thumbnail(data: bytearray, form: TiffLayout, first: int, orientation: int) -> None:
    """Turns the thumbnail of the second directory in place.

    One that cannot be turned is blanked, and its directory unlinked.
    """
    link = tags.following(bytes(data), form, first)
    (second,) = struct.unpack_from(form.offset, data, link)
    if form.big or not second:
        return
    found = {place.tag: place.at for place in _places(bytes(data), form, second)}
    turned = None
    if _THUMBNAIL in found and _THUMBNAIL_LENGTH in found:
        (start,) = struct.unpack_from(form.order + "I", data, found[_THUMBNAIL])
        (length,) = struct.unpack_from(form.order + "I", data, found[_THUMBNAIL_LENGTH])
        end = min(start + length, len(data))
        if start < end:
            turned = _turned_thumbnail(bytes(data[start:end]), orientation)
            data[start:end] = (turned or b"").ljust(end - start, b"\0")
    if turned is None:
        struct.pack_into(form.offset, data, link, 0)
        return
    struct.pack_into(form.order + "I", data, found[_THUMBNAIL_LENGTH], len(turned))
    _reset(data, form, second)


_LARGEST = 1 << 20
"""Pixels of the largest thumbnail that is turned; EXIF 2.32, section 4.5.5, has 160x120, some
cameras more."""
_QUALITIES = (90, 75, 60, 40)


def _turned_thumbnail(jpeg: bytes, orientation: int) -> bytes | None:
    """Returns a thumbnail turned upright, a JPEG of no more bytes than it had.

    None where it is damaged, too large, or does not fit.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
            if image.mode not in ("L", "RGB") or image.width * image.height > _LARGEST:
                return None
            pixels = np.atleast_3d(np.asarray(image))
    except Exception:
        return None  # decoders raise anything for damage
    upright = contiguous(oriented_plane(pixels, orientation))
    for quality in _QUALITIES:
        content = io.BytesIO()
        Image.fromarray(upright.squeeze(-1) if upright.shape[-1] == 1 else upright).save(
            content, "JPEG", quality=quality, optimize=True
        )
        if content.tell() <= len(jpeg):
            return content.getvalue()
    return None
