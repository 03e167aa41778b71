"""Small files that declare much: none may cost more than a sound file of its size."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from PIL import Image

from tests.helpers.contents import decode, encode, encoded, noise, png_with, ramp
from tests.helpers.limits import memory_limit
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.formats.headers.declared import declared
from waifu2x.formats.limits import MAX_PICTURES, Budget, OverBudgetError
from waifu2x.formats.metadata import tags
from waifu2x.formats.png import chunks
from waifu2x.formats.read import extent
from waifu2x.imaging.picture import Picture

MIB = 1 << 20
PLAIN = ((256, 2), (257, 2), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 2), (279, 4))
"""Tags of a grey TIFF of 2x2 pixels, and their values."""


def tiff_of(*more: tuple[int, int, int, int], after: int = 0, body: bytes = b"") -> bytes:
    """A TIFF of 2x2 pixels with further tags (number, type, count, value), and more behind."""
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in PLAIN]
    entries += [struct.pack("<HHII", *entry) for entry in more]
    table = struct.pack("<H", len(entries)) + b"".join(entries) + struct.pack("<I", after)
    return b"II*\0" + struct.pack("<I", 12) + bytes(4) + table + body


def overlapping_tags(size: int) -> bytes:
    """A TIFF whose thousands of tags each claim half of the file."""
    count = size // 24
    more = [(40_000 + i % 20_000, 7, size // 2, 0) for i in range(count)]
    return tiff_of(*more, body=bytes(size // 2))


def chain(count: int, entries: int = 0) -> bytes:
    """A TIFF of 2x2 pixels and many directories behind, each with `entries` empty entries."""
    start = len(tiff_of())
    size = 6 + 12 * entries
    links = [
        struct.pack("<H", entries) + bytes(12 * entries) + struct.pack("<I", start + size * i)
        for i in range(1, count + 1)
    ]
    return tiff_of(after=start, body=b"".join(links))


def peak_of_info(path: Path) -> int:
    """The peak of bytes that Python and NumPy hold while `info` reads a file."""
    tracemalloc.start()
    try:
        result = CliRunner().invoke(cli, ["info", str(path)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code in (0, 1)
    return peak


def test_tags_that_overlap_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(overlapping_tags(236_000))
    assert peak_of_info(path) < 50 * MIB


def test_tags_that_overlap_are_refused_before_others_read_them() -> None:
    with pytest.raises(ImageError, match="p: damaged or cut off: its entries claim more bytes"):
        decode(overlapping_tags(236_000))


@pytest.mark.parametrize("count", [40_000, 1_000_000])
def test_a_chain_of_directories_costs_a_visit_each(count: int) -> None:
    data = chain(count)
    budget = Budget(len(data))
    given = budget.entries
    with pytest.raises(OverBudgetError, match=f"more than the {MAX_PICTURES} pages"):
        tags.pages(data, budget)
    assert given - budget.entries <= MAX_PICTURES + len(PLAIN)
    with pytest.raises(ImageError, match="pages that are read"):
        decode(data)


def test_directories_that_overlap_are_within_a_budget() -> None:
    """Each begins two bytes behind the last, and has most of the file for its entries."""
    start = len(tiff_of())
    body = bytearray(60_000)
    for at in range(0, 20_000, 8):
        struct.pack_into("<H", body, at, 3000)
        struct.pack_into("<I", body, at + 2 + 3000 * 12, start + at + 8)
    data = tiff_of(after=start, body=bytes(body))
    budget = Budget(len(data))
    with pytest.raises(OverBudgetError, match="more entries than a file of its size"):
        tags.pages(data, budget)


def test_a_ring_of_directories_ends() -> None:
    data = tiff_of(after=12)
    assert tags.pages(data, Budget(len(data))) == [12]
    assert decode(data).pixels.shape == (2, 2, 1)


def test_a_ring_of_pages_of_16_bits_ends() -> None:
    pixels = noise(3, 4, 1, dtype=np.uint16)
    data = bytearray(encode(Picture(pixels), "tif"))
    form = tags.layout(bytes(data))
    link = tags.following(bytes(data), form, tags.first(bytes(data), form))
    struct.pack_into("<I", data, link, tags.first(bytes(data), form))
    assert (decode(bytes(data)).pixels == pixels).all()


@pytest.mark.parametrize("kind", ["samples", "tiles", "depth"])
def test_a_tiff_of_few_pixels_that_take_much(kind: str) -> None:
    """Samples without number, tiles larger than the picture, a third dimension."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(noise(32, 32, dtype=np.uint16), tile=(32, 32), metadata=None)
    with tifffile.TiffFile(io.BytesIO(stream.getvalue())) as file:
        found = {tag.code: tag for tag in file.pages[0].tags}
    changes = {"samples": {277: 60_000}, "tiles": {322: 65_520, 323: 65_520}, "depth": {}}[kind]
    data = bytearray(stream.getvalue())
    for code, value in changes.items():
        struct.pack_into("<HHII", data, found[code].offset, code, 4, 1, value)
    if kind == "depth":  # in place of the resolution's unit
        struct.pack_into("<HHII", data, found[296].offset, 32997, 4, 1, 60_000)
    with (
        memory_limit(100 * MIB),
        pytest.raises(ImageError, match=r"(not a|any) picture"),
    ):
        decode(bytes(data))


