"""The key of compiled code: everything that is compiled in, and nothing else."""

from __future__ import annotations

import ast
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from waifu2x.backends.cpu import compiled
from waifu2x.backends.cpu.compiled import Compiled

PACKAGE = Path(compiled.__file__).parents[2]


def imported(path: Path) -> set[Path]:
    """The files of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("waifu2x."):
                file = PACKAGE.joinpath(*name.split(".")[1:])
                if file.with_suffix(".py").is_file():
                    found.add(file.with_suffix(".py"))
                elif name == getattr(node, "module", "") and (file / "__init__.py").is_file():
                    found.add(file / "__init__.py")
    return found


def test_the_key_holds_all_that_kernels_import() -> None:
    reached = set((PACKAGE / "backends/cpu/kernels").glob("*.py"))
    while new := {file for path in reached for file in imported(path)} - reached:
        reached |= new
    found = {path for pattern in compiled.SOURCES for path in PACKAGE.glob(pattern)}
    assert found == reached


def copied(folder: Path) -> Path:
    """A copy of the package's sources."""
    shutil.copytree(PACKAGE, folder / "waifu2x", ignore=shutil.ignore_patterns("*.pyc"))
    return folder / "waifu2x"


def test_a_changed_source_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Compiled("strip", "run_strips")
    before = code._key()
    copy = copied(tmp_path)
    monkeypatch.setattr(compiled, "_PACKAGE", copy)
    assert code._key() == before
    paths = [path for pattern in compiled.SOURCES for path in copy.glob(pattern)]
    assert len(paths) > 15
    for path in paths:
        text = path.read_text()
        path.write_text(text + "\n")
        assert code._key() != before, path
        path.write_text(text)
    assert code._key() == before


def test_the_version_of_numba_is_that_which_pip_installed() -> None:
    """It is found in another way, which takes less time."""
    assert compiled.environment()[2] == version("numba")
