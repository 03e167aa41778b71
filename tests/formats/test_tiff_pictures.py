"""Which picture of a TIFF file is read: raw files, thumbnails, pictures below pages, codings."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from tests.formats.test_profiles import cmyk_profile
from tests.helpers.contents import decode_all, noise
from waifu2x.errors import ImageError
from waifu2x.formats.read import extent, open_content

THUMBNAIL = noise(6, 8, 3, seed=2)
PICTURE = noise(24, 33, 3)
MOSAIC = noise(24, 32, dtype=np.uint16)
DNG = [(50706, 1, 4, b"\1\4\0\0", True)]
CFA = {"photometric": 32803, "extratags": [(33421, 3, 2, (2, 2), True)]}
RAW = r"^p: it is a camera's raw file, .*; export a TIFF or a 16-bit PNG from a raw converter$"


def tiff(*pages: tuple[Any, dict[str, Any]], subs: int = 0, **options: Any) -> bytes:
    """Pages; the first has some of the others below it."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream, **options) as writer:
        for index, (samples, more) in enumerate(pages):
            below = {"subifds": subs} if index == 0 and subs else {}
            writer.write(samples, metadata=None, software=False, **below, **more)
    return stream.getvalue()


def thumbnail(**more: Any) -> tuple[Any, dict[str, Any]]:
    """A first page as cameras write it."""
    return THUMBNAIL, {"photometric": "rgb", "subfiletype": 1, "extratags": DNG, **more}


def raw_dng() -> bytes:
    """A DNG of a camera: a thumbnail, and the sensor's mosaic below it."""
    return tiff(thumbnail(), (MOSAIC, CFA), subs=1)


def nef() -> bytes:
    """Nikon's way: a thumbnail, below it a preview and samples in Nikon's own coding."""
    data = bytearray(tiff(
        thumbnail(extratags=[]), (PICTURE, {"photometric": "rgb", "subfiletype": 1}),
        (MOSAIC, {"photometric": "minisblack"}), subs=2,
    ))  # fmt: skip
    at = data.rfind(struct.pack("<HHI", 259, 3, 1)) + 8
    struct.pack_into("<H", data, at, 34713)
    return bytes(data)


def cr2() -> bytes:
    """Canon's way: nothing but a mark behind the header says that the preview is one."""
    data = tiff((PICTURE, {"photometric": "rgb"}))
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    directory = data[first : first + 2 + 12 * count + 4]
    return data[:4] + struct.pack("<I", len(data)) + b"CR\2\0" + data[12:] + directory


def linear() -> bytes:
    """A DNG in a camera's own colours: no picture yet."""
    pixels = noise(24, 33, 3, dtype=np.uint16)
    return tiff(thumbnail(), (pixels, {"photometric": 34892}), subs=1)


def cut_off() -> bytes:
    """A DNG that ends before the directory of its main picture."""
    data = raw_dng()
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        below = file.pages[0].pages
        assert below is not None
        end = int(below[0].offset)
    return data[:end]


@pytest.mark.parametrize("make", [raw_dng, nef, cr2, linear, cut_off])
def test_raw_files_are_refused(make: Any) -> None:
    """Not enlarged as the thumbnail that any reader of TIFF finds first."""
    with Image.open(io.BytesIO(make())) as first:
        assert first.width in (THUMBNAIL.shape[1], PICTURE.shape[1])
    with pytest.raises(ImageError, match=RAW):
        open_content(make(), "p")


@pytest.mark.parametrize("make", [raw_dng, linear])
def test_exiftool_calls_them_raw(make: Any, tmp_path: Path) -> None:
    exiftool = shutil.which("exiftool")
    if not exiftool:
        pytest.skip("needs exiftool")
    path = tmp_path / "a.tif"
    path.write_bytes(make())
    asked = [exiftool, "-s3", "-FileType", "-SubIFD:PhotometricInterpretation", str(path)]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")
    assert told[:2] in (["DNG", "Color Filter Array"], ["DNG", "Linear Raw"])


@pytest.mark.parametrize("samples", [PICTURE, noise(24, 33, 3, dtype=np.uint16)])
@pytest.mark.parametrize("way", ["below", "above", "after", "alone"])
def test_the_full_picture_is_read(way: str, samples: Any) -> None:
    """A DNG that holds a finished picture, and TIFF with thumbnails, give that picture."""
    full = samples, {"photometric": "rgb"}
    small = THUMBNAIL, {"photometric": "rgb", "subfiletype": 1}
    data = {
        "below": lambda: tiff(thumbnail(), full, subs=1),
        "above": lambda: tiff((samples, {"photometric": "rgb", "extratags": DNG}), small, subs=1),
        "after": lambda: tiff(small, full),
        "alone": lambda: tiff((samples, {"photometric": "rgb", "subfiletype": 1})),
    }[way]()
    (picture,) = decode_all(data).pictures
    assert (picture.pixels == samples).all()
    said = extent(data)
    assert said is not None
    assert said == (24, 33, samples.nbytes)


def test_a_picture_below_has_the_metadata_of_its_page() -> None:
    """EXIF and orientation stand in a DNG's first directory (DNG 1.7.1, Orientation)."""
    told = [*DNG, (271, 2, 6, "Maker", True), (274, 3, 1, 6, True)]
    data = tiff(thumbnail(extratags=told), (PICTURE, {"photometric": "rgb"}), subs=1)
    (picture,) = decode_all(data).pictures
    assert (picture.pixels == np.rot90(PICTURE, -1)).all()
    assert b"Maker" in (picture.metadata.exif or b"")


