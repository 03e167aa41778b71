"""How much pictures differ: against scikit-image, and what is shown of it."""

from __future__ import annotations

import json
import math
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.imaging import comparison
from waifu2x.imaging.comparison import compare, worst_boxes
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sheet import of_two


def noise(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def pair(height: int, width: int, planes: int) -> tuple[Picture, Picture]:
    """Returns a smooth picture, and the same with noise."""
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([(y * 3 + x * (2 + p)) % 200 for p in range(planes)], axis=-1)
    noisy = smooth + noise(height, width, planes) // 16
    return Picture(smooth.astype(np.uint8)), Picture(noisy.astype(np.uint8))


def window_ssim(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Computes SSIM by definition: a Gaussian window at every place within the picture."""
    weights = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    weights = np.outer(weights, weights) / weights.sum() ** 2
    found = []
    for y in range(one.shape[0] - 10):
        for x in range(one.shape[1] - 10):
            a, b = one[y : y + 11, x : x + 11], other[y : y + 11, x : x + 11]
            ma, mb = (weights * a).sum(), (weights * b).sum()
            va, vb = (weights * (a - ma) ** 2).sum(), (weights * (b - mb) ** 2).sum()
            covariance = (weights * (a - ma) * (b - mb)).sum()
            found.append(
                (2 * ma * mb + 1e-4)
                * (2 * covariance + 9e-4)
                / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
            )
    return float(np.mean(found))


@pytest.mark.parametrize(("height", "width", "planes"), [(19, 23, 1), (12, 31, 3)])
def test_ssim_is_its_definition(height: int, width: int, planes: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(comparison, "_BAND_VALUES", 4 * width * planes)
    one, other = (picture.pixels / 255 for picture in pair(height, width, planes))
    expected = np.mean([window_ssim(one[..., p], other[..., p]) for p in range(planes)])
    found = comparison.ssim(one.astype(np.float32), other.astype(np.float32))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("planes", [1, 3])
def test_figures_are_those_of_scikit_image(planes: int) -> None:
    metrics = pytest.importorskip("skimage.metrics", reason="pip install -e '.[bench]'")
    one, other = pair(90, 70, planes)
    found = compare(one, other)
    psnr = metrics.peak_signal_noise_ratio(one.pixels, other.pixels, data_range=255)
    assert found.psnr == pytest.approx(psnr, abs=1e-4)
    ssim = metrics.structural_similarity(
        one.pixels,
        other.pixels,
        channel_axis=-1,
        data_range=255,
        gaussian_weights=True,
        use_sample_covariance=False,
    )
    assert found.ssim == pytest.approx(ssim, abs=1e-5)
    assert found.largest == pytest.approx(15 / 255)


def test_equal_pictures() -> None:
    one, _ = pair(30, 20, 3)
    found = compare(one, one)
    assert (found.psnr, found.largest, found.differing) == (math.inf, 0.0, 0.0)
    assert found.ssim == pytest.approx(1.0)
    sheet, boxes = of_two(found, ("a", "b"), ("", ""), ())
    assert boxes == []
    assert sheet.ndim == 3


def test_depths_and_greys_mean_the_same() -> None:
    one, other = pair(30, 20, 1)
    deep = Picture(other.pixels.astype(np.uint16) * 257)
    colour = Picture(one.pixels.repeat(3, axis=-1))
    assert compare(one, deep).psnr == pytest.approx(compare(one, other).psnr, abs=1e-3)
    assert compare(one, colour).psnr == math.inf


def test_the_smaller_one_is_enlarged() -> None:
    source = np.asarray(Image.fromarray(noise(9, 7, 3)).resize((14, 18), Image.Resampling.BICUBIC))
    larger = np.asarray(Image.fromarray(source).resize((42, 54), Image.Resampling.LANCZOS))
    found = compare(Picture(source), Picture(larger))
    assert found.first.shape == (54, 42, 3)
    assert (found.resized, compare(Picture(larger), Picture(source)).resized) == ("first", "second")
    assert found.psnr > 50  # but for Pillow's rounding
    # Sizes are rounded: a column more or less is no other shape.
    compare(Picture(noise(101, 7, 3)), Picture(noise(203, 15, 3)))
    with pytest.raises(ImageError, match="pictures of 7x9 and 9x7 have other proportions"):
        compare(Picture(noise(9, 7, 3)), Picture(noise(7, 9, 3)))


def test_transparency_is_laid_over_white() -> None:
    pixels = np.zeros((20, 20, 1), np.uint8)
    clear = Picture(pixels, np.zeros((20, 20), np.uint8))
    assert compare(clear, Picture(np.full_like(pixels, 255))).psnr == math.inf


def test_crops_are_where_pictures_differ_most() -> None:
    one = noise(200, 300, 3)
    other = one.copy()
    other[150:160, 250:270] ^= 255
    other[20:30, 40:50] ^= 64
    boxes = worst_boxes([one, other], 32, 4)
    assert len(boxes) >= 2
    worst, second = boxes[0], boxes[1]
    assert worst.top <= 155 < worst.bottom
    assert worst.left <= 260 < worst.right
    assert any(
        box.top <= 25 < box.bottom and box.left <= 45 < box.right for box in (second, boxes[-1])
    )
    for number, box in enumerate(boxes):
        assert 0 <= box.top <= box.bottom <= 200
        assert 0 <= box.left <= box.right <= 300
        for earlier in boxes[:number]:
            assert not (
                box.top < earlier.bottom
                and earlier.top < box.bottom
                and box.left < earlier.right
                and earlier.left < box.right
            )


def test_crops_are_spread_where_differences_are() -> None:
    """A border along the left edge, and three smaller places that differ less."""
    one = np.zeros((400, 400, 1), np.uint8)
    other = one.copy()
    other[:, :3] = 200
    places = [(100, 200), (250, 350), (350, 120)]
    for top, left in places:
        other[top : top + 12, left : left + 12] = 90
    boxes = worst_boxes([one, other], 64, 4)
    assert sum(box.left == 0 for box in boxes) == 1
    for top, left in places:
        assert any(box.top <= top < box.bottom and box.left <= left < box.right for box in boxes)


def test_crops_of_a_border_alone_do_not_overlap() -> None:
    one = np.zeros((400, 400, 1), np.uint8)
    other = one.copy()
    other[:, :3] = 200
    tops = sorted(box.top for box in worst_boxes([one, other], 64, 4))
    assert len(tops) == 4
    assert all(after - before >= 64 for before, after in pairwise(tops))


CELL, GAP, MARGIN = 256, 4, 8
"""On a sheet: pixels across a crop, between two, around all."""


def cell(sheet: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    """Returns a crop of a sheet, counted from its lower right corner."""
    bottom, right = (
        size - MARGIN - place * (CELL + GAP)
        for size, place in zip(sheet.shape, (row, column), strict=False)
    )
    return sheet[bottom - CELL : bottom, right - CELL : right]


def test_the_sheet_shows_both_and_their_difference_magnified() -> None:
    one = noise(200, 300, 3)
    other = one.copy()
    other[30:40, 50:60] ^= 64
    other[150:160, 250:260] ^= 16
    compared = compare(Picture(one), Picture(other))
    sheet, boxes = of_two(compared, ("a.png", "b.png"), ("200x300", ""), ("PSNR",))
    for row, box in enumerate(reversed(boxes)):
        place = slice(box.top, box.bottom), slice(box.left, box.right)
        for column, pixels in ((2, one), (1, other)):
            crop = pixels[place].repeat(4, 0).repeat(4, 1)
            np.testing.assert_array_equal(cell(sheet, row, column), crop)
        # The largest difference is black or white, all are on one scale.
        difference = (other[place].astype(float) - one[place]) / 64
        expected = (127.5 + 127.5 * difference).repeat(4, 0).repeat(4, 1)
        np.testing.assert_allclose(cell(sheet, row, 0).astype(float), expected, atol=1)
    # A name over each column, and a line below the first.
    first = len(sheet) - MARGIN - len(boxes) * (CELL + GAP) + GAP
    for column in range(3):
        left = sheet.shape[1] - MARGIN - (column + 1) * (CELL + GAP) + GAP
        assert (sheet[MARGIN : first - GAP, left : left + CELL] < 128).any()


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 500), (700, 2), (900, 1300)])
def test_sheets_of_any_size_are_of_a_size_to_look_at(height: int, width: int) -> None:
    one = np.zeros((height, width, 1), np.uint8)
    other = one.copy()
    other[-1, -1] = 255
    for second in (one, other):
        compared = compare(Picture(one), Picture(second))
        sheet, _ = of_two(compared, ("a", "b"), ("", ""), ("",))
        assert 256 < sheet.shape[0] < 2000
        assert 1024 < sheet.shape[1] < 2000


def test_what_is_compared_takes_little_memory_beyond_the_pictures(monkeypatch: Any) -> None:
    monkeypatch.setattr(comparison, "_BAND_VALUES", 1 << 13)
    one = noise(600, 800, 3)
    tracemalloc.start()
    compare(Picture(one), Picture(one))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < one.nbytes * 4  # as floats, both together were twice that


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, picture in zip(("a.png", "b.png"), pair(40, 50, 3), strict=True):
        Image.fromarray(picture.pixels).save(name)
    return tmp_path


@pytest.mark.usefixtures("files")
def test_the_command() -> None:
    result = CliRunner().invoke(cli, ["compare", "a.png", "b.png", "-o", "sheet.png"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["PSNR", "SSIM", "largest"]
    assert lines[-1] == "picture: sheet.png"
    with Image.open("sheet.png") as sheet:
        assert sheet.mode == "RGB"
    again = CliRunner().invoke(cli, ["compare", "a.png", "b.png", "-o", "sheet.png"])
    assert again.exit_code == 1
    assert "sheet.png: it exists already; use --overwrite, or another name with -o" in again.stderr
    row = json.loads(CliRunner().invoke(cli, ["compare", "--json", "a.png", "b.png"]).stdout)
    assert row["psnr"] == pytest.approx(float(lines[0].split()[1]), abs=0.01)
    same = CliRunner().invoke(cli, ["compare", "a.png", "a.png"])
    assert same.stdout.startswith("PSNR infinite: equal\n")
    assert (
        json.loads(CliRunner().invoke(cli, ["compare", "--json", "a.png", "a.png"]).stdout)["psnr"]
        is None
    )


@pytest.mark.usefixtures("files")
def test_what_the_command_cannot_do() -> None:
    Image.fromarray(noise(50, 40, 3)).save("turned.png")
    for arguments, code, message in [
        (["a.png", "turned.png"], 1, "a.png, turned.png: pictures of 50x40 and 40x50 have other"),
        (["a.png", "none.png"], 1, "none.png: cannot read: no such file"),
        (["a.png", "b.png", "-o", "c.jpg"], 2, "c.jpg: the picture is a PNG"),
    ]:
        result = CliRunner().invoke(cli, ["compare", *arguments])
        assert result.exit_code == code
        assert message in result.stderr
        assert "Traceback" not in result.output
