"""ncnn's .param and .bin files: what is read from them, and how they can be wrong."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.obvious import psnr, values
from waifu2x.errors import ModelError
from waifu2x.networks import expressions, model_set
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Add, Convolution, Dense, Enlarge, PixelShuffle
from waifu2x.networks.readers import read_model
from waifu2x.networks.readers.ncnn import reader as ncnn

HALF = 0x01306B47


class Files:
    """A .param and a .bin file in the making, with random weights."""

    def __init__(self, planes: int = 3) -> None:
        self.rng = np.random.default_rng(3)
        self.lines: list[str] = []
        self.weights: list[bytes] = []
        self.add("Input data 0 1 data", **({"2": planes} if planes else {}))

    def add(self, line: str, *numbers: NDArray[np.float32], **pairs: object) -> Files:
        """A line; its weights go to the .bin, the first tagged and the others not."""
        texts = [f"{key.replace('_', '-')}={value}" for key, value in pairs.items()]
        self.lines.append(" ".join([line, *texts]))
        for index, array in enumerate(numbers):
            tag = b"" if index or line.startswith("PReLU") else struct.pack("<I", 0)
            self.weights.append(tag + array.astype("<f4").tobytes())
        return self

    def constant(self, numbers: NDArray[np.float32]) -> Files:
        """The content of the last line, without a tag."""
        self.weights.append(numbers.astype("<f4").tobytes())
        return self

    def random(self, *shape: int) -> NDArray[np.float32]:
        size = np.prod(shape[1:]) if len(shape) > 1 else 1
        values: NDArray[np.float64] = self.rng.normal(size=shape) / np.sqrt(size)
        return values.astype(np.float32)

    def convolution(
        self, source: str, result: str, planes: tuple[int, int], taps: int = 3, **pairs: object
    ) -> Files:
        return self._weighted("Convolution", source, result, planes, taps, **pairs)

    def deconvolution(
        self, source: str, result: str, planes: tuple[int, int], taps: int, **pairs: object
    ) -> Files:
        return self._weighted("Deconvolution", source, result, planes, taps, **pairs)

    def _weighted(
        self,
        kind: str,
        source: str,
        result: str,
        planes: tuple[int, int],
        taps: int,
        **pairs: object,
    ) -> Files:
        weight = self.random(planes[1], planes[0], taps, taps)
        keys: dict[str, object] = {"0": planes[1], "1": taps, "5": 1, "6": weight.size}
        return self.add(
            f"{kind} {result} 1 1 {source} {result}",
            weight,
            *([self.random(planes[1])] if pairs.get("5", 1) else []),
            **(keys | pairs),
        )

    @property
    def text(self) -> bytes:
        blobs = sum(int(line.split()[3]) for line in self.lines)
        head = ["7767517", f"{len(self.lines)} {blobs}"]
        return "\n".join([*head, *self.lines, ""]).encode()

    @property
    def binary(self) -> bytes:
        return b"".join(self.weights)

    def parse(self) -> Model:
        return ncnn.parse(self.text, self.binary, "m.param")


LEAKY: dict[str, Any] = {"9": 2, "_23310": "1,0.1"}


def same(planes: int = 4) -> Files:
    """A picture as maps of `planes` planes of the picture's size."""
    return Files().convolution("data", "a", (3, planes), **LEAKY | {"4": 1})


def squeeze() -> Files:
    files = same().add("Split split 1 3 a a0 a1 a2")
    files.add("Pooling mean 1 1 a1 mean", **{"0": 1, "4": 1})
    first, second = files.random(2, 4), files.random(4, 2)
    files.add("InnerProduct one 1 1 mean one", first, **{"0": 2, "2": 8, "9": 1})
    files.add(
        "InnerProduct two 1 1 one two", second, files.random(4), **{"0": 4, "1": 1, "2": 8, "9": 4}
    )
    return files


