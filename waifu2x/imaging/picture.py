"""A picture in memory, with all data of its file."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from fractions import Fraction

Chunk = tuple[bytes, bytes]
"""Kind and content of a PNG chunk."""


@dataclass(frozen=True)
class Metadata:
    """The data of a file besides its pixels. No format keeps all of it: see `formats.table`."""

    exif: bytes | None = None
    """A TIFF structure, from its byte order mark on."""
    xmp: bytes | None = None
    iptc: bytes | None = None
    """IIM records."""
    dpi: tuple[float, float] | None = None
    """Pixels per inch, across and down."""
    comment: bytes | None = None
    """The comment of a JPEG or a GIF."""
    chunks: tuple[Chunk, ...] = ()
    """PNG's own: text, time, and others that may be copied to another picture."""


class JpegCoding(NamedTuple):
    """How finely a JPEG was coded."""

    tables: tuple[tuple[int, ...], ...]
    """Quantization tables, 64 numbers each, row by row: luma's first, then chroma's."""
    subsampling: int
    """Chroma subsampling by Pillow's number: 0 is 4:4:4, 1 is 4:2:2, 2 is 4:2:0."""
    ratio: str = ""
    """Chroma subsampling in words, such as 4:2:0; empty without chroma."""


class CodePoints(NamedTuple):
    """Colours by the numbers of ITU-T H.273, of samples that are RGB or grey."""

    primaries: int
    transfer: int
    full_range: bool = True
    """Whether samples use their whole range; otherwise black is 16 and white 235 of 255."""


@dataclass(frozen=True)
class Hdr:
    """Static metadata of HDR10."""

    primaries: tuple[Fraction, ...] = ()
    """x and y of red, green, blue and white; or empty."""
    luminance: tuple[Fraction, ...] = ()
    """Least and greatest luminance of the mastering display, in cd/m²; or empty."""
    light: tuple[Fraction, Fraction] | None = None
    """MaxCLL and MaxFALL, in cd/m²."""


@dataclass(frozen=True)
class Colours:
    """The meaning of a picture's numbers as colours; sRGB if empty.

    Of several, code points count, then the profile, then sRGB (PNG 3, section 4.3).
    """

    icc_profile: bytes | None = None
    code_points: CodePoints | None = None
    intent: int | None = None
    """The rendering intent of a file that says sRGB."""
    gamma: int | None = None
    """The exponent by which light was encoded, in 1/100,000."""
    primaries: tuple[int, ...] | None = None
    """x and y of white, red, green and blue, in 1/100,000."""
    hdr: Hdr | None = None
    """The display and the light that the picture was made with, whatever its colours are."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture in memory."""

    pixels: NDArray[Any]
    """(height, width, 1 or 3): grey or RGB; uint8, uint16 over their range, float32 in [0, 1]."""
    alpha: NDArray[Any] | None = None
    """(height, width), in the dtype of the pixels; None for a picture without transparency."""
    colours: Colours = field(default_factory=Colours)
    metadata: Metadata = field(default_factory=Metadata)
    jpeg: JpegCoding | None = None
    """How the source JPEG was coded, so that another can be coded as finely."""
    bits: int | None = None
    """Bits of a sample in its file, where those of the dtype may be others: 10 in 16, say."""

    @property
    def depth(self) -> int:
        """Returns bits of a sample in its file, which are those of the dtype unless it says so."""
        return self.bits or 8 * self.pixels.dtype.itemsize

    @property
    def transparent(self) -> bool:
        """Returns whether any pixel is not opaque: many an alpha plane is all opaque."""
        if self.alpha is None:
            return False
        opaque = np.iinfo(self.alpha.dtype).max if self.alpha.dtype.kind == "u" else 1.0
        return bool(self.alpha.min() < opaque)


def interleave(pixels: NDArray[Any], alpha: NDArray[Any], out: NDArray[Any]) -> None:
    """Fills (H, W, C + 1) with pixels (H, W, C) and alpha (H, W), plane by plane. NumPy copies runs
    of three bytes six times slower."""
    for plane in range(pixels.shape[-1]):
        out[..., plane] = pixels[..., plane]
    out[..., -1] = alpha


def with_alpha(picture: Picture) -> NDArray[Any]:
    """Returns (H, W, planes): pixels, then alpha if there is any."""
    if picture.alpha is None:
        return picture.pixels
    height, width, planes = picture.pixels.shape
    samples = np.empty((height, width, planes + 1), picture.pixels.dtype)
    interleave(picture.pixels, picture.alpha, samples)
    return samples


def apart(samples: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Splits (H, W, 1 to 4) into pixels and alpha, both contiguous; a second or fourth plane is
    alpha."""
    if samples.shape[-1] in (1, 3):
        return contiguous(samples), None
    return contiguous(samples[..., :-1]), samples[..., -1].copy()


def straight(pixels: NDArray[Any], alpha: NDArray[Any]) -> NDArray[Any]:
    """Returns colours (H, W, C) divided by the alpha (H, W) that they were multiplied by."""
    peak = 1.0 if pixels.dtype.kind == "f" else float(np.iinfo(pixels.dtype).max)
    share = np.maximum(alpha, 1e-6 if peak == 1.0 else 1).astype(np.float32) / np.float32(peak)
    divided = (pixels / share[..., np.newaxis]).clip(0, peak)
    rounded: NDArray[Any] = (np.rint(divided) if peak > 1 else divided).astype(pixels.dtype)
    return rounded


def full_range(samples: NDArray[Any], bits: int) -> NDArray[Any]:
    """Scales integers of up to 16 bits to uint8 or uint16. Raises ValueError for others."""
    if samples.dtype.kind != "u" or not 0 < bits <= 16:
        raise ValueError(f"Expected unsigned integers of up to 16 bits, but got {samples.dtype}")
    if bits in (8, 16):
        return samples
    peak = 255 if bits < 8 else 65535
    scaled = np.rint(samples * (peak / ((1 << bits) - 1)))
    return scaled.astype(np.uint8 if bits < 8 else np.uint16)


def contiguous(samples: NDArray[Any]) -> NDArray[Any]:
    """Returns (H, W, C) C-contiguous, plane by plane as in `interleave`; not copied if it is
    already."""
    height, width, planes = samples.shape
    if samples.strides[1:] == (planes * samples.itemsize, samples.itemsize):
        return np.ascontiguousarray(samples)
    copied = np.empty((height, width, planes), samples.dtype)
    for plane in range(planes):
        copied[..., plane] = samples[..., plane]
    return copied
