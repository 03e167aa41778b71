"""The examples of the page on Python run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
SMALLER = {
    "width=1920, height=1080": "width=32, height=18",
    'backend="cuda", device="all"': 'backend="cpu"',
    'model="cugan/se"': 'model="vgg_7"',
}
"""Parts that take long, or need rare hardware, and their replacements."""


def test_python_of_the_documents_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 8
    picture = np.random.default_rng(1).integers(0, 256, (9, 16, 3), np.uint8)
    Image.fromarray(picture).save("photo.jpg", quality=70)
    Image.fromarray(picture).save("drawing.png")
    names: dict[str, Any] = {}
    for block in blocks:
        for large, small in SMALLER.items():
            block = block.replace(large, small)
        exec(compile(block, PAGE.name, "exec"), names)
    assert names["made"].noise is not None
    assert names["larger"].shape == (18, 32, 3)
    assert names["stack"].shape == (2, 18, 32, 3)
    assert [result.shape for result in names["results"]] == [(18, 32, 3), (36, 64, 3)]
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")}
    assert made == {"drawing.png", "large.png", "larger.png", "large/photo.png"}
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == re.findall(r"print\(error\)  # (.*)", text)[0]
    assert any(line.startswith("stopped after ") for line in printed)


def test_the_page_has_the_tree_of_errors() -> None:
    import waifu2x

    rows = re.findall(r"^\| ([│├└ ]*)`(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tree = [(len(lead) // 2, name) for lead, name in rows if name.endswith("Error")]
    parents: list[type] = [waifu2x.Waifu2xError]
    for depth, name in tree:
        found = getattr(waifu2x, name)
        assert found.__base__ is parents[depth], name
        parents[depth + 1 :] = [found]
    assert {name for _, name in tree} == {
        name for name in waifu2x.__all__ if name.endswith("Error")
    } - {"Waifu2xError"}
