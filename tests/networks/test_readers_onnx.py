"""ONNX files: what operators become, against formulas and onnxruntime, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.onnx_files import attribute, field, model, node, tensor, value_info, varint
from waifu2x.errors import ModelError
from waifu2x.networks import model_set
from waifu2x.networks.expressions import ACTIVATIONS
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution, Gate
from waifu2x.networks.readers import parse_named

Weights = dict[str, NDArray[Any]]


def read(content: bytes) -> Model:
    return parse_named(content, "m.onnx")


def picture(height: int, width: int, planes: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(height).random((height, width, planes))


def made(found: Model, source: NDArray[np.float64]) -> NDArray[np.float64]:
    result = obvious.values(found, source)[-1]
    return result[: len(source) * found.scale, : source.shape[1] * found.scale]


class Net:
    """Nodes in the making, each convolution with new weights."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.nodes: list[bytes] = []
        self.weights: Weights = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = attributes.pop("output", f"v{len(self.nodes)}")
        self.nodes.append(node(kind, inputs, [name], **attributes))
        return str(name)

    def number(self, value: Any, dtype: str = "int64") -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.array(value, dtype)
        return name

    def conv(self, source: str, planes: int, read: int, taps: int = 3, **more: Any) -> str:
        weight = self._rng.standard_normal((planes, read, taps, taps)) / math.sqrt(read * taps**2)
        bias = self._rng.standard_normal(planes) / 10
        names = [self.number(each, "float32") for each in (weight, bias)]
        pads = [taps // 2] * 4
        return self.op("Conv", source, *names, **{"pads": pads, "kernel_shape": [taps] * 2} | more)

    def file(self, **more: Any) -> bytes:
        return model(self.nodes, self.weights, **more)


def compact() -> Net:
    """SRVGG, as exporters write it."""
    net = Net()
    value = net.conv("input", 8, 3)
    value = net.op("PRelu", value, net.number(np.linspace(-1, 2, 8).reshape(8, 1, 1), "float32"))
    value = net.conv(value, 12, 8)
    value = net.op("DepthToSpace", value, blocksize=2, mode="CRD")
    scales = net.number([1, 1, 2, 2], "float32")
    base = net.op(
        "Resize",
        *("input", "", scales),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    net.op("Add", value, base, output="output")
    return net


def test_planes_of_frames_are_windows_of_a_film() -> None:
    """A layer for each of three frames, joined and enlarged; other numbers of planes are none."""
    net = Net()
    parts = []
    for frame in range(3):
        places = [net.number([number]) for number in (3 * frame, 3 * frame + 3, 1)]
        part = net.op("Slice", "input", *places)
        parts.append(net.conv(part, 4, 3))
    value = net.conv(net.op("Concat", *parts, axis=1), 12, 12)
    net.op("DepthToSpace", value, blocksize=2, mode="CRD", output="output")
    found = read(net.file(dims=(1, 9, "h", "w")))
    assert (found.frames, found.in_planes, found.out_planes, found.scale) == (3, 9, 3, 2)
    source = picture(8, 7, 9)
    kernels = list(net.weights.values())
    of_frames = [kernels[5 * frame + 3 : 5 * frame + 5] for frame in range(3)]
    joined = [
        same(source[..., 3 * frame : 3 * frame + 3], *arrays)
        for frame, arrays in enumerate(of_frames)
    ]
    cells = same(np.concatenate(joined, axis=-1), *kernels[15:17]).reshape(8, 7, 3, 2, 2)
    expected = cells.transpose(0, 3, 1, 4, 2).reshape(16, 14, 3)
    np.testing.assert_allclose(made(found, source), expected, atol=1e-6)
    for planes in (2, 4, 6, 12, 51):
        with pytest.raises(ModelError, match=f"it takes a picture of {planes} planes"):
            read(net.file(dims=(1, planes, "h", "w")))


def same(
    source: NDArray[np.float64], weight: NDArray[Any], bias: NDArray[Any]
) -> NDArray[np.float64]:
    """A convolution of 3x3 taps with zeros around."""
    padded = np.pad(source, [(1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))
    found: NDArray[np.float64] = np.einsum("yxipq,oipq->yxo", windows, weight.astype(np.float64))
    found += bias
    return found


def unshuffled(by: int = 2) -> Net:
    """The picture is made up to a multiple by reflection and unshuffled in three steps, as
    exporters write it: operators compute the sizes."""
    net = Net(1)
    shape = net.op("Shape", "input")
    sizes, pads = [], []
    for axis in (2, 3):
        size = net.op("Gather", shape, net.number(axis), axis=0)
        step = net.number(by)
        over = net.op("Mod", size, step)
        more = net.op("Mod", net.op("Sub", step, over), step)
        pads.append(net.op("Unsqueeze", more, net.number([0])))
        sizes.append(net.op("Unsqueeze", size, net.number([0])))
    zeros = net.number([0, 0, 0, 0, 0, 0])
    wide = net.op("Pad", "input", net.op("Concat", zeros, *pads, axis=0), mode="reflect")
    inner = net.op("Shape", wide)
    halves = []
    for axis in (2, 3):
        size = net.op("Gather", inner, net.number([axis]), axis=0)
        halves.append(net.op("Div", size, net.number([by])))
    two, one, planes = net.number([by]), net.number([1]), net.number([3])
    cells = net.op("Concat", one, planes, halves[0], two, halves[1], two, axis=0)
    value = net.op("Transpose", net.op("Reshape", wide, cells), perm=[0, 1, 3, 5, 2, 4])
    joined = net.op("Concat", one, net.number([3 * by**2]), *halves, axis=0)
    value = net.op("Reshape", value, joined)
    value = net.op("LeakyRelu", net.conv(value, 8, 3 * by**2), alpha=0.2)
    value = net.op("DepthToSpace", net.conv(value, 48, 8), blocksize=4, mode="CRD")
    scale = net.number([4 // by])
    for axis, size in zip((2, 3), sizes, strict=True):
        end = net.op("Mul", size, scale)
        last = {"output": "output"} if axis == 3 else {}
        value = net.op("Slice", value, net.number([0]), end, net.number([axis]), **last)
    return net


def span() -> Net:
    """SPAN's block: SiLU and the gate in several operators."""
    net = Net(2)
    mean = net.number(np.array([0.4, 0.5, 0.6]).reshape(1, 3, 1, 1), "float32")
    first = net.op("Mul", net.op("Sub", "input", mean), net.number(2.0, "float32"))
    first = net.conv(first, 8, 3)
    inner = net.conv(first, 8, 8)
    inner = net.op("Mul", inner, net.op("Sigmoid", inner))
    inner = net.conv(inner, 8, 8)
    factor = net.op("Sub", net.op("Sigmoid", inner), net.number(0.5, "float32"))
    value = net.op("Mul", net.op("Add", inner, first), factor)
    net.conv(net.op("Concat", value, first, axis=1), 3, 16, output="output")
    return net


def dense_block() -> Net:
    """ESRGAN's: maps joined, and a fifth of the last one added."""
    net = Net(3)
    first = net.conv("input", 8, 3)
    second = net.op("LeakyRelu", net.conv(first, 4, 8), alpha=0.2)
    last = net.conv(net.op("Concat", first, second, axis=1), 8, 12)
    value = net.op("Add", net.op("Mul", last, net.number(0.2, "float32")), first)
    value = net.op(
        "Resize",
        value,
        "",
        net.number([1, 1, 2, 2], "float32"),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    value = net.conv(value, 3, 8)
    net.op("Clip", value, net.number(0.0, "float32"), net.number(1.0, "float32"), output="output")
    return net


def squeezed() -> Net:
    """RCAN's block, and a product of two maps."""
    net = Net(4)
    first = net.conv("input", 8, 3)
    value = net.op("GlobalAveragePool", first)
    value = net.op("Relu", net.conv(value, 4, 8, 1))
    value = net.op("Sigmoid", net.conv(value, 8, 4, 1))
    value = net.op("Mul", first, value)
    value = net.op("Mul", value, net.op("Tanh", net.conv(value, 8, 8, 1)))
    parts = [net.number([0]), net.number([4]), net.number([8]), net.number([1])]
    head = net.op("Slice", value, parts[0], parts[1], parts[3])
    tail = net.op("Slice", value, parts[1], parts[2], parts[3])
    value = net.op("Concat", net.conv(head, 4, 4), tail, axis=1)
    scale, shift, mean = (
        net.number(np.linspace(a, b, 8), "float32") for a, b in ((1, 2), (0, 1), (-1, 1))
    )
    variance = net.number(np.linspace(0.5, 2, 8), "float32")
    value = net.op("BatchNormalization", value, scale, shift, mean, variance)
    net.conv(value, 3, 8, output="output")
    return net


def valid() -> Net:
    """waifu2x's way: a margin of reflection, lost again, and a transposed convolution."""
    net = Net(5)
    wide = net.op("Pad", "input", net.number([0, 0, 3, 3, 0, 0, 3, 3]), mode="reflect")
    value = net.op("LeakyRelu", net.conv(wide, 8, 3, pads=[0] * 4), alpha=0.1)
    weight = net.number(np.random.default_rng(6).standard_normal((8, 3, 4, 4)) / 8, "float32")
    value = net.op("ConvTranspose", value, weight, strides=[2, 2], pads=[4] * 4)
    ends = [net.number([n]) for n in (1, -1)]
    axes = [net.number([axis]) for axis in (2, 3)]
    # Crops a map that is one pixel too large on each side.
    for axis in axes:
        value = net.op("Slice", value, ends[0], ends[1], axis)
    base = net.op(
        "Resize",
        "input",
        "",
        net.number([1, 1, 2, 2], "float32"),
        mode="cubic",
        cubic_coeff_a=-0.75,
        coordinate_transformation_mode="half_pixel",
    )
    net.op("Add", value, base, output="output")
    return net


def grouped() -> Net:
    """Convolutions of groups, of few planes and of many, and of each plane by itself."""
    net = Net(7)
    value = net.conv("input", 16, 3)
    value = net.op("Relu", net.conv(value, 16, 8, group=2))
    value = net.op("Relu", net.conv(value, 32, 4, group=4))
    value = net.op("Sigmoid", net.conv(value, 32, 1, 5, group=32))
    # This puts the planes into another order, which is no part of the layer before it.
    value = net.op("DepthToSpace", value, blocksize=2, mode="DCR")
    net.nodes.append(node("Split", [value, net.number([3, 5])], ["head", "tail"], axis=1))
    value = net.op("Mul", net.op("Tanh", net.conv("head", 5, 3)), "tail")
    net.conv(value, 3, 5, output="output")
    return net


def normed() -> Net:
    """Norms over planes and over groups of planes, as exporters write them."""
    net = Net(8)
    rng = np.random.default_rng(9)

    def numbers(*shape: int) -> str:
        return net.number(1 + rng.standard_normal(shape) / 4, "float32")

    def in_parts(value: str, axis: int, shape: tuple[int, ...], squares: bool) -> str:
        centred = net.op("Sub", value, net.op("ReduceMean", value, axes=[axis], keepdims=1))
        square = (
            net.op("Mul", centred, centred)
            if squares
            else net.op("Pow", centred, net.number(2.0, "float32"))
        )
        spread = net.op("ReduceMean", square, axes=[axis], keepdims=1)
        root = net.op("Sqrt", net.op("Add", spread, net.number(1e-6, "float32")))
        value = net.op("Div", centred, root)
        return net.op("Add", net.op("Mul", value, numbers(*shape)), numbers(*shape))

    value = in_parts(net.conv("input", 8, 3), 1, (8, 1, 1), squares=False)
    value = net.conv(value, 8, 8)
    cells = net.op("Reshape", value, net.number([0, 4, -1]))
    ones, zeros = net.number(np.ones(4), "float32"), net.number(np.zeros(4), "float32")
    cells = net.op("InstanceNormalization", cells, ones, zeros, epsilon=1e-5)
    value = net.op("Reshape", cells, net.op("Shape", value))
    value = net.op("Add", net.op("Mul", value, numbers(8, 1, 1)), numbers(8, 1, 1))
    value = net.op("Relu", net.conv(value, 8, 8))
    last = net.op("Transpose", value, perm=[0, 2, 3, 1])
    last = net.op("LayerNormalization", last, numbers(8), numbers(8), axis=-1, epsilon=1e-5)
    last = in_parts(net.op("Mul", last, numbers(8)), -1, (8,), squares=True)
    last = net.op("Add", last, net.op("Tanh", last))
    value = net.op("Transpose", last, perm=[0, 3, 1, 2])
    value = net.op("InstanceNormalization", value, numbers(8), numbers(8), epsilon=1e-5)
    net.conv(value, 3, 8, output="output")
    return net


def replaced() -> Net:
    """Planes put in the place of others, as both of PyTorch's exporters write `x[:, a:b] = y`."""
    net = Net(11)
    value = net.conv("input", 12, 3)
    # The first planes, their numbers computed as exporters do.
    shape = net.op("Shape", value)
    end = net.op("Sub", net.op("Gather", shape, net.number([1]), axis=0), net.number([8]))
    head = net.op("Slice", value, net.number([0]), end, net.number([1]))
    ends = [net.op("Squeeze", end), net.number(0), net.number(1)]
    planes = net.op("Unsqueeze", net.op("Range", ends[1], ends[0], ends[2]), net.number([0, 2]))
    zeros = net.op("Mul", planes, net.number(0))
    places = net.op("Concat", zeros, planes, axis=2)
    value = net.op("ScatterND", value, places, net.op("Relu", net.conv(head, 4, 4)))
    # Some in the middle, with the planes as first axis.
    turned = net.op("Transpose", net.conv(value, 12, 12), perm=[1, 0, 2, 3])
    more = net.op("Transpose", net.op("Tanh", net.conv(value, 5, 12)), perm=[1, 0, 2, 3])
    turned = net.op("ScatterND", turned, net.number([[3], [4], [5], [6], [7]]), more)
    value = net.op("Transpose", turned, perm=[1, 0, 2, 3])
    # The last ones, and all.
    last = net.number([[[0, 10], [0, 11]]])
    value = net.op("ScatterND", value, last, net.conv(value, 2, 12), reduction="none")
    every = net.number([[[0, plane] for plane in range(12)]])
    value = net.op("ScatterND", value, every, net.op("Sigmoid", value))
    net.conv(value, 3, 12, output="output")
    return net


def reduced(strided: bool = False) -> Net:
    """Maxima, and bilinear interpolation to the size of a map and by a whole factor."""
    net = Net(12)
    first = net.conv("input", 8, 3)
    inner = first
    if strided:
        inner = net.conv(inner, 8, 8, strides=[2, 2], pads=[0] * 4)
    inner = net.op("MaxPool", inner, kernel_shape=[7, 7], strides=[3, 3], pads=[0] * 4)
    inner = net.conv(inner, 8, 8)
    sizes = net.op("Slice", net.op("Shape", first), net.number([2]), net.number([4]))
    planes = net.op("Slice", net.op("Shape", inner), net.number([0]), net.number([2]))
    sizes = net.op("Concat", planes, sizes, axis=0)
    linear = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    value = net.op("Add", first, net.op("Resize", inner, "", "", sizes, **linear))
    value = net.op("DepthToSpace", net.conv(value, 12, 8), blocksize=2, mode="CRD")
    doubled = net.op("Resize", "input", "", net.number([1, 1, 2, 2], "float32"), **linear)
    net.op("Add", value, doubled, output="output")
    return net


FILES: dict[str, tuple[Callable[[], Net], int]] = {
    "compact": (compact, 2),
    "unshuffled by 2": (unshuffled, 2),
    "unshuffled by 4": (lambda: unshuffled(4), 1),
    "span": (span, 1),
    "dense block": (dense_block, 2),
    "squeezed": (squeezed, 1),
    "valid": (valid, 2),
    "grouped": (grouped, 2),
    "normed": (normed, 1),
    "replaced": (replaced, 1),
    "reduced": (reduced, 2),
}


@pytest.mark.parametrize("name", FILES)
def test_against_onnxruntime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    make, scale = FILES[name]
    content = make().file()
    found = read(content)
    assert (found.in_planes, found.out_planes, found.scale) == (3, 3, scale)
    runtime.set_default_logger_severity(3)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for height, width in ((40, 48), (41, 47), (18, 23)):
        source = picture(height, width).astype(np.float32)
        (expected,) = session.run(None, {"input": source.transpose(2, 0, 1)[np.newaxis]})
        expected = expected[0].transpose(1, 2, 0)
        own = made(found, source.astype(np.float64))
        if name == "dense block":  # which clips
            own = own.clip(0, 1)
        assert obvious.psnr(own, expected) >= 100


def test_the_package_of_that_name_reads_the_same() -> None:
    onnx = pytest.importorskip("onnx")
    for make, _ in FILES.values():
        content = make().file()
        loaded = onnx.load_from_string(content)
        onnx.checker.check_model(loaded)
        again = read(loaded.SerializeToString())
        assert [type(each) for each in again.nodes] == [type(each) for each in read(content).nodes]


def test_what_exporters_take_apart_is_one_node_again() -> None:
    found = read(span().file())
    assert sum(isinstance(each, Gate) for each in found.nodes) == 1
    # The functions are the convolutions' own, and what scales the picture is a node before them.
    assert sum(isinstance(each, Convolution) for each in found.nodes) == 5
    assert (found.border, found.padding, found.multiple) == ("zero", 0, 1)
    found = read(unshuffled(4).file())
    assert (found.border, found.padding, found.multiple) == ("reflect", 0, 4)
    found = read(valid().file())
    assert (found.border, found.padding, found.multiple) == ("reflect", 3, 1)


def test_norms_are_one_node_each_and_planes_are_not_copied() -> None:
    counts = Counter(type(each).__name__ for each in read(normed().file()).nodes)
    assert (counts["LayerNorm"], counts["GroupNorm"]) == (3, 2)
    # A function of a norm, and the square of none, are nodes; factors and shifts are the norms'.
    assert counts["Convolution"] == 4 + 1
    counts = Counter(type(each).__name__ for each in read(grouped().file()).nodes)
    assert counts["DepthwiseConvolution"] == 1
    assert counts["Slice"] == 2 + 2  # of the groups of eight planes, and of Split
    assert counts["MultiplyMaps"] == 1


@pytest.mark.parametrize("opset", [18, 21])
def test_factors_of_groups_norms_by_plane_or_by_group(opset: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    net, count = Net(10), 4 if opset == 18 else 8
    factors = [net.number(np.linspace(*ends, count), "float32") for ends in ((1, 2), (-1, 1))]
    value = net.conv("input", 8, 3)
    value = net.op("GroupNormalization", value, *factors, num_groups=4)
    net.conv(value, 3, 8, output="output")
    content = net.file(opset=opset)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    source = picture(11, 14).astype(np.float32)
    (expected,) = session.run(None, {"input": source.transpose(2, 0, 1)[np.newaxis]})
    own = made(read(content), source.astype(np.float64))
    assert obvious.psnr(own, expected[0].transpose(1, 2, 0)) >= 100


def silu(net: Net, x: str) -> str:
    return net.op("Mul", net.op("Sigmoid", x), x)


def mish(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Tanh", net.op("Softplus", x)))


def gelu(net: Net, x: str) -> str:
    inner = net.op("Erf", net.op("Div", x, net.number(math.sqrt(2), "float32")))
    inner = net.op("Mul", x, net.op("Add", inner, net.number(1.0, "float32")))
    return net.op("Mul", inner, net.number(0.5, "float32"))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("silu", silu),
        ("mish", mish),
        ("mish", lambda net, x: net.op("Mish", x)),
        ("gelu", gelu),
        ("gelu", lambda net, x: net.op("Gelu", x)),
        ("tanh", lambda net, x: net.op("Tanh", x)),
        ("sigmoid", lambda net, x: net.op("Sigmoid", x)),
    ],
)
def test_functions_by_their_names(name: str, write: Callable[[Net, str], str]) -> None:
    net = Net()
    net.conv(write(net, net.conv("input", 4, 3)), 3, 4, output="output")
    first, _ = read(net.file()).nodes
    assert isinstance(first, Convolution)
    assert first.activation.function == ACTIVATIONS[name]


def test_a_function_that_has_no_name() -> None:
    net = Net()
    value = net.conv("input", 4, 3)
    value = net.op("HardSwish", net.op("Mul", value, net.number(3.0, "float32")))
    net.conv(value, 3, 4, output="output")
    runtime = pytest.importorskip("onnxruntime")
    content = net.file()
    source = picture(9, 7).astype(np.float32)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"input": source.transpose(2, 0, 1)[np.newaxis]})
    # The checks of `obvious` know functions by their names alone.
    nodes = read(content).nodes
    assert len(nodes) == 2
    first = nodes[0]
    assert isinstance(first, Convolution)
    xs = np.linspace(-2, 2, 9).reshape(-1, 1) * np.ones(4)
    swish = 3 * xs * (xs / 2 + 0.5).clip(0, 1)
    np.testing.assert_allclose(first.activation(xs), swish, rtol=1e-6, atol=1e-6)
    assert expected.shape == (1, 3, 9, 7)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 1), (1, 2), (0, 3)])
def test_planes_in_the_place_of_others(first: int, count: int) -> None:
    net = Net()
    two = net.op("Concat", "input", "input", axis=1)
    ends = [net.number([n]) for n in (2, 2 + count, 1)]
    places = net.number([[[0, first + plane] for plane in range(count)]])
    net.op("ScatterND", "input", places, net.op("Slice", two, *ends), output="output")
    source = picture(5, 6)
    expected = source.copy()
    expected[..., first : first + count] = np.concatenate([source] * 2, axis=-1)[..., 2 : 2 + count]
    np.testing.assert_allclose(made(read(net.file()), source), expected, rtol=1e-12)


def test_pads_below_zero_cut_edges_off() -> None:
    results = []
    for op in ("Pad", "Slice"):
        net = Net()
        wide = net.op("Pad", "input", net.number([0, 0, 3, 3, 0, 0, 3, 3]), mode="reflect")
        value = net.conv(wide, 4, 3, pads=[0] * 4)
        ends = [net.number([n, n]) for n in (2, -2)]
        if op == "Pad":
            value = net.op("Pad", value, net.number([0, 0, -2, -2, 0, 0, -2, -2]))
        else:
            value = net.op("Slice", value, *ends, net.number([2, 3]))
        net.conv(value, 3, 4, 1, output="output")
        results.append(made(read(net.file()), picture(9, 8)))
    assert results[0].shape == (9, 8, 3)
    np.testing.assert_array_equal(results[0], results[1])


def test_a_file_for_even_pictures_that_pads_by_a_margin() -> None:
    net = Net()
    wide = net.op("Pad", "input", net.number([0, 0, 2, 2, 0, 0, 2, 2]), mode="reflect")
    small = net.conv(wide, 4, 3, 2, pads=[0] * 4, strides=[2, 2])
    weight = net.number(np.random.default_rng(6).standard_normal((4, 3, 2, 2)), "float32")
    value = net.op("ConvTranspose", small, weight, strides=[2, 2])
    net.op("Pad", value, net.number([0, 0, -2, -2, 0, 0, -2, -2]), output="output")
    found = read(net.file())
    assert (found.border, found.padding, found.multiple, found.scale) == ("reflect", 2, 2, 1)


@pytest.mark.parametrize("op", ["Expand", "Tile"])
@pytest.mark.parametrize("axis", [1, 2])
def test_planes_repeated(op: str, axis: int) -> None:
    net = Net()
    view = net.op("Unsqueeze", "input", net.number([axis]))
    times = [1] * 5
    times[axis] = 4
    value = net.op(op, view, net.number(times))
    shape = net.op("Shape", "input")
    sizes = net.op("Slice", shape, net.number([2]), net.number([4]))
    joined = net.op("Concat", net.number([1, 12]), sizes, axis=0)
    value = net.op("Reshape", value, joined)
    net.op("DepthToSpace", value, blocksize=2, mode="CRD", output="output")
    source = picture(4, 5)
    planes = np.repeat(source, 4, -1) if axis == 2 else np.tile(source, 4)
    cells = planes.reshape(4, 5, 3, 2, 2).transpose(0, 3, 1, 4, 2)
    np.testing.assert_array_equal(made(read(net.file()), source), cells.reshape(8, 10, 3))


def test_a_map_expanded_to_its_own_size() -> None:
    net = Net()
    first = net.conv("input", 4, 3)
    value = net.op("Expand", first, net.op("Shape", first))
    net.conv(net.op("Expand", value, net.number([4, 1, 1])), 3, 4, output="output")
    assert len(read(net.file()).nodes) == 2


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
def test_the_order_of_shuffled_planes(mode: str) -> None:
    net = Net()
    weight = np.zeros((12, 3, 1, 1), np.float32)
    bias = np.arange(12, dtype=np.float32)
    value = net.op("Conv", "input", net.number(weight, "float32"), net.number(bias, "float32"))
    net.op("DepthToSpace", value, blocksize=2, mode=mode, output="output")
    result = made(read(net.file()), np.zeros((1, 1, 3)))
    for dy, dx, plane in np.ndindex(2, 2, 3):
        expected = plane * 4 + dy * 2 + dx if mode == "CRD" else (dy * 2 + dx) * 3 + plane
        assert result[dy, dx, plane] == expected


def test_planes_last_as_keras_has_them() -> None:
    net = Net()
    value = net.conv(net.op("Transpose", "input", perm=[0, 3, 1, 2]), 12, 3)
    value = net.op("DepthToSpace", value, blocksize=2, mode="DCR")
    net.op("Transpose", value, perm=[0, 2, 3, 1], output="output")
    found = read(net.file(dims=(1, "h", "w", 3)))
    first = Net()
    value = first.conv("input", 12, 3)
    first.op("DepthToSpace", value, blocksize=2, mode="DCR", output="output")
    source = picture(5, 6)
    np.testing.assert_array_equal(made(found, source), made(read(first.file()), source))


def test_kinds_of_numbers() -> None:
    rng = np.random.default_rng(3)
    weight = (rng.integers(-8, 9, (3, 3, 3, 3)) / 16).astype(np.float32)
    bias = np.array([0.5, -0.25, 1], np.float32)
    conv = node("Conv", ["input", "w", "b"], ["output"], pads=[1] * 4)
    expected = read(model([conv], {"w": weight, "b": bias})).nodes[0]
    assert isinstance(expected, Convolution)
    for kind in ("float32", "float16", "float64"):
        for is_raw in (True, False):
            arrays = {"w": weight.astype(kind), "b": bias.astype(kind)}
            parts = [tensor(key, each, is_raw=is_raw) for key, each in arrays.items()]
            found = read(model([conv], parts)).nodes[0]
            assert isinstance(found, Convolution)
            np.testing.assert_array_equal(found.weight, expected.weight)
            np.testing.assert_array_equal(found.bias, expected.bias)
    parts = [tensor(key, each, is_bfloat=True) for key, each in (("w", weight), ("b", bias))]
    found = read(model([conv], parts)).nodes[0]
    assert isinstance(found, Convolution)
    np.testing.assert_array_equal(found.weight, expected.weight)
    constant = node("Constant", [], ["w"], value=weight.astype(np.float16))
    cast = node("Cast", ["w"], ["wide"], to=1)
    conv = node("Conv", ["input", "wide", "b"], ["output"], pads=[1] * 4)
    found = read(model([constant, cast, conv], {"b": bias})).nodes[0]
    assert isinstance(found, Convolution)
    np.testing.assert_array_equal(found.weight, expected.weight)


def test_attributes_of_old_files_have_no_kind() -> None:
    rng = np.random.default_rng(3)
    weights = {"w": rng.normal(size=(3, 3, 3, 3)).astype(np.float32)}
    conv, pads = node("Conv", ["input", "w"], ["output"]), attribute("pads", [1] * 4)
    new, old = conv + field(5, pads), conv + field(5, pads.removesuffix(field(20, 7)))
    assert len(old) < len(new)
    np.testing.assert_array_equal(
        made(read(model([old], weights)), picture(5, 6)),
        made(read(model([new], weights)), picture(5, 6)),
    )


def test_a_file_is_a_set_and_can_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(compact().file())
    (found,) = model_set.find(str(path)).models(2, None)
    assert found.scale == 2
    from waifu2x.networks.model_import import import_models

    (done,) = import_models(path, tmp_path / "models", None)
    assert done.path == tmp_path / "models" / "imported" / "net" / "scale2.0x_model.onnx"


# Refused graphs: errors name the operator and the node.


def simple(*nodes: bytes, weights: Weights | Sequence[bytes] = (), **more: Any) -> bytes:
    return model(nodes, weights, **more)


ONES = np.ones((3, 3, 3, 3), np.float32)


def scattered(places: Any, **attributes: str) -> tuple[bytes, str]:
    """The picture's last two planes put elsewhere."""
    net = Net()
    two = net.op("Slice", "input", net.number([1]), net.number([3]), net.number([1]))
    net.op("ScatterND", "input", net.number(places), two, output="output", **attributes)
    why = "reduction 'add'" if attributes else "it replaces other numbers than neighbouring planes"
    return net.file(), f"/output (ScatterND): {why}: not supported"


REFUSED: dict[str, tuple[bytes, str]] = {
    "an operator": (
        simple(node("Einsum", ["input", "input"], ["output"])),
        "m.onnx: /output (Einsum): not supported",
    ),
    "groups": (
        simple(node("Conv", ["input", "w"], ["output"], group=2), weights={"w": ONES}),
        "/output (Conv): 2 groups",
    ),
    "groups of few planes": (
        simple(
            node("Conv", ["input", "w"], ["output"], group=1 << 15),
            weights={"w": np.zeros((1 << 15, 1, 1, 1), np.float32)},
        ),
        "asks for more than",
    ),
    "no groups": (
        simple(node("Conv", ["input", "w"], ["output"], group=0), weights={"w": ONES}),
        "/output (Conv): damaged: 0 groups",
    ),
    "a mean of planes": (
        simple(
            node("ReduceMean", ["input"], ["a"], axes=[1]), node("Mul", ["input", "a"], ["output"])
        ),
        "/output (Mul): a mean over planes that is no part of a norm",
    ),
    "the root of a map": (simple(node("Sqrt", ["input"], ["output"])), "/output (Sqrt): supp"),
    "a cube": (
        simple(node("Pow", ["input", "n"], ["output"]), weights={"n": np.full(1, 3.0, "f4")}),
        "/output (Pow): a power other than a square",
    ),
    "a norm over rows": (
        simple(
            node("LayerNormalization", ["input", "n"], ["output"]),
            weights={"n": np.ones(64, np.float32)},
        ),
        "/output (LayerNormalization): a norm over other axes",
    ),
    "dilations": (
        simple(node("Conv", ["input", "w"], ["output"], dilations=[2, 2]), weights={"w": ONES}),
        "/output (Conv): dilations",
    ),
    "pads by direction": (
        simple(node("Conv", ["input", "w"], ["output"], pads=[1, 0, 1, 0]), weights={"w": ONES}),
        "/output (Conv): different strides",
    ),
    "a graph in a node": (
        simple(node("If", ["input"], ["output"]) + field(5, field(1, "then") + field(6, b""))),
        "/output (If): its attribute then is a graph",
    ),
    "another domain": (
        simple(node("Conv", ["input"], ["output"]) + field(7, "com.microsoft")),
        "operators of com.microsoft are not supported",
    ),
    "a value of a later node": (
        simple(
            node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["output"])
        ),
        "/a (Relu): damaged: it reads b, which no node before it makes",
    ),
    "a value of itself": (
        simple(node("Add", ["output", "input"], ["output"])),
        "reads output, which no node",
    ),
    "a value twice": (
        simple(
            node("Relu", ["input"], ["a"]),
            node("Neg", ["input"], ["a"]),
            node("Relu", ["a"], ["output"]),
        ),
        "makes a once more",
    ),
    "a result that nothing makes": (simple(node("Relu", ["input"], ["a"])), "its result is no pic"),
    "two inputs": (
        simple(node("Relu", ["input"], ["output"]), extra=field(11, value_info("more", [1]))),
        "2 inputs and 1 outputs",
    ),
    "functions": (
        simple(node("Relu", ["input"], ["output"])) + field(25, b""),
        "functions of its own",
    ),
    "sparse tensors": (
        simple(node("Relu", ["input"], ["output"]), extra=field(15, b"")),
        "sparse tensors",
    ),
    "a picture of any planes": (
        simple(node("Relu", ["input"], ["output"]), dims=(1, "c", "h", "w")),
        "takes a picture of any number of planes",
    ),
    "numbers elsewhere": (
        simple(
            node("Conv", ["input", "w"], ["output"]),
            weights=[
                b"".join(field(1, 3) for _ in range(4))
                + field(2, 1)
                + field(8, "w")
                + field(13, field(1, "location") + field(2, "../../etc/passwd"))
                + field(14, 1)
            ],
        ),
        "m.onnx: w: its numbers are in another file: export with external_data=False",
    ),
    "a shape without numbers": (
        simple(
            node("Conv", ["input", "w"], ["output"]),
            weights=[b"".join(field(1, 1 << 30) for _ in range(4)) + field(2, 1) + field(8, "w")],
        ),
        "w: damaged: fewer numbers than the shape",
    ),
    "a shape of other numbers": (
        simple(
            node("Conv", ["input", "w"], ["output"]),
            weights=[field(1, 5) + field(2, 1) + field(8, "w") + field(9, bytes(16))],
        ),
        "w: damaged: 16 bytes for the shape (5,)",
    ),
    "nine dimensions": (
        simple(
            node("Relu", ["input"], ["output"]),
            weights=[b"".join(field(1, 1) for _ in range(9)) + field(2, 1) + field(8, "w")],
        ),
        "a tensor of more than 8 dimensions",
    ),
    "a number of eleven bytes": (b"\x08" + b"\x80" * 10 + b"\x01", "a number that is cut off"),
    "a number of 70 bits": (b"\x08" + b"\xff" * 9 + b"\x7f", "has more than 64 bits"),
    "a field longer than the file": (b"\x3a" + varint(1 << 40) + b"abc", "longer than what it is"),
    "a group": (b"\x3b\x3c", "a field of kind 3"),
    "nothing": (b"", "not an ONNX file: 0 graphs"),
    "text": (b"Hello, this is no model at all.", "damaged"),
    "two graphs": (simple() + simple(), "2 graphs in it"),
    "a padding of planes": (
        simple(
            node("Pad", ["input", "p"], ["output"]),
            weights={"p": np.array([0, 1, 0, 0, 0, 0, 0, 0])},
        ),
        "/output (Pad): it pads planes",
    ),
    "a reflection inside": (
        simple(
            node("Conv", ["input", "w"], ["a"], pads=[1] * 4),
            node("Pad", ["a", "p"], ["b"], mode="reflect"),
            node("Conv", ["b", "w"], ["output"]),
            weights={"w": ONES, "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
        ),
        "/b (Pad): it pads a map by 'reflect'",
    ),
    "a softplus alone": (
        simple(
            node("Softplus", ["input"], ["a"]),
            node("Conv", ["a", "w"], ["output"], pads=[1] * 4),
            weights={"w": ONES},
        ),
        "a Softplus that is no part of Mish",
    ),
    "a division by zero": (
        simple(node("Div", ["input", "z"], ["output"]), weights={"z": np.zeros(1, np.float32)}),
        "/output (Div): damaged: a division by zero",
    ),
    "a huge constant": (
        simple(
            node("ConstantOfShape", ["s"], ["a"]),
            node("Add", ["input", "a"], ["output"]),
            weights={"s": np.array([1 << 20, 1 << 20])},
        ),
        "asks for more than",
    ),
    "a huge constant, copied": (
        simple(
            node("ConstantOfShape", ["s"], ["a"]),
            node("Transpose", ["a"], ["b"]),
            *(node("Reshape", ["b", "flat"], [f"c{number}"]) for number in range(4)),
            node("Concat", [f"c{number}" for number in range(4)], ["d"], axis=0),
            node("Slice", ["d", "zero", "one"], ["e"]),
            node("Add", ["input", "e"], ["output"]),
            weights={
                "s": np.array([2100, 2100]),
                "flat": np.array([-1]),
                "zero": np.array([0]),
                "one": np.array([1]),
            },
        ),
        "m.onnx: it asks for more than",
    ),
    "a huge range": (
        simple(
            node("Range", ["a", "b", "c"], ["d"]),
            node("Add", ["input", "d"], ["output"]),
            weights={"a": np.array(0), "b": np.array(1 << 50), "c": np.array(1)},
        ),
        "asks for more than",
    ),
    "a value that is not finite": (
        simple(node("Conv", ["input", "w"], ["output"]), weights={"w": np.full_like(ONES, np.nan)}),
        "input 1 holds a value that is not finite",
    ),
    "slopes by pixel": (
        simple(
            node("PRelu", ["input", "s"], ["output"]),
            weights={"s": np.ones((1, 3, 64, 64), np.float32)},
        ),
        "/output (PRelu): slopes by pixel",
    ),
    "another interpolation": (
        simple(
            node(
                *("Resize", ["input", "", "s"], ["output"]),
                mode="linear",
                coordinate_transformation_mode="align_corners",
            ),
            weights={"s": np.array([1, 1, 2, 2], np.float32)},
        ),
        "/output (Resize): mode 'linear' by 2, align_corners",
    ),
    "an interpolation by a part": (
        simple(
            node("Resize", ["input", "", "s"], ["output"], mode="linear"),
            weights={"s": np.array([1, 1, 1.5, 1.5], np.float32)},
        ),
        "/output (Resize): mode 'linear' by 3/2",
    ),
    "a branch that small pictures have nothing for": (
        reduced(strided=True).file(),
        "m.onnx: it enlarges a reduced map that small pictures have nothing left for: not"
        " supported",
    ),
    "maxima with pads": (
        simple(
            node(
                *("MaxPool", ["input"], ["output"]),
                kernel_shape=[3, 3],
                strides=[1, 1],
                pads=[1, 1, 1, 1],
            )
        ),
        "/output (MaxPool): other than whole kernels",
    ),
    "a map that is repeated": (
        simple(
            node("ReduceMean", ["input"], ["a"], axes=[2, 3]),
            node("Shape", ["input"], ["s"]),
            node("Expand", ["a", "s"], ["output"]),
        ),
        "/output (Expand): it repeats a map",
    ),
    "a map that is tiled": (
        simple(node("Tile", ["input", "n"], ["output"]), weights={"n": np.array([1, 1, 2, 2])}),
        "/output (Tile): it repeats other than single planes",
    ),
    "a map that is tiled too often": (
        simple(
            node("Unsqueeze", ["input", "two"], ["a"]),
            node("Tile", ["a", "n"], ["b"]),
            node("Reshape", ["b", "s"], ["output"]),
            weights={
                "two": np.array([2]),
                "n": np.array([1, 1, 1 << 40, 1, 1]),
                "s": np.array([1, 3 << 40, 64, 64]),
            },
        ),
        "asks for more than",
    ),
    "more cut off than there is": (
        simple(
            node("Pad", ["input", "p"], ["output"]),
            weights={"p": np.array([0, 0, -40, 0, 0, 0, -40, 0])},
        ),
        "/output (Pad): nothing is left of a map",
    ),
    "planes in another order": scattered([[[0, 1], [0, 0]]]),
    "planes with one between them": scattered([[[0, 0], [0, 2]]]),
    "planes that are not there": scattered([[[0, 2], [0, 3]]]),
    "planes counted from the end": scattered([[[0, -2], [0, -1]]]),
    "planes of another picture": scattered([[[1, 0], [1, 1]]]),
    "single pixels": scattered([[[0, 0, 0, 0], [0, 1, 0, 0]]]),
    "planes at another axis": scattered([[0, 0], [0, 1]]),
    "no planes": scattered(np.zeros((1, 0, 2))),
    "planes that are added": scattered([[[0, 0], [0, 1]]], reduction="add"),
    "as many planes as there are not": scattered([[[0, 0], [0, 1], [0, 2]]]),
    "an attribute of another kind": (
        simple(node("DepthToSpace", ["input"], ["output"], blocksize="many")),
        "its attribute blocksize is of another kind",
    ),
}


def _trimmed() -> tuple[Net, str]:
    """A picture that is made up to a multiple, a layer, and the map cut to the picture's size."""
    net = Net(1)
    size = net.op("Slice", net.op("Shape", "input"), net.number([2]), net.number([4]))
    eight = net.number([8])
    more = net.op("Mod", net.op("Sub", eight, net.op("Mod", size, eight)), eight)
    pads = net.op("Concat", net.number([0, 0, 0, 0, 0, 0]), more, axis=0)
    value = net.conv(net.op("Pad", "input", pads, mode="reflect"), 3, 3, pads=[1] * 4)
    for place in (0, 1):
        end = net.op("Slice", size, net.number([place]), net.number([place + 1]))
        value = net.op("Slice", value, net.number([0]), end, net.number([place + 2]))
    return net, value


def test_a_map_that_is_cut_is_not_read_beyond_its_edge() -> None:
    """The pixels cut off are still there, and a mean would count them."""

    def refused(write: Callable[[Net, str], object]) -> str:
        net, value = _trimmed()
        write(net, value)
        with pytest.raises(ModelError) as caught:
            read(net.file())
        return str(caught.value)

    def mean(net: Net, value: str) -> str:
        return net.op("Mul", value, net.op("GlobalAveragePool", value), output="output")

    def transposed(net: Net, value: str, taps: int = 4) -> str:
        weight = net.number(np.ones((3, 3, taps, taps)), "float32")
        crop = [(taps - 2) // 2] * 4
        return net.op("ConvTranspose", value, weight, strides=[2, 2], pads=crop, output="output")

    def normed(net: Net, value: str) -> str:
        factors = [net.number(np.ones(3), "float32") for _ in range(2)]
        return net.op("InstanceNormalization", value, *factors, output="output")

    def cubic(net: Net, value: str) -> str:
        scales = net.number([1, 1, 2, 2], "float32")
        return net.op("Resize", value, "", scales, mode="cubic", output="output")

    for write in (mean, transposed, normed, cubic):
        assert "reads a map that is cut to the picture's size: not supported" in refused(write)
    net, value = _trimmed()
    transposed(net, value, taps=2)
    found, source = read(net.file()), picture(16, 24)
    assert made(found, source).shape == (32, 48, 3)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence(name: str) -> None:
    content, message = REFUSED[name]
    with pytest.raises(ModelError) as caught:
        read(content)
    text = str(caught.value)
    assert message in text
    assert text.startswith("m.onnx: ")
    assert text.isprintable()


def test_no_more_nodes_and_names_than_models_have() -> None:
    many = [node("Relu", ["input"], ["output"])] * 20_001
    with pytest.raises(ModelError, match="more than 20000 nodes"):
        read(model(many))
    long = node("Relu", ["input"], ["output"]) + field(3, "n" * 5000)
    with pytest.raises(ModelError, match="a name of 5000 bytes"):
        read(model([long]))
    weird = node("R\x1b[2J\n" + "u" * 99, ["input"], ["output"])
    with pytest.raises(ModelError) as caught:
        read(model([weird]))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_numbers_that_are_widened_are_counted() -> None:
    flags = tensor("flags", np.zeros(9 << 20, bool))
    cast = node("Cast", ["flags"], ["numbers"], to=1)
    add = node("Add", ["input", "numbers"], ["output"])
    with pytest.raises(ModelError, match="asks for more than 64 MiB"):
        read(model([cast, add], [flags]))


def test_a_function_that_doubles_with_each_node_is_bounded() -> None:
    net = Net()
    value = net.op("Tanh", net.conv("input", 3, 3))
    for _ in range(60):
        value = net.op("Mul", value, value)
    net.conv(value, 3, 3, output="output")
    assert len(read(net.file()).nodes) < 60