def last(files: Files, source: str, planes: int) -> Files:
    return files.convolution(source, "out", (planes, 3))


GRAPHS = {
    "strided": same()
    .convolution("a", "b", (4, 5), 2, **{"3": 2})
    .deconvolution("b", "c", (5, 3), 4, **{"3": 2, "4": 1, "9": 1}),
    "no-bias": last(same().convolution("a", "b", (4, 5), 1, **{"5": 0}), "b", 5),
    "scale": last(
        squeeze()
        .add("Scale by 2 1 a0 two b", **{"0": -233})
        .add("Eltwise sum 2 1 b a2 c", **{"0": 1}),
        "c",
        4,
    ),
    "multiply": last(
        squeeze().add("BinaryOp by 2 1 two a0 b", **{"0": 2}).add("BinaryOp sum 2 1 b a2 c"), "c", 4
    ),
    "coefficients": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .convolution("a0", "b", (4, 4), **{"4": 1})
        .add("Eltwise sum 2 1 b a1 c", **{"0": 1, "_23301": "2,0.2,1.0"}),
        "c",
        4,
    ),
    "coefficients-turned": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .convolution("a0", "b", (4, 4), **{"4": 1})
        .add("Eltwise sum 2 1 b a1 c", **{"0": 1, "_23301": "2,1.0,-0.5"}),
        "c",
        4,
    ),
    "three": last(
        same().add("Split s 1 3 a a0 a1 a2").add("Eltwise sum 3 1 a0 a1 a2 c", **{"0": 1}), "c", 4
    ),
    "concatenated": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .convolution("a0", "b", (4, 2), **{"4": 1})
        .add("Concat c 2 1 b a1 c"),
        "c",
        6,
    ),
    "shuffled": same(12).add("PixelShuffle s 1 1 a out", **{"0": 2}),
    "unshuffled": Files()
    .add("Reorg r 1 1 data r", **{"0": 2})
    .convolution("r", "b", (12, 48), **{"4": 1})
    .add("PixelShuffle s 1 1 b out", **{"0": 4}),
    "nearest": last(same().add("Interp up 1 1 a b", **{"0": 1, "1": 2.0, "2": 2.0}), "b", 4).add(
        "Crop c 1 1 out cut", _23309="2,1,1", _23310="2,-1,-1", _23311="2,1,2"
    ),
    "slopes": last(
        same()
        .convolution("a", "b", (4, 2))
        .add("PReLU p 1 1 b c", np.array([1.5, -0.5], np.float32), **{"0": 2}),
        "c",
        2,
    ),
    "one-slope": last(
        same()
        .convolution("a", "b", (4, 2))
        .add("PReLU p 1 1 b c", np.array([0.25], np.float32), **{"0": 1}),
        "c",
        2,
    ),
    "rectified": last(
        same().convolution("a", "b", (4, 2)).add("ReLU p 1 1 b c", **{"0": "1.000000e-01"}), "c", 2
    ),
    "sigmoid": last(same().convolution("a", "b", (4, 2)).add("Sigmoid p 1 1 b c"), "c", 2),
    "swish": last(same().convolution("a", "b", (4, 2)).add("Swish p 1 1 b c"), "c", 2),
    "cropped": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .convolution("a0", "b", (4, 4))
        .add("Split t 1 2 b b0 b1")
        .add("Crop c 2 1 a1 b0 cut", **{"0": 1, "1": 1})
        .add("BinaryOp d 2 1 cut b1 e"),
        "e",
        4,
    ),
    "cropped-from-to": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .convolution("a0", "b", (4, 4))
        .add("Crop c 1 1 a1 cut", _23309="2,1,1", _23310="2,-1,-1", _23311="2,1,2")
        .add("BinaryOp d 2 1 cut b e"),
        "e",
        4,
    ),
    "cropped-sides": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .convolution("a0", "b", (4, 4))
        .add(
            "Crop c 1 1 a1 cut",
            **{"0": 1, "1": 1, "3": -233, "4": -233, "5": -233, "6": 1, "7": 1},
        )
        .add("BinaryOp d 2 1 cut b e"),
        "e",
        4,
    ),
    "gated": last(
        Files()
        .convolution("data", "a", (3, 4), **{"4": 1})
        .add("Split t 1 3 a a0 a1 a2")
        .convolution("a2", "b", (4, 4), **{"4": 1})
        .add("Split s 1 2 b b0 b1")
        .add("Sigmoid p 1 1 b0 c")
        .add("BinaryOp q 1 1 c d", **{"0": 1, "1": 1, "2": 0.5})
        .add("BinaryOp r 2 1 b1 a0 e")
        .add("BinaryOp u 2 1 e d f", **{"0": 2})
        .add("BinaryOp v 2 1 f a1 g"),
        "g",
        4,
    ),
    "normalised": last(
        Files()
        .add("MemoryData m 0 1 m", **{"0": 1, "1": 1, "2": 3})
        .constant(np.array([0.4, 0.5, 0.3], np.float32))
        .add("BinaryOp s 2 1 data m a", **{"0": 1})
        .add("BinaryOp t 1 1 a b", **{"0": 2, "1": 1, "2": 3.5})
        .add("BinaryOp u 1 1 b c", **{"0": 3, "1": 1, "2": 7})
        .convolution("c", "d", (3, 4), **{"4": 1}),
        "d",
        4,
    ),
    "bicubic-half": same(12)
    .add("PixelShuffle s 1 1 a b", **{"0": 2})
    .add("Interp up 1 1 b c", **{"0": 3, "1": 0.5, "2": 0.5})
    .add("PixelShuffle t 1 1 c out", **{"0": 1}),
    "bicubic-three-quarters": same(48)
    .add("PixelShuffle s 1 1 a b", **{"0": 4})
    .add("Interp up 1 1 b out", **{"0": 3, "1": 0.75, "2": 0.75}),
    "dense-convolution": last(
        same()
        .add("Split s 1 2 a a0 a1")
        .add("Pooling mean 1 1 a1 mean", **{"0": 1, "4": 1})
        .convolution("mean", "f", (4, 4), 1, **{"9": 4})
        .add("Scale by 2 1 a0 f b", **{"0": -233}),
        "b",
        4,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_as_ncnn_computes_them(tmp_path: Path, name: str) -> None:
    engine = pytest.importorskip("ncnn")
    (tmp_path / "m.param").write_bytes(GRAPHS[name].text)
    (tmp_path / "m.bin").write_bytes(GRAPHS[name].binary)
    model = read_model(tmp_path / "m.param")
    net = engine.Net()
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    net.load_param(str(tmp_path / "m.param"))
    net.load_model(str(tmp_path / "m.bin"))
    picture = np.random.default_rng(0).random((8, 12, 3), np.float32)
    pads = [(model.padding, model.padding)] * 2
    padded = np.pad(picture, [*pads, (0, 0)], mode="edge").transpose(2, 0, 1).copy()
    run = net.create_extractor()
    run.input("data", engine.Mat(padded))
    blob = GRAPHS[name].lines[-1].split()[-1 - GRAPHS[name].lines[-1].count("=")]
    _, result = run.extract(blob)
    computed = np.array(result).transpose(1, 2, 0)
    assert psnr(computed, values(model, picture.astype(np.float64))[-1]) > 110
    assert computed.shape == (8 * model.scale, 12 * model.scale, 3)


def test_real_cugan_reflects_the_picture_and_adds_it_at_four_times() -> None:
    files = Files()
    files.lines = ["Input in 0 1 in0 2=3"]
    files.convolution("in0", "a", (3, 48)).add("PixelShuffle s 1 1 a out0", **{"0": 4})
    files.weights = [np.zeros(len(part), np.uint8).tobytes() for part in files.weights]
    model = files.parse()
    assert (model.border, model.padding, model.scale) == ("reflect", 1, 4)
    picture = np.random.default_rng(1).random((5, 6, 3))
    np.testing.assert_array_equal(values(model, picture)[-1], picture.repeat(4, 0).repeat(4, 1))


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_without_ncnn(name: str) -> None:
    """The planes of the picture may be left to the first layer to say."""
    model = GRAPHS[name].parse()
    assert (model.in_planes, model.out_planes) == (3, 3)
    text = GRAPHS[name].text.replace(b" 2=3\n", b" 0=64 1=64\n", 1)
    if name == "unshuffled":  # which is not enough for what comes before it
        with pytest.raises(ModelError, match="the Input does not say its planes: key 2 is missing"):
            ncnn.parse(text, GRAPHS[name].binary, "m")
    else:
        assert ncnn.parse(text, GRAPHS[name].binary, "m").in_planes == 3


def test_the_nodes() -> None:
    model = GRAPHS["coefficients"].parse()
    first, second, added, end = model.nodes
    assert isinstance(first, Convolution)
    assert (first.padding, first.stride, first.source) == (1, 1, 0)
    assert set(first.activation.slopes.tolist()) == {float(np.float32(0.1))}
    assert isinstance(second, Convolution)
    assert second.activation.is_linear
    assert added == Add(2, 1, 0.2)
    assert isinstance(end, Convolution)
    assert isinstance(GRAPHS["shuffled"].parse().nodes[-1], PixelShuffle)
    assert Enlarge(1, 2) in GRAPHS["nearest"].parse().nodes
    dense = [node for node in GRAPHS["scale"].parse().nodes if isinstance(node, Dense)]
    assert [node.activation.function for node in dense] == [expressions.LEAKY, expressions.SIGMOID]
    assert not dense[0].bias.any()


def test_half_precision() -> None:
    """Padded to four bytes; biases stay single."""
    weight = np.arange(9, dtype=np.float16).reshape(1, 1, 3, 3)
    bias = np.array([7], "<f4")
    files = Files(1).add("Convolution c 1 1 data b", **{"0": 1, "1": 3, "5": 1, "6": 9})
    files.weights.append(struct.pack("<I", HALF) + weight.tobytes() + bytes(2) + bias.tobytes())
    [node] = files.parse().nodes
    assert isinstance(node, Convolution)
    np.testing.assert_array_equal(node.weight, weight.astype(np.float32))
    assert node.weight.dtype == np.float32
    assert node.bias.tolist() == [7]


# Faults of the text.


PLAIN = Files().convolution("data", "a", (3, 2)).convolution("a", "b", (2, 3))
LINES = PLAIN.text.decode().split("\n")


def replaced(line: int, old: str, new: str) -> bytes:
    lines = list(LINES)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1: expected 7767517, as .param files of ncnn begin"),
        (b"\x85\x9d\x76\x00", "not a .param file of ncnn in text form"),
        (b"7767517", "line 2: expected the numbers of layers and of blobs"),
        (replaced(1, "7767517", "7767516"), "line 1: expected 7767517"),
        (replaced(2, "3 3", "3"), "line 2: expected the numbers of layers"),
        (replaced(2, "3 3", "-3 3"), "line 2: expected the numbers of layers"),
        (replaced(2, "3 3", "4 3"), "line 2 says 4 layers, but 3 follow"),
        (replaced(2, "3 3", "3 4"), "line 2 says 4 blobs, but the layers make 3"),
        (replaced(2, "3 3", "0 3"), "line 2: 0 layers, but expected 1 to 10000"),
        (replaced(2, "3 3", "999999999 3"), "line 2: 999999999 layers, but expected 1 to 10000"),
        (replaced(4, "1 1 data", "x 1 data"), "line 4: expected kind, name and the numbers of b"),
        (replaced(4, "1 1 data", "1 9 data"), "line 4 (Convolution a): expected the names of 10"),
        (replaced(4, "1 1 data", "9999 1 data"), "line 4 (Convolution a): expected the names"),
        (replaced(4, "5=1", "5=one"), "line 4 (Convolution a): key 5 is 'one', but expected a n"),
        (replaced(4, "5=1", "5"), "line 4 (Convolution a): '5' is not a key=value pair"),
        (replaced(4, "5=1", "5=1 5=1"), "line 4 (Convolution a): key 5 appears twice"),
        (replaced(4, "5=1", "5=1e999"), "line 4 (Convolution a): key 5 is 1e999, which is not f"),
        (replaced(4, "5=1", "5=nan"), "line 4 (Convolution a): key 5 is 'nan'"),
        (replaced(4, "5=1", "5=" + "9" * 99), "line 4 (Convolution a): key 5 is '99"),
        (replaced(4, "5=1", "-23310=2,1"), "line 4 (Convolution a): key -23310 says 2 numbers"),
        (replaced(4, "5=1", "-23305=1,1"), "line 4 (Convolution a): key 5 (bias) is a list"),
        (replaced(4, "5=1", "5=2"), "line 4 (Convolution a): key 5 (bias) is 2"),
        (replaced(4, "5=1", "5=1 10=1"), "line 4 (Convolution a): key 10 (activation) is a num"),
        (replaced(4, "0=2", "99=2"), "line 4 (Convolution a): key 0 (planes) is missing"),
        (replaced(4, "0=2", "0=0"), "line 4 (Convolution a): key 0 (planes) is 0, but expected"),
        (replaced(4, "0=2", "0=2.5"), "line 4 (Convolution a): key 0 (planes) is 2.5, but exp"),
        (replaced(4, " 1=3", " 1=3 11=5"), "line 4 (Convolution a): key 11 (taps of rows) is 5"),
        (replaced(4, " 1=3", " 1=3 2=2"), "line 4 (Convolution a): key 2 (dilation)"),
        (replaced(4, " 1=3", " 1=3 4=-233"), "line 4 (Convolution a): key 4 (padding) is -233"),
        (replaced(4, " 1=3", " 1=3 14=1"), "line 4 (Convolution a): key 14 (padding of another"),
        (replaced(4, " 1=3", " 1=3 18=1.0"), "line 4 (Convolution a): key 18 (value of the padd"),
        (replaced(4, " 1=3", " 1=3 8=1"), "line 4 (Convolution a): key 8 (int8) is 1: not supp"),
        (replaced(4, " 1=3", " 1=3 7=2"), "line 4 (Convolution a): key 7 is 2: not supported"),
        (replaced(4, " 1=3", " 1=3 9=3"), "line 4 (Convolution a): key 9 (activation) is 3"),
        (replaced(4, "6=54", "6=55"), "line 4 (Convolution a): key 6 (number of weights) is 55"),
        (replaced(4, "6=54", "6=9"), "line 4 (Convolution a): key 6 (number of weights) is 9,"),
        (
            replaced(4, "1 1 data", "1 1 gone"),
            "line 4 (Convolution a): it reads blob gone, which no",
        ),
        (
            replaced(4, "1 1 data", "1 1 b"),
            "line 4 (Convolution a): it reads blob b, which no line",
        ),
        (replaced(4, "data a", "data data"), "line 4 (Convolution a): blob data is made twice"),
        (replaced(5, "1 1 a", "1 1 data"), "line 5 (Convolution b): key 6 (number of weights)"),
        (replaced(5, "1 1 a b", "2 1 a a b"), "line 5 (Convolution b): 2 blobs in and 1 out, but"),
        (replaced(5, "Convolution b", "Softmax b"), "line 5 (Softmax b): layers of kind Softmax"),
        (replaced(3, "Input", "MemoryData"), "line 3 (MemoryData data): expected one Input, and"),
        (replaced(3, "2=3", "2=4"), "line 4 (Convolution a): key 6 (number of weights) is 54, bu"),
        (replaced(4, "Convolution a", f"Convolution {'a' * 999}"), "line 4: a name or number of m"),
        (replaced(5, "Convolution b 1 1 a b", "Input b 0 1 b"), "line 5 (Input b): expected one"),
        (replaced(3, "Input data 0 1", "Split data 0 1"), "line 3 (Split data): expected one In"),
    ],
)
def test_wrong_text(text: bytes, message: str) -> None:
    assert ncnn.parse(PLAIN.text, PLAIN.binary, "m.param").out_planes == 3
    with pytest.raises(ModelError) as caught:
        ncnn.parse(text, PLAIN.binary, "m.param")
    assert str(caught.value).startswith(f"m.param: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (same().add("ReLU r 1 1 a b"), "only behind a layer with weights is it supported"),
        (Files().add("ReLU r 1 1 data b"), "only behind a layer with weights is it supported"),
        (
            same()
            .convolution("a", "b", (4, 3))
            .add("Split s 1 2 b b0 b1")
            .add("ReLU r 1 1 b0 c")
            .add("BinaryOp d 2 1 c b1 e"),
            "another layer reads the same blob before it",
        ),
        (
            same()
            .convolution("a", "b", (4, 3))
            .add("PReLU r 1 1 b c", np.zeros(2, np.float32), **{"0": 2}),
            "key 0 (number of slopes) is 2, but expected 3",
        ),
        (same().add("Pooling p 1 1 a b", **{"0": 0, "4": 1}), "key 0 (kind of pooling) is 0"),
        (same().add("Pooling p 1 1 a b", **{"0": 1, "1": 2}), "key 4 (global) is 0"),
        (
            same().add("InnerProduct i 1 1 a b", **{"0": 2, "2": 8}),
            "reads a map: only behind a global mean",
        ),
        (
            squeeze().add("Scale s 2 1 two a0 b", **{"0": -233}),
            "reads a vector, but expected a map",
        ),
        (
            squeeze().add("Scale s 2 1 a0 one b", **{"0": -233}),
            "multiplies the 4 planes of line 4 (Convolution a) by the 2 factors",
        ),
        (squeeze().add("Scale s 1 1 a0 b", **{"0": 4}), "1 blobs in and 1 out, but expected 2"),
        (squeeze().add("BinaryOp o 2 1 a0 two b"), "reads a vector, but expected maps"),
        (squeeze().add("BinaryOp o 2 1 a0 a2 b", **{"0": 1}), "key 0 (operation) is 1"),
        (squeeze().add("BinaryOp o 1 1 a0 b", **{"0": 4, "1": 1, "2": 0.2}), "key 0 (operation)"),
        (squeeze().add("BinaryOp o 1 1 a0 b", **{"0": 3, "1": 1, "2": 0}), "divides by zero"),
        (squeeze().add("Sigmoid o 1 1 a0 b").add("ReLU p 1 1 b c"), "otherwise than a gate would"),
        (
            squeeze().add("Sigmoid o 1 1 a0 b").add("BinaryOp p 2 1 a2 b c", **{"0": 2}),
            "multiplies other maps than those of a gate",
        ),
        (squeeze().add("Eltwise e 2 1 a0 a2 b", **{"0": 0}), "key 0 (operation) is 0"),
        (
            squeeze().add("Eltwise e 2 1 a0 a2 b", **{"0": 1, "_23301": "2,0.5,0.5"}),
            "key 1 (coefficients): expected two, one of them 1",
        ),
        (
            squeeze()
            .convolution("a0", "b", (4, 3), **{"4": 1})
            .add("Eltwise e 2 1 b a2 c", **{"0": 1}),
            "adds the 4 planes of line 4 (Convolution a) to the 3 of",
        ),
        (squeeze().add("Concat e 2 1 a0 a2 b", **{"0": 1}), "key 0 (axis) is 1: not supported"),
        (squeeze().add("PixelShuffle p 1 1 a0 b", **{"0": 3}), "4 planes are not a multiple of 9"),
        (squeeze().add("PixelShuffle p 1 1 two b", **{"0": 2}), "reads a vector, but expected"),
        (
            squeeze().add("PixelShuffle p 1 1 a0 b", **{"0": 2, "1": 1}),
            "key 1 (order of planes) is 1: not supported",
        ),
        (same().add("Interp i 1 1 a b", **{"0": 2}), "key 0 (kind of interpolation) is 2"),
        (
            same().add("Interp i 1 1 a b", **{"0": 1, "1": 1.5, "2": 1.5}),
            "keys 1 and 2 (factors) are 1.5 and 1.5",
        ),
        (
            same().add("Interp i 1 1 a b", **{"0": 1, "1": 2.0, "2": 3.0}),
            "keys 1 and 2 (factors) are 2.0 and 3.0",
        ),
        (
            same().add("Crop c 1 1 a b", _23309="2,1,1", _23310="2,-1,-2", _23311="2,1,2"),
            "only as many pixels on each side can be cropped",
        ),
        (
            same().add("Crop c 1 1 a b", _23309="1,1", _23310="1,-1", _23311="1,0"),
            "key 11 (axes) is [0]: not supported",
        ),
        (same().add("Crop c 1 1 a b", **{"0": 1, "1": 1, "3": 8}), "key 3 (width) is 8"),
        (
            same()
            .add("Split s 1 3 a a0 a1 a2")
            .convolution("a0", "b", (4, 4), 5)
            .add("Crop c 2 1 a1 b d", **{"0": 1, "1": 1})
            .convolution("d", "e", (4, 3)),
            "nothing reads what it makes",
        ),
        (
            same()
            .add("Split s 1 3 a a0 a1 a2")
            .convolution("a0", "b", (4, 4))
            .add("Split t 1 2 b b0 b1")
            .add("Crop c 2 1 a1 a2 d")
            .add("Crop e 1 1 d f", _23309="2,1,1", _23310="2,-1,-1", _23311="2,1,2")
            .add("BinaryOp g 2 1 f b0 h"),
            "makes 4 planes of the picture's 3: a picture must stay one",
        ),
        (
            same().deconvolution("a", "b", (4, 3), 4, **{"3": 2, "4": 1, "18": 1}),
            "key 18 (additional rows or columns) is 1: not supported",
        ),
        (
            squeeze().convolution("one", "b", (2, 3), 3),
            "reads a vector, which takes 1x1 taps",
        ),
        (Files(0), "no layer says how many planes the picture has"),
    ],
)
def test_what_a_model_cannot_express(files: Files, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        files.parse()
    assert str(caught.value).startswith("m.param: ")
    assert message in str(caught.value)


def test_a_crop_to_another_size() -> None:
    """ncnn crops to the size of the second blob, wherever that ends."""
    files = same().add("Split s 1 2 a a0 a1").convolution("a0", "b", (4, 4), 5)
    files.add("Split t 1 2 b b0 b1").add("Crop c 2 1 a1 b0 d", **{"0": 1, "1": 1})
    last(files.convolution("d", "e", (4, 4)).add("BinaryOp f 2 1 e b1 g"), "g", 4)
    with pytest.raises(
        ModelError, match=r"\(Crop c\): it crops \d+ pixels to \d+: only as much on"
    ):
        files.parse()


def test_a_picture_that_is_not_a_multiple() -> None:
    with pytest.raises(ModelError, match=r"m\.param: its result is 1/2 times the picture"):
        same().convolution("a", "b", (4, 3), 2, **{"3": 2}).parse()


# Faults of the weights.


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 219, 220, 227, 228, 231, 232, 447, 459])
def test_weights_cut_off(length: int) -> None:
    assert len(PLAIN.binary) == 460
    with pytest.raises(ModelError) as caught:
        ncnn.parse(PLAIN.text, PLAIN.binary[:length], "m.param")
    layer = "line 4 (Convolution a)" if length < 228 else "line 5 (Convolution b)"
    assert str(caught.value).startswith(f"m.param: {layer}: it needs ")
    assert str(caught.value).endswith(" left in it")


