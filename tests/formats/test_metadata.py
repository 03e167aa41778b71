"""Metadata of files: kept, corrected, or left out with a notice."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import ExifTags, Image, ImageOps

from tests.helpers.contents import (
    Frames,
    adapt,
    decode,
    encode,
    encoded,
    identity_models,
    noise,
    png_with,
    ramp,
)
from waifu2x.cli import cli
from waifu2x.formats import table
from waifu2x.formats.metadata import exif, transfer
from waifu2x.formats.metadata import tags as tiff_tags
from waifu2x.formats.table import OutputOptions
from waifu2x.imaging.picture import Metadata, Picture

SMALL = np.repeat(np.repeat(np.array([[[250, 10, 9], [10, 240, 10]]], np.uint8), 48, 0), 32, 1)
THUMBNAIL = encoded(Image.fromarray(SMALL), "JPEG", quality=95)
"""Red to the left, green to the right."""
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax'
    b'-ns#"><rdf:Description rdf:about="" xmlns:tiff="http://ns.adobe.com/tiff/1.0/" '
    b'xmlns:exif="http://ns.adobe.com/exif/1.0/" tiff:Orientation="%d" exif:PixelXDimension="33">'
    b"<exif:PixelYDimension>24</exif:PixelYDimension></rdf:Description></rdf:RDF></x:xmpmeta>"
)
IPTC = b"\x1c\x02\x78\x00\x0dA caption, 13"


def exif_block(order: str, orientation: int = 1, thumbnail: bool = True) -> bytes:
    """EXIF of a camera: words, sizes as SHORT, a maker's note, a position, a thumbnail."""
    entry = tiff_tags.Tag
    short = struct.Struct(order + "H")
    camera = tiff_tags.Directory(
        (
            entry(0x9003, 2, 20, b"2020:02:03 04:05:06\0"),
            entry(0x927C, 7, 12, b"maker's note"),
            entry(0xA002, 3, 1, short.pack(33)),
            entry(0xA003, 3, 1, short.pack(24)),
        )
    )
    position = tiff_tags.Directory((entry(1, 2, 2, b"N\0"),))
    first = tiff_tags.Directory(
        (
            entry(0x010F, 2, 6, b"Maker\0"),
            entry(exif.ORIENTATION, 3, 1, short.pack(orientation)),
            entry(0x0131, 2, 9, b"Software\0"),
        ),
        {0x8769: camera, 0x8825: position},
    )
    block = tiff_tags.block(first, order)
    if not thumbnail:
        return block
    # The thumbnail's directory, after which it lies, is the second.
    at = len(block)
    link = 8 + 2 + 12 * 5
    long = struct.Struct(order + "I")
    second = short.pack(2)
    for tag, value in ((0x0201, at + 2 + 24 + 4), (0x0202, len(THUMBNAIL))):
        second += struct.pack(order + "HHII", tag, 4, 1, value)
    return block[:link] + long.pack(at) + block[link + 4 :] + second + long.pack(0) + THUMBNAIL


def tags(block: bytes) -> dict[int, Any]:
    """As Pillow reads them, those below in theirs."""
    read = Image.Exif()
    read.load(b"Exif\0\0" + block)
    below = {tag: dict(read.get_ifd(tag)) for tag in (0x8769, 0x8825)}
    return dict(read) | below


def thumbnail(block: bytes) -> bytes | None:
    """As Pillow finds it."""
    read = Image.Exif()
    read.load(b"Exif\0\0" + block)
    found = read.get_ifd(ExifTags.IFD.IFD1)
    if not found:
        return None
    start, length = found[0x0201], found[0x0202]
    return block[start : start + length]


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_of_a_turned_picture(order: str) -> None:
    block = exif_block(order, 6)
    assert exif.orientation(block) == 6
    upright = exif.upright(block, 6)
    before, after = tags(block), tags(upright)
    assert after.pop(exif.ORIENTATION) == 1
    before.pop(exif.ORIENTATION)
    assert after == before
    assert len(upright) == len(block)
    assert thumbnail(block) == THUMBNAIL
    assert thumbnail(exif.sized(block, 48, 66)) == THUMBNAIL


