"""The promises of the whole package: public names, light start, a complete wheel."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

import waifu2x
from waifu2x.cli import cli

ROOT = Path(__file__).parents[2]
NONE = click.Context(cli)


def test_public_names() -> None:
    """`__all__` names what the package defines or imports for its users, and nothing else."""
    tree = ast.parse(Path(waifu2x.__file__).read_text())
    later = [node for each in tree.body if isinstance(each, ast.If) for node in each.body]
    defined: set[str] = set()
    for node in (*tree.body, *later):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            defined |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    public = {name for name in defined if not name.startswith("_")} - {"TYPE_CHECKING"}
    assert set(waifu2x.__all__) == public | {"__version__"}
    assert list(waifu2x.__all__) == sorted(waifu2x.__all__)
    assert set(waifu2x.__all__) <= set(dir(waifu2x))
    for name in waifu2x.__all__:
        assert getattr(waifu2x, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'downscale'"):
        waifu2x.downscale  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], *([name, "--help"] for name in cli.list_commands(NONE))],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import json, sys
sys.argv = ["waifu2x", *{arguments!r}]
from waifu2x.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & {
        "numba",
        "llvmlite",
        "pycuda",
        "pyopencl",
        "numpy",
        "PIL",
        "rich",
        "tifffile",
    }


def test_to_import_the_package_loads_none_of_its_libraries() -> None:
    code = "import sys, waifu2x; dir(waifu2x); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "waifu2x" in loaded
    assert not loaded & {"numpy", "numba", "PIL", "click", "platformdirs", "tempfile", "fractions"}


def test_only_pictures_know_codecs_and_only_backends_know_their_library() -> None:
    allowed = {
        "PIL": {"formats", "resample.py", "sheet.py", "api", "kinds.py"},
        "tifffile": {"formats"},
        "imagecodecs": {"formats"},
        "isal": {"formats"},
        "numba": {"kernels"},
        "llvmlite": {"compile", "kernels"},
        "pycuda": {"by_pycuda.py"},
    }
    for path in (ROOT / "waifu2x").rglob("*.py"):
        text = path.read_text()
        for library, homes in allowed.items():
            if f"import {library}" in text or f"from {library}" in text:
                assert homes.intersection(path.parts), f"{path} imports {library}"


def test_only_the_command_line_prints() -> None:
    for path in (ROOT / "waifu2x").rglob("*.py"):
        if "cli" not in path.parts:
            text = path.read_text()
            assert not re.search(r"\bprint\(", text), path
            assert "click" not in text, path


def test_wheel_holds_models_and_kernels(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = ["scale2.0x", "noise0", "noise1", "noise2", "noise3"]
    assert {f"waifu2x/models/vgg_7/art/{kind}_model.json" for kind in kinds} <= names
    assert {"waifu2x/models/LICENSE", "waifu2x/kernels/README.md", "waifu2x/py.typed"} <= names
    pages = {Path(name).name for name in names if "/data/share/man/man1/" in name}
    assert pages == {path.name for path in (ROOT / "man").iterdir()}
    # Unpacked, with nothing beside it, it finds its models.
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "from waifu2x.networks import model_set; print(model_set.find('vgg_7/art').folder)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
