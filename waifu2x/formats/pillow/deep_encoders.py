"""Encodes AVIF, JPEG XL and HEIF of more than 8 bits a sample, which Pillow's plugins do not."""

from __future__ import annotations

import io
import struct
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.pillow import item_properties
from waifu2x.formats.pillow.item_properties import Item
from waifu2x.formats.table import Format
from waifu2x.imaging.picture import Picture, with_alpha

_WORD = 16
"""Bits of pillow-heif's samples, at whose upper end those of the file stand."""
_SPEED = 6
"""That of Pillow's AVIF encoder."""
_SRGB, _UNSPECIFIED = (1, 13), (2, 2)
"""H.273's numbers of primaries and tone curve."""


def encode(picture: Picture, form: Format, options: dict[str, Any], file: io.BytesIO) -> None:
    """Writes a picture of uint16 with `picture.depth` bits, 10 to 16, into an empty file.

    `options` are arguments of Pillow's `save`; JPEG XL is lossless. Colours that Pillow has no
    arguments for are not written yet. Raises what encoders raise: OSError, ValueError,
    RuntimeError.
    """
    samples = with_alpha(picture)
    if samples.shape[-1] < 3 and not form.grey:
        planes = (0, 0, 0) if picture.alpha is None else (0, 0, 0, 1)
        samples = np.ascontiguousarray(samples[..., planes])
    bits = picture.depth
    if bits < _WORD:
        samples = np.rint(samples * np.float32(((1 << bits) - 1) / 65535)).astype(np.uint16)
    if form.name == "HEIF":
        _heif(samples << (_WORD - bits), bits, options, file)
    elif form.name == "AVIF":
        file.write(_avif(samples, picture, options["quality"]))
    else:
        file.write(_jpeg_xl(samples, bits, options))


def _heif(samples: NDArray[Any], bits: int, options: dict[str, Any], file: io.BytesIO) -> None:
    import pillow_heif

    height, width, planes = samples.shape
    mode = f"{('L', 'LA', 'RGB', 'RGBA')[planes - 1]};16"
    image = pillow_heif.from_bytes(mode, (width, height), samples.tobytes())
    image.save(file, bit_depth=bits, **options)


def _avif(samples: NDArray[np.uint16], picture: Picture, quality: int) -> bytes:
    said, colours = picture.metadata, picture.colours
    points = _UNSPECIFIED if colours.icc_profile else colours.code_points or _SRGB
    content = imagecodecs.avif_encode(
        samples,
        level=quality,
        speed=_SPEED,
        bitspersample=picture.depth,
        primaries=points[0],
        transfer=points[1],
        numthreads=1,  # another number makes another file
    )
    properties, items = [], []
    if colours.icc_profile:
        properties.append(item_properties.box(b"colr", b"prof" + colours.icc_profile))
    if said.exif:
        items.append(Item(b"Exif\0", bytes(4) + said.exif))  # behind the offset of its header
    if said.xmp:
        items.append(Item(b"mime\0application/rdf+xml\0", said.xmp))
    return item_properties.grown(bytes(content), properties, items)


def _jpeg_xl(samples: NDArray[np.uint16], bits: int, options: dict[str, Any]) -> bytes:
    """Returns a lossless file whose metadata follow the pixels. ISO/IEC 18181-2, clause 9.

    With losses, samples of 16 bits would be taken for linear light.
    """
    boxes = [(b"Exif", options.get("exif")), (b"xml ", options.get("xmp"))]
    content = imagecodecs.jpegxl_encode(
        samples,
        lossless=True,
        effort=options.get("effort"),
        bitspersample=bits,
        usecontainer=any(body for _, body in boxes),
        numthreads=0,
    )
    further = (struct.pack(">I4s", 8 + len(body), kind) + body for kind, body in boxes if body)
    return bytes(content) + b"".join(further)
