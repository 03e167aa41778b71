"""Folders of models: which there are, and which models are chosen for what."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner

from waifu2x import model_set, resources
from waifu2x.cli import cli
from waifu2x.errors import ModelError
from waifu2x.model import Enlarge, Model
from waifu2x.model_json import dump_layers
from waifu2x.model_set import ModelSet

SEPARATE = ("noise0", "noise3", "scale2.0x")
JOINT = ("noise1", "noise1_scale2.0x", "noise2_scale2.0x", "scale2.0x")


def make_set(folder: Path, names: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True)
    layers = [(np.ones((1, 1, 3, 3), np.float32), np.zeros(1, np.float32))]
    for name in names:
        (folder / f"{name}_model.json").write_bytes(dump_layers(layers))
    return folder


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders in the place of the shipped and the imported models."""
    shipped, imported = tmp_path / "shipped", tmp_path / "imported"
    monkeypatch.setattr(model_set, "shipped_models", lambda: shipped)
    monkeypatch.setattr(model_set, "user_models", lambda: imported)
    return shipped, imported


def described(models: list[Model]) -> list[tuple[str, int]]:
    """File stem and factor of each model in a chain."""
    return [(Path(model.name).name.removesuffix("_model.json"), model.scale) for model in models]


NOISE3, SCALE = ("noise3", 1), ("scale2.0x", 2)


@pytest.mark.parametrize(
    ("names", "scale", "noise", "chosen"),
    [
        (SEPARATE, 1, None, []),
        (SEPARATE, 1, 3, [NOISE3]),
        (SEPARATE, 2, None, [SCALE]),
        (SEPARATE, 2, 3, [NOISE3, SCALE]),
        (SEPARATE, 2, 0, [("noise0", 1), SCALE]),
        (SEPARATE, 8, None, [SCALE] * 3),
        (SEPARATE, 8, 3, [NOISE3, SCALE, SCALE, SCALE]),
        (JOINT, 1, 1, [("noise1", 1)]),
        (JOINT, 2, 1, [("noise1_scale2.0x", 2)]),
        (JOINT, 8, 2, [("noise2_scale2.0x", 2), SCALE, SCALE]),
        (("noise2_scale2.0x",), 2, 2, [("noise2_scale2.0x", 2)]),
    ],
)
def test_chosen_models(
    tmp_path: Path,
    names: tuple[str, ...],
    scale: int,
    noise: int | None,
    chosen: list[tuple[str, int]],
) -> None:
    models = model_set.find(str(make_set(tmp_path / "set", names))).models(scale, noise)
    assert described(models) == chosen
    assert np.prod([model.scale for model in models]) == scale
    for model in models:  # pixels are repeated before the first layer, as vgg_7 wants it
        enlarges = [isinstance(operation, Enlarge) for operation in model.operations]
        assert enlarges == ([True, False] if model.scale == 2 else [False])


@pytest.mark.parametrize(
    ("names", "scale", "noise", "message"),
    [
        (SEPARATE, 2, 1, "no model for noise level 1; the levels here: 0, 3"),
        (JOINT, 4, 3, "no model for noise level 3; the levels here: 1, 2"),
        (("scale2.0x",), 1, 0, "no model for noise level 0; the levels here: none"),
        (JOINT, 1, 2, "the model for noise level 2 also enlarges"),
        (("noise1",), 2, 1, "no model that enlarges: scale2.0x_model.json is missing"),
        (("noise1_scale2.0x",), 4, 1, "no model that enlarges"),
    ],
)
def test_missing_models(
    tmp_path: Path, names: tuple[str, ...], scale: int, noise: int | None, message: str
) -> None:
    folder = make_set(tmp_path / "set", names)
    with pytest.raises(ModelError) as caught:
        model_set.find(str(folder)).models(scale, noise)
    assert str(caught.value).startswith(f"{folder}: {message}")


