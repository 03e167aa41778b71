"""Models from elsewhere, made into model sets."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from waifu2x.cli import cli
from waifu2x.errors import ModelError, OutputError
from waifu2x.networks.model_import import Imported, import_models
from waifu2x.networks.readers import read_model
from waifu2x.networks.readers.ncnn import reader as ncnn

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True)
def cache_folder_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path / "cache"))


def chainer_arrays(planes: Sequence[int] = (3, 4, 3), seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for number, (inputs, outputs) in enumerate(pairwise(planes), 1):
        arrays[f"conv{number}/W"] = rng.normal(size=(outputs, inputs, 3, 3)).astype(np.float32)
        arrays[f"conv{number}/b"] = rng.normal(size=outputs).astype(np.float32)
    return arrays


def npz(arrays: Arrays) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def waifu2x_json(arrays: Arrays) -> bytes:
    entries = []
    for number in range(1, len(arrays) // 2 + 1):
        weight, bias = arrays[f"conv{number}/W"], arrays[f"conv{number}/b"]
        outputs, inputs = weight.shape[:2]
        entry = {"nInputPlane": inputs, "nOutputPlane": outputs, "kW": 3, "kH": 3}
        entries.append(entry | {"weight": weight.tolist(), "bias": bias.tolist()})
    return json.dumps(entries).encode()


def archive(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def assert_holds(path: Path, arrays: Arrays) -> None:
    """Bit for bit the same float32 numbers."""
    layers = read_model(path).weighted
    assert len(layers) == len(arrays) // 2
    for number, (_, layer) in enumerate(layers, 1):
        weight, bias = arrays[f"conv{number}/W"], arrays[f"conv{number}/b"]
        assert layer.weight.shape == weight.shape
        assert layer.weight.tobytes() == weight.tobytes()
        assert layer.bias.tobytes() == bias.tobytes()


def upconv_arrays() -> Arrays:
    arrays = chainer_arrays((3, 1, 2, 1, 3, 1, 2))
    return arrays | {"conv7/W": np.random.default_rng(5).normal(size=(2, 3, 4, 4))}


PARAM = b"""7767517
2 2
Input data 0 1 data 2=3
Convolution conv 1 1 data out 0=3 1=3 5=1 6=81
"""
BIN = (
    bytes(4)
    + np.random.default_rng(4).normal(size=81).astype("<f4").tobytes()
    + np.arange(3, dtype="<f4").tobytes()
)


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("vgg7/anime_style_scale_rgb.npz", "vgg_7/art/scale2.0x_model.json"),
        ("vgg7/anime_style_noise0_rgb.npz", "vgg_7/art/noise0_model.json"),
        ("vgg7/anime_style_noise3_scale_rgb.npz", "vgg_7/art/noise3_scale2.0x_model.json"),
        ("vgg7/anime_style_scale_y.npz", "vgg_7/art_y/scale2.0x_model.json"),
        ("other/photo_noise1_rgb.npz", "other/photo/noise1_model.json"),
    ],
)
def test_npz(tmp_path: Path, name: str, target: str) -> None:
    arrays = chainer_arrays((1, 4, 1) if name.endswith("_y.npz") else (3, 4, 5, 3))
    source = tmp_path / name
    source.parent.mkdir()
    source.write_bytes(npz(arrays))
    root = tmp_path / "models"
    assert import_models(source, root, None) == [Imported(str(source), root / target)]
    assert files(root) == [target]
    assert_holds(root / target, arrays)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_npz_of_other_precision(tmp_path: Path, dtype: type) -> None:
    arrays: Arrays = {name: array.astype(dtype) for name, array in chainer_arrays().items()}
    source = tmp_path / "anime_style_scale_rgb.npz"
    source.write_bytes(npz(arrays))
    [result] = import_models(source, tmp_path / "models", "vgg_7/mine")
    assert result.path == tmp_path / "models" / "vgg_7" / "mine" / "scale2.0x_model.json"
    assert_holds(result.path, {name: a.astype(np.float32) for name, a in arrays.items()})


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("only", ["my/set", "my//set/"])
def test_json(tmp_path: Path, suffix: str, only: str) -> None:
    arrays = chainer_arrays()
    data = waifu2x_json(arrays)
    source = tmp_path / "upstream" / "photo" / f"noise2_scale2.0x_model{suffix}"
    source.parent.mkdir(parents=True)
    source.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    import_models(source, tmp_path / "models", only)
    target = tmp_path / "models" / "my" / "set" / "noise2_scale2.0x_model.json"
    assert_holds(target, arrays)


MEMBERS = {
    "pkg/models/vgg7/anime_style_scale_rgb.npz": npz(chainer_arrays(seed=1)),
    "pkg/models/vgg7/anime_style_noise1_rgb.npz": npz(chainer_arrays(seed=2)),
    "pkg/models/vgg7/anime_style_scale_y.npz": npz(chainer_arrays((1, 2, 1), seed=3)),
    "pkg/models/resnet10/anime_style_scale_rgb.npz": npz({"conv_pre/W": np.ones((2, 2))}),
    "pkg/models/vgg_7/photo/noise0_model.json": waifu2x_json(chainer_arrays(seed=4)),
    "pkg/data/numbers.npz": npz({"a": np.ones(3)}),
    "pkg/settings.json": b"{}",
    "pkg/broken/noise2_model.json": b"[{",
    "pkg/__init__.py": b"raise SystemExit",
    "pkg-1.0.dist-info/METADATA": b"Name: pkg",
}
TARGETS = {
    "vgg_7/art/scale2.0x_model.json": chainer_arrays(seed=1),
    "vgg_7/art/noise1_model.json": chainer_arrays(seed=2),
    "vgg_7/art_y/scale2.0x_model.json": chainer_arrays((1, 2, 1), seed=3),
    "vgg_7/photo/noise0_model.json": chainer_arrays(seed=4),
}


@pytest.mark.parametrize("name", ["pkg-1.0-py3-none-any.whl", "models.zip"])
@pytest.mark.parametrize("only", [None, "vgg_7/art", "vgg_7/art_y", "vgg_7/photo"])
def test_archive_with_junk(tmp_path: Path, name: str, only: str | None) -> None:
    root = tmp_path / "models"
    results = import_models(archive(tmp_path / name, MEMBERS), root, only)
    wanted = {t: a for t, a in TARGETS.items() if only is None or t.startswith(f"{only}/")}
    assert files(root) == sorted(wanted)
    for target, arrays in wanted.items():
        assert_holds(root / target, arrays)
    assert sorted(str(result.path) for result in results if result.path) == sorted(
        str(root / target) for target in wanted
    )
    for result in results:  # what was left out has a reason that names it
        assert result.path or result.reason.startswith(f"{result.source}: ")
    if only is None:
        left_out = [result.source for result in results if not result.path]
        assert left_out == [
            "pkg/broken/noise2_model.json",
            "pkg/data/numbers.npz",
            "pkg/models/resnet10/anime_style_scale_rgb.npz",
            "pkg/settings.json",
        ]


@pytest.mark.parametrize(
    "name",
    [
        "../../noise1_model.json",
        "../../../escape/noise1_model.json",
        "/escape/noise1_model.json",
        "//escape/noise1_model.json",
        "C:/escape/noise1_model.json",
        "..\\..\\noise1_model.json",
        "../anime_style_noise1_rgb.npz",
    ],
)
def test_members_stay_in_the_folder_for_models(tmp_path: Path, name: str) -> None:
    content = npz(chainer_arrays()) if name.endswith("npz") else waifu2x_json(chainer_arrays())
    source = archive(tmp_path / "models.zip", {name: content})
    root = tmp_path / "deep" / "deeper" / "models"
    [result] = import_models(source, root, None)
    assert result.path is not None
    inside = result.path.resolve().relative_to(root)
    assert files(tmp_path / "deep") == [f"deeper/models/{inside.as_posix()}"]


def test_a_file_below_the_root_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = waifu2x_json(chainer_arrays())
    monkeypatch.setattr("waifu2x.networks.model_import.read_file", lambda path: data)
    [result] = import_models(Path("/absent/noise1_model.json"), tmp_path, "my")
    assert result.path == tmp_path / "my" / "noise1_model.json"


WEIGHTS = np.ones((1, 1, 3, 3))
BIAS = np.zeros(1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npz({"W": WEIGHTS, "b": BIAS}), "not a stack of convolutions"),
        (npz({"conv1/W": WEIGHTS}), "not a stack of convolutions"),
        (npz(chainer_arrays() | {"fc/W": WEIGHTS, "fc/b": BIAS}), "not a stack of convolutions"),
        (npz({}), "not a stack of convolutions"),
        (npz({"conv1/W": WEIGHTS[0], "conv1/b": BIAS}), "conv1 is not a convolution"),
        (npz({"conv1/W": np.ones((1, 1, 5, 5)), "conv1/b": BIAS}), "layer 1: weight has 5x5"),
        (npz({"conv1/W": WEIGHTS, "conv1/b": np.zeros(2)}), "layer 1: bias has 2 values"),
        (npz(chainer_arrays((3, 4, 1))), "layer 2: it makes 1 planes of the picture"),
        (npz({"conv1/W": WEIGHTS * np.nan, "conv1/b": BIAS}), "not a finite float32"),
        (npz({"conv1/W": WEIGHTS * 1e39, "conv1/b": BIAS}), "not a finite float32"),
        (npz({"conv1/W": WEIGHTS * 1j, "conv1/b": BIAS}), "not a readable .npz"),
        (npz({"conv1/W": WEIGHTS})[:100], "not a readable .npz"),
        (npz({"conv_pre/W": WEIGHTS}), "resnet10 is not supported: only vgg7 and upconv7 are"),
        (
            npz({"conv_pre/W": WEIGHTS, "res1/fc1/W": WEIGHTS}),
            "upresnet10 is not supported: only vgg7 and upconv7 are",
        ),
        (npz({"conv1/W": np.ones((3, 3, 4, 4))}), "upconv_7 has 7"),
        (
            npz(upconv_arrays() | {"conv7/W": np.ones((2, 1, 4, 4))}),
            "layer 7: it makes 1 planes of the p",
        ),
        (npz({"conv1/W": WEIGHTS.astype(str), "conv1/b": BIAS}), "not a readable .npz"),
        (npz({"conv1/W": WEIGHTS.astype(object), "conv1/b": BIAS}), "not a readable .npz"),
        (npz(chainer_arrays())[:-40], "not a readable .npz"),
        (b"", "not a readable .npz"),
        (b"text", "not a readable .npz"),
        (b"\x93NUMPY\x01\x00", "not a readable .npz"),
    ],
)
def test_unusable_npz(tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / "anime_style_scale_rgb.npz"
    source.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        import_models(source, tmp_path / "models", None)
    assert str(caught.value).startswith(f"{source}: ")
    assert message in str(caught.value)
    assert not (tmp_path / "models").exists()


def test_a_bare_array_is_no_npz(tmp_path: Path) -> None:
    source = tmp_path / "anime_style_scale_rgb.npz"
    with source.open("wb") as file:
        np.save(file, WEIGHTS)
    with pytest.raises(ModelError, match=r"not a readable \.npz file"):
        import_models(source, tmp_path / "models", None)


def test_every_flipped_byte_is_survived(tmp_path: Path) -> None:
    source = tmp_path / "anime_style_scale_rgb.npz"
    arrays = chainer_arrays((1, 1))
    healthy = npz(arrays)
    refused = 0
    for position in range(0, len(healthy), 3):
        damaged = bytearray(healthy)
        damaged[position] ^= 0xFF
        source.write_bytes(damaged)
        try:
            [result] = import_models(source, tmp_path / "models", "a/set", overwrite=True)
        except ModelError:
            refused += 1
        else:  # a date or such; the numbers have a checksum
            assert result.path is not None
            assert_holds(result.path, arrays)
    assert refused > len(healthy) // 3 // 3


@pytest.mark.parametrize("name", ["pkg.whl", "models.zip"])
@pytest.mark.parametrize("keep", [0, 1, 500])
def test_damaged_archive(tmp_path: Path, name: str, keep: int) -> None:
    source = archive(tmp_path / name, MEMBERS)
    source.write_bytes(source.read_bytes()[:keep])
    with pytest.raises(ModelError, match=f"{name}: damaged archive"):
        import_models(source, tmp_path / "models", None)


@pytest.mark.parametrize("name", ["PKG.WHL", "Models.Zip"])
def test_archives_in_upper_case(tmp_path: Path, name: str) -> None:
    import_models(archive(tmp_path / name, MEMBERS), tmp_path / "models", None)
    assert files(tmp_path / "models") == sorted(TARGETS)


@pytest.mark.parametrize(
    "error",
    [
        EOFError(),
        UnicodeDecodeError("utf-8", b"", 0, 1, "invalid"),
        NotImplementedError("compression type 99"),
    ],
)
def test_any_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def damaged(archive: zipfile.ZipFile, name: str) -> bytes:
        raise error

    source = archive(tmp_path / "models.zip", MEMBERS)
    monkeypatch.setattr(zipfile.ZipFile, "open", damaged)
    with pytest.raises(ModelError, match=r"models\.zip: damaged archive: \S"):
        import_models(source, tmp_path / "models", None)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_bytes_of_archives(tmp_path: Path, compression: int) -> None:
    source = tmp_path / "models.zip"
    with zipfile.ZipFile(source, "w", compression) as file:
        file.writestr("vgg_7/ä/noise1_model.json", waifu2x_json(chainer_arrays((1, 1))))
    healthy = source.read_bytes()
    refused = 0
    for position in range(0, len(healthy), 2):
        damaged = bytearray(healthy)
        damaged[position] ^= 0xFF
        source.write_bytes(damaged)
        try:
            import_models(source, tmp_path / "models", None, overwrite=True)
        except ModelError:
            refused += 1
    assert refused > len(healthy) // 2 // 2


def test_damaged_member(tmp_path: Path) -> None:
    name = "vgg_7/art/noise1_model.json"
    source = archive(tmp_path / "models.zip", {name: waifu2x_json(chainer_arrays())})
    data = bytearray(source.read_bytes())
    data[300] ^= 0xFF
    source.write_bytes(data)
    with pytest.raises(ModelError, match=r"models\.zip: damaged archive"):
        import_models(source, tmp_path / "models", None)


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (
            "vgg_7/none",
            "it holds no set of the name vgg_7/none; choose vgg_7/art or vgg_7/art_y",
        ),
        ("vgg_7", "it holds no set of the name vgg_7; choose vgg_7/art or "),
        ("resnet10/art", "pkg/models/resnet10/anime_style_scale_rgb.npz: resnet10 is not"),
        ("pkg/broken", "pkg/broken/noise2_model.json: not valid JSON"),
    ],
)
def test_archive_without_what_is_wanted(tmp_path: Path, only: str, message: str) -> None:
    source = archive(tmp_path / "models.zip", MEMBERS)
    with pytest.raises(ModelError) as caught:
        import_models(source, tmp_path / "models", only)
    assert str(caught.value).startswith(f"{source}: {message}")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("members", "only", "message"),
    [
        ({}, None, "it holds no model"),
        ({}, "a/set", "it holds no set of the name a/set"),
        ({"a.json": b"{}"}, None, "no model in it can be used: a.json: expected a name like"),
    ],
)
def test_archive_without_any(
    tmp_path: Path, members: dict[str, bytes], only: str | None, message: str
) -> None:
    source = archive(tmp_path / "empty.zip", members)
    with pytest.raises(ModelError) as caught:
        import_models(source, tmp_path / "models", only)
    assert str(caught.value).startswith(f"{source}: {message}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent_scale_rgb.npz", "cannot read the model: no such file"),
        ("absent.whl", "cannot read the model: no such file"),
        ("noise1_model.json", "it does not say which set it is of; give --name SET"),
        ("noise1_model.json.gz", "it does not say which set it is of; give --name SET"),
        ("absent_noise1_model.json", "cannot read the model: no such file"),
        ("scale_model.json", "expected a name like noise1_model.json"),
        ("_model.json", "expected a name like noise1_model.json"),
        ("weights.npz", "expected a name like anime_style_noise1_rgb.npz"),
        ("README.md", "expected a name like"),
    ],
)
def test_unusable_names(tmp_path: Path, name: str, message: str) -> None:
    source = tmp_path / name
    if not name.startswith("absent"):
        source.write_bytes(waifu2x_json(chainer_arrays()))
    with pytest.raises(ModelError) as caught:
        import_models(source, tmp_path / "models", None)
    assert str(caught.value).startswith(f"{source}: {message}")


def test_unwritable_folder(tmp_path: Path) -> None:
    source = archive(tmp_path / "models.zip", MEMBERS)
    (tmp_path / "models").write_bytes(b"a file")
    with pytest.raises(OutputError, match="cannot write the model: "):
        import_models(source, tmp_path / "models", None)


# Models that exist already.


def test_models_are_not_overwritten_unasked(tmp_path: Path) -> None:
    source = archive(tmp_path / "models.zip", MEMBERS)
    root = tmp_path / "models"
    mine = root / "vgg_7" / "art_y" / "scale2.0x_model.json"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"precious")
    with pytest.raises(OutputError) as caught:
        import_models(source, root, None)
    assert str(caught.value) == f"{mine}: it exists already; use --overwrite to replace it"
    assert mine.read_bytes() == b"precious"
    assert files(root) == ["vgg_7/art_y/scale2.0x_model.json"]  # all or nothing
    import_models(source, root, "vgg_7/photo")  # elsewhere it matters not
    import_models(source, root, "vgg_7/art_y", overwrite=True)
    assert_holds(mine, TARGETS["vgg_7/art_y/scale2.0x_model.json"])


def test_a_link_to_nothing_exists(tmp_path: Path) -> None:
    target = tmp_path / "models" / "my" / "noise1_model.json"
    target.parent.mkdir(parents=True)
    target.symlink_to("gone")
    source = tmp_path / "noise1_model.json"
    source.write_bytes(waifu2x_json(chainer_arrays()))
    with pytest.raises(OutputError, match="exists already"):
        import_models(source, tmp_path / "models", "my")


def test_two_members_for_one_model(tmp_path: Path) -> None:
    first, second = chainer_arrays(seed=1), chainer_arrays(seed=2)
    members = {
        "a/vgg7/anime_style_noise1_rgb.npz": npz(first),
        "b/vgg7/anime_style_noise1_rgb.npz": npz(second),
    }
    source = archive(tmp_path / "models.zip", members)
    one, other = import_models(source, tmp_path / "models", None)
    assert one.path is not None
    assert_holds(one.path, first)
    assert other.path is None
    assert other.reason.startswith("b/vgg7/anime_style_noise1_rgb.npz: another file of the archive")


# Names of sets.


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/../../b", "/abs", "a/.."])
@pytest.mark.parametrize("source", ["noise1_model.json", "models.zip"])
def test_names_that_lead_elsewhere(tmp_path: Path, source: str, name: str) -> None:
    path = archive(tmp_path / source, MEMBERS)
    if source.endswith("json"):
        path.write_bytes(waifu2x_json(chainer_arrays()))
    with pytest.raises(ModelError, match="not the name of a model set; give one like vgg_7/mine"):
        import_models(path, tmp_path / "deep" / "models", name)
    assert files(tmp_path) == [source]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder for models."""
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *names: tmp_path / "data")
    return tmp_path / "data" / "models"