def test_directories_below_are_within_a_budget() -> None:
    """Every entry leads to the same directory, whose entries do so, too."""
    count = 5000
    entries = b"".join(struct.pack("<HHII", tags.EXIF, 4, 1, 8) for _ in range(count))
    block = b"II*\0" + struct.pack("<IH", 8, count) + entries + bytes(4)
    with pytest.raises(OverBudgetError):
        tags.described(block, 8, Budget(len(block)))


def gif_of(canvas: tuple[int, int], *frames: tuple[int, int, int, int], disposal: int = 2) -> bytes:
    """A GIF whose frames hold a few pixels and declare (left, top, width, height)."""
    data = b"GIF89a" + struct.pack("<HHBBB", *canvas, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    for frame in frames:
        data += b"!\xf9\4" + bytes((disposal << 2, 5, 0, 0, 0))
        data += b"," + struct.pack("<4HB", *frame, 0) + b"\2\2\x4c\1\0"
    return data + b";"


@pytest.mark.parametrize("disposal", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "frames",
    [
        [(0, 0, 65535, 65535)],
        [(0, 0, 1, 1), (0, 0, 65535, 65535)],
        [(0, 0, 1, 1), (65535, 65535, 1, 1), (0, 0, 1, 1)],
    ],
)
def test_frames_beyond_a_canvas_count(
    frames: list[tuple[int, int, int, int]], disposal: int
) -> None:
    data = gif_of((1, 1), *frames, disposal=disposal)
    with memory_limit(200 * MIB), pytest.raises(ImageError, match="more than --max-pixels"):
        decode(data)
    with memory_limit(200 * MIB):
        extent(data)


def test_a_webp_that_declares_much() -> None:
    data = bytearray(encoded(Image.fromarray(ramp(3)), "WEBP", icc_profile=b"profile"))
    assert data[12:16] == b"VP8X"
    data[24:30] = b"\xff\x3f\0\xff\x3f\0"
    with memory_limit(200 * MIB), pytest.raises(ImageError, match="16384x16384 pixels are more"):
        decode(bytes(data))


@pytest.mark.parametrize("kind", ["png", "bmp"])
def test_an_icon_whose_picture_is_larger_than_it_says(kind: str) -> None:
    side = 40_000
    if kind == "png":
        header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
        inner = chunks.SIGNATURE + b"".join(chunks.chunk(b"IHDR", header))
        inner += b"".join(chunks.chunk(b"IDAT", zlib.compress(bytes(1000))))
    else:
        inner = struct.pack("<IiiHHIIiiII", 40, side, 2 * side, 1, 32, 0, 0, 0, 0, 0, 0)
    inner += bytes(1000)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22)
    with memory_limit(200 * MIB), pytest.raises(ImageError, match=f"{side}x{side} pixels are more"):
        decode(b"\0\0\1\0\1\0" + entry + inner)


