"""The examples of the documents run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SMALLER = {
    "width=1920, height=1080": "width=32, height=18",
    'backend="cuda", device="all"': 'backend="cpu"',
    'model="cugan/se"': 'model="vgg_7"',
}
"""What takes long, or is not on every machine, and what stands for it here."""


@pytest.mark.parametrize("page", ["docs/python.md"])
def test_python_of_the_documents_runs(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    image = np.random.default_rng(1).integers(0, 256, (9, 16, 3), np.uint8)
    names: dict[str, Any] = {"image": image, "images": [image] * 2, "stack": np.stack([image] * 2)}
    for block in blocks:
        for large, small in SMALLER.items():
            block = block.replace(large, small)
        exec(compile(block, page, "exec"), names)
        if "results" in names:
            assert [result.shape for result in names["results"]] == [(18, 32, 3)] * 2
    assert names["larger"].shape == (18, 32, 3)