def test_names_of_shipped_sets_are_taken(tmp_path: Path, own: Path) -> None:
    hidden = "the vgg_7/art of waifu2x itself would hide it; give"
    single = tmp_path / "anime_style_noise1_rgb.npz"
    single.write_bytes(npz(chainer_arrays()))
    for name in ("vgg_7/art", "vgg_7//art", "./vgg_7/art"):
        with pytest.raises(ModelError, match=f"{hidden} another --name or a FOLDER"):
            import_models(single, None, name)
    with pytest.raises(ModelError, match="the cunet/art of waifu2x itself would hide it"):
        import_models(single, None, "cunet/art")
    source = archive(tmp_path / "models.zip", MEMBERS)
    with pytest.raises(ModelError, match=rf"models\.zip: pkg.*: {hidden} a FOLDER"):
        import_models(source, None, "vgg_7/art")
    assert not own.exists()
    # The others of an archive are not held up.
    results = import_models(source, None, None)
    assert files(own) == ["vgg_7/art_y/scale2.0x_model.json", "vgg_7/photo/noise0_model.json"]
    assert len([result for result in results if hidden in result.reason]) == 2
    # In a new folder nothing hides it.
    import_models(source, tmp_path / "elsewhere", "vgg_7/art")
    assert len(files(tmp_path / "elsewhere")) == 2


