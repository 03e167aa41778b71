"""What a picture's file holds, and what of it another format would keep."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageCms

from waifu2x import picture
from waifu2x.picture import Picture

_METADATA = {
    "exif": "EXIF",
    "xmp": "XMP",
    "photoshop": "IPTC",
    "dpi": "resolution",
    "comment": "comment",
}
"""What Pillow calls what a file says besides its pixels."""


@dataclass(frozen=True)
class Description:
    """What was found in a file."""

    format: str
    width: int
    height: int
    """Upright."""
    colours: str
    """`grey` or `RGB`, as it is computed."""
    bits: int
    """Of a sample."""
    transparent: bool
    """Whether any pixel is."""
    profile: str | None
    """The name of its colour profile."""
    metadata: tuple[str, ...]
    """Kinds of it."""
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    """What a result in the format that was asked for keeps, and does not."""


def describe(path: Path, extension: str) -> Description:
    """The picture in a file, and what becomes of it in a format.

    Raises ImageError for a file that cannot be read, and for one that is not supported.
    """
    found = picture.read(path)
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        form, info = str(image.format), image.info
    height, width, planes = found.pixels.shape
    metadata = [name for key, name in _METADATA.items() if info.get(key)]
    metadata += ["text"] * any(isinstance(value, str) for value in info.values())
    profile = _profile_name(found)
    transparency = ["transparency"] * found.transparent
    holds_alpha = picture.holds_alpha(extension)
    return Description(
        format=form,
        width=width,
        height=height,
        colours="grey" if planes == 1 else "RGB",
        bits=8 * found.pixels.dtype.itemsize,
        transparent=found.transparent,
        profile=profile,
        metadata=tuple(metadata),
        kept=(*(["profile"] if profile else []), *(transparency if holds_alpha else [])),
        lost=(*metadata, *([] if holds_alpha else transparency)),
    )


def _profile_name(found: Picture) -> str | None:
    """What a colour profile calls itself."""
    if not found.icc_profile:
        return None
    name: Any = "unnamed"
    with contextlib.suppress(ImageCms.PyCMSError, OSError):
        name = ImageCms.getProfileDescription(io.BytesIO(found.icc_profile)).strip() or name
    return str(name)