@pytest.mark.parametrize("orientation", range(2, 9))
def test_the_thumbnail_is_turned_along(orientation: int) -> None:
    block = exif_block("<", orientation)
    found = thumbnail(exif.upright(block, orientation))
    assert found is not None
    with Image.open(io.BytesIO(found)) as image:
        small = np.asarray(image).astype(int)
    with Image.open(io.BytesIO(THUMBNAIL)) as image:
        image.getexif()[exif.ORIENTATION] = orientation
        expected = np.asarray(ImageOps.exif_transpose(image)).astype(int)
    assert small.shape == expected.shape
    assert abs(small - expected).mean() < 3


def test_a_thumbnail_that_cannot_be_turned_is_gone() -> None:
    """Every byte of it, and what leads to it."""
    damaged = b"\xff\xd8" + THUMBNAIL[2:].translate(bytes(range(1, 256)) + b"\0")
    block = exif_block("<", 6).replace(THUMBNAIL, damaged)
    upright = exif.upright(block, 6)
    assert thumbnail(upright) is None
    assert damaged[20:60] in block
    assert damaged[20:60] not in upright
    assert len(upright) == len(block)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("size", [(48, 66), (70_000, 80_000)])
def test_exif_knows_the_new_size(order: str, size: tuple[int, int]) -> None:
    block = exif_block(order)
    after = tags(exif.sized(block, *size))
    assert (after[0x8769][0xA003], after[0x8769][0xA002]) == size
    assert after[0x8769][0x927C] == b"maker's note"
    assert after[0x010F] == "Maker"


@pytest.mark.parametrize("seed", range(20))
def test_broken_exif_breaks_nothing(seed: int) -> None:
    generator = np.random.default_rng(seed)
    block = bytearray(exif_block("<>"[seed % 2], 6))
    for place in generator.integers(0, len(block), 8):
        block[place] = generator.integers(256)
    for content in (bytes(block), bytes(block[: seed * 7])):
        assert 1 <= exif.orientation(content) <= 8
        assert len(exif.upright(content, 6)) == len(exif.sized(content, 9, 9)) == len(content)
        exif.readable(content)


def test_orientation_in_xmp_counts_where_exif_has_none() -> None:
    said, asked = transfer.upright(Metadata(xmp=XMP % 8))
    assert asked == 8
    assert said.xmp == XMP % 1
    said, asked = transfer.upright(Metadata(exif=exif_block("<", 6), xmp=XMP % 8))
    assert asked == 6
    assert said.xmp == XMP % 1


def test_a_quarter_turn_swaps_the_resolution() -> None:
    said, _ = transfer.upright(Metadata(exif=exif_block("<", 6), dpi=(300, 150)))
    assert said.dpi == (150, 300)


def test_xmp_knows_the_new_size() -> None:
    said = transfer.sized(Metadata(xmp=XMP % 1), 240, 330)
    assert said.xmp is not None
    assert b'PixelXDimension="330"' in said.xmp
    assert b"<exif:PixelYDimension>240</exif:PixelYDimension>" in said.xmp


SAID = Metadata(
    exif=exif_block("<", thumbnail=False),
    xmp=XMP % 1,
    iptc=IPTC,
    dpi=(300.0, 300.0),
    comment=b"a comment",
    chunks=((b"tEXt", b"Title\0A title"), (b"tIME", b"\x07\xe4\1\2\3\4\5")),
)
FIELDS = {"EXIF": "exif", "XMP": "xmp", "IPTC": "iptc", "resolution": "dpi", "comment": "comment"}


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "tif", "avif", "gif", "bmp", "heic"])
def test_what_formats_keep(extension: str) -> None:
    form = table.of(extension)
    picture = Picture(ramp(3), metadata=SAID)
    back = decode(encode(picture, extension)).metadata
    expected = transfer.sized(SAID, 24, 33)
    for kind, name in FIELDS.items():
        kept = getattr(back, name)
        if kind not in form.keeps:
            assert kept is None
        elif kind == "EXIF":
            found = {exif.ORIENTATION: 1} | tags(kept)  # AVIF has a box of its own for it
            assert found == tags(expected.exif or b"")
        elif kind == "resolution":
            assert kept == pytest.approx((300, 300), abs=0.02)
        else:
            assert kept == getattr(expected, name)
    _, notes = adapt(Frames((picture,)), form, OutputOptions())
    lost = {kind for kind in FIELDS if kind not in form.keeps} | ({"text"} - form.keeps)
    assert set(notes[0].removeprefix(f"{form.name} holds no ").split(" and no ")) == lost