# Networks of ncnn: two files each, kept as they are.


@pytest.mark.parametrize(
    ("member", "target"),
    [
        ("models-cunet/noise0_scale2.0x_model", "pkg/models-cunet/noise0_scale2.0x_model"),
        ("models/WAIFU2X_CUNET_UP2X_DENOISE3X", "cunet/art/noise3_scale2.0x_model"),
        ("models/WAIFU2X_PHOTO_UP2X", "upconv_7/photo/scale2.0x_model"),
        ("models/WAIFU2X_CUNET_UP1X_DENOISE0X", "cunet/art/noise0_model"),
    ],
)
def test_ncnn_in_an_archive(tmp_path: Path, member: str, target: str) -> None:
    members = {f"pkg/{member}.param": PARAM, f"pkg/{member}.bin": BIN}
    root = tmp_path / "models"
    source = archive(tmp_path / "models.zip", members)
    [result] = import_models(source, root, None)
    assert result.path == root / f"{target}.param"
    assert result.path.read_bytes() == PARAM
    assert ncnn.weights_path(result.path).read_bytes() == BIN
    [(_, node)] = read_model(result.path).weighted
    assert node.weight.tobytes() == BIN[4:-12]


def test_a_network_of_ncnn(tmp_path: Path) -> None:
    source = tmp_path / "scale2.0x_model.param"
    source.write_bytes(PARAM)
    with pytest.raises(
        ModelError, match=r"_model\.param: its weights are missing: expected a \.bin"
    ):
        import_models(source, tmp_path / "models", "my/own")
    source.with_suffix(".bin").write_bytes(BIN)
    with pytest.raises(ModelError, match="it does not say which set it is of; give --name SET"):
        import_models(source, tmp_path / "models", None)
    import_models(source, tmp_path / "models", "my/own")
    assert files(tmp_path / "models") == [
        "my/own/scale2.0x_model.bin",
        "my/own/scale2.0x_model.param",
    ]
    with pytest.raises(OutputError, match="exists already; use --overwrite to replace it"):
        import_models(source, tmp_path / "models", "my/own")