def test_boxes_of_a_jpeg_xl_are_within_a_budget() -> None:
    data = b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0\0\0\x08free" * 300_000
    with pytest.raises(ImageError, match="more entries than a file of its size"):
        decode(data)


@pytest.mark.parametrize(
    "header",
    [
        b"P6 " + b" " * 3_000_000 + b"2 2 65535\n",
        b"P6 " + b"#\n" * 1_000_000 + b"2 2 65535\n",
        b"P6 2 2 #" + b"x" * 3_000_000 + b"\n255\n",
        b"P5" + b"\n" * 3_000_000,
        b"P4 2 " + b" " * 3_000_000 + b"2\n",
    ],
)
def test_long_headers_of_a_pnm(header: bytes) -> None:
    with memory_limit(50 * MIB), pytest.raises(ImageError, match="more than 65536 bytes"):
        decode(header + bytes(24))
    assert extent(header + bytes(24)) is None


@pytest.mark.parametrize("kind", ["fill", "scans"])
def test_a_jpeg_of_much_that_costs_more(kind: str) -> None:
    """Bytes that Pillow reads one by one; passes over a large picture."""
    data = encoded(Image.fromarray(noise(40, 56, 3)), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    hostile = {
        "fill": data[:2] + b"\xff" * 3_000_000 + data[2:],
        "scans": data[:-2] + scan * 600 + data[-2:],
    }
    with pytest.raises(ImageError, match=r"more (entries|than the 500 scans)"):
        decode(hostile[kind])
    assert extent(hostile[kind]) is None
    assert decode(data[:-2] + scan * 300 + data[-2:]).pixels.shape == (40, 56, 3)


def test_exif_that_overlaps_is_left_out_of_a_tiff() -> None:
    count = 5000
    entries = [(0x9000 + i, 7, 60_000, 8) for i in range(count)]
    block = b"II*\0" + struct.pack("<IH", 8, count)
    block += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    source = png_with(ramp(3), (b"eXIf", block))
    assert (decode(encode(decode(source), "tif")).pixels == ramp(3)).all()


BETWEEN = (
    b"",
    b"\0",
    bytes(70_000) + b"\xff",
    b"!\xf9\0" + b"\1;\0",  # an empty block, behind which Pillow takes further ones
    b"!\xf9\0" + b"\0",
    b"!\xfe\0",
    b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0",
)
"""Bytes before a picture of a GIF, sound ones and others."""
NO_LOOP = b"!\xff\x0bNETSCAPE2.0\0" + b"\1;\0"
"""An extension without what it announces; counts before the first picture."""


@pytest.mark.parametrize(
    ("between", "is_behind"),
    [*((each, where) for each in BETWEEN for where in (False, True)), (NO_LOOP, False)],
)
def test_pictures_of_a_gif_are_all_bounded(between: bytes, is_behind: bool) -> None:
    """Those, too, that only Pillow finds, behind bytes that are no block."""
    head = b"GIF89a" + struct.pack("<HHBBB", 2, 2, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    small = b"," + struct.pack("<4HB", 0, 0, 2, 2, 0) + b"\2\2\x4c\1\0"
    large = b"," + struct.pack("<4HB", 0, 0, 60_000, 60_000, 0) + b"\2\2\x4c\1\0"
    data = head + (small + between if is_behind else between + small) + large + b";"
    with Image.open(io.BytesIO(data)) as judge:
        assert judge.n_frames == 2  # type: ignore[attr-defined]
    assert declared(data) == (60_000, 60_000, 2)
    with memory_limit(200 * MIB), pytest.raises(ImageError, match="60000x60000"):
        decode(data)