@pytest.mark.parametrize("packed", [False, True])
def test_jpeg_xl_keeps_what_its_plugin_leaves(packed: bool) -> None:
    """XMP, and boxes packed by Brotli, as libjxl's own program writes them."""
    pytest.importorskip("pillow_jxl")
    data = encode(Picture(ramp(3), metadata=replace(SAID, comment=None)), "jxl")
    for kind in (b"Exif", b"xml "):
        at = data.index(kind) - 4
        (length,) = struct.unpack_from(">I", data, at)
        body = data[at + 8 : at + length]
        assert kind != b"Exif" or body[:6] in (b"\0\0\0\0II", b"\0\0\0\0MM")
        content = kind + bytes(imagecodecs.brotli_encode(body))
        box = struct.pack(">I4s", len(content) + 8, b"brob") + content
        data = data[:at] + box + data[at + length :] if packed else data
    back, expected = decode(data).metadata, transfer.sized(SAID, 24, 33)
    assert back.xmp == expected.xmp
    assert tags(back.exif or b"") == tags(expected.exif or b"")


def test_packed_boxes_of_jpeg_xl_are_bounded() -> None:
    pytest.importorskip("pillow_jxl")
    data = encode(Picture(ramp(3), metadata=Metadata(exif=SAID.exif)), "jxl")
    bomb = b"xml " + bytes(imagecodecs.brotli_encode(bytes(1 << 25)))
    found = decode(data + struct.pack(">I4s", len(bomb) + 8, b"brob") + bomb).metadata
    assert found.exif is not None
    assert found.xmp is None


def test_png_chunks_go_along() -> None:
    packed = b"Long\0\0" + zlib.compress(b"text" * 99)
    said = Metadata(chunks=((b"tEXt", b"Title\0A title"), (b"zTXt", packed), (b"teSt", b"mine")))
    data = encode(Picture(ramp(3), metadata=said), "png")
    assert decode(data).metadata.chunks == said.chunks
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.info["Title"] == "A title"
        assert image.info["Long"] == "text" * 99
    # A chunk that depends on the samples or says how they are stored does not.
    others = [(b"sBIT", b"\5\5\5"), (b"teST", b"unsafe"), (b"hIST", b"\0\1")]
    data = png_with(ramp(3), *others)
    assert decode(data).metadata.chunks == ()


def test_strip() -> None:
    said = Metadata(exif=exif_block("<"), xmp=XMP % 1, iptc=IPTC, dpi=(72, 72), comment=b"c")
    for extension in ("png", "jpg", "tif", "webp"):
        back = decode(
            encode(Picture(ramp(3), metadata=said), extension, options=OutputOptions(strip=True))
        )
        assert back.metadata == Metadata()


def test_too_long_for_a_jpeg_is_said_not_failed() -> None:
    said = Metadata(xmp=XMP + b" " * 70_000)
    picture = Picture(ramp(3), metadata=said)
    assert decode(encode(picture, "jpg")).metadata.xmp is None
    _, notes = adapt(Frames((picture,)), table.of("jpg"), OutputOptions())
    assert notes == ["JPEG holds no XMP"]


def test_nothing_is_added() -> None:
    for extension in ("png", "jpg", "tif", "webp"):
        data = encode(Picture(ramp(3)), extension)
        for word in (b"waifu2x", b"tifffile", b"Pillow", b"Software", b"shape"):
            assert word not in data


# Through the program, as exiftool sees it.

WRITTEN = [
    "-EXIF:Make=Maker", "-EXIF:Model=Model", "-EXIF:DateTimeOriginal=2020:02:03 04:05:06",
    "-EXIF:FNumber=2.8", "-EXIF:ExposureTime=1/250", "-EXIF:Copyright=Somebody",
    "-EXIF:GPSLatitude=12.5", "-EXIF:GPSLatitudeRef=N", "-EXIF:UserComment=a remark",
    "-XMP:Title=A title", "-XMP:Rating=4", "-XMP:Subject=one", "-XMP:Subject=two",
]  # fmt: skip
IPTC_WRITTEN = ["-IPTC:Keywords=one", "-IPTC:Keywords=two", "-IPTC:Caption-Abstract=Caption"]
MUST_DIFFER = re.compile(
    "SourceFile|ExifTool:|System:|Composite:|(File|PNG|RIFF|IFD0):Image(Width|Height)"
    "|IFD0:(Strip(Offsets|ByteCounts)|RowsPerStrip|Compression|Predictor|SampleFormat"
    "|PlanarConfiguration|YCbCrPositioning)|File:(ExifByteOrder|EncodingProcess|YCbCrSubSampling"
    "|CurrentIPTCDigest)|RIFF:(VP8|WebP|HorizontalScale|VerticalScale)"
)
"""Tags that follow from the size of a picture, and from how its pixels are stored."""


