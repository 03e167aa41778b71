"""Converts PIL images to Pictures, and Pictures to PIL images."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image, JpegImagePlugin

from waifu2x.errors import ImageError
from waifu2x.formats.base import in_words
from waifu2x.formats.metadata import colours as stated
from waifu2x.formats.metadata import icc, profiles, transfer
from waifu2x.imaging.orientation import oriented
from waifu2x.imaging.picture import Colours, JpegCoding, Picture, apart, with_alpha
from waifu2x.imaging.streams import Allocate


def from_pil(image: Image.Image, name: str = "the picture") -> Picture:
    """Returns a PIL image as a Picture, turned upright as its EXIF asks for.

    Raises ImageError for a mode that is not supported, for an image without pixels, and if its file
    cannot be read to the end.
    """
    if not (image.width and image.height):
        raise ImageError(f"{name}: it has no pixels: its size is {image.width}x{image.height}")
    with in_words(name, "damaged, cut off, or its file was closed before it was read"):
        image.load()
        info: dict[Any, Any] = dict(image.info)
        if "exif" not in info:
            info["exif"] = _exif(image)
        said, orientation = transfer.of_file(b"", info, "")
        picture, _ = plain(image, name, stated.of_file(b"", info, str(image.format)))
        return oriented(replace(picture, metadata=said), orientation)


def _exif(image: Image.Image) -> bytes | None:
    """Returns the EXIF block of an image whose format does not have it in `info`."""
    try:
        return image.getexif().tobytes()
    except Exception:
        return None  # Pillow raises anything for broken EXIF; the pixels are sound


def plain(
    image: Image.Image, name: str, colours: Colours, allocate: Allocate | None = None
) -> tuple[Picture, tuple[str, ...]]:
    """Returns a loaded image as a Picture of its pixels, alpha and colours, and notices.

    `colours` are those that its file states. `allocate` makes the array of an opaque picture.
    Raises ImageError for a mode that is not supported.
    """
    notes: tuple[str, ...] = ()
    if image.mode in ("CMYK", "LAB"):
        image, notes = _to_rgb(image, colours.icc_profile)
        colours = Colours()
    image = _simple(image)
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        raise ImageError(f"{name}: {image.mode} pictures are not supported", "convert to RGB first")
    pixels = np.asarray(image)
    if image.mode == "I;16":
        pixels = pixels.astype(np.uint16)
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    alpha = None
    if image.mode in ("LA", "RGBA"):
        pixels, alpha = apart(pixels)
    if colours.icc_profile and not icc.fits(colours.icc_profile, pixels.shape[-1]):
        colours = Colours(hdr=colours.hdr)
        notes += (profiles.BAD_PROFILE,)
    if allocate is not None and alpha is None:
        taken = allocate(pixels.shape, pixels.dtype)
        taken[...] = pixels
        return Picture(taken, None, colours), notes
    return Picture(np.ascontiguousarray(pixels), alpha, colours), notes


def jpeg_coding(image: Image.Image) -> JpegCoding | None:
    """Returns how a JPEG was coded; None for other formats."""
    if not isinstance(image, JpegImagePlugin.JpegImageFile):
        return None
    found = image.quantization
    # In the order of the planes that they are for, each once; a table may also be missing.
    order = dict.fromkeys(plane[3] for plane in image.layer)
    tables = tuple(tuple(found[key]) for key in order if key in found)
    if not tables:
        return None
    ratio = _ratio([plane[1:3] for plane in image.layer])
    return JpegCoding(tables, _NUMBERS.get(ratio, 0), ratio)


_RATIOS = {
    (1, 1): "4:4:4",
    (2, 1): "4:2:2",
    (2, 2): "4:2:0",
    (1, 2): "4:4:0",
    (4, 1): "4:1:1",
    (4, 2): "4:1:0",
}
"""By how many times finer luma is than chroma, across and down."""
_NUMBERS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}
"""Pillow's numbers for those that its encoder writes."""


_PLAIN = {"YCbCr": "RGB", "RGBX": "RGB", "HSV": "RGB", "RGBa": "RGBA", "La": "LA"}
"""Modes that are converted to others without a loss."""


def _ratio(factors: Sequence[Sequence[int]]) -> str:
    """Returns chroma subsampling in words, by the sampling factors of each plane."""
    if len(factors) < 3:
        return ""
    (across, down), (chroma_across, chroma_down) = factors[0], factors[1]
    if not (chroma_across and chroma_down) or across % chroma_across or down % chroma_down:
        return ""
    return _RATIOS.get((across // chroma_across, down // chroma_down), "")


def _simple(image: Image.Image) -> Image.Image:
    """Converts an image to grey or RGB, with or without alpha, where that loses nothing."""
    mode = image.mode
    # Frames of a GIF for which Pillow has no palette are opaque.
    known = mode != "P" or image.palette is not None or "transparency" in image.info
    transparent = known and image.has_transparency_data
    if mode in ("P", "PA"):
        return image.convert("RGBA" if transparent else "RGB")
    if mode == "1":
        return image.convert("LA" if transparent else "L")
    if mode in ("RGB", "L") and transparent:
        return image.convert("RGBA" if mode == "RGB" else "LA")
    if mode in _PLAIN:
        return image.convert(_PLAIN[mode])
    if mode in ("I;16B", "I;16L", "I;16N", "I"):
        values = np.asarray(image)
        if values.min() >= 0 and values.max() < 65536:
            return Image.fromarray(values.astype(np.uint16))
    return image


def _to_rgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, tuple[str, ...]]:
    """Converts CMYK or Lab to sRGB by littleCMS; without a profile, CMYK by the plain formula."""
    from PIL import ImageCms

    srgb = ImageCms.createProfile("sRGB")
    if image.mode == "LAB":
        source: Any = ImageCms.createProfile("LAB")
    elif profile and icc.fits(profile, 4):
        source = io.BytesIO(profile)
    else:
        return image.convert("RGB"), ("CMYK without a profile: its colours are approximate",)
    try:
        converted = ImageCms.profileToProfile(image, source, srgb, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):
        return image.convert("RGB"), ("its colour profile is damaged: its colours are approximate",)
    assert converted is not None  # only where it works in place
    return converted, (f"{image.mode} is converted to sRGB",)


def to_pil(picture: Picture) -> Image.Image:
    """Returns a Picture of 8 bits, or a grey one of 16, as a PIL image."""
    samples = with_alpha(picture)
    image = Image.fromarray(samples[..., 0] if samples.shape[-1] == 1 else samples)
    profile = profiles.profile_of(picture.colours, picture.pixels.shape[-1])
    if profile:
        image.info["icc_profile"] = profile
    return image
