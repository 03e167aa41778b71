"""`waifu2x bench --submit`, and the page of many such files."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import figures_page
from waifu2x.cli import cli, figures


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small network, and programs that take no time."""
    monkeypatch.setattr(figures, "_NETWORKS", ("anime4k/s", "no/such"))
    monkeypatch.setattr(figures, "least_seconds", lambda words, runs: 0.5)


def submit(*words: str) -> Any:
    size = [] if any(word.startswith("--size") for word in words) else ["--size", "17x13"]
    return CliRunner().invoke(cli, ["bench", "--backend", "numpy", *size, *words])


def test_figures_are_what_the_page_reads(quick: None, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    result = submit("--submit", str(path))
    assert result.exit_code == 0, result.output
    text = path.read_text()
    found = json.loads(text)
    assert [one["model"] for one in found["networks"]] == ["anime4k/s"]
    assert found["networks"][0]["ms"] > 0
    assert found["size"] == [17, 13]
    assert found["folder"] == {"model": "cunet/art", "pictures": 24, "seconds": 0.5}
    for private in (str(tmp_path), str(Path.home()), platform.node(), getpass.getuser()):
        assert f'"{private}' not in text
    row = figures_page.read(path)
    assert row["figures"]["pictures/s"] == 48
    assert "17x13" in figures_page.page([row])


def test_a_file_that_exists_stays(quick: None, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text("mine")
    result = submit("--submit", str(path))
    assert result.exit_code == 1
    assert result.stderr.endswith(f"{path} exists; choose another name\n")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("option", ["--json", "--tune", "-m=vgg_7", "--noise=1"])
def test_options_that_choose_something_else_are_refused(quick: None, option: str) -> None:
    result = submit("--submit", "x.json", *option.split("="))
    assert result.exit_code == 2
    assert "--submit takes no --" in result.stderr


GOOD: dict[str, Any] = {
    "waifu2x_figures": 1,
    "program": "1.0",
    "date": "2026-11-27",
    "machine": {"cores": 2},
    "device": {"name": "<b>Fast & Co", "backend": "cpu", "detail": "2 cores"},
    "precision": "auto",
    "size": [960, 540],
    "networks": [{"model": "cunet/art", "ms": 8.5}],
    "picture": {"seconds": 0.5},
    "folder": {"pictures": 24, "seconds": 2.0},
}


@pytest.mark.parametrize(
    "change",
    [
        {"waifu2x_figures": 2},
        {"size": [960]},
        {"size": [960, -1]},
        {"networks": [{"model": "a", "ms": float("nan")}]},
        {"networks": [{"model": "a" * 300, "ms": 1}]},
        {"networks": 5},
        {"device": {"name": "two\nlines", "backend": "cpu", "detail": ""}},
        {"precision": None},
        {"picture": {"seconds": True}},
    ],
)
def test_files_of_strangers_are_checked_and_left_out(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, none = (tmp_path / name for name in ("good.json", "bad.json", "none.json"))
    good.write_text(json.dumps(GOOD))
    bad.write_text(json.dumps(GOOD | change))
    none.write_bytes(b"[" * 10000)
    assert figures_page.main([str(good), str(bad), str(none), str(tmp_path / "absent")]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("<td>8.5</td>") == 1
    assert "&lt;b&gt;Fast &amp; Co" in shown.out
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == [
        str(bad),
        str(none),
        str(tmp_path / "absent"),
    ]
