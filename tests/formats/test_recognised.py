"""Files whose kind is not told by their first bytes alone: read, or named with a remedy."""

from __future__ import annotations

import io
import re
import struct
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.contents import decode_all, encoded, noise
from waifu2x.errors import ImageError
from waifu2x.formats.read import open_content

MAJOR = slice(8, 12)


def ramp(peak: int, planes: int = 3) -> NDArray[Any]:
    y, x = np.mgrid[0:24, 0:33]
    levels = np.stack([x * 7, y * 10, x * 4 + y * 3], -1)[..., :planes] / 255
    return np.rint(levels * peak).astype(np.uint8 if peak < 256 else np.uint16)


def refusal(data: bytes) -> str:
    with pytest.raises(ImageError, match=r"^p: ") as raised:
        open_content(data, "p")
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix("p: ")


@pytest.mark.parametrize("bits", [8, 10])
def test_avif_of_the_general_brand(bits: int) -> None:
    """mif1, as Netflix's samples have it: the brand that counts is among the compatible ones."""
    peak = (1 << bits) - 1
    pixels = ramp(peak)
    data = bytes(imagecodecs.avif_encode(pixels, level=100, bitspersample=bits, pixelformat="444"))
    general = data[:8] + b"mif1" + data[12:]
    found = decode_all(general)
    assert found.format == "AVIF"
    assert (found.pictures[0].pixels == decode_all(data).pictures[0].pixels).all()
    if bits == 8:
        assert (found.pictures[0].pixels == imagecodecs.avif_decode(general)).all()


def test_heif_of_the_general_brand() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(ramp(255))).save(stream, quality=95)
    data = stream.getvalue()
    found = decode_all(data[:8] + b"mif1" + data[12:])
    assert found.format == "HEIF"
    assert (found.pictures[0].pixels == decode_all(data).pictures[0].pixels).all()


def test_heif_in_a_coding_without_a_decoder() -> None:
    """AV1 under HEVC's name, which pillow-heif has no decoder for."""
    pytest.importorskip("pillow_heif")
    data = bytes(imagecodecs.avif_encode(ramp(255), level=100))
    with pytest.raises(
        ImageError, match=r"^p: it is HEIF in a coding that this pillow-heif does not"
    ):
        decode_all(data[:8] + b"heic" + data[12:])


# JPEG.


@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
def test_lossless_jpeg(bits: int, planes: int) -> None:
    """To the level, over the full range of its bits."""
    peak = (1 << bits) - 1
    samples = ramp(peak, planes).squeeze()
    data = bytes(imagecodecs.jpeg8_encode(samples, bitspersample=bits, lossless=True))
    (picture,) = decode_all(data).pictures
    top = 255 if bits == 8 else 65535
    assert (picture.pixels.squeeze() == np.rint(samples * (top / peak))).all()


def jpeg12(planes: int = 3) -> bytes:
    samples = ramp(4095, planes).squeeze()
    finest = "444" if planes == 3 else None
    return bytes(imagecodecs.jpeg8_encode(samples, level=100, bitspersample=12, subsampling=finest))


@pytest.mark.parametrize("planes", [1, 3])
def test_jpeg_of_12_bits(planes: int) -> None:
    """Finer than 8 bits could hold it."""
    found = decode_all(jpeg12(planes))
    assert found.pictures[0].pixels.dtype == np.uint16
    difference = found.pictures[0].pixels / 65535 - ramp(4095, planes) / 4095
    assert abs(difference).max() < 0.5 / 255
    assert abs(difference).mean() < 0.1 / 255


def test_jpeg_of_12_bits_keeps_what_else_it_holds() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Maker"
    eight = encoded(Image.fromarray(ramp(255)), "JPEG", exif=exif, dpi=(300, 300))
    segment = eight[2 : eight.index(b"\xff\xdb")]
    (picture,) = decode_all(b"\xff\xd8" + segment + jpeg12()[20:]).pictures
    assert picture.pixels.shape == (33, 24, 3)  # upright
    assert b"Maker" in (picture.metadata.exif or b"")
    assert picture.metadata.dpi == (300, 300)
    assert picture.jpeg is None  # its steps are 16 times as fine as those of 8 bits


@pytest.mark.parametrize("is_sound", [False, True])
def test_a_profile_of_jpeg_of_12_bits(is_sound: bool) -> None:
    profile = bytes(imagecodecs.cms_profile("adobergb")) if is_sound else bytes(200)
    content = b"ICC_PROFILE\0\1\1" + profile
    segment = b"\xff\xe2" + struct.pack(">H", len(content) + 2) + content
    found = decode_all(b"\xff\xd8" + segment + jpeg12()[2:])
    assert found.pictures[0].colours.icc_profile == (profile if is_sound else None)
    assert len(found.notices) == (not is_sound)