def test_one_model_in_two_formats(tmp_path: Path) -> None:
    """The one imported last is the one that is read."""
    text, weights = tmp_path / "noise1_model.param", tmp_path / "noise1_model.json"
    text.write_bytes(PARAM)
    text.with_suffix(".bin").write_bytes(BIN)
    weights.write_bytes(waifu2x_json(chainer_arrays()))
    root = tmp_path / "models"
    import_models(weights, root, "my")
    with pytest.raises(
        OutputError, match=r"noise1_model\.json: it exists already; use --overwrite"
    ):
        import_models(text, root, "my")
    import_models(text, root, "my", overwrite=True)
    assert files(root) == ["my/noise1_model.bin", "my/noise1_model.param"]
    import_models(weights, root, "my", overwrite=True)
    assert files(root) == ["my/noise1_model.bin", "my/noise1_model.json"]
    members = {f"my/set/{path.name}": path.read_bytes() for path in tmp_path.glob("noise1*")}
    results = import_models(archive(tmp_path / "models.zip", members), tmp_path / "others", None)
    assert [result.path is None for result in results] == [False, True]
    assert "another file of the archive goes to" in results[1].reason


def test_damaged_networks_of_ncnn(tmp_path: Path) -> None:
    members = {
        "a/b/noise0_model.param": PARAM,
        "a/b/noise1_model.param": PARAM,
        "a/b/noise1_model.bin": BIN[:-1],
        "a/b/noise2_model.param": b"text",
        "a/b/noise2_model.bin": BIN,
        "a/b/noise3_model.param": PARAM,
        "a/b/noise3_model.bin": BIN,
    }
    source = archive(tmp_path / "models.zip", members)
    reasons = [result.reason for result in import_models(source, tmp_path / "models", None)]
    line = "line 4 (Convolution conv)"
    assert reasons == [
        "a/b/noise0_model.param: its weights are missing: expected a .bin file beside it",
        f"a/b/noise1_model.param: {line}: it needs 12 bytes of the .bin file, but 11 are left"
        " in it",
        "a/b/noise2_model.param: line 1: expected 7767517, as .param files of ncnn begin",
        "",
    ]