def listed(path: Path) -> dict[str, Any]:
    """exiftool's tags with their groups, those left out that must differ."""
    done = subprocess.run(
        ["exiftool", "-json", "-G1", "-n", str(path)], capture_output=True, check=True
    )
    (found,) = json.loads(done.stdout)
    return {tag: value for tag, value in found.items() if not MUST_DIFFER.match(tag)}


@pytest.mark.skipif(not shutil.which("exiftool"), reason="exiftool is not installed")
@pytest.mark.parametrize(
    ("source", "target"),
    [("jpg", "jpg"), ("png", "png"), ("tif", "tif"), ("webp", "webp"), ("jpg", "tif")],
)
def test_exiftool_sees_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    form = {"jpg": "JPEG", "png": "PNG", "tif": "TIFF", "webp": "WEBP"}[source]
    before, after = Path(f"before.{source}"), Path(f"after.{target}")
    options = {"dpi": (300, 300)} if source != "webp" else {}
    before.write_bytes(encoded(Image.fromarray(noise(24, 33, 3)), form, **options))
    words = [*WRITTEN, *(IPTC_WRITTEN if source in ("jpg", "tif") else [])]
    words += ["-Comment=a comment"] if source == target == "jpg" else []
    words += ["-PNG:Title=A title", "-PNG:Author=Somebody"] if source == "png" else []
    subprocess.run(
        ["exiftool", "-q", "-overwrite_original", *words, str(before)], check=True, timeout=60
    )
    arguments = ["upscale", "-m", "identity", "--backend", "numpy", str(before), str(after)]
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.output) == (0, "")
    expected, found = listed(before), listed(after)
    if source != target:  # groups named after the container
        expected = {tag: value for tag, value in expected.items() if not tag.startswith("JFIF")}
        expected |= {f"IFD0:{side}Resolution": 300 for side in "XY"}
        expected["IFD0:ResolutionUnit"] = 2
        missing = {tag: value for tag, value in expected.items() if found.get(tag) != value}
        assert not {tag for tag in missing if tag.startswith(("IFD0", "ExifIFD", "GPS", "XMP"))}
        return
    for size in ("ExifIFD:ExifImageWidth", "ExifIFD:ExifImageHeight"):
        expected.pop(size, None), found.pop(size, None)
    assert found == expected


def test_copied_times_and_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    Path("a.png").write_bytes(encode(Picture(ramp(3)), "png"))
    os.utime("a.png", ns=(1_000_000_000_000_000_000, 1_234_567_890_123_456_789))
    command = ["upscale", "-m", "identity", "--backend", "numpy", "a.png"]
    assert CliRunner().invoke(cli, [*command, "b.png", "--copy-times"]).exit_code == 0
    assert CliRunner().invoke(cli, [*command, "c.png"]).exit_code == 0
    assert Path("b.png").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert Path("c.png").stat().st_mtime_ns > 1_600_000_000_000_000_000


@pytest.mark.parametrize("name", ["iptc", "exif"])
def test_profiles_in_texts_of_a_png(name: str) -> None:
    """As ImageMagick writes them."""
    content = IPTC if name == "iptc" else b"Exif\0\0" + exif_block("<", 6)
    digits = content.hex().encode()
    text = b"\n%s\n%8d\n%s\n" % (name.encode(), len(content), digits)
    body = b"Raw profile type %s\0\0" % name.encode() + zlib.compress(text)
    data = png_with(ramp(3), (b"zTXt", body))
    back = decode(data)
    if name == "iptc":
        assert back.metadata.iptc == IPTC
    else:
        assert back.pixels.shape == (33, 24, 3)
        assert back.metadata.exif is not None
        assert exif.orientation(back.metadata.exif) == 1
    assert back.metadata.chunks == ()
