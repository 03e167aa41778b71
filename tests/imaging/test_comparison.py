"""How much pictures differ: against scikit-image, and what is shown of it."""

from __future__ import annotations

import json
import math
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
from waifu2x.imaging.sheet import side_by_side


def noise(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def pair(height: int, width: int, planes: int) -> tuple[Picture, Picture]:
    """A smooth picture, and the same with noise."""
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([(y * 3 + x * (2 + p)) % 200 for p in range(planes)], axis=-1)
    noisy = smooth + noise(height, width, planes) // 16
    return Picture(smooth.astype(np.uint8)), Picture(noisy.astype(np.uint8))


def window_ssim(one: NDArray[Any], other: NDArray[Any]) -> float:
    """By definition: a Gaussian window at every place where it lies within the picture."""
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
    monkeypatch.setattr(comparison, "_BAND_ROWS", 4)
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
    sheet, boxes = side_by_side(found)
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


def test_the_sheet_shows_both_magnified() -> None:
    one = noise(80, 90, 3)
    other = one.copy()
    other[30:40, 50:60] ^= 128
    sheet, (box, *_) = side_by_side(compare(Picture(one), Picture(other)), side=16, magnified=3)
    assert sheet.shape[1] == 3 * 48 + 2 * 4
    thumbnail = round(80 * 48 / 90)
    first = sheet[thumbnail + 4 : thumbnail + 52, :48]
    crop = one[box.top : box.bottom, box.left : box.right]
    np.testing.assert_array_equal(first, crop.repeat(3, 0).repeat(3, 1))


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
    with Image.open("sheet.png") as sheet:
        assert sheet.width == 3 * 4 * 40 + 2 * 4  # crops are as large as the picture is high
    again = CliRunner().invoke(cli, ["compare", "a.png", "b.png", "-o", "sheet.png"])
    assert again.exit_code == 1
    assert "sheet.png: exists already" in again.stderr
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