def test_thumbnails_alone_are_no_picture() -> None:
    small = THUMBNAIL, {"photometric": "rgb", "subfiletype": 1}
    with pytest.raises(ImageError, match=r"^p: it has no picture in it$"):
        decode_all(tiff(small, small))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
def test_byte_orders(order: str, big: bool) -> None:
    data = tiff((PICTURE, {"photometric": "rgb"}), bigtiff=big, byteorder=order)
    assert (decode_all(data).pictures[0].pixels == PICTURE).all()


@pytest.mark.parametrize("coding", ["jpegxl", "jpeg2000", "webp", "png", "jpegxr", "zstd", "lzma"])
@pytest.mark.parametrize("samples", [PICTURE, noise(24, 33, 4), PICTURE[..., 0].copy()])
def test_codings(coding: str, samples: Any) -> None:
    if coding == "webp" and samples.ndim == 2:
        pytest.skip("WebP has no grey")
    more: dict[str, Any] = {"photometric": "rgb" if samples.ndim == 3 else "minisblack"}
    if samples.shape[2:] == (4,):
        more["extrasamples"] = ["unassalpha"]
    lossless = {"webp": {"lossless": True}, "jpegxl": {"lossless": True}, "jpegxr": {"level": 1.0}}
    more |= {"compression": coding, "compressionargs": lossless.get(coding, {})}
    if coding in ("zstd", "lzma"):
        more["predictor"] = True
    (picture,) = decode_all(tiff((samples, more))).pictures
    # As tifffile was given it, but for alpha.
    assert (picture.pixels == np.atleast_3d(samples)[..., :3]).all()
    assert (picture.alpha is not None) == (samples.shape[2:] == (4,))


def test_pages_of_several_codings() -> None:
    """One that only tifffile reads, a fax, a palette."""
    bits = noise(24, 33) > 127
    palette = noise(3, 256, seed=4).astype(np.uint16) * 257
    indices = noise(24, 33, seed=5)
    data = tiff(
        (PICTURE, {"photometric": "rgb", "compression": "jpeg2000"}),
        (bits, {"photometric": "minisblack"}),
        (indices, {"photometric": "palette", "colormap": palette}),
    )
    first, second, third = decode_all(data).pictures
    assert (first.pixels == PICTURE).all()
    assert (second.pixels[..., 0] == bits * 255).all()
    assert (third.pixels == (palette.T >> 8)[indices]).all()


def cmyk16(**more: Any) -> tuple[Any, bytes]:
    inks = np.stack([np.mgrid[0:24, 0:33][0] * 2000, *[np.mgrid[0:24, 0:33][1] * 1900] * 3], -1)
    inks = inks.astype(np.uint16)
    return inks, tiff((inks, {"photometric": "separated", **more}))


def test_cmyk_of_16_bits_through_its_profile() -> None:
    """As Pillow converts the same inks in 8 bits."""
    icc_profile = cmyk_profile()
    inks, deep = cmyk16(iccprofile=icc_profile)
    found = decode_all(deep)
    flat = tiff(((inks >> 8).astype(np.uint8), {"photometric": "separated",
                                                "iccprofile": icc_profile}))  # fmt: skip
    by_pillow = decode_all(flat)
    assert found.notices == by_pillow.notices == ("CMYK is converted to sRGB",)
    assert found.pictures[0].pixels.dtype == np.uint16
    one, other = (each.pictures[0].pixels.astype(float) for each in (found, by_pillow))
    assert abs(one / 257 - other).max() < 2


def test_cmyk_of_16_bits_without_a_profile() -> None:
    inks, data = cmyk16()
    found = decode_all(data)
    assert found.notices == ("CMYK without a profile: its colours are approximate",)
    left = 1 - inks / 65535
    expected = left[..., :3] * left[..., 3:] * 65535
    assert abs(found.pictures[0].pixels - expected).max() <= 1


@pytest.mark.parametrize("form", ["jpegxl", "jpeg2k", "webp", "png", "jpegxr"])
def test_a_part_that_declares_more_than_its_page(form: str) -> None:
    """Decoders allocate memory by it, so it is refused before."""
    name = {"jpeg2k": "jpeg2000"}.get(form, form)
    data = tiff((PICTURE[:8, :8].copy(), {"photometric": "rgb", "compression": name}))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        tags = file.pages[0].tags
        where, lengths = tags[273].valueoffset, tags[279].valueoffset
    bomb = getattr(imagecodecs, f"{form}_encode")(np.zeros((3000, 2000, 3), np.uint8))
    changed = bytearray(data)
    for at, value in ((where, len(data)), (lengths, len(bomb))):
        struct.pack_into("<I", changed, at, value)
    with pytest.raises(ImageError, match=r"^p: damaged: a part of it is 2000x3000 pixels$"):
        open_content(bytes(changed) + bomb, "p")


@pytest.mark.parametrize("tag", [256, 257, 259, 262, 277, 278, 284])
def test_two_values_of_what_a_page_has_one_of(tag: int) -> None:
    data = bytearray(tiff((noise(4, 6, 3, dtype=np.uint16), {"photometric": "rgb"})))
    (at,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, at)
    starts = range(at + 2, at + 2 + 12 * entries, 12)
    start = next(each for each in starts if struct.unpack_from("<H", data, each) == (tag,))
    struct.pack_into("<HI", data, start + 2, 3, 2)  # as 16-bit numbers, the second one 0
    with pytest.raises(ImageError, match=rf"^p: damaged: its tag {tag} has 2 values, not 1$"):
        decode_all(bytes(data))
