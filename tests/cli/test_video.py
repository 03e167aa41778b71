"""`waifu2x video`: the pictures of a film are those that `upscale` makes of its frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.cli.test_cli import tiny  # noqa: E402
from tests.flows.test_film_streams import pictures_of  # noqa: E402
from tests.helpers import obvious_planes  # noqa: E402
from tests.helpers.obvious_planes import Meaning  # noqa: E402
from waifu2x import Upscaler  # noqa: E402
from waifu2x.backends import Precision  # noqa: E402
from waifu2x.cli import cli  # noqa: E402

Run = Callable[..., Result]
SIZE = (22, 34)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command line in a folder with a film of three frames, and a model."""
    monkeypatch.chdir(tmp_path)
    tiny()
    return lambda *words: CliRunner().invoke(cli, ["video", "-m", "./tiny", *words])


def short(name: str, pixels: str = "yuv420p", **options: Any) -> None:
    """A film of three frames."""
    given = {"codec": "ffv1", "times": (0, 40, 80), "size": SIZE, **options}
    films.film(Path(name), pixels=pixels, **given)


def off(made: list[NDArray[Any]], wanted: list[NDArray[np.float64]], bits: int) -> float:
    """By how much codes differ at most from values, beyond what rounding them changes."""
    return max(
        float((np.abs(codes - values.clip(0, 2**bits - 1))).max()) - 0.5
        for codes, values in zip(made, wanted, strict=True)
    )


FORMATS = [
    pytest.param("yuv420p", None, Meaning(8, "420", "bt601", False, "left"), id="420"),
    pytest.param("yuv422p10le", (1, 1, 1, 1), Meaning(10, "422", "bt709", False, "left"), id="422"),
    pytest.param("yuv444p", (9, 2, 9, 1), Meaning(8, "444", "bt2020", True, "left"), id="444"),
]
SIZES = [
    pytest.param(["-s", "2"], {"scale": 2}, id="network"),
    pytest.param(["-s", "4"], {"scale": 4}, id="networks"),
    pytest.param(["--height", "60"], {"height": 60}, id="resized"),
]


@pytest.mark.parametrize("backend", ["numpy", "cpu", "opencl"])
@pytest.mark.parametrize(("pixels", "colours", "meaning"), FORMATS)
@pytest.mark.parametrize(("words", "size"), SIZES)
def test_frames_are_those_of_upscale(
    run: Run,
    backend: str,
    pixels: str,
    colours: Any,
    meaning: Meaning,
    words: list[str],
    size: Any,
    request: pytest.FixtureRequest,
) -> None:
    if backend == "opencl":
        request.getfixturevalue("opencl_device")
    short("in.mkv", pixels, colours=colours)
    precision: Precision = "auto" if backend == "numpy" else "fp32"
    how = ["--backend", backend, "--precision", precision]
    result = run(*how, "-c", "ffv1", *words, "in.mkv", "out.mkv")
    assert result.exit_code == 0, result.output
    _, sources, _ = pictures_of(Path("in.mkv"))
    _, made, _ = pictures_of(Path("out.mkv"))
    assert len(made) == len(sources) == 3
    with Upscaler(model="./tiny", backend=backend, precision=precision, **size) as upscaler:
        for frame, planes in zip(made, sources, strict=True):
            rgb = obvious_planes.to_rgb(planes, meaning).clip(0, 1).astype(np.float32)
            wanted = obvious_planes.from_rgb(upscaler(rgb), meaning)
            assert off(frame, wanted, meaning.bits) < 0.01 * 2 ** (meaning.bits - 8)
