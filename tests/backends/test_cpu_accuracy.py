"""When the accuracy of a fast arithmetic is measured, and when it is known."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_cpu_compiled import copied
from tests.helpers import obvious
from waifu2x.backends.cpu.compile import compiled, isa
from waifu2x.backends.cpu.pack import choosing, kept_programs
from waifu2x.networks import digests
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution
from waifu2x.networks.readers import read_model
from waifu2x.system import sources

SHIPPED = Path(__file__).parents[2] / "models" / "vgg_7" / "art"


class Measured:
    """Counts how often pictures are computed."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        self.times += 1
        return np.asarray(picture, np.float32)

    def asks(self, model: Model) -> bool:
        """Whether the accuracy of a model has to be measured."""
        before = self.times
        choosing.decibels(model, "int16", 0, self, self)
        return self.times > before


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path / "cache"))
    return Measured()


def test_a_changed_model_asks_anew(measured: Measured) -> None:
    model = obvious.random_model([3, 4, 3], seed=1)
    assert measured.asks(model)
    assert not measured.asks(model)
    assert not measured.asks(replace(model, name="of another name"))
    assert measured.asks(replace(model, border="zero"))
    for field in ("weight", "bias"):
        first, last = model.nodes
        assert isinstance(last, Convolution)
        values = getattr(last, field).copy()
        values.flat[-1] = np.nextafter(values.flat[-1], np.float32(9))
        assert measured.asks(replace(model, nodes=(first, replace(last, **{field: values}))))


@pytest.mark.parametrize("changed", ["kernels/integers.py", "pack/weights.py", "pack/layouts.py"])
def test_changed_code_asks_anew(
    measured: Measured, changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = obvious.random_model([3, 4, 3], seed=1)
    copy = copied(tmp_path)
    monkeypatch.setattr(sources, "PACKAGE", copy)
    monkeypatch.setattr(kept_programs, "code", kept_programs.code.__wrapped__)
    assert measured.asks(model)
    assert not measured.asks(model)
    with (copy / "backends" / "cpu" / changed).open("a") as file:
        file.write("# changed\n")
    assert measured.asks(model)


def test_another_instruction_set_asks_anew(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = obvious.random_model([3, 4, 3], seed=1)
    monkeypatch.setattr(kept_programs, "code", kept_programs.code.__wrapped__)
    monkeypatch.setattr(kept_programs, "environment", compiled.environment.__wrapped__)
    assert measured.asks(model)
    monkeypatch.setattr(compiled, "VECTOR", replace(isa.VECTOR, name="another"))
    assert measured.asks(model)


def test_a_model_from_a_file_is_known_without_its_weights(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scale2x.json"
    shutil.copy(SHIPPED / "scale2.0x_model.json", file)
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)
    assert measured.asks(read_model(file))
    again = read_model(file)

    def refuse(*arguments: Any) -> str:
        raise AssertionError("all weights were read for a key")

    with monkeypatch.context() as patch:
        patch.setattr(digests, "_of_content", refuse)
        patch.setattr(hashlib, "file_digest", refuse)
        assert not measured.asks(again)
    # The same bytes elsewhere are the same model; a file that has changed is another.
    other = shutil.copy(file, tmp_path / "other.json")
    assert not measured.asks(read_model(Path(other)))
    with file.open("a") as text:
        text.write("\n")
    assert measured.asks(read_model(file))
    assert not measured.asks(read_model(file))