@pytest.mark.parametrize("lossless", [False, True])
def test_jpeg_of_12_bits_that_is_cut_off(lossless: bool) -> None:
    """libjpeg fills up the rest, which none may take for the picture."""
    data = bytes(imagecodecs.jpeg8_encode(ramp(4095), bitspersample=12, lossless=lossless))
    for end in (len(data) - 2, len(data) * 2 // 3):
        with pytest.raises(ImageError, match=r"^p: damaged or cut off"):
            decode_all(data[:end])


@pytest.mark.parametrize("marker", [0xC5, 0xCD, 0xCB])
def test_jpeg_of_rare_kinds(marker: int) -> None:
    data = encoded(Image.fromarray(ramp(255)), "JPEG").replace(b"\xff\xc0", bytes((0xFF, marker)))
    said = f"it is a JPEG of a rare kind (SOF{marker - 0xC0}), which is not read; export"
    assert refusal(data).startswith(said)


def test_inks_of_12_bits() -> None:
    data = bytearray(encoded(Image.fromarray(noise(8, 8, 4), "CMYK"), "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = 12
    assert refusal(bytes(data)) == "it is a JPEG of 4 colours and 12 bits; convert it to RGB first"


# PSD.


def psd(
    channels: int = 3, bits: int = 8, *, mode: int = 3, version: int = 1, layers: int = 0,
    merged: int | None = None,
) -> bytes:  # fmt: skip
    """Planes of one level each, raw; the last says what is opaque where `layers` is negative."""
    levels = bytes(range(40, 40 + 50 * channels, 50))
    resources = b""
    if merged is not None:
        resources = b"8BIM" + struct.pack(">HHIIBB", 1057, 0, 5, 1, merged, 0)
    info = struct.pack(">Ih", 2, layers) if layers else b""
    size = "Q" if version == 2 else "I"
    return b"".join((
        b"8BPS", struct.pack(">H6xHIIHH", version, channels, 6, 7, bits, mode),
        struct.pack(">I", 0), struct.pack(">I", len(resources)), resources,
        struct.pack(">" + size, len(info)), info, b"\0\0",
        *(bytes((level,)) * (6 * 7 * bits // 8) for level in levels),
    ))  # fmt: skip


def test_a_saved_selection_is_no_transparency() -> None:
    """A layer count below 0 says that the first further channel is what is opaque (Adobe)."""
    clear = decode_all(psd(4, layers=-1)).pictures[0]
    assert clear.alpha is not None
    assert (clear.alpha == 190).all()
    for layers in (0, 1):
        opaque = decode_all(psd(4, layers=layers)).pictures[0]
        assert opaque.alpha is None
        assert (opaque.pixels == clear.pixels).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bits": 16}, "it is a PSD of 16 bits a sample, which is not read; save it as TIFF"),
        ({"bits": 32}, "it is a PSD of 32 bits a sample, which is not read; save it as TIFF"),
        ({"version": 2}, "it is a large document of Photoshop (PSB), which is not read; save it"),
        ({"merged": 0}, "it is a PSD without a merged picture; save it with Maximize"),
        ({"mode": 7}, "it is a PSD of several inks (multichannel), which is not read; convert"),
    ],
)
def test_psd_that_is_not_read(changes: dict[str, int], said: str) -> None:
    assert refusal(psd(**changes)).startswith(said)


def test_psd_with_a_merged_picture() -> None:
    assert decode_all(psd(merged=1)).pictures[0].pixels[0, 0].tolist() == [40, 90, 140]


# Others, by their first bytes.

RAW = "it is a camera's raw file, and no picture yet; export a TIFF or a 16-bit"
NOT_READ = "it is {}, which is not read; export it as PNG or TIFF"
NAMED = {
    b"\0\0\0\x18ftypcrx \0\0\0\1crx isom": RAW,
    b"FUJIFILMCCD-RAW 0201FF393101": RAW,
    b"II\x1a\0\0\0HEAPCCDR": RAW,
    b"IIRO\x08\0\0\0": RAW,
    b"IIU\0\x18\0\0\0": RAW,
    b"FOVb\0\0\2\0": RAW,
    b"\0MRM\0\0\0\0": RAW,
    b"v/1\x01\2\0\0\0": NOT_READ.format("OpenEXR"),
    b"#?RADIANCE\n": NOT_READ.format("Radiance HDR"),
    b"gimp xcf file\0": NOT_READ.format("GIMP's XCF"),
    b"%!PS-Adobe-3.0 EPSF-3.0\n": NOT_READ.format("PostScript"),
    b"<!DOCTYPE html>\n<html>": "it is a web page, not a picture; save the picture itself",
    b'\xef\xbb\xbf<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg">': "it is a drawing",
    b"<svg viewBox='0 0 1 1'>": "it is a drawing (SVG), not pixels; export it as PNG in the size",
    b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41": "it is a film, not a picture; use",
    b"\x1aE\xdf\xa3\x01\0\0\0": "it is a film, not a picture; use `waifu2x video`",
}


@pytest.mark.parametrize("start", NAMED, ids=lambda start: re.sub(r"\W", "", repr(start))[:12])
def test_others_are_named(start: bytes) -> None:
    assert refusal(start + bytes(64)).startswith(NAMED[start])


@pytest.mark.parametrize("form", ["jpegls", "jpegxr"])
def test_others_that_imagecodecs_writes(form: str) -> None:
    name = {"jpegls": "JPEG-LS", "jpegxr": "JPEG XR"}[form]
    data = getattr(imagecodecs, f"{form}_encode")(ramp(255))
    assert refusal(data) == NOT_READ.format(name)
