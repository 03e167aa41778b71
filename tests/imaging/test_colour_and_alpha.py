"""Luma, chroma and the bleed under transparent pixels, against loops over single pixels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x.imaging.colour import chroma, luma, to_rgb
from waifu2x.imaging.processing import bleed


def random_rgb(height: int = 9, width: int = 11, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random((height, width, 3), np.float32)


def pixel_yuv(r: float, g: float, b: float) -> tuple[float, float, float]:
    """Computes a pixel as Torch and OpenCV do."""
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return y, 0.492 * (b - y), 0.877 * (r - y)


def pixel_rgb(y: float, u: float, v: float) -> tuple[float, float, float]:
    """Computes the inverse of `pixel_yuv`."""
    return y + 1.14 * v, y - 0.395 * u - 0.581 * v, y + 2.032 * u


CORNERS = np.array(list(np.ndindex(2, 2, 2)), np.float32).reshape(2, 4, 3)
"""Black, white, and the purest colours there are."""


@pytest.mark.parametrize("rgb", [random_rgb(), CORNERS], ids=["random", "corners"])
def test_luma_and_chroma(rgb: NDArray[np.float32]) -> None:
    y, uv = luma(rgb), chroma(rgb)
    assert y.shape == (*rgb.shape[:2], 1)
    assert uv.shape == (*rgb.shape[:2], 2)
    assert y.dtype == uv.dtype == np.float32
    for row, column in np.ndindex(rgb.shape[:2]):
        expected = pixel_yuv(*map(float, rgb[row, column]))
        got = [*y[row, column], *uv[row, column]]
        assert got == pytest.approx(expected, abs=1e-6)


def test_back_to_rgb() -> None:
    values = random_rgb(seed=1)
    rgb = to_rgb(values[..., :1], values[..., 1:])
    assert rgb.dtype == np.float32
    for row, column in np.ndindex(values.shape[:2]):
        expected = pixel_rgb(*map(float, values[row, column]))
        assert rgb[row, column].tolist() == pytest.approx(expected, abs=1e-6)
    assert rgb.max() > 1  # not clipped: that comes once, at the end


@pytest.mark.parametrize("rgb", [random_rgb(60, 60), CORNERS], ids=["random", "corners"])
def test_there_and_back(rgb: NDArray[np.float32]) -> None:
    # The constants have three digits: 0.877 * 1.14 and 0.492 * 2.032 are 1 within 3e-4, and so is
    # green's share.
    assert abs(to_rgb(luma(rgb), chroma(rgb)) - rgb).max() < 1e-3


@pytest.mark.parametrize("level", [0.0, 0.25, 1.0])
def test_grey_stays_grey(level: float) -> None:
    rgb = np.full((2, 3, 3), level, np.float32)
    assert luma(rgb).ravel() == pytest.approx(level, abs=1e-6)
    assert chroma(rgb).ravel() == pytest.approx(0.0, abs=1e-6)
    assert to_rgb(luma(rgb), chroma(rgb)).ravel() == pytest.approx(level, abs=1e-5)


def slow_bleed(
    planes: NDArray[np.float32], alpha: NDArray[np.uint8], reach: int
) -> NDArray[np.float64]:
    """Computes the original's make_alpha_border, pixel by pixel, its sums over a zero border."""
    height, width, count = planes.shape
    mask = (alpha > 0).astype(float)
    colours = planes.astype(float) * mask[..., np.newaxis]
    for _ in range(reach):
        old_mask, old_colours = mask.copy(), colours.copy()
        for y in range(height):
            for x in range(width):
                total, weight = np.zeros(count), 0.0
                for v in range(max(y - 1, 0), min(y + 2, height)):
                    for u in range(max(x - 1, 0), min(x + 2, width)):
                        total += old_colours[v, u]
                        weight += old_mask[v, u]
                if old_mask[y, x] == 0:
                    colours[y, x] = total / (weight + 1e-7)
                mask[y, x] = float(weight > 0)
    clipped: NDArray[np.float64] = np.clip(colours, 0.0, 1.0)
    return clipped


def blob(height: int, width: int, share: float, seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((height, width)) < share, rng.integers(1, 256), 0).astype(np.uint8)


@pytest.mark.parametrize("reach", [0, 1, 2, 7])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("planes", [1, 3])
def test_bleed(reach: int, share: float, planes: int) -> None:
    picture = random_rgb(13, 17)[..., :planes]
    alpha = blob(13, 17, share, seed=5)
    result = bleed(picture, alpha, reach)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, slow_bleed(picture, alpha, reach), atol=1e-6)
    assert (result[alpha > 0] == picture[alpha > 0]).all()


@pytest.mark.parametrize("corner", [(0, 0), (0, 8), (8, 0), (8, 8)])
def test_bleed_reaches_as_far_as_told(corner: tuple[int, int]) -> None:
    picture = np.full((9, 9, 3), 0.75, np.float32)
    alpha = np.zeros((9, 9), np.uint8)
    alpha[corner] = 1
    result = bleed(picture, alpha, 4)
    for y, x in np.ndindex(9, 9):
        distance = max(abs(y - corner[0]), abs(x - corner[1]))
        assert result[y, x].tolist() == pytest.approx([0.75 if distance <= 4 else 0.0] * 3)


def test_bleed_leaves_its_arguments() -> None:
    picture, alpha = random_rgb(), blob(9, 11, 0.3, seed=2)
    before = picture.copy(), alpha.copy()
    bleed(picture, alpha, 3)
    assert (picture == before[0]).all()
    assert (alpha == before[1]).all()
