"""How `auto` decides on matrix units: by networks that 16 bits suit, or do not, in some way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from waifu2x.backends import accuracy
from waifu2x.backends.cuda.tensor import choosing
from waifu2x.backends.cuda.tensor.choosing import IN_FLOATS, IN_FP32
from waifu2x.backends.cuda.tensor.step import LARGEST
from waifu2x.backends.gpu.network import FlaggedError
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import sources
from waifu2x.system.resources import shipped_kernels

Values = Callable[[NDArray[np.float64]], Sequence[NDArray[np.float64]]]
"""A map of a network with each of two terms that make its result: their difference."""


class Tried:
    """A network on trial, rounded as matrix units round its maps."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self.trials: list[float] = []

    @contextmanager
    def __call__(self, trusted: float) -> Iterator[choosing.Run]:
        self.trials.append(trusted)

        def run(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
            terms = self._values(picture / 255)
            if max(np.abs(term).max() for term in terms) > (trusted or LARGEST):
                raise FlaggedError
            if trusted != IN_FP32:
                terms = [term.astype(np.float16).astype(np.float64) for term in terms]
            return (terms[0] - terms[1]).astype(np.float32)

        yield run


def edges(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much a pixel differs from both of its neighbours: more than half of white is rare but
    in drawings with hard edges."""
    left, right = np.roll(picture, 1, 1), np.roll(picture, -1, 1)
    return np.asarray(np.minimum(abs(picture - left), abs(picture - right)))


def exploding(by: float) -> Values:
    """Huge at hard lines, and about 3 elsewhere."""

    def values(picture: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
        huge = by * np.maximum(edges(picture) - 0.5, 0) + 3
        return huge + picture, huge

    return values


def offset(by: float) -> Values:
    """Pixels beside a large number: what is left of them is what its last bits hold."""
    return lambda picture: (picture + by, np.full_like(picture, by))


CASES: dict[str, tuple[Values, float]] = {
    "plain": (offset(0.0), LARGEST),
    "sum that cancels": (offset(300.0), IN_FP32),
    "values without room": (offset(70000.0), IN_FLOATS),
    "explodes at hard edges": (exploding(2000.0), 4.0),
    "explodes at hard edges, beyond 16 bits": (exploding(1e6), LARGEST),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions(name: str) -> None:
    """Those that explode keep their speed for usual pictures: the others are flagged."""
    values, expected = CASES[name]
    assert choosing._measured((3, 96), Tried(values)) == expected


def test_what_explodes_without_larger_values_gets_fp32() -> None:
    """Hard edges lose what is promised, and no value tells them from the usual."""

    def values(picture: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
        soft = edges(picture) < 0.5
        return np.where(soft, picture, picture + 2000), np.where(soft, 0.0, 2000.0) + 0 * picture

    def high(picture: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
        return [*values(picture), np.full_like(picture, 2500.0)]

    assert 0 < choosing._measured((3, 96), Tried(values)) < LARGEST
    assert choosing._measured((3, 96), Tried(high)) == IN_FP32


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Model:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    return obvious.random_model([3, 4, 3], seed=1)


def test_it_is_measured_once_for_a_kind_of_device(model: Model) -> None:
    trial = Tried(exploding(2000.0))
    assert choosing.trusted(model, "wgmma", trial) == 4.0
    tried = len(trial.trials)
    assert tried > 2
    assert choosing.trusted(model, "wgmma", trial) == 4.0
    assert len(trial.trials) == tried
    assert choosing.trusted(model, "mma", trial) == 4.0
    assert len(trial.trials) == 2 * tried
    other = obvious.random_model([3, 4, 3], seed=2)
    assert choosing.trusted(other, "mma", Tried(offset(0.0))) == LARGEST


def test_it_is_measured_again_by_other_code(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {path.stem for path in shipped_kernels().glob("tensor_*.cu")}
    assert set(choosing._STEMS) == kernels - {"tensor_peak"}
    trial = Tried(exploding(2000.0))
    choosing.trusted(model, "wgmma", trial)
    tried = len(trial.trials)
    monkeypatch.setattr(sources, "digest", lambda patterns: "other code")
    choosing.trusted(model, "wgmma", trial)
    assert len(trial.trials) == 2 * tried


def test_known_networks_are_not_measured(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Tried(offset(300.0))
    key = model_digest(model)[:16]
    monkeypatch.setattr(choosing, "RECORDED", {key: LARGEST})
    assert choosing.trusted(model, "mma", trial) == LARGEST
    assert not trial.trials


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (0.0, None),
        (300.0, "fp16 is too coarse"),
        (70000.0, "its values exceed 16 bits"),
    ],
)
def test_what_takes_longer_is_said_each_time(
    model: Model, caplog: pytest.LogCaptureFixture, by: float, said: str | None
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        choosing.trusted(model, "mma", Tried(offset(by)))
    expected = [f"random: {said}, using fp32 (slower)"] * 2
    assert [record.message for record in caplog.records] == (expected if said else [])


def test_probes_are_drawings_and_a_photo() -> None:
    """Hard edges are between neighbours; smooth ones and photos have none."""
    probes = accuracy.drawing, accuracy.smooth_drawing, accuracy.photo
    made = {probe: probe(3) for probe in probes}
    hard, smooth, photo = (edges(picture / 255).max() for picture in made.values())
    assert hard > 0.8
    assert smooth < 0.5
    assert photo < 0.35
    assert np.median(np.abs(np.diff(made[accuracy.photo].astype(int), axis=1))) > 5
    for probe, picture in made.items():
        assert picture.shape == (96, 96, 3)
        assert np.ptp(picture) > 200
        np.testing.assert_array_equal(probe(3), picture)
        assert probe(1).shape == (96, 96, 1)


def test_recorded_networks_are_trusted_up_to_powers_of_two() -> None:
    for digest, most in choosing.RECORDED.items():
        assert len(digest) == 16
        assert int(digest, 16)
        assert most in (IN_FLOATS, IN_FP32, LARGEST) or np.log2(most) % 1 == 0
