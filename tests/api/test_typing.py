"""The types of the public names, as type checkers see them."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import waifu2x

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).parent / "typed_calls.py"


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields each function of `__all__`, and each method of its classes, with its name."""
    for name in waifu2x.__all__:
        found = getattr(waifu2x, name)
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found):
            for key, member in vars(found).items():
                member = member.fget if isinstance(member, property) else member
                if inspect.isfunction(member) and (key[0] != "_" or key in SPECIAL):
                    yield f"{name}.{key}", member


SPECIAL = ("__call__", "__init__", "__enter__", "__exit__", "__repr__")


def test_no_public_signature_says_any() -> None:
    functions = {name: typing.get_overloads(found) or [found] for name, found in public_functions()}
    assert {"upscale", "Upscaler.__call__", "Upscaler.close", "Engine.bytes"} <= set(functions)
    # Frozen dataclasses make theirs when they are needed.
    made = {"DeviceInfo", "ModelInfo", "UpscaledFile"}
    for name, variants in functions.items():
        if name.partition(".")[0] in made:
            continue
        for each in variants:
            said = dict(each.__annotations__)
            assert "return" in said, name
            taken = set(inspect.signature(each).parameters) - {"self"}
            assert taken <= set(said), name
            assert not [text for text in said.values() if re.search(r"\bAny\b", str(text))], name
    fields = (
        waifu2x.DeviceInfo,
        waifu2x.FileOptions,
        waifu2x.ModelInfo,
        waifu2x.UpscaledFile,
        waifu2x.UpscalerOptions,
    )
    for each in fields:
        assert not [text for text in each.__annotations__.values() if "Any" in str(text)], each


@pytest.mark.parametrize(
    ("takes", "options"),
    [
        (waifu2x.Upscaler, waifu2x.UpscalerOptions),
        (waifu2x.upscale_file, waifu2x.FileOptions),
    ],
    ids=["Upscaler", "upscale_file"],
)
def test_options_are_the_keyword_arguments(takes: Any, options: Any) -> None:
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(takes).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options = options.__annotations__
    assert {name: kind.__forward_arg__ for name, kind in options.items()} == keywords


@pytest.mark.matrix
def test_mypy_knows_the_types_of_calls(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    said, wrong, status = api.run(
        ["--strict", "--config-file", "", "--cache-dir", str(tmp_path), str(CALLS)]
    )
    assert (status, wrong) == (0, ""), said


@pytest.mark.matrix
def test_pyright_knows_the_types_of_calls(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    settings = {
        "include": [str(CALLS)],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    path = tmp_path / "pyrightconfig.json"
    path.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(path), "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    assert found["generalDiagnostics"] == []