def test_damaged_model_in_a_set(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", SEPARATE)
    (folder / "noise3_model.json").write_bytes(b"[")
    found = model_set.find(str(folder))
    assert described(found.models(2, 0)) == [("noise0", 1), SCALE]
    with pytest.raises(ModelError, match=r"noise3_model\.json: not valid JSON"):
        found.models(1, 3)


def test_files_and_noise_levels(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", (*JOINT, "noise0", "noise4", "other", "noise1_scale3.0x"))
    (folder / "README.md").write_text("no model")
    (folder / "noise3_model.json.gz").write_bytes(b"")
    (folder / "noise1_model.json.gz").write_bytes(b"")  # the plain one goes first
    (folder / "_model.json").write_bytes(b"")
    found = ModelSet("set", folder)
    assert found.noise_levels == [0, 1, 2, 3]
    assert {role: path.name for role, path in found.files.items()} == {
        (0, False): "noise0_model.json",
        (1, False): "noise1_model.json",
        (3, False): "noise3_model.json.gz",
        (1, True): "noise1_scale2.0x_model.json",
        (2, True): "noise2_scale2.0x_model.json",
        (None, True): "scale2.0x_model.json",
    }


def test_other_names_of_the_scale_model(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", ("scale2x", "noise1_scale2x"))
    assert described(model_set.find(str(folder)).models(4, 1)) == [
        ("noise1_scale2x", 2),
        ("scale2x", 2),
    ]


def test_shipped_set() -> None:
    found = model_set.find(model_set.DEFAULT)
    assert found.name == "vgg_7/art"
    assert found.noise_levels == [0, 1, 2, 3]
    assert described(found.models(4, 2)) == [("noise2", 1), SCALE, SCALE]
    assert "vgg_7/art" in [each.name for each in model_set.available()]


def test_find_by_name_and_by_folder(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, imported = roots
    make_set(shipped / "vgg_7" / "art", SEPARATE)
    make_set(imported / "vgg_7" / "art", SEPARATE)
    make_set(imported / "vgg_7" / "mine", SEPARATE)
    make_set(tmp_path / "here" / "vgg_7" / "art", SEPARATE)
    make_set(tmp_path / "here" / "local", SEPARATE)
    monkeypatch.chdir(tmp_path / "here")
    assert model_set.find("vgg_7/art").folder == shipped / "vgg_7" / "art"
    assert model_set.find("vgg_7/mine").folder == imported / "vgg_7" / "mine"
    assert model_set.find("local").folder == Path("local")
    assert model_set.find("./vgg_7/art").files.keys() == {(0, False), (3, False), (None, True)}
    absolute = tmp_path / "here" / "local"
    assert model_set.find(str(absolute)).folder == absolute
    assert [(each.name, each.folder) for each in model_set.available()] == [
        ("vgg_7/art", shipped / "vgg_7" / "art"),
        ("vgg_7/mine", imported / "vgg_7" / "mine"),
    ]


def test_nothing_to_find(roots: tuple[Path, Path], tmp_path: Path) -> None:
    make_set(roots[0] / "vgg_7" / "art", SEPARATE)
    make_set(roots[1] / "vgg_7" / "mine", SEPARATE)
    with pytest.raises(ModelError, match=r"the models here: vgg_7/art, vgg_7/mine$"):
        model_set.find("vgg_7/photo")
    file = roots[0] / "vgg_7" / "art" / "noise3_model.json"
    with pytest.raises(ModelError, match="is a file; give the folder"):
        model_set.find(str(file))
    with pytest.raises(ModelError, match="no model files here"):
        model_set.find(str(tmp_path))
    # A name does not lead out of the folders for models.
    make_set(tmp_path / "outside", SEPARATE)
    with pytest.raises(ModelError, match="no such model and no such folder"):
        model_set.find("../outside")


def test_available_without_any(roots: tuple[Path, Path]) -> None:
    assert model_set.available() == []


def test_an_empty_name_is_not_the_working_folder(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_set(roots[0] / "vgg_7" / "art", SEPARATE)
    monkeypatch.chdir(make_set(tmp_path / "here", SEPARATE))
    with pytest.raises(ModelError, match=r"^the name of the model is empty; .*: vgg_7/art$"):
        model_set.find("")
    # With a dot it is.
    make_set(roots[1] / "unrelated", ("noise1",))
    (roots[1] / "noise1_model.json").write_bytes(b"")
    assert model_set.find(".").noise_levels == [0, 3]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 300, "cannot read the folder: file name too long"),
        ("/" + "x" * 300, "cannot read the folder: file name too long"),
        ("x/" * 3000, "cannot read the folder: file name too long"),
        # Too long beside the shipped vgg_7/art; here there is not even a vgg_7.
        ("vgg_7/" + "x" * 300, "no such model and no such folder; the models here: vgg_7/art"),
        ("a\0b", "no such model and no such folder; the models here: vgg_7/art"),
    ],
)
def test_names_that_no_file_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as caught:
        model_set.find(name)
    assert str(caught.value) == f"{name}: {message}"
    result = CliRunner().invoke(cli, ["models", "info", name])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.endswith(f": {message}\n")
    assert result.stderr.count("\n") == 1


def refuse_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a folder without permissions does; root, who may run the tests, is not refused."""
    stat, scandir = os.stat, os.scandir

    def check(path: object) -> None:
        if str(path) == str(folder) or str(path).startswith(f"{folder}/"):
            raise PermissionError(13, "Permission denied", str(path))

    def checked_stat(path: Path, **options: bool) -> os.stat_result:
        check(path)
        return stat(path, **options)

    def checked_scandir(path: Path) -> object:
        check(path)
        return scandir(path)

    monkeypatch.setattr(os, "stat", checked_stat)
    monkeypatch.setattr(os, "scandir", checked_scandir)


def test_a_folder_that_cannot_be_searched(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, imported = roots
    make_set(shipped / "vgg_7" / "art", SEPARATE)
    make_set(imported / "vgg_7" / "mine", SEPARATE)
    monkeypatch.chdir(make_set(tmp_path / "here" / "local", SEPARATE).parent)
    refuse_below(imported, monkeypatch)
    # Models that are elsewhere can be had.
    assert model_set.find("vgg_7/art").folder == shipped / "vgg_7" / "art"
    assert model_set.find("local").folder == Path("local")
    message = f"{imported}: cannot read the folder: permission denied"
    for name in ("vgg_7/mine", "vgg_7/none"):
        with pytest.raises(ModelError) as caught:
            model_set.find(name)
        assert str(caught.value) == message
    own = imported / "vgg_7" / "mine"
    with pytest.raises(ModelError, match=f"^{own}: cannot read the folder: permission denied$"):
        model_set.find(str(own))
    result = CliRunner().invoke(cli, ["models", "list"])
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")


def test_available_are_those_that_can_be_used(roots: tuple[Path, Path]) -> None:
    shipped, imported = roots
    make_set(shipped / "vgg_7" / "art", ("scale2.0x",))
    make_set(imported / "other" / "names", ("anime", "noise4", "noise1_scale3.0x", ""))
    make_set(imported / "art", ("noise1",))
    (imported / "gzipped").mkdir()
    (imported / "gzipped" / "scale2x_model.json.gz").write_bytes(b"")
    (imported / "scale2.0x_model.json").write_bytes(b"")  # of no set
    assert [each.name for each in model_set.available()] == ["vgg_7/art", "art", "gzipped"]
    for each in model_set.available():
        assert model_set.find(each.name) == each


@pytest.mark.parametrize(
    ("name", "shipped"),
    [("vgg_7/art", True), ("vgg_7//art/", True), ("vgg_7", False), ("x" * 300, False)],
)
def test_is_shipped(name: str, shipped: bool) -> None:
    assert model_set.is_shipped(name) == shipped


def no_home(appname: str, appauthor: bool) -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("answer", [no_home, lambda *names: Path("~/.local/share")])
def test_without_a_home_directory(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    monkeypatch.setattr(platformdirs, "user_data_path", answer)
    assert resources.user_models() is None
    assert [each.name for each in model_set.available()] == ["vgg_7/art"]
    assert model_set.find("vgg_7/art").noise_levels == [0, 1, 2, 3]
    with pytest.raises(ModelError, match=r"the models here: vgg_7/art$"):
        model_set.find("vgg_7/mine")
