"""The `numpy` backend's bands: they bound its memory and let it stop, and change no bit."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import obvious
from waifu2x.backends import reference
from waifu2x.backends.chain import Window
from waifu2x.tiling import Box

PIXELS = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
MODELS = [
    obvious.random_model([3, 16, 32, 3], seed=1),
    obvious.random_model([3, 32, 16, 3], seed=2, scale=2),
]
BOX = Box(7, 3, 170, 130)


def run(box: Box = BOX, on_progress: Callable[[float], None] = lambda part: None) -> NDArray[Any]:
    network = reference.create(0).compile(MODELS, "fp32")
    return network(PIXELS, box, np.float32, on_progress)


@pytest.mark.parametrize("pixels", [1, 130 * 17, 130 * 64])
def test_bands_change_no_bit(monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    monkeypatch.setattr(reference, "BAND_PIXELS", 1 << 40)
    whole = run()
    exact = obvious.run(MODELS, PIXELS)[BOX.top : BOX.bottom, BOX.left : BOX.right]
    assert obvious.psnr(whole, exact) > 140
    monkeypatch.setattr(reference, "BAND_PIXELS", pixels)
    np.testing.assert_array_equal(run(), whole)


def test_bands_change_no_bit_of_float64_either() -> None:
    """float32 hides what the length of a product does to the last bits; bands need no hiding."""
    stage = reference.NumpyStage(MODELS[1])
    window = Window(PIXELS, 0, 0, *PIXELS.shape[:2])
    bands = [
        stage._band(window, Box(top, BOX.left, min(17, BOX.bottom - top), BOX.width))
        for top in range(BOX.top, BOX.bottom, 17)
    ]
    np.testing.assert_array_equal(np.concatenate(bands), stage._band(window, BOX))


def test_an_error_in_the_progress_report_ends_the_work_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class StopError(Exception):
        pass

    def stop(part: float) -> None:
        told.append(part)
        if len(told) == 3:
            raise StopError

    monkeypatch.setattr(reference, "BAND_PIXELS", 130 * 20)
    told: list[float] = []
    with pytest.raises(StopError):
        run(on_progress=stop)
    assert 0 < sum(told) < 0.5


def test_memory_does_not_grow_with_the_picture() -> None:
    model = obvious.random_model([3, 64, 64, 3], seed=3)
    network = reference.create(0).compile([model], "fp32")

    def peak(height: int) -> int:
        pixels = np.zeros((height, 512, 3), np.uint8)
        tracemalloc.start()
        try:
            network(pixels, Box(0, 0, height, 512), np.uint8, lambda part: None)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(512) < 1.1 * peak(128)
