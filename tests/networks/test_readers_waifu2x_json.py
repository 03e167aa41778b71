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
from waifu2x.networks import digests
from waifu2x.networks.activations import Activation
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution
from waifu2x.networks.readers import read_model, waifu2x_json
from waifu2x.networks.readers.architectures import Kind, Layer, build
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump, parse
from waifu2x.system.resources import shipped_models

Document = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def cache_folder_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache for each test: none must find what another has parsed."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(folder))
    return folder


def random_layers(planes: Sequence[int] = (3, 4, 5, 3)) -> list[Layer]:
    rng = np.random.default_rng(7)
    return [
        Layer(
            "convolution",
            rng.normal(size=(outputs, inputs, 3, 3)).astype(np.float32),
            rng.normal(size=outputs).astype(np.float32),
        )
        for inputs, outputs in pairwise(planes)
    ]


def dump_stack(layers: Sequence[Layer]) -> bytes:
    return dump(NetworkWeights(f"vgg_{len(layers)}", list(layers)))


def document(layers: Sequence[Layer], new_style: bool = True) -> Document:
    """A model as the original waifu2x's exporters write it: json prints float64 in full."""
    entries: Document = []
    for layer in layers:
        outputs, inputs = layer.weight.shape[:2]
        entry: dict[str, Any] = {"nInputPlane": inputs, "nOutputPlane": outputs, "kW": 3, "kH": 3}
        entry |= {"weight": layer.weight.tolist(), "bias": layer.bias.tolist()}
        if new_style:
            entry |= {"class_name": "nn.SpatialConvolutionMM", "dW": 1, "dH": 1}
            entry |= {"padW": 0, "padH": 0}
        entries.append(entry)
    if new_style:
        entries[0]["model_config"] = {
            "arch_name": f"vgg_{len(layers)}",
            "channels": layers[0].weight.shape[1],
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
    assert len(model.weighted) == len(layers)
    for (_, node), layer in zip(model.weighted, layers, strict=True):
        for read, written in ((node.weight, layer.weight), (node.bias, layer.bias)):
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
        layers.append(Layer("convolution", weight, bias))
    return layers


@pytest.mark.parametrize("planes", [(3, 4, 5, 3), (1, 2, 1), (3, 3)])
def test_other_readers_get_the_same_numbers(planes: tuple[int, ...]) -> None:
    layers = random_layers(planes)
    again = read_as_converter_cpp_does(dump_stack(layers))
    assert len(again) == len(layers)
    for layer, read in zip(layers, again, strict=True):
        assert read.weight.shape == layer.weight.shape
        assert read.weight.tobytes() == layer.weight.tobytes()
        assert read.bias.tobytes() == layer.bias.tobytes()


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
    first = Layer("convolution", weight, np.zeros(200, np.float32))
    texts: list[str] = []
    numbers = json.loads(dump_stack([first, *random_layers((200, 1))]), parse_float=str)[0][
        "weight"
    ]
    for o, i, y, x in np.ndindex(weight.shape):
        texts.append(numbers[o][i][y][x])
    for text, value in zip(texts, weight.ravel(), strict=True):
        assert np.float32(float(text)).tobytes() == value.tobytes()
        assert significant_digits(text) <= digits_needed(value)


def test_what_is_written() -> None:
    entries = json.loads(dump_stack(random_layers((3, 4, 4, 4, 4, 4, 4, 3))))
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
    slopes = [set(node.activation.slopes.tolist()) for _, node in model.weighted]
    leaky = {float(np.float32(0.1))}
    assert slopes == [leaky] * (len(layers) - 1) + [{1.0}]  # the last layer is linear


@pytest.mark.parametrize("name", ["cudnn.SpatialConvolution", "nn.SpatialDilatedConvolution"])
def test_reads_relatives_of_the_convolution(name: str) -> None:
    entries = document(random_layers())
    for entry in entries:
        entry |= {"class_name": name, "dilationW": 1, "dilationH": 1}
    assert len(parse(json.dumps(entries).encode(), "m")[0].layers) == 3


def test_whole_numbers_are_numbers() -> None:
    entries = document(random_layers((1, 1)))
    entries[0] |= {"weight": [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], "bias": [-1]}
    [layer] = parse(json.dumps(entries).encode(), "m")[0].layers
    assert layer.weight.ravel().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert layer.bias.tolist() == [-1]


@pytest.mark.parametrize("name", ["noise0", "noise1", "noise2", "noise3", "scale2.0x"])
def test_shipped_models(name: str) -> None:
    model = read_model(shipped_models() / "vgg_7" / "art" / f"{name}_model.json")
    planes = [3, 32, 32, 64, 64, 128, 128, 3]
    shapes = [(outputs, inputs, 3, 3) for inputs, outputs in pairwise(planes)]
    assert [node.weight.shape for _, node in model.weighted] == shapes
    for _, node in model.weighted:
        assert isinstance(node, Convolution)
        assert np.isfinite(node.weight).all()
        assert node.weight.std() > 0.01


# Other architectures: what is written is read again, and the geometry is the architecture's.


def layer_of(
    rng: np.random.Generator, kind: Kind, inputs: int, outputs: int, taps: int = 3
) -> Layer:
    weight = rng.normal(size=(outputs, inputs, taps, taps)).astype(np.float32)
    return Layer(kind, weight, rng.normal(size=outputs).astype(np.float32))


def upconv_layers() -> list[Layer]:
    rng = np.random.default_rng(1)
    planes = (3, 2, 3, 4, 5, 6, 7)
    layers = [layer_of(rng, "convolution", *pair) for pair in pairwise(planes)]
    return [*layers, layer_of(rng, "transposed", 7, 3, taps=4)]


def cunet_layers(*, doubles: bool) -> list[Layer]:
    """Planes as in the original, divided by 8."""
    rng = np.random.default_rng(2)
    down, up, dense = ("convolution", 2), ("transposed", 2), ("convolution", 1)
    plain = ("convolution", 3)
    bottom = ("transposed", 4) if doubles else plain
    first = [(plain, 3, 4), (plain, 4, 8), (down, 8, 8), (plain, 8, 16), (plain, 16, 8)]
    first += [(dense, 8, 1), (dense, 1, 8), (up, 8, 8), (plain, 8, 8), (bottom, 8, 3)]
    second = [(plain, 3, 4), (plain, 4, 8), (down, 8, 8), (plain, 8, 8), (plain, 8, 16)]
    second += [(dense, 16, 2), (dense, 2, 16), (down, 16, 16), (plain, 16, 32), (plain, 32, 16)]
    second += [(dense, 16, 2), (dense, 2, 16), (up, 16, 16), (plain, 16, 8), (plain, 8, 8)]
    second += [(dense, 8, 1), (dense, 1, 8), (up, 8, 8), (plain, 8, 8), (plain, 8, 3)]
    geometry = first + second
    return [layer_of(rng, kind, i, o, taps) for (kind, taps), i, o in geometry]  # type: ignore[arg-type]


ARCHITECTURES = {
    "upconv_7": (upconv_layers(), 2, 7, 1),
    "cunet": (cunet_layers(doubles=False), 1, 28, 4),
    "upcunet": (cunet_layers(doubles=True), 2, 18, 2),
}


def assert_same(model: Model, other: Model) -> None:
    """The same graph with the same numbers, bit for bit."""
    assert [type(node) for node in model.nodes] == [type(node) for node in other.nodes]
    for node, twin in zip(model.nodes, other.nodes, strict=True):
        for field, value in vars(node).items():
            again = getattr(twin, field)
            if isinstance(value, Activation):
                assert value.function == again.function
                assert value.slopes.tolist() == again.slopes.tolist()
            elif isinstance(value, np.ndarray):
                assert value.shape == again.shape
                assert value.tobytes() == again.tobytes()
            else:
                assert value == again


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_architectures(tmp_path: Path, architecture: str) -> None:
    layers, scale, padding, multiple = ARCHITECTURES[architecture]
    path = tmp_path / "model.json"
    path.write_bytes(dump(NetworkWeights(architecture, layers)))
    expected = build("m", architecture, layers)
    for _ in range(2):  # parsed, then from the cache
        model = read_model(path)
        assert (model.scale, model.padding, model.multiple) == (scale, padding, multiple)
        assert_same(model, expected)
    config = json.loads(path.read_bytes())[0]["model_config"]
    assert config == {
        "arch_name": architecture,
        "channels": 3,
        "offset": padding * scale,
        "scale_factor": scale,
    }


def test_order_of_transposed_weights() -> None:
    """Torch keeps them as (in_planes, out_planes, kH, kW)."""
    layers = upconv_layers()
    last = json.loads(dump(NetworkWeights("upconv_7", layers)))[-1]
    assert (last["nInputPlane"], last["nOutputPlane"]) == (7, 3)
    assert [last[name] for name in ("kW", "kH", "dW", "dH", "padW", "padH")] == [4, 4, 2, 2, 3, 3]
    np.testing.assert_array_equal(
        np.array(last["weight"], np.float32), layers[-1].weight.transpose(1, 0, 2, 3)
    )


def test_linear_layers_are_dense() -> None:
    layers = cunet_layers(doubles=True)
    entries = json.loads(dump(NetworkWeights("upcunet", layers)))
    for entry in entries:
        if entry["kW"] == 1:
            weight = np.array(entry["weight"])[:, :, 0, 0].tolist()
            bias = entry["bias"]
            entry.clear()
            entry |= {"class_name": "nn.Linear", "weight": weight, "bias": bias}
    again, _ = parse(json.dumps(entries).encode(), "m")
    assert_same(build("m", *again), build("m", "upcunet", layers))


@pytest.mark.parametrize(
    ("architecture", "number", "change", "message"),
    [
        ("upconv_7", 7, ("convolution", 7, 3, 4), "class_name is a convolution, but expected a t"),
        ("upconv_7", 7, ("transposed", 7, 3, 2), "weight has 2x2 taps, but expected 4x4"),
        (
            "upconv_7",
            7,
            ("transposed", 7, 1, 4),
            "it makes 1 planes of the picture's 3: a picture",
        ),
        ("upcunet", 3, ("convolution", 8, 8, 3), "weight has 3x3 taps, but expected 2x2"),
        ("upcunet", 6, ("convolution", 4, 1, 1), "weight reads 4 planes, but layer 5 makes 8"),
        (
            "upcunet",
            7,
            ("convolution", 1, 4, 1),
            "it multiplies the 8 planes of layer 5 by the 4 factors of layer 7",
        ),
        (
            "upcunet",
            8,
            ("transposed", 8, 4, 2),
            "it adds the 4 planes of layer 8 to the 8 of layer 2",
        ),
        (
            "cunet",
            30,
            ("convolution", 8, 1, 3),
            "it adds the 1 planes of layer 30 to the 3 of layer 10",
        ),
    ],
)
def test_layers_of_another_architecture(
    architecture: str, number: int, change: tuple[Kind, int, int, int], message: str
) -> None:
    layers = list(ARCHITECTURES[architecture][0])
    layers[number - 1] = layer_of(np.random.default_rng(0), *change)
    with pytest.raises(ModelError) as caught:
        build("m", architecture, layers)
    assert str(caught.value).startswith(f"m: layer {number}: {message}")


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


def strides(entries: Document) -> None:
    entries[2] |= {"dW": 2, "dH": 2}


def transposed(entries: Document) -> None:
    weight = np.zeros((5, 3, 3, 3))
    entries[2] |= {"class_name": "nn.SpatialFullConvolution", "weight": weight.tolist()}


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
        pytest.param(put(3, "dH", 2), "layer 3: dH is 2", id="stride-of-rows"),
        pytest.param(put(3, "dW", 2.0), "layer 3: dW is 2.0", id="stride-no-integer"),
        pytest.param(strides, "layer 3: dW is 2, but expected 1", id="stride"),
        pytest.param(put(3, "padW", 1), "layer 3: padH is 0, but padW is 1", id="padding"),
        pytest.param(put(3, "dilationH", 2), "layer 3: dilationH is 2", id="dilation"),
        pytest.param(five_by_five, "layer 2: weight has 5x5 taps", id="5x5"),
        pytest.param(
            put(3, "class_name", "nn.SpatialMaxPooling"),
            "layer 3: class_name 'nn.SpatialMaxPooling' is not supported",
            id="class",
        ),
        pytest.param(put(3, "class_name", [1]), "layer 3: class_name [1]", id="class-no-text"),
        pytest.param(
            transposed,
            "layer 3: class_name is a transposed convolution, but expected a convolution",
            id="transposed",
        ),
        pytest.param(
            replace_layer(2, (6, 5)),
            "layer 2: weight reads 6 planes, but layer 1 makes 4",
            id="chain",
        ),
        pytest.param(
            replace_layer(3, (5, 1)),
            "layer 3: it makes 1 planes of the picture's 3: a picture must stay one",
            id="ends",
        ),
        pytest.param(put(1, "model_config", 3), "layer 1: model_config: expected an", id="config"),
        pytest.param(
            configure("arch_name", "resnet_14l"),
            "layer 1: model_config: architecture 'resnet_14l' is not supported: only vgg_7, upconv",
            id="architecture",
        ),
        pytest.param(
            configure("arch_name", "vgg_7"),
            "3 layers with weights, but vgg_7 has 7",
            id="layers-of-vgg",
        ),
        pytest.param(
            configure("arch_name", "upcunet"),
            "3 layers with weights, but upcunet has 30",
            id="layers-of-upcunet",
        ),
        pytest.param(configure("gcn", True), "layer 1: model_config: gcn", id="gcn"),
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


@pytest.mark.parametrize("architecture", ["upconv_7", "upcunet"])
def test_cut_off_anywhere(architecture: str) -> None:
    content = dump(NetworkWeights(architecture, ARCHITECTURES[architecture][0]))
    for position in range(0, len(content) - 2, len(content) // 60):
        with pytest.raises(ModelError, match=r"^m: not valid JSON, or cut off: "):
            parse(content[:position], "m")


def test_long_values_are_shortened() -> None:
    entries = document(random_layers())
    entries[0]["kW"] = [0] * 100_000
    entries[0]["model_config"]["arch_name"] = "x" * 100_000
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            parse(json.dumps(entries).encode(), "m")
        assert len(str(caught.value)) < 200
        del entries[0]["kW"]
        entries[0]["kW"] = 3


def test_a_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waifu2x.networks.readers.limits.MAX_BYTES", 1 << 20)
    path = tmp_path / "model.json.gz"
    path.write_bytes(gzip.compress(b" " * (4 << 20)))
    with pytest.raises(ModelError, match=r"larger than the 1 MiB that a model may take$"):
        read_model(path)
    large = tmp_path / "model.json"
    large.write_bytes(b" " * (2 << 20))
    with pytest.raises(ModelError, match=r"larger than the 1 MiB that a model may take$"):
        read_model(large)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read the model: no such file"):
        read_model(tmp_path / "absent.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ModelError, match="cannot read the model: is a directory"):
        read_model(tmp_path / "folder.json")
    with pytest.raises(ModelError, match=r"not a model file: expected \.json, "):
        read_model(tmp_path / "model.tflite")


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

    def unexpected(raw: bytes, name: str) -> NetworkWeights:
        raise AssertionError(f"{name} was parsed again")

    monkeypatch.setattr("waifu2x.networks.readers.waifu2x_json.parse", unexpected)
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
    reads: list[NDArray[np.float32]] = [read_model(path).weighted[0][1].weight for _ in range(2)]
    assert [weight.flags.c_contiguous for weight in reads] == [True, True]
    assert not np.shares_memory(reads[0], reads[1])


def test_a_file_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    layers = random_layers()
    path.write_bytes(dump_stack(layers))
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)
    first = read_model(path)

    def refuse(*arguments: object) -> bytes:
        raise AssertionError("reads the file again")

    with monkeypatch.context() as patch:
        patch.setattr(waifu2x_json, "read_file", refuse)
        again = read_model(path)
    for one, other in zip(first.nodes, again.nodes, strict=True):
        assert type(one) is type(other)
        if isinstance(one, Convolution):
            assert isinstance(other, Convolution)
            np.testing.assert_array_equal(one.weight, other.weight)
            np.testing.assert_array_equal(one.bias, other.bias)
    layers[0].weight[0, 0, 0, 0] += 1
    path.write_bytes(dump_stack(layers))
    changed = read_model(path).nodes[0]
    assert isinstance(changed, Convolution)
    assert changed.weight[0, 0, 0, 0] == layers[0].weight[0, 0, 0, 0]


def test_a_file_that_cannot_be_read_any_more_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(dump_stack(random_layers()))
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)
    read_model(path)
    path.unlink()
    with pytest.raises(ModelError, match="cannot read the model"):
        read_model(path)