def test_weights_left_over() -> None:
    with pytest.raises(ModelError, match=r"^m\.param: its \.bin file has 2 bytes more than the"):
        ncnn.parse(PLAIN.text, PLAIN.binary + b"ab", "m.param")


@pytest.mark.parametrize(
    ("tag", "message"),
    [(0x000D4B38, "are int8"), (0x0002C056, "are scaled float32"), (0xABCD, "are tag 0x0000abcd")],
)
def test_weights_of_another_precision(tag: int, message: str) -> None:
    content = struct.pack("<I", tag) + PLAIN.binary[4:]
    with pytest.raises(ModelError, match=f"{message}: only fp32 and fp16 can be read"):
        ncnn.parse(PLAIN.text, content, "m.param")


@pytest.mark.parametrize("position", [4, 220])
def test_weights_that_are_not_finite(position: int) -> None:
    content = bytearray(PLAIN.binary)
    content[position : position + 4] = struct.pack("<f", np.nan)
    with pytest.raises(ModelError, match=r"line 4 \(Convolution a\): .* a value that is not fin"):
        ncnn.parse(PLAIN.text, bytes(content), "m.param")


def test_sizes_that_are_declared_only() -> None:
    """A few bytes ask for 36 GB, and are told how many there are."""
    text = replaced(4, "0=2", "0=333333333").replace(b"6=54", b"6=8999999991")
    with pytest.raises(ModelError, match="needs 35999999964 bytes of the"):
        ncnn.parse(text, PLAIN.binary, "m.param")


