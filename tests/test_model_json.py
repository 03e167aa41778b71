"""The waifu2x JSON format: what is written, what is read, what is refused, and the parse cache."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.model import Model
from waifu2x.model_json import Layer, dump_layers, parse_layers, read_model
from waifu2x.resources import shipped_models

Document = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def cache_folder_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test: what one parsed, another must not find."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(folder))
    return folder


def random_layers(planes: Sequence[int] = (3, 4, 5, 3)) -> list[Layer]:
    rng = np.random.default_rng(7)
    return [
        (
            rng.normal(size=(outputs, inputs, 3, 3)).astype(np.float32),
            rng.normal(size=outputs).astype(np.float32),
        )
        for inputs, outputs in pairwise(planes)
    ]


def document(layers: Sequence[Layer], new_style: bool = True) -> Document:
    """A model as the original waifu2x's exporters write it: json prints float64 in full."""
    entries: Document = []
    for weight, bias in layers:
        outputs, inputs = weight.shape[:2]
        entry: dict[str, Any] = {"nInputPlane": inputs, "nOutputPlane": outputs, "kW": 3, "kH": 3}
        entry |= {"weight": weight.tolist(), "bias": bias.tolist()}
        if new_style:
            entry |= {"class_name": "nn.SpatialConvolutionMM", "dW": 1, "dH": 1}
            entry |= {"padW": 0, "padH": 0}
        entries.append(entry)
    if new_style:
        entries[0]["model_config"] = {
            "arch_name": "vgg_7",
            "channels": layers[0][0].shape[1],
            "offset": len(layers),
            "scale_factor": 1,
            "created_at": "Sat Aug  6 2016",
        }
    return entries


def write_json(path: Path, content: Any) -> Path:
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def assert_holds(model: Model, layers: Sequence[Layer]) -> None:
    """Bit for bit the same weights and biases, in order."""
    assert len(model.convolutions) == len(layers)
    for layer, (weight, bias) in zip(model.convolutions, layers, strict=True):
        for read, written in ((layer.weight, weight), (layer.bias, bias)):
            assert read.dtype == np.float32
            assert read.shape == written.shape
            assert read.tobytes() == written.tobytes()


def read_as_converter_cpp_does(data: bytes) -> list[Layer]:
    """The fields that waifu2x-converter-cpp looks at, read number by number as it does."""
    layers = []
    for entry in json.loads(data):
        inputs, outputs, taps = entry["nInputPlane"], entry["nOutputPlane"], entry["kW"]
        assert taps == entry["kH"]
        weight = np.empty((outputs, inputs, taps, taps), np.float32)
        for o, i, y, x in np.ndindex(weight.shape):
            weight[o, i, y, x] = entry["weight"][o][i][y][x]
        bias = np.array([entry["bias"][o] for o in range(outputs)], np.float32)
        layers.append((weight, bias))
    return layers


@pytest.mark.parametrize("planes", [(3, 4, 5, 3), (1, 2, 1), (3, 3)])
def test_other_readers_get_the_same_numbers(planes: tuple[int, ...]) -> None:
    layers = random_layers(planes)
    again = read_as_converter_cpp_does(dump_layers(layers))
    assert len(again) == len(layers)
    for (weight, bias), (read_weight, read_bias) in zip(layers, again, strict=True):
        assert read_weight.shape == weight.shape
        assert read_weight.tobytes() == weight.tobytes()
        assert read_bias.tobytes() == bias.tobytes()


def significant_digits(text: str) -> int:
    mantissa = text.lower().partition("e")[0].replace("-", "").replace(".", "")
    return max(len(mantissa.strip("0")), 1)


def digits_needed(value: np.float32) -> int:
    """The fewest digits with which a rounded decimal still names this float32."""
    for digits in range(9):
        text = f"{float(value):.{digits}e}"
        with np.errstate(over="ignore"):
            same = np.float32(float(text)) == value
        if same:
            return significant_digits(text)
    raise AssertionError(value)


