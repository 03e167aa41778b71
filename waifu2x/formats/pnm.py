"""PGM and PPM: a few words, then the samples; of 16 bits, the high byte first."""

from __future__ import annotations

import re
from typing import IO

import numpy as np

from waifu2x.errors import ImageError
from waifu2x.formats.limits import check_pixels
from waifu2x.imaging.picture import Frames, Picture

_GAP = rb"(?:\s|#[^\n]*\n)+"
_HEADER = rb"P6" + 3 * (_GAP + rb"(\d{1,9})") + rb"(?:\s|#[^\n]*\n)"


def is_deep(data: bytes) -> bool:
    """Whether a file is a colour one of 16 bits, of which Pillow reads 8."""
    header = re.match(_HEADER, data) if data.startswith(b"P6") else None
    return header is not None and 255 < int(header[3]) < 65536


def read(data: bytes, name: str, max_pixels: int) -> Frames:
    """The picture of such a file. Raises ImageError."""
    header = re.match(_HEADER, data)
    assert header is not None
    width, height, most = (int(number) for number in header.groups())
    check_pixels(name, (width, height), 1, width * height, max_pixels)
    if len(data) - header.end() < 6 * width * height or not width * height:
        raise ImageError(f"{name}: damaged or cut off: it ends before its last row")
    samples = np.frombuffer(data, ">u2", 3 * width * height, header.end())
    if most < 65535:
        samples = np.rint(samples.clip(0, most) * (65535 / most))
    return Frames((Picture(samples.astype(np.uint16).reshape(height, width, 3)),))


def write(picture: Picture, file: IO[bytes]) -> None:
    """Writes a picture of 8 or 16 bits without alpha."""
    height, width, planes = picture.pixels.shape
    peak = np.iinfo(picture.pixels.dtype).max
    file.write(b"P%d\n%d %d\n%d\n" % (5 if planes == 1 else 6, width, height, peak))
    file.write(np.ascontiguousarray(picture.pixels, picture.pixels.dtype.newbyteorder(">")).data)
