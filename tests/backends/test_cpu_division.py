"""Into how many strips the processor's engine cuts a picture."""

from __future__ import annotations

import numpy as np
import pytest

from waifu2x.backends.cpu.run.division import LayerCosts, best_division


def costs(halo: float) -> LayerCosts:
    """The costs of a network of one convolution, with `halo` rows around a strip."""
    return LayerCosts(np.ones(1), np.array([halo]), np.ones(1), 16.0, 1.0, 256.0)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("halo", "tallest"), [(14.0, 1400), (2.0, 1024), (60.0, 6000)])
def test_strips_of_large_pictures_are_not_too_tall(cores: int, halo: float, tallest: int) -> None:
    """Progress is told strip by strip."""
    for height in (9000, 30_000):
        down, across = best_division(costs(halo), height, 12_000.0, 1, cores)
        assert height / down <= tallest
        # The halos of all of them are little all the same.
        assert down * halo / height < 0.03
        assert across > 0


def test_pictures_beyond_the_most_strips_are_cut_all_the_same() -> None:
    assert best_division(costs(14.0), 200_000.0, 20.0, 1, 1)[0] == 64