# UpConv7 of Chainer.


def test_upconv7(tmp_path: Path) -> None:
    source = tmp_path / "upconv7" / "anime_style_noise1_scale_rgb.npz"
    source.parent.mkdir()
    arrays = upconv_arrays()
    source.write_bytes(npz(arrays))
    [result] = import_models(source, tmp_path / "models", None)
    target = tmp_path / "models" / "upconv_7" / "art" / "noise1_scale2.0x_model.json"
    assert result.path == target
    for path in (target, source):
        model = read_model(path)
        assert (model.scale, model.padding, len(model.nodes)) == (2, 7, 7)
        last = model.weighted[-1][1]
        expected = arrays["conv7/W"].transpose(1, 0, 2, 3).astype(np.float32)
        np.testing.assert_array_equal(last.weight, expected)
        assert not last.bias.any()


# Files that unpack to more than a model takes.


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waifu2x.networks.readers.limits.MAX_BYTES", 1 << 20)
    zeros = bytes(2 << 20)
    source = archive(tmp_path / "models.zip", {"a/b/noise1_model.json": zeros})
    with pytest.raises(ModelError, match=r"noise1_model\.json: larger than the 1 MiB that a model"):
        import_models(source, tmp_path / "models", None)
    source = tmp_path / "anime_style_scale_rgb.npz"
    source.write_bytes(npz({"conv1/W": np.zeros((512, 1024))}))
    with pytest.raises(ModelError, match=r"conv1/W: larger than the 1 MiB that a model may take"):
        import_models(source, tmp_path / "models", None)
    half = np.zeros((100, 1024))
    source.write_bytes(npz({f"conv{n}/W": half for n in range(1, 3)}))
    with pytest.raises(ModelError, match="asks for more than 1 MiB"):
        import_models(source, tmp_path / "models", None)
    monkeypatch.setattr("waifu2x.networks.model_import._MAX_UNPACKED", 1000)
    with pytest.raises(ModelError, match=r"models\.zip: it asks for more than"):
        import_models(archive(tmp_path / "models.zip", MEMBERS), tmp_path / "models", None)