def test_numbers_are_the_shortest_decimals() -> None:
    # Every exponent: values picked by their bits, without infinities and NaN.
    bits = np.random.default_rng(3).integers(0, 2**32, 2000, np.uint32).view(np.float32)
    special = np.array([0, -0.0, 0.1, 1 / 3, 16777216, 1e-45, 3.4028235e38], np.float32)
    values = np.concatenate([special, bits[np.isfinite(bits)]])[: 9 * 200]
    weight = values.reshape(200, 1, 3, 3)
    layers = [(weight, np.zeros(200, np.float32)), random_layers((200, 1))[0]]
    texts: list[str] = []
    numbers = json.loads(dump_layers(layers), parse_float=str)[0]["weight"]
    for o, i, y, x in np.ndindex(weight.shape):
        texts.append(numbers[o][i][y][x])
    for text, value in zip(texts, weight.ravel(), strict=True):
        assert np.float32(float(text)).tobytes() == value.tobytes()
        assert significant_digits(text) <= digits_needed(value)


def test_what_is_written() -> None:
    entries = json.loads(dump_layers(random_layers((3, 4, 4, 4, 4, 4, 4, 3))))
    assert entries[0]["model_config"] == {
        "arch_name": "vgg_7",
        "channels": 3,
        "offset": 7,
        "scale_factor": 1,
    }
    for entry in entries[1:]:
        assert "model_config" not in entry
    for entry in entries:
        geometry = [entry[name] for name in ("kW", "kH", "dW", "dH", "padW", "padH")]
        assert geometry == [3, 3, 1, 1, 0, 0]
        assert entry["class_name"] == "nn.SpatialConvolutionMM"


@pytest.mark.parametrize("planes", [(3, 4, 5, 3), (1, 2, 1)])
@pytest.mark.parametrize("new_style", [True, False])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_reads_old_and_new_style(
    tmp_path: Path, planes: tuple[int, ...], new_style: bool, suffix: str
) -> None:
    layers = random_layers(planes)
    path = write_json(tmp_path / f"model{suffix}", document(layers, new_style))
    model = read_model(path)
    assert_holds(model, layers)
    assert model.name == str(path)
    assert (model.in_planes, model.out_planes, model.scale) == (planes[0], planes[-1], 1)
    slopes = [layer.slope for layer in model.convolutions]
    assert slopes == [0.1] * (len(layers) - 1) + [1.0]  # the last layer is linear


@pytest.mark.parametrize("name", ["cudnn.SpatialConvolution", "nn.SpatialDilatedConvolution"])
def test_reads_relatives_of_the_convolution(name: str) -> None:
    entries = document(random_layers())
    for entry in entries:
        entry |= {"class_name": name, "dilationW": 1, "dilationH": 1}
    assert len(parse_layers(json.dumps(entries).encode(), "m")) == 3


def test_whole_numbers_are_numbers() -> None:
    entries = document([(np.ones((1, 1, 3, 3), np.float32), np.zeros(1, np.float32))])
    entries[0] |= {"weight": [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], "bias": [-1]}
    [(weight, bias)] = parse_layers(json.dumps(entries).encode(), "m")
    assert weight.ravel().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert bias.tolist() == [-1]


@pytest.mark.parametrize("name", ["noise0", "noise1", "noise2", "noise3", "scale2.0x"])
def test_shipped_models(name: str) -> None:
    model = read_model(shipped_models() / "vgg_7" / "art" / f"{name}_model.json")
    planes = [layer.in_planes for layer in model.convolutions] + [model.out_planes]
    assert planes == [3, 32, 32, 64, 64, 128, 128, 3]
    for layer in model.convolutions:
        assert layer.weight.shape == (layer.out_planes, layer.in_planes, 3, 3)
        assert np.isfinite(layer.weight).all()
        assert layer.weight.std() > 0.01


# Damage to the file as a whole: content, and what the message says.


