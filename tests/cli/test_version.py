"""`waifu2x --version -v`: what it says, and what it does not."""

from __future__ import annotations

import platform
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

import waifu2x
from waifu2x.backends import BACKEND_NAMES
from waifu2x.cli import cli


@pytest.mark.parametrize("arguments", [["--version", "-v"], ["--verbose", "--version"]])
def test_what_a_report_needs(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "anna"
    (home / "cache").mkdir(parents=True)
    (home / "s.toml").write_text("scale = 3")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("WAIFU2X_CONFIG", str(home / "s.toml"))
    monkeypatch.setenv("WAIFU2X_NOISE", "2")
    monkeypatch.setenv("UNRELATED_SECRET", "hush")
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"waifu2x {waifu2x.__version__} in ")
    assert lines[1].startswith(f"Python {platform.python_version()} ")
    for library in ("numpy", "numba", "pillow", "click"):
        assert f"{library} {version(library)}" in done.stdout
    for name in BACKEND_NAMES:
        assert re.search(rf"^backend {name}( \d+)?: \S", done.stdout, re.M)
    assert "cache: ~/cache: 0 files, 0.0 MiB" in lines
    assert "settings: WAIFU2X_NOISE = 2, scale = 3 (~/s.toml)" in lines
    assert "WAIFU2X_NOISE=2" in done.stdout
    assert "anna" not in done.stdout
    assert "hush" not in done.stdout


def test_a_settings_file_with_a_mistake_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.toml").write_text("scael = 3")
    monkeypatch.setenv("WAIFU2X_CONFIG", str(tmp_path / "s.toml"))
    done = CliRunner().invoke(cli, ["--version", "-v"])
    assert done.exit_code == 0
    assert "there is no setting scael; did you mean scale?" in done.stdout


def test_the_version_alone_is_a_line() -> None:
    done = CliRunner().invoke(cli, ["--version"])
    assert done.stdout == f"waifu2x, version {waifu2x.__version__}\n"


def test_who_has_no_home_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    done = CliRunner().invoke(cli, ["--version", "-v"])
    assert done.exit_code == 0, done.output
    assert f"waifu2x {waifu2x.__version__} in {Path(waifu2x.__file__).parent}" in done.stdout