def test_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.param"
    path.write_bytes(PLAIN.text)
    with pytest.raises(ModelError, match=r"m\.bin: cannot read the model: no such file"):
        read_model(path)
    monkeypatch.setattr("waifu2x.networks.readers.limits.MAX_BYTES", 1000)
    path.with_suffix(".bin").write_bytes(bytes(1001))
    with pytest.raises(ModelError, match=r"m\.bin: larger than the 0 MiB that a model may take"):
        read_model(path)
    monkeypatch.setattr("waifu2x.networks.readers.ncnn.files._MAX_TEXT", 10)
    with pytest.raises(ModelError, match=r"m: larger than the 0 MiB that a \.param may take"):
        ncnn.parse(PLAIN.text, b"", "m")


def test_every_cut_and_flip_of_a_real_network() -> None:
    """Damage anywhere is a ModelError or another network, never another error."""
    path = model_set.find("cunet").files[(None, 2)]
    text, weights = path.read_bytes(), ncnn.weights_path(path).read_bytes()
    survivors = []
    for position in range(0, len(text), 149):
        with pytest.raises(ModelError):
            ncnn.parse(text[:position], weights, "m.param")
        damaged = bytearray(text)
        damaged[position] ^= 0x15
        with contextlib.suppress(ModelError):
            survivors.append(ncnn.parse(bytes(damaged), weights, "m.param"))
    # In names, mostly.
    assert 0 < len(survivors) < 10
    assert {(model.scale, model.out_planes) for model in survivors} == {(2, 3)}


def test_short_lines_of_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waifu2x.networks.builder.MOST_NODES", 6)
    files = same().add(f"Eltwise e 9 1 {'a ' * 9}b", **{"0": 1})
    with pytest.raises(ModelError, match=r"line 5 \(Eltwise e\): more than 6 nodes"):
        files.parse()