VALID = json.dumps(document(random_layers())).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"no model at all", "not valid JSON", id="text"),
        pytest.param(b"\xff\xfe\x00", "not valid JSON", id="not-utf-8"),
        pytest.param(b"[" * 100_000, "not valid JSON", id="nested-without-end"),
        pytest.param(VALID[: len(VALID) // 2], "not valid JSON, or cut off", id="cut-off"),
        pytest.param(b"", "cut off", id="empty"),
        pytest.param(gzip.compress(VALID)[:-100], "damaged gzip", id="gzip-cut-off"),
        pytest.param(b"\x1f\x8b" + b"?" * 50, "damaged gzip", id="gzip-garbage"),
        pytest.param(b"{}", "expected a list of layers", id="not-a-list"),
        pytest.param(b"[]", "expected a list of layers", id="empty-list"),
        pytest.param(b"[1]", "layer 1: expected an object, but got 1", id="layer-number"),
        pytest.param(b'["a"]', "layer 1: expected an object, but got a string", id="layer-text"),
    ],
)
def test_damaged_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken_model.json"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


# Damage to one layer: what is done to the document, and the layer and field that the message names.


def put(number: int, field: str, value: Any) -> Callable[[Document], None]:
    def damage(entries: Document) -> None:
        entries[number - 1][field] = value

    return damage


def drop(number: int, field: str) -> Callable[[Document], None]:
    def damage(entries: Document) -> None:
        del entries[number - 1][field]

    return damage


def put_tap(number: int, value: Any) -> Callable[[Document], None]:
    def damage(entries: Document) -> None:
        entries[number - 1]["weight"][0][1][2][0] = value

    return damage


def configure(field: str, value: Any) -> Callable[[Document], None]:
    def damage(entries: Document) -> None:
        entries[0]["model_config"][field] = value

    return damage


def ragged(entries: Document) -> None:
    entries[1]["weight"][0][1][2].pop()


def flat(entries: Document) -> None:
    entries[1]["weight"] = entries[1]["weight"][0]


def replace_layer(number: int, planes: tuple[int, int]) -> Callable[[Document], None]:
    def damage(entries: Document) -> None:
        entries[number - 1] = document(random_layers(planes), new_style=False)[0]

    return damage


def five_by_five(entries: Document) -> None:
    weight = np.zeros((5, 4, 5, 5))
    entries[1] |= {"kW": 5, "kH": 5, "weight": weight.tolist()}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(drop(2, "weight"), "layer 2: weight is missing", id="no-weight"),
        pytest.param(drop(3, "bias"), "layer 3: bias is missing", id="no-bias"),
        pytest.param(ragged, "layer 2: weight is ragged", id="ragged"),
        pytest.param(flat, "layer 2: weight should be nested 4 deep", id="depth"),
        pytest.param(put(2, "weight", 1.5), "layer 2: weight should be nested 4", id="number"),
        pytest.param(put(2, "weight", []), "layer 2: weight should be nested 4", id="nothing"),
        pytest.param(put_tap(2, "0.5"), "layer 2: weight holds something other", id="string"),
        pytest.param(put_tap(2, None), "layer 2: weight holds something other", id="null"),
        pytest.param(put_tap(2, 10**400), "layer 2: weight holds", id="huge-integer"),
        pytest.param(put_tap(2, float("nan")), "layer 2: weight holds a value", id="nan"),
        pytest.param(put_tap(2, float("inf")), "layer 2: weight holds a value", id="infinity"),
        pytest.param(put_tap(2, 1e39), "layer 2: weight holds a value", id="float32-overflow"),
        pytest.param(put(1, "bias", [1e39] * 4), "layer 1: bias holds a value", id="bias-overflow"),
        pytest.param(put(2, "bias", [0.0] * 4), "layer 2: bias has 4 values", id="bias-length"),
        pytest.param(put(2, "bias", 0.0), "layer 2: bias should be nested 1", id="bias-depth"),
        pytest.param(put(2, "nInputPlane", 5), "layer 2: nInputPlane is 5", id="in-planes"),
        pytest.param(put(2, "nOutputPlane", 4), "layer 2: nOutputPlane is 4", id="out-planes"),
        pytest.param(put(3, "kW", 5), "layer 3: kW is 5", id="kW"),
        pytest.param(put(3, "dH", 2), "layer 3: dH is 2", id="stride"),
        pytest.param(put(3, "padW", 1), "layer 3: padW is 1", id="padding"),
        pytest.param(put(3, "dilationH", 2), "layer 3: dilationH is 2", id="dilation"),
        pytest.param(five_by_five, "layer 2: weight has 5x5 taps", id="5x5"),
        pytest.param(
            put(3, "class_name", "nn.SpatialFullConvolution"),
            "layer 3: class_name 'nn.SpatialFullConvolution' is not supported",
            id="transposed",
        ),
        pytest.param(
            replace_layer(2, (6, 5)),
            "layer 2: weight reads 6 planes, but layer 1 makes 4",
            id="chain",
        ),
        pytest.param(
            replace_layer(3, (5, 1)),
            "layer 3: weight makes 1 planes, but layer 1 reads 3",
            id="ends",
        ),
        pytest.param(put(1, "model_config", 3), "layer 1: model_config: expected an", id="config"),
        pytest.param(
            configure("arch_name", "upconv_7"),
            "layer 1: model_config: architecture 'upconv_7' is not supported",
            id="architecture",
        ),
        pytest.param(configure("offset", 14), "layer 1: model_config: offset is 14", id="offset"),
        pytest.param(configure("channels", 1), "layer 1: model_config: channels is 1", id="planes"),
        pytest.param(
            configure("scale_factor", 2), "layer 1: model_config: scale_factor is 2", id="scale"
        ),
    ],
)
def test_damaged_layer(tmp_path: Path, damage: Callable[[Document], None], message: str) -> None:
    entries = document(random_layers())
    healthy = copy.deepcopy(entries)
    damage(entries)
    path = tmp_path / "model.json"
    with pytest.raises(ModelError) as caught:
        read_model(write_json(path, entries))
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)
    # The damage alone is what was refused.
    assert_holds(read_model(write_json(path, healthy)), random_layers())


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read the model: no such file"):
        read_model(tmp_path / "absent.json")
    with pytest.raises(ModelError, match="cannot read the model: is a directory"):
        read_model(tmp_path)


