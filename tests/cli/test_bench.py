"""`waifu2x bench`: what it measures, counts and says."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from waifu2x.backends import LayerTime
from waifu2x.backends.cpu import arithmetic
from waifu2x.backends.gpu.fp32.direct import DirectShape
from waifu2x.backends.gpu.fp32.winograd import WinogradShape
from waifu2x.backends.winograd import share, transform_weights
from waifu2x.cli import cli
from waifu2x.cli.commands import bench as command
from waifu2x.errors import BackendError

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(cli, ["bench", *arguments])


@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_layers(run: Run, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    monkeypatch.setattr(command, "_LEAST_PIXELS", 1)
    if precision == "fp32":  # the program is measured once here
        monkeypatch.setattr(command, "_program_seconds", lambda *_, runs: 60.0)
    result = run("-m", "vgg_7", "--json", "--size", "40x30", "--precision", precision)
    document = json.loads(result.stdout)
    units = re.compile(" (bf16|int16)$")
    names = [units.sub("", row["layer"]) for row in document["layers"]]
    planes = ["3 > 32", "32 > 32", "32 > 64", "64 > 64", "64 > 128", "128 > 128", "128 > 3"]
    assert names == ["pixels", *planes]
    # The layers' times are shares of the whole, where there is a counter to tell them apart.
    total = sum(row["ms"] for row in document["layers"])
    assert total == pytest.approx(document["network"]["ms"]) or total == 0
    assert document["program"]["ms"] > document["network"]["ms"]
    assert list(document["seconds_of_1080p"]) == ["vgg_7", "cunet/art"]
    assert document["seconds_of_1080p"]["vgg_7"] >= document["program"]["ms"] / 1000


def test_the_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_program_seconds", lambda *_, runs: 60.0)
    small = run("--backend", "numpy", "--size", "20x20", "-m", "cunet", "-n", "1")
    assert "1080p" not in small.stdout  # so small a picture says nothing of large ones
    monkeypatch.setattr(command, "_LEAST_PIXELS", 1)
    result = run("--backend", "numpy", "--size", "20x20", "-m", "cunet", "-n", "1")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1] == "cunet: 20x20 -> 40x40, auto"
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("1x1 64 > 256 ") for line in lines)
    # Columns stand below their headings, however long a layer's name is.
    ends = [line.index("ms") + 2 for line in lines if line.startswith("layer")]
    assert all(line[ends[0] - 2] == "." for line in lines[3:-1])
    takes = r"a 1080p picture \(1920x1080 to 3840x2160\) takes about [\d.]+ s with cunet"
    assert re.fullmatch(takes, lines[-1])
    assert json.loads(run("--backend", "numpy", "--json", "--size", "20x20").stdout)
    assert run("--size", "0x5").exit_code == 2


def test_a_program_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(BackendError, match=r"^nothing: no such model and no such folder"):
        command._program_seconds(pixels, ["-m", "nothing", "-n", "none"], runs=1)


def test_a_time_for_another_size_is_the_start_and_work_by_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that takes half a second, and two microseconds for a pixel."""

    def seconds(pixels: NDArray[np.uint8], *_: object, runs: int) -> float:
        return 0.5 + 2e-6 * float(pixels.shape[0] * pixels.shape[1])

    monkeypatch.setattr(command, "_program_seconds", seconds)
    pixels = np.zeros((540, 960, 3), np.uint8)
    found = command._full_hd_seconds(pixels, seconds(pixels, runs=1), [])
    assert found == pytest.approx(0.5 + 2e-6 * 1920 * 1080, rel=1e-3)


def test_the_share_of_the_peak_counts_what_is_done() -> None:
    """A unit of 1000 multiply-adds a second is busy for 0.4 s of a second."""
    direct = LayerTime("", 1.0, 400, 1000.0)
    fewer = LayerTime("", 1.0, 900, 1000.0, share(2, 2))
    assert direct.share_of_peak == pytest.approx(fewer.share_of_peak) == pytest.approx(0.4)
    assert LayerTime("", 0.0, 900, 1000.0).share_of_peak == 0


@pytest.mark.parametrize("cell", [(2, 2), (2, 4), (4, 4), arithmetic.CELL_UNIT])
def test_winograd_does_with_fewer(cell: tuple[int, int]) -> None:
    # A product for each of its frequencies, where a convolution has nine for each result.
    frequencies = len(transform_weights(np.zeros((1, 1, 3, 3), np.float32), *cell))
    assert share(*cell) == pytest.approx(frequencies / (9 * cell[0] * cell[1]))
    shape = WinogradShape(*cell, 4, 4, 64, 8, 8, 1, 4)
    assert shape.share == share(*cell)
    assert DirectShape(1, 1, 1, 1, 1, 1).share == 1


@pytest.mark.matrix
def test_compiling_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, with an empty cache: of the network and of loops that measure the units."""
    pexpect = pytest.importorskip("pexpect")
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    command = shlex.join([sys.executable, "-m", "waifu2x", "bench", "--backend", "cpu"])
    shown, code = pexpect.run(f"{command} --size 20x20", timeout=600, withexitstatus=True)
    assert code == 0
    assert shown.count(b"compiling for this processor, once: some seconds\r\n") == 1
