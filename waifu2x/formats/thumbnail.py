"""The thumbnail that EXIF carries, turned along with its picture."""

from __future__ import annotations

import io

import numpy as np

from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.picture import contiguous

_LARGEST = 1 << 20
"""Pixels of the largest thumbnail that is turned. EXIF 2.32, section 4.5.5, has 160x120; some
cameras have more."""
_QUALITIES = (90, 75, 60, 40)


def turned_thumbnail(jpeg: bytes, orientation: int) -> bytes | None:
    """A thumbnail turned upright, a JPEG of no more bytes than it had.

    None where that cannot be done: it is damaged, too large, or does not fit.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
            if image.mode not in ("L", "RGB") or image.width * image.height > _LARGEST:
                return None
            pixels = np.atleast_3d(np.asarray(image))
    except Exception:
        return None  # damaged, in as many ways as decoders know
    upright = contiguous(oriented_plane(pixels, orientation))
    for quality in _QUALITIES:
        content = io.BytesIO()
        Image.fromarray(upright.squeeze(-1) if upright.shape[-1] == 1 else upright).save(
            content, "JPEG", quality=quality, optimize=True
        )
        if content.tell() <= len(jpeg):
            return content.getvalue()
    return None