# The cache of parsed weights.


def only_entry(cache_folder: Path) -> Path:
    [entry] = [path for path in cache_folder.rglob("*") if path.is_file()]
    return entry


def test_second_read_does_not_parse(
    tmp_path: Path, cache_folder_of_the_test: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = random_layers()
    path = write_json(tmp_path / "model.json", document(layers))
    read_model(path)
    assert only_entry(cache_folder_of_the_test).stat().st_size > 0

    def unexpected(raw: bytes, name: str) -> list[Layer]:
        raise AssertionError(f"{name} was parsed again")

    monkeypatch.setattr("waifu2x.model_json.parse_layers", unexpected)
    assert_holds(read_model(path), layers)


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_json(tmp_path / "model.json", document(random_layers()))
    read_model(path)
    other = random_layers((3, 6, 3))
    write_json(path, document(other))
    assert_holds(read_model(path), other)


def flip_a_byte(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [flip_a_byte, lambda data: data[:-1], lambda data: data[:10], lambda data: b""],
    ids=["flipped", "cut-off", "stub", "empty"],
)
def test_damaged_cache_entry_is_made_again(
    tmp_path: Path, cache_folder_of_the_test: Path, damage: Callable[[bytes], bytes]
) -> None:
    layers = random_layers()
    path = write_json(tmp_path / "model.json", document(layers))
    read_model(path)
    entry = only_entry(cache_folder_of_the_test)
    healthy = entry.read_bytes()
    entry.write_bytes(damage(healthy))
    assert_holds(read_model(path), layers)
    assert entry.read_bytes() == healthy


def test_unwritable_cache_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    obstacle = tmp_path / "file"
    obstacle.write_bytes(b"in the way")
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(obstacle))
    layers = random_layers()
    path = write_json(tmp_path / "model.json", document(layers))
    for _ in range(2):
        assert_holds(read_model(path), layers)
    assert obstacle.read_bytes() == b"in the way"


def test_arrays_can_be_changed_after_either_read(tmp_path: Path) -> None:
    path = write_json(tmp_path / "model.json", document(random_layers()))
    reads: list[NDArray[np.float32]] = [read_model(path).convolutions[0].weight for _ in range(2)]
    assert [weight.flags.c_contiguous for weight in reads] == [True, True]
    assert not np.shares_memory(reads[0], reads[1])
