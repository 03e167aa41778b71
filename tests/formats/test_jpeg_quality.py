"""A JPEG's quality by its quantization tables, against encoders that were told it."""

import io
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin
from PIL.JpegPresets import presets

from waifu2x.formats.description import describe
from waifu2x.formats.metadata.jpeg_quality import JpegQuality, quality_of, scaled
from waifu2x.formats.pillow.images import jpeg_coding
from waifu2x.formats.read import open_content
from waifu2x.imaging.picture import JpegCoding

MOZJPEG = (
    16, 16, 16, 18, 25, 37, 56, 85,
    16, 17, 20, 27, 34, 40, 53, 75,
    16, 20, 24, 31, 43, 62, 91, 135,
    18, 27, 31, 40, 53, 74, 106, 156,
    25, 34, 43, 53, 69, 94, 131, 189,
    37, 40, 62, 74, 94, 124, 169, 238,
    56, 53, 91, 106, 131, 169, 226, 311,
    85, 75, 135, 156, 189, 238, 311, 418,
)  # fmt: skip
"""The table that mozjpeg scales, for luma and chroma."""
_DQT, _SOS = b"\xff\xdb", b"\xff\xda"


def picture(mode: str = "RGB") -> Image.Image:
    samples = np.random.default_rng(7).integers(0, 256, (24, 40, 3), np.uint8)
    return Image.fromarray(samples).convert(mode)


def encoded(mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    picture(mode).save(stream, "JPEG", **options)
    return stream.getvalue()


def found(data: bytes) -> JpegQuality:
    with closing(open_content(data, "x.jpg")) as source:
        assert source.first().picture.jpeg == source.header.jpeg
        assert source.header.jpeg is not None
        return quality_of(source.header.jpeg)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True}], ids=str)
def test_what_libjpeg_was_told_is_found_at_every_quality(options: dict[str, Any]) -> None:
    for quality in range(1, 101):
        expected = JpegQuality(quality, True, "4:2:0", "")
        assert found(encoded(quality=quality, subsampling=2, **options)) == expected


@pytest.mark.parametrize(
    ("mode", "subsampling", "ratio"),
    [("RGB", 0, "4:4:4"), ("RGB", 1, "4:2:2"), ("RGB", 2, "4:2:0"), ("L", -1, "")],
)
def test_the_chroma_subsampling_is_found(mode: str, subsampling: int, ratio: str) -> None:
    assert found(encoded(mode, quality=60, subsampling=subsampling)).subsampling == ratio


def test_cmyk_has_a_quality_too() -> None:
    assert found(encoded("CMYK", quality=66)).quality == 66


@pytest.mark.parametrize(
    ("preset", "program", "equal"),
    [
        # The quality at which libjpeg has the same PSNR, of 12 drawings and of 12 photos, without
        # subsampling. Pillow has these tables from Photoshop.
        ("web_low", "Photoshop for web 10", (40, 33)),
        ("web_medium", "Photoshop for web 30", (68, 68)),
        ("web_very_high", "Photoshop for web 80", (94, 94)),
        ("web_maximum", "Photoshop for web 100", (99, 99)),
        ("low", "Photoshop 3", (80, 78)),
        ("medium", "Photoshop 5", (87, 86)),
        ("high", "Photoshop 8", (91, 91)),
        ("maximum", "Photoshop 10", (94, 94)),
    ],
)
def test_photoshops_tables_are_known_and_count_as_what_they_keep(
    preset: str, program: str, equal: tuple[int, int]
) -> None:
    quality = found(encoded(quality=preset))
    assert (quality.program, quality.exact) == (program, False)
    assert quality.subsampling == ("4:2:0" if presets[preset]["subsampling"] == 2 else "4:4:4")
    bound = 11 if equal[1] < 50 else 5
    assert all(abs(quality.quality - each) <= bound for each in equal)


def test_other_encoders_tables_are_ranked_as_they_were_scaled() -> None:
    codings = [JpegCoding((scaled(MOZJPEG, each),) * 2, 0, "4:4:4") for each in range(1, 101)]
    qualities = [quality_of(coding) for coding in codings]
    ranks = [each.quality for each in qualities]
    assert ranks == sorted(ranks)
    assert (ranks[0], ranks[-1]) == (1, 100)
    assert not any(each.exact for each in qualities[5:97])


