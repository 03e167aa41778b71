"""Models that the processor's backend keeps as it runs them."""

from __future__ import annotations

import os
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.graphs import halving_model, residual_in_residual
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.pack import choosing, kept_programs, packer
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.system import cache, sources

MODELS = [
    halving_model(1),
    residual_in_residual(2),
    obvious.random_model([1, 32, 64, 32, 1], seed=2, scale=2),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own, with the compiled code."""
    shared = Path(os.environ[cache.DIRECTORY_VARIABLE])
    (shared / "numba").mkdir(mode=0o700, exist_ok=True)
    (tmp_path / "numba").symlink_to(shared / "numba")
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


def computed(model: Model, precision: Precision = "auto") -> NDArray[Any]:
    """Enlarges a picture and its mirror image by a backend that is opened for it."""
    picture = np.random.default_rng(5).integers(0, 256, (2, 23, 37, model.in_planes), np.uint8)
    with closing(open_backend("cpu")) as backend:
        return backend.compile([model], precision).run(Call(picture, np.float32))


def refuse(*arguments: object) -> Any:
    raise AssertionError("packs what is kept")


def entries(folder: Path) -> list[Path]:
    """The files of prepared models."""
    return list((folder / "weights").iterdir())


@pytest.mark.parametrize("precision", ["auto", "fp32"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_what_is_kept_computes_the_same(
    precision: Precision, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = computed(model, precision)
    for module in (packer, choosing):
        monkeypatch.setattr(module, "pack", refuse)
    np.testing.assert_array_equal(computed(model, precision), first)


def test_a_shipped_model_and_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and linear layers have weights of their own; `measure` asks for sizes of weights."""
    (model,) = model_set.find("cunet").models(2, None)
    first = computed(model, "fp32")
    monkeypatch.setattr(choosing, "pack", refuse)
    np.testing.assert_array_equal(computed(model, "fp32"), first)
    pixels = np.zeros((16, 16, 3), np.uint8)
    with closing(open_backend("cpu")) as backend:
        layers = backend.measure(model, "fp32", pixels).layers
    expected = sum(float(model.node_multiply_adds(value)) for value, _ in model.weighted)
    assert sum(layer.multiply_adds for layer in layers) == pytest.approx(expected * 32 * 32)


class Called:
    """Pickles as a call, which a reader that trusts pickles would make."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("called",)


def test_damaged_and_foreign_entries_are_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    model = obvious.random_model([3, 32, 32, 3], seed=3)
    first = computed(model)
    (path,) = entries(folder)
    whole = cache.load("weights", path.name)
    assert whole is not None
    size = int.from_bytes(whole[:8], "little")
    call = pickle.dumps(Called())
    foreign = len(call).to_bytes(8, "little") + bytes(16) + call
    other = pickle.dumps((1, {}))
    for stored in (
        b"",
        whole[:20],
        whole[:-4],
        whole[: size // 2],
        whole[:24] + bytes(size) + whole[24 + size :],
        foreign,
        len(other).to_bytes(8, "little") + bytes(16) + other,
    ):
        cache.store("weights", path.name, stored)
        np.testing.assert_array_equal(computed(model), first)
        assert cache.load("weights", path.name) == whole
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    np.testing.assert_array_equal(computed(model), first)
    assert not Path("called").exists()


def test_another_model_name_code_or_choice_is_another_entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [obvious.random_model([3, 32, 32, 3], seed=seed) for seed in (3, 4)]
    keys = {kept_programs.key(model, ["fp32"]) for model in models}
    keys.add(kept_programs.key(models[0], ["int16", "fp32"]))
    with monkeypatch.context() as patch:
        patch.setattr(kept_programs, "code", lambda: "another")
        keys.add(kept_programs.key(models[0], ["fp32"]))
    assert len(keys) == 4


def test_a_folder_that_others_can_write_is_not_read(folder: Path) -> None:
    model = obvious.random_model([3, 32, 32, 3], seed=3)
    first = computed(model)
    (folder / "weights").chmod(0o777)
    (path,) = entries(folder)
    before = path.stat().st_mtime_ns
    assert kept_programs.load(path.name) is None
    np.testing.assert_array_equal(computed(model), first)
    assert path.stat().st_mtime_ns == before


def test_the_digest_of_sources_follows_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / "a" / "b").mkdir(parents=True)
    names = ["one.py", "a/two.py", "a/b/three.py", "a/b/no.txt", "other.py"]
    for name in names:
        (package / name).write_text(name)
    monkeypatch.setattr(sources, "PACKAGE", package)
    monkeypatch.setattr(sources, "_SETTLED_NS", -1)
    patterns = ["one.py", "a/**/*.py"]
    seen = [sources.digest(patterns)]
    assert sources.digest(patterns) == seen[0]
    assert sources.digest(["one.py", "a/*.py"]) != seen[0]
    (package / "one.py").write_text("ONE.py")
    seen.append(sources.digest(patterns))
    (package / "a" / "b" / "three.py").write_text("another")
    seen.append(sources.digest(patterns))
    (package / "a" / "b" / "new.py").write_text("new")
    seen.append(sources.digest(patterns))
    (package / "a" / "two.py").rename(package / "a" / "2.py")
    seen.append(sources.digest(patterns))
    assert len(set(seen)) == len(seen)
    for other in (package / "a" / "b" / "no.txt", package / "other.py"):
        other.unlink()
        assert sources.digest(patterns) == seen[-1]


def test_a_digest_is_kept_of_files_that_have_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their times tell every change but those that come too soon."""
    (tmp_path / "one.py").write_text("one")
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    expected = sources.digest(["one.py"])
    assert not (tmp_path / "digests").exists()
    monkeypatch.setattr(sources, "_SETTLED_NS", -1)
    assert sources.digest(["one.py"]) == expected
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert sources.digest(["one.py"]) == expected
