"""Pictures that are cut before networks see them, where the result shows only a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.contents import noise
from waifu2x.backends import Progress
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.processing import ChainCall
from waifu2x.imaging.sizes import ResizePlan, request
from waifu2x.networks.chains import ChainFacts

RADIUS = 6


class Facts:
    """Chains of any whole factor."""

    name = "blur"

    def factors(self, scale: Fraction, level: int | None) -> tuple[int, ...]:
        return () if scale <= 1 else (2,) if scale <= 2 else (2, 2)

    def facts(self, factor: int, level: int | None) -> ChainFacts:
        return ChainFacts(3, factor, RADIUS)


def blurred(
    calls: Sequence[ChainCall], on_progress: Progress, on_recomputed: Callable[[], None]
) -> list[NDArray[Any]]:
    """Mixes the pixels that a network of RADIUS reads into each pixel, then repeats it."""
    results = []
    for call in calls:
        pixels = call.pixels / (
            np.iinfo(call.pixels.dtype).max if call.pixels.dtype != float else 1
        )
        seen = np.pad(pixels, [(RADIUS, RADIUS), (RADIUS, RADIUS), (0, 0)], mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(seen, (2 * RADIUS + 1,) * 2, (0, 1))
        weights = np.random.default_rng(1).random(windows.shape[-2:])
        mixed = (windows * weights).sum(axis=(-2, -1)) / weights.sum()
        results.append(mixed.repeat(call.factor, 0).repeat(call.factor, 1).astype(call.dtype))
    return results


def sizes_seen(enlarger: Enlarger, picture: Picture) -> tuple[int, ...]:
    return enlarger.prepare(picture).calls[0].pixels.shape[:2]


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((120, 90), (150, 60)),
        ((90, 121), (61, 155)),
        ((101, 67), (200, 31)),
        ((300, 64), (64, 64)),
        ((64, 300), (190, 190)),
    ],
)
@pytest.mark.parametrize("alpha", [False, True])
def test_a_cut_changes_nothing(
    shape: tuple[int, int], size: tuple[int, int], alpha: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opacity = noise(*shape, 1, seed=2)[..., 0] if alpha else None
    picture = Picture(noise(*shape, 3, seed=1), opacity)
    asked = request(width=size[0], height=size[1], fit="cover")
    enlarger = Enlarger(Facts(), asked, 1, blurred)
    seen = sizes_seen(enlarger, picture)
    made = enlarger.picture(picture)
    growth = enlarger.growth(*shape)
    monkeypatch.setattr(ResizePlan, "needed", lambda *arguments: None)
    whole = enlarger.picture(picture)
    assert sizes_seen(enlarger, picture) == shape
    assert seen[0] * seen[1] < 0.95 * shape[0] * shape[1]
    assert growth < enlarger.growth(*shape)
    assert made.pixels.shape == (size[1], size[0], 3)
    # Where pixels lie is reckoned from another corner, in floating point.
    np.testing.assert_allclose(made.pixels.astype(int), whole.pixels, atol=1)
    if alpha:
        assert made.alpha is not None
        assert whole.alpha is not None
        np.testing.assert_allclose(made.alpha.astype(int), whole.alpha, atol=1)


@pytest.mark.parametrize(
    "asked",
    [
        {"scale": 2},
        {"scale": "1.5"},
        {"width": 160, "height": 300},
        {"width": 200, "height": 150, "fit": "exact"},
        {"width": 120, "height": 118, "fit": "cover"},  # hardly anything is cut off
    ],
    ids=str,
)
def test_what_is_shown_whole_is_not_cut(asked: dict[str, Any]) -> None:
    enlarger = Enlarger(Facts(), request(**asked), None, blurred)
    assert sizes_seen(enlarger, Picture(noise(80, 80, 3, seed=1))) == (80, 80)


def test_cuts_lie_where_networks_see_the_same_cells() -> None:
    plan = request(width=3840, height=2160, fit="cover").plan(3000, 2000, lambda scale: 2)
    box = plan.needed(36, 3000, 2000)
    assert box is not None
    rows, columns = box
    assert rows.start % 16 == 0
    assert rows.start <= 937 - 72
    assert rows.stop >= 2063 + 72
    assert columns == slice(0, 2000)
