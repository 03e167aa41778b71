"""Resizing, against the filters' definitions and against Pillow on whole pictures."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from waifu2x.imaging import resample
from waifu2x.imaging.sizes import Part


def cubic(distance: float) -> float:
    """Returns Keys' kernel with a = -0.5."""
    d, a = abs(distance), -0.5
    if d < 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def lanczos(distance: float) -> float:
    return float(np.sinc(distance) * np.sinc(distance / 3)) if abs(distance) < 3 else 0.0


def shares(
    kernel: Callable[[float], float], size: int, wanted: int, first: float, shown: float
) -> NDArray[np.float64]:
    """Returns (wanted, size): the share of each sample in each new one; those outside do not
    count."""
    step = shown / wanted
    found = np.zeros((wanted, size))
    for new in range(wanted):
        centre = first + (new + 0.5) * step - 0.5
        found[new] = [kernel((old - centre) / max(1.0, step)) for old in range(size)]
    found /= found.sum(axis=1, keepdims=True)
    return found


def part_of(left: Any, top: Any, width: Any, height: Any) -> Part:
    return Part(*map(Fraction, (left, top, width, height)))


@pytest.fixture(params=[1 << 22, 100], ids=["whole", "bands"])
def bands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resample, "_BAND_FLOATS", request.param)


@pytest.mark.parametrize("size", [(10, 14), (20, 28), (5, 7), (13, 9)])
@pytest.mark.parametrize("planes", [1, 2])
def test_bicubic(size: tuple[int, int], planes: int) -> None:
    source = np.random.default_rng(4).random((5, 7, planes), np.float32)
    result = resample.bicubic(source, *size)
    assert result.dtype == np.float32
    down, across = shares(cubic, 5, size[0], 0, 5), shares(cubic, 7, size[1], 0, 7)
    expected = np.einsum("yh,xw,hwc->yxc", down, across, source)
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("size", [(37, 49), (26, 32), (1, 1), (10, 75)])
@pytest.mark.parametrize(
    "part",
    [part_of(0, 0, 16, 13), part_of("1/3", 2, "43/3", "17/2"), part_of(3, "8.7", 5, "1.2")],
)
def test_lanczos(size: tuple[int, int], part: Part) -> None:
    """A picture that networks have doubled, or a part of it: enlarged, reduced, and both."""
    source = np.random.default_rng(1).random((26, 32, 3), np.float32)
    result = resample.lanczos(source, part, 2, *size, np.float32)
    down = shares(lanczos, 26, size[0], float(2 * part.top), float(2 * part.height))
    across = shares(lanczos, 32, size[1], float(2 * part.left), float(2 * part.width))
    expected = np.einsum("yh,xw,hwc->yxc", down, across, source).clip(0, 1)
    # Pillow takes the limits of what it shows in single precision.
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("size", [(211, 160), (100, 75), (333, 10)])
def test_lanczos_is_pillows_in_float(size: tuple[int, int], monkeypatch: Any) -> None:
    monkeypatch.setattr(resample, "_BAND_FLOATS", 4096)
    source = np.random.default_rng(2).random((222, 130, 3), np.float32)
    result = resample.lanczos(source, part_of(0, 0, 130, 222), 1, *size, np.float32)
    for plane in range(3):
        image = Image.fromarray(source[..., plane])
        whole = np.asarray(image.resize(size[::-1], Image.Resampling.LANCZOS)).clip(0, 1)
        np.testing.assert_allclose(result[..., plane], whole, atol=1e-5)


def test_pixels_stay_where_they_are() -> None:
    """A ramp is a ramp at any size: nothing is shifted by half a pixel."""
    ramp = np.linspace(0.25, 0.75, 90, dtype=np.float32)[None, :, None].repeat(8, 0)
    result = resample.lanczos(ramp, part_of(0, 0, 90, 8), 1, 8, 60, np.float32)[4, 5:-5, 0]
    places = (np.arange(60) + 0.5) * 90 / 60 - 0.5
    np.testing.assert_allclose(result, (0.25 + places * 0.5 / 89)[5:-5], atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_levels_are_rounded_once(dtype: type) -> None:
    source = np.random.default_rng(3).random((31, 20, 1), np.float32)
    part = part_of(0, 0, 20, 31)
    exact = resample.lanczos(source, part, 1, 23, 11, np.float32)
    peak = np.iinfo(dtype).max
    result = resample.lanczos(source, part, 1, 23, 11, dtype)
    np.testing.assert_array_equal(result, np.rint(exact * np.float32(peak)))


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("ground", [0.0, 0.4, 1.0])
def test_resizing_then_laying_over_is_laying_over_then_resizing(ground: float) -> None:
    rng = np.random.default_rng(5)
    colours = rng.random((60, 50, 3), np.float32)
    alpha = np.zeros((60, 50), np.float32)
    alpha[10:45, 8:40] = 1
    alpha[20:30, 20:30] = 0.3
    colours[alpha == 0] = (0, 1, 0)  # invisible
    part, size = part_of(0, 0, 50, 60), (17, 23)
    result, shown = resample.lanczos_with_alpha(colours, alpha, part, 1, *size, np.float32)
    laid = result * shown[..., None] + ground * (1 - shown[..., None])
    flat = colours * alpha[..., None] + np.float32(ground) * (1 - alpha[..., None])
    expected = resample.lanczos(flat, part, 1, *size, np.float32)
    # Lanczos overshoots; what is over or under is cut off at another place.
    clear = (shown > 0.02) & (shown < 0.98) & (abs(expected - 0.5).max(axis=-1) < 0.45)
    np.testing.assert_allclose(laid[clear], expected[clear], atol=0.02)
    # Within what is opaque and beyond it nothing of the hidden colour is seen at all.
    np.testing.assert_allclose(laid[shown == 0], ground, atol=1e-6)


def test_hidden_colours_do_not_show() -> None:
    colours = np.full((40, 40, 3), np.float32(0.5))
    alpha = np.zeros((40, 40), np.float32)
    alpha[13:29, 11:30] = 1
    colours[alpha == 0] = (0, 1, 0)
    part = part_of(0, 0, 40, 40)
    result, shown = resample.lanczos_with_alpha(colours, alpha, part, 1, 13, 9, np.float32)
    assert 0 < (shown > 0.01).mean() < 1
    np.testing.assert_allclose(result[shown > 0.01], 0.5, atol=1e-5)
