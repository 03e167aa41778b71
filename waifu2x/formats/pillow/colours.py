"""Writes colours that Pillow's encoders have no arguments for: AVIF's, HEIF's and JPEG XL's."""

from __future__ import annotations

import struct
from typing import Any

from waifu2x.formats.metadata import profiles
from waifu2x.formats.pillow import item_properties, jxl_colours
from waifu2x.formats.table import Format
from waifu2x.imaging.picture import Picture

_NCLX = b"colrnclx"
_AS_SRGB = _NCLX + struct.pack(">2H", 1, 13)
"""How Pillow marks an AVIF without a profile."""


def colour_options(picture: Picture, form: Format) -> dict[str, Any]:
    """Returns arguments of Pillow's `save` for the colours of a picture that the format holds."""
    colours = picture.colours
    points = colours.code_points
    if form.name == "JPEG XL":
        # Its own colours (XYB) would need a conversion from those of the picture.
        return {} if _is_srgb(picture) else {"use_original_profile": True}
    options: dict[str, Any] = {}
    if colours.icc_profile and "profile" in form.keeps:
        options["icc_profile"] = colours.icc_profile
    if points is not None and form.name == "HEIF":
        options["color_primaries"], options["transfer_characteristics"] = points[:2]
    elif points is not None and form.name == "AVIF":
        # The encoder's names for what stands in the stream itself.
        options["advanced"] = {
            "color-primaries": str(points.primaries),
            "transfer-characteristics": str(points.transfer),
        }
    return options


def coloured(content: bytes | memoryview, picture: Picture, form: Format) -> bytes | memoryview:
    """Returns the content of a file that the colours of its first picture are written into.

    Raises ValueError for a file that is not as its encoder used to write it.
    """
    points, hdr = picture.colours.code_points, picture.colours.hdr
    if form.name == "AVIF" and points is not None:
        numbers = struct.pack(">2H", points.primaries, points.transfer)
        content = bytes(content).replace(_AS_SRGB, _NCLX + numbers)
    if hdr is not None:
        content = item_properties.with_hdr(bytes(content), hdr)
    if form.name == "JPEG XL" and (picture.depth > 8 or not _is_srgb(picture)):
        found = profiles.plain_of(picture.colours, picture.pixels.shape[-1])
        assert found is not None  # others are converted
        return jxl_colours.with_colours(bytes(content), found)
    return content


def _is_srgb(picture: Picture) -> bool:
    return profiles.is_srgb(picture.colours, picture.pixels.shape[-1])