@pytest.mark.parametrize(
    ("told", "equal"),
    [(40, (33, 33)), (60, (51, 52)), (75, (68, 70)), (85, (80, 81)), (92, (89, 89))],
)
def test_mozjpegs_tables_count_as_what_they_keep(told: int, equal: tuple[int, int]) -> None:
    """By libjpeg's quality with the same PSNR, of 12 drawings and of 12 photos."""
    quality = quality_of(JpegCoding((scaled(MOZJPEG, told),) * 2, 0, "4:4:4"))
    assert all(abs(quality.quality - each) <= (5 if told > 60 else 7) for each in equal)


def test_luma_decides_where_chroma_has_a_quality_of_its_own() -> None:
    data = encoded(qtables=[_table(90), _table(20)], subsampling=2)
    assert found(data) == JpegQuality(90, True, "4:2:0", "")


def _table(quality: int) -> list[int]:
    return list(scaled(_luma(), quality))


def _luma() -> tuple[int, ...]:
    """libjpeg's own table, as it writes it at quality 50."""
    return coding_of(opened(encoded(quality=50))).tables[0]


def opened(data: bytes) -> JpegImagePlugin.JpegImageFile:
    image = Image.open(io.BytesIO(data))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    return image


def coding_of(image: Image.Image) -> JpegCoding:
    coding = jpeg_coding(image)
    assert coding is not None
    return coding


# Hostile and damaged files.


def tables_of(data: bytes) -> list[tuple[int, int]]:
    """Places of the quantization tables' segments, up to the scan."""
    at, places = 2, []
    while data[at : at + 2] != _SOS:
        length = struct.unpack_from(">H", data, at + 2)[0]
        if data[at : at + 2] == _DQT:
            places.append((at, at + 2 + length))
        at += 2 + length
    return places


def with_tables(data: bytes, change: Callable[[bytes], bytes | None]) -> bytes:
    """The file with each segment of tables replaced by what is made of its content."""
    for start, end in reversed(tables_of(data)):
        content = change(data[start + 4 : end])
        made = b"" if content is None else _DQT + struct.pack(">H", len(content) + 2) + content
        data = data[:start] + made + data[end:]
    return data


def wide(content: bytes) -> bytes:
    """Tables of 8 bits as tables of 16."""
    tables = [content[at : at + 65] for at in range(0, len(content), 65)]
    return b"".join(
        bytes([0x10 | table[0]]) + b"".join(struct.pack(">H", entry) for entry in table[1:])
        for table in tables
    )


def test_tables_of_16_bits_are_read() -> None:
    assert found(with_tables(encoded(quality=35), wide)).quality == 35


def test_entries_beyond_255_are_of_poor_quality() -> None:
    coarse = with_tables(encoded(quality=35), lambda content: wide(content).replace(b"\0", b"\x7f"))
    assert found(coarse).quality == 1


def test_entries_of_zero_are_no_reason_to_fail() -> None:
    coding = JpegCoding(((0,) * 64,), 0, "")
    assert quality_of(coding).quality == 100


def test_a_table_that_is_missing_says_nothing_and_costs_nothing() -> None:
    # Pillow's decoder refuses such a file, or not, as it likes: only the words for it are ours.
    image = opened(with_tables(encoded(quality=35), lambda content: None))
    assert jpeg_coding(image) is None
    image = opened(encoded(quality=35))
    del image.quantization[1]
    assert quality_of(coding_of(image)).quality == 35


def test_a_table_that_comes_twice_counts_as_it_came_last() -> None:
    first, second = encoded(quality=20), encoded(quality=80)
    start = tables_of(first)[0][0]
    double = second[:start] + first[start : tables_of(first)[-1][1]] + second[start:]
    assert found(double).quality == 80


@pytest.mark.parametrize(
    "factors",
    [
        [],
        [(1, 1)],
        [(2, 2), (0, 0), (1, 1)],
        [(3, 1), (2, 1), (1, 1)],
        [(15, 15), (1, 1), (1, 1)],
    ],
)
def test_odd_sampling_factors_have_no_name(factors: list[tuple[int, int]]) -> None:
    image = opened(encoded(quality=35))
    image.layer = [(number, *each, 0) for number, each in enumerate(factors)]
    coding = jpeg_coding(image)
    assert coding is None or coding.ratio == ""


def test_info_says_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(quality=75, subsampling=2))
    assert str(describe(path, "png").jpeg) == "quality 75 (4:2:0)"
    path.write_bytes(encoded(quality="high"))
    assert str(describe(path, "png").jpeg) == "quality about 89 (4:4:4, Photoshop 8)"
    path.write_bytes(encoded("L", quality=10))
    assert str(describe(path, "png").jpeg) == "quality 10"
    picture().save(tmp_path / "a.png")
    assert describe(tmp_path / "a.png", "png").jpeg is None
