"""Reads AVIF, JPEG XL and HEIF of more than 8 bits a sample, which Pillow reduces to 8, and JPEG.

Pillow reads the rest of the file; imagecodecs and pillow-heif have the samples in full. If both do
not show the same picture, Pillow's is taken. A JPEG of other than 8 bits Pillow does not decode.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from waifu2x.formats.headers import jpeg, jxl
from waifu2x.formats.metadata import icc, profiles
from waifu2x.imaging.dtypes import to_unit
from waifu2x.imaging.picture import Colours, Picture, apart, full_range, with_alpha

_ALIKE = 2 / 255
"""Mean difference of two decoders' pixels, at most: each rounds and enlarges chroma in its way."""
_HEAD = 1 << 12
"""Bytes in which an AVIF's box of properties begins: it is the first after the file's type."""
_HIGH, _TWELVE = 0x40, 0x20
"""Flags of an AV1CodecConfigurationBox: more than 8 bits, and of those 12."""
_END_OF_JPEG = b"\xff\xd9"
_WORD = 16
"""Bits of pillow-heif's samples, at whose upper end those of the file stand."""


def depth(image: Image.Image, data: bytes) -> int:
    """Returns bits of a sample by a file's header and Pillow; 8 for floats and if neither says
    it."""
    with contextlib.suppress(ValueError, TypeError):
        if image.format == "JPEG":
            frame = jpeg.frame(data)
            return frame.bits if frame else 8
        if image.format == "AVIF":
            return _avif_depth(data)
        if image.format == "JXL":
            return jxl.depth(data)
        if image.format == "HEIF":
            return int(image.info.get("bit_depth", 8))
    return 8


def as_8_bits(data: bytes) -> bytes:
    """Returns a JPEG whose header names 8 bits, so that Pillow reads what else it holds; other
    files as they are. Raises OverBudgetError."""
    frame = jpeg.frame(data) if data.startswith(jpeg.START) else None
    if frame is None or frame.bits == 8:
        return data
    return data[: frame.at] + b"\x08" + data[frame.at + 1 :]


def of_jpeg(image: Image.Image, data: bytes, colours: Colours) -> tuple[Picture, tuple[str, ...]]:
    """Returns the pixels of a JPEG of other than 8 bits in the colours that it states, and notices.

    Raises what decoders raise, and ValueError for a file that is cut off, which they fill up.
    """
    if data.find(_END_OF_JPEG, jpeg.behind_header(data)) < 0:
        raise ValueError("it ends before its last row")
    samples = np.atleast_3d(imagecodecs.jpeg8_decode(data))
    bits = depth(image, data)
    picture = Picture(full_range(samples, bits), None, colours, bits=bits if bits > 8 else None)
    if colours.icc_profile and not icc.fits(colours.icc_profile, picture.pixels.shape[-1]):
        return replace(picture, colours=Colours()), (profiles.BAD_PROFILE,)
    return picture, ()


def deepened(picture: Picture, image: Image.Image, data: bytes) -> tuple[Picture, tuple[str, ...]]:
    """Returns a still picture that Pillow has read in the depth of its file, and notices."""
    bits = depth(image, data)
    if bits <= 8 or image.format == "JPEG":
        return picture, ()
    try:
        samples = full_range(np.atleast_3d(_samples(str(image.format), data, bits)), bits)
    except Exception:
        # Each library has its own errors, and may have been built without a codec.
        samples = np.empty(0)
    read = with_alpha(picture)
    # The plugin takes each half of a sample for one where JPEG XL is grey with transparency.
    is_broken = (image.format, image.mode) == ("JXL", "LA")
    if samples.shape == read.shape:
        difference = np.abs(to_unit(samples, np.float32) - to_unit(read, np.float32))
        if is_broken or difference.mean() <= _ALIKE:
            pixels, alpha = apart(samples)
            return replace(picture, pixels=pixels, alpha=alpha, bits=bits), ()
    if is_broken:
        raise ValueError(f"its {bits} bits a sample cannot be decoded")
    return picture, (f"its {bits} bits a sample are read as 8",)


def _samples(form: str, data: bytes, bits: int) -> NDArray[Any]:
    """Returns integers from 0 to 2^bits - 1. Raises what decoders raise."""
    if form == "HEIF":
        import pillow_heif

        image = pillow_heif.open_heif(io.BytesIO(data), convert_hdr_to_8bit=False)
        shifted: NDArray[Any] = np.asarray(image) >> (_WORD - bits)
        return shifted
    decode = imagecodecs.avif_decode if form == "AVIF" else imagecodecs.jpegxl_decode
    samples: NDArray[Any] = decode(data)
    return samples


def _avif_depth(data: bytes) -> int:
    """Returns bits of a sample by the AV1CodecConfigurationBoxes; 8 if they differ.

    AV1 in ISOBMFF, section 2.3.
    """
    start = data.find(b"meta", 0, _HEAD)
    end = start - 4 + int.from_bytes(data[max(start - 4, 0) : start], "big")
    found = set()
    at = data.find(b"av1C", max(start, 0), end)
    while at >= 0:
        (flags,) = data[at + 6 : at + 7] or b"\0"
        found.add((12 if flags & _TWELVE else 10) if flags & _HIGH else 8)
        at = data.find(b"av1C", at + 4, end)
    return found.pop() if len(found) == 1 else 8
