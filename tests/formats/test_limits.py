"""Small files that declare much: none may cost more than a sound file of its size."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.helpers.contents import decode, encode, png_with, ramp
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.formats import tags
from waifu2x.formats.limits import MAX_PICTURES, Budget, OverBudgetError

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
    """A TIFF of 2x2 pixels and many directories behind, each with so many empty entries."""
    start = len(tiff_of())
    size = 6 + 12 * entries
    links = [
        struct.pack("<H", entries) + bytes(12 * entries) + struct.pack("<I", start + size * i)
        for i in range(1, count + 1)
    ]
    return tiff_of(after=start, body=b"".join(links))


def peak_of_info(path: Path) -> int:
    """The most bytes that Python and NumPy have at a time while `info` reads a file."""
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


def test_directories_below_are_within_a_budget() -> None:
    """Every entry leads to the same directory, whose entries do so, too."""
    count = 5000
    entries = b"".join(struct.pack("<HHII", tags.EXIF, 4, 1, 8) for _ in range(count))
    block = b"II*\0" + struct.pack("<IH", 8, count) + entries + bytes(4)
    with pytest.raises(OverBudgetError):
        tags.described(block, 8, Budget(len(block)))


def test_exif_that_overlaps_is_left_out_of_a_tiff() -> None:
    count = 5000
    entries = [(0x9000 + i, 7, 60_000, 8) for i in range(count)]
    block = b"II*\0" + struct.pack("<IH", 8, count)
    block += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    source = png_with(ramp(3), (b"eXIf", block))
    assert (decode(encode(decode(source), "tif")).pixels == ramp(3)).all()
