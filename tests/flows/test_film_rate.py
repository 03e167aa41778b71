"""How fast a film can be enlarged here: what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from waifu2x.api import Upscaler  # noqa: E402
from waifu2x.flows.film import trials  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402


class _Recorded:
    """Stands for the enlarger of frames: notes the sizes of luma instead."""

    sizes: list[tuple[tuple[int, ...], tuple[int, ...]]]
    frames = 1

    def __init__(self, upscaler: Upscaler, *_: Any) -> None:
        self.backend = upscaler.engine.backend

    def __call__(self, frames: Sequence[Any], out: Sequence[Any]) -> None:
        _Recorded.sizes.append((frames[0][0].shape, out[0][0].shape))


@pytest.mark.parametrize(
    ("scale", "pixels", "expected"),
    [
        (Fraction(2), 1 << 20, ((40, 60), (80, 120))),
        (Fraction(3, 2), 1 << 20, ((40, 60), (60, 90))),
        (Fraction(3, 2), 600, ((20, 30), (30, 45))),
    ],
)
def test_results_are_as_much_larger_as_those_of_the_film(
    scale: Fraction, pixels: int, expected: tuple[Any, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 80, 40), size=(40, 60))
    with FilmReader(source) as reader:
        job = FilmJob(source, tmp_path / "out.mkv", Wish("ffv1"))
        shape = prepare(reader, job, int(40 * scale), int(60 * scale)).shape
        film = reader.film
    _Recorded.sizes = []
    monkeypatch.setattr(trials, "FrameEnlarger", _Recorded)
    monkeypatch.setattr(trials, "_PIXELS", pixels)
    found = trials.measured({"scale": float(scale), "noise": 0, "backend": "numpy"}, film, shape)
    assert _Recorded.sizes == [expected] * 2
    assert (found.height, found.width) == expected[0]
