"""The `numpy` backend's tiles: they bound its memory and let it stop, and change no bit."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.graphs import random_graphs
from waifu2x.backends import ignore
from waifu2x.backends.call import Call
from waifu2x.backends.reference import backend
from waifu2x.networks.model import Model

PIXELS = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
MODELS = [
    obvious.random_model([3, 16, 32, 3], seed=1),
    obvious.random_model([3, 32, 16, 3], seed=2, scale=2),
]


def run(on_progress: Callable[[float], None] = ignore) -> NDArray[Any]:
    network = backend.create(0).compile(MODELS, "fp32")
    return network.run(Call(PIXELS, np.float32, on_progress=on_progress))


@pytest.mark.parametrize("pixels", [1, 140 * 17, 140 * 64])
def test_tiles_change_no_bit(monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    monkeypatch.setattr(backend, "TILE_PIXELS", 1 << 40)
    whole = run()
    assert obvious.psnr(whole, obvious.run(MODELS, PIXELS)) > 140
    monkeypatch.setattr(backend, "TILE_PIXELS", pixels)
    np.testing.assert_array_equal(run(), whole)


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(random_graphs())
def test_maps_computed_again_equal_maps_kept(model: Model) -> None:
    """And both equal the definition, to the last bits of float32."""
    pixels = PIXELS[:25, :31, : model.in_planes].copy()
    network = backend.create(0).compile([model], "fp32")
    kept = network.run(Call(pixels, np.float32))
    assert obvious.psnr(kept, obvious.run([model], pixels)) > 130
    network.kept_bytes = 0
    np.testing.assert_allclose(network.run(Call(pixels, np.float32, tile=16)), kept, atol=1e-6)


def test_an_error_in_the_progress_report_ends_the_work_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class StopError(Exception):
        pass

    def stop(part: float) -> None:
        told.append(part)
        if len(told) == 3:
            raise StopError

    told: list[float] = []
    monkeypatch.setattr(backend, "TILE_PIXELS", 140 * 20)
    with pytest.raises(StopError):
        run(stop)
    assert 0 < sum(told) < 0.5


def test_memory_does_not_grow_with_the_picture() -> None:
    model = obvious.random_model([3, 64, 3], seed=3)
    network = backend.create(0).compile([model], "fp32")

    def peak(height: int) -> int:
        pixels = np.zeros((height, 256, 3), np.uint8)
        tracemalloc.start()
        try:
            network.run(Call(pixels, np.uint8))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1024) < 1.1 * peak(256)
