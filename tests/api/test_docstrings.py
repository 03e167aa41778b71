"""The examples in docstrings run, and every public name has its words."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import waifu2x

MODULES = (
    "waifu2x",
    "waifu2x.api.files",
    "waifu2x.api.functions",
    "waifu2x.api.options",
    "waifu2x.api.upscaler",
    "waifu2x.backends",
    "waifu2x.backends.engine.engine",
    "waifu2x.networks.listing",
)
"""Where the public names are defined."""


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder()
    found = [
        test for module in MODULES for test in finder.find(importlib.import_module(module), module)
    ]
    return [test for test in found if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda test: test.name)
def test_examples_of_docstrings_run(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    image = np.random.default_rng(1).integers(0, 256, (9, 16, 3), np.uint8)
    Image.fromarray(image).save("drawing.png")
    Image.fromarray(image).save("photo.jpg", quality=60)
    example.globs = {"waifu2x": waifu2x, "image": image, "images": [image] * 2, "Path": Path}
    failed, tried = doctest.DocTestRunner(verbose=False).run(example)
    assert tried
    assert not failed


def test_every_public_name_says_what_it_is() -> None:
    for name in waifu2x.__all__:
        found = getattr(waifu2x, name)
        if isinstance(found, str):
            continue
        assert found.__doc__, name
        own = vars(found).items() if inspect.isclass(found) else ()
        for key, member in own:
            if not key.startswith("_") and (inspect.isfunction(member) or hasattr(member, "fget")):
                assert member.__doc__, f"{name}.{key}"


def test_every_field_says_what_it_is() -> None:
    for kind in (waifu2x.DeviceInfo, waifu2x.ModelInfo, waifu2x.UpscaledFile):
        (tree,) = ast.parse(inspect.getsource(kind)).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in pairwise(tree.body):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr), f"{kind.__name__}: {ast.unparse(field)}"


def test_functions_say_what_they_raise_and_show_a_call() -> None:
    for name in (
        "Engine",
        "Upscaler",
        "Upscaler.__call__",
        "Upscaler.upscale_file",
        "upscale",
        "upscale_file",
        "list_devices",
    ):
        found: Any = waifu2x
        for part in name.split("."):
            found = getattr(found, part)
        assert "Raises:" in found.__doc__, name
        assert "Examples:" in found.__doc__, name
        arguments = set(inspect.signature(found).parameters) - {"self"}
        said = found.__doc__.partition("Args:")[2].partition("Raises:")[0]
        assert not [one for one in arguments if f"    {one}: " not in said], name