def test_an_array_that_says_it_is_huge(tmp_path: Path) -> None:
    """Refused by its header: nothing of that size is allocated."""
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 20, 3, 3)}
    np.lib.format.write_array_header_1_0(stream, header)
    members = {"conv1/W.npy": stream.getvalue(), "conv1/b.npy": b""}
    source = archive(tmp_path / "anime_style_scale_rgb.npz", members)
    with pytest.raises(ModelError, match=r"not a readable \.npz file: float32 numbers of shape"):
        import_models(source, tmp_path / "models", None)


def no_home(appname: str, appauthor: bool) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_without_a_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_data_path", no_home)
    source = archive(tmp_path / "models.zip", MEMBERS)
    result = CliRunner().invoke(cli, ["models", "import", str(source)])
    assert result.exit_code == 1
    assert result.stderr == "Error: no home directory to keep models in; give a FOLDER\n"
    folder = tmp_path / "folder"
    result = CliRunner().invoke(cli, ["models", "import", str(source), str(folder)])
    assert result.exit_code == 0
    assert files(folder) == sorted(TARGETS)


def test_import_command(tmp_path: Path, own: Path) -> None:
    source = tmp_path / "noise1_model.json"
    source.write_bytes(waifu2x_json(chainer_arrays()))

    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(cli, ["models", "import", str(source), *arguments])
        return result.exit_code, result.stdout, result.stderr

    target = own / "my" / "noise1_model.json"
    nameless = f"Error: {source}: it does not say which set it is of; give --name SET\n"
    exists = f"Error: {target}: it exists already; use --overwrite to replace it\n"
    assert run() == (1, "", nameless)
    assert run("--name", "my") == (0, f"{target}\n", "")
    assert run("--name", "my") == (1, "", exists)
    assert run("--name", "my", "--overwrite") == (0, f"{target}\n", "")
