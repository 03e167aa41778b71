"""ONNX files that somebody wrote to do harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.helpers import model_fuzz
from tests.helpers.onnx_files import field, model, node, tensor, value_info, varint

ONES = np.ones((3, 3, 3, 3), np.float32)
LARGE = (1 << 20, 1 << 31, 1 << 62)
_RELU = node("Relu", ["input"], ["output"])


class Attack(NamedTuple):
    """A file of a stranger."""

    name: str
    content: bytes
    suffix: str = ".onnx"
    may_be_read: bool = False


# ONNX: its bytes.


def _cut_off() -> Iterator[Attack]:
    content = model_fuzz.onnx_file()
    for part in range(30):
        # Behind the graph stands the version of the operators, which may be missing.
        size = (len(content) - 6) * part // 30
        yield Attack(f"{size} bytes are left", content[:size])


def _with_bits_turned() -> Iterator[Attack]:
    content = model_fuzz.onnx_file()
    for part in range(40):
        damaged = bytearray(content)
        damaged[len(content) * part // 40] ^= 1 << part % 8
        yield Attack(f"byte {len(content) * part // 40}", bytes(damaged), may_be_read=True)


_PARTS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "opset"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor"},
    "value": {2: "type"},
    "type": {1: "tensor type"},
    "tensor type": {2: "shape"},
    "shape": {1: "dimension"},
}
"""The messages inside of messages, by the numbers of their fields."""


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, place = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << 7 * place
        at, place = at + 1, place + 1
        if byte < 0x80:
            return value, at


def _lengths(data: bytes, kind: str, at: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yields the field that each length in a message belongs to, its beginning and its end."""
    while at < end:
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire != 2:
            at = _read_varint(data, at)[1] if wire == 0 else at + (8 if wire == 1 else 4)
            continue
        begin = at
        size, at = _read_varint(data, at)
        inner = _PARTS.get(kind, {}).get(number, "")
        yield f"{kind}'s field {number}", begin, at
        if inner:
            yield from _lengths(data, inner, at, at + size)
        at += size


def _with_lengths_that_lie() -> Iterator[Attack]:
    content = model_fuzz.onnx_file()
    places = list(_lengths(content, "model", 0, len(content)))
    for number in range(45):
        what, begin, end = places[len(places) * number // 45]
        size = LARGE[number % 3]
        yield Attack(f"{what} of {size}", content[:begin] + varint(size) + content[end:])


def _nested_deeply() -> Iterator[Attack]:
    for depth in (1, 100, 2000):
        graph = field(1, _RELU)
        for _ in range(depth):
            graph = field(1, node("If", ["c"], ["output"]) + field(5, field(6, graph)))
        yield Attack(f"graphs in {depth} nodes", field(7, graph))
        kind = field(1, field(1, 1))
        for _ in range(depth):
            kind = field(4, field(1, kind))
        entry = field(11, field(1, "input") + field(2, kind))
        yield Attack(f"a sequence of {depth} sequences", field(7, field(1, _RELU) + entry))
    for op in ("If", "Loop", "Scan", "SequenceMap"):
        for number, what in ((6, "a graph"), (11, "graphs"), (22, "a type")):
            inner = field(5, field(1, "body") + field(number, b""))
            yield Attack(f"{op} with {what}", model([node(op, ["input"], ["output"]) + inner]))


# ONNX: its tensors.


def _tensor(dims: tuple[int, ...], *fields: bytes, kind: int = 1) -> bytes:
    made = b"".join(field(1, each) for each in dims)
    return made + field(2, kind) + field(8, "w") + b"".join(fields)


def _of_shapes_that_lie() -> Iterator[Attack]:
    conv = [node("Conv", ["input", "w"], ["output"])]
    shapes: list[tuple[int, ...]] = [
        *((1 << 31,), (1 << 63,), (-1, 3, 3, 3), (3, 3, -3, -3), (1 << 32, 1 << 32)),
        *((1 << 30,) * 4, (1 << 16,) * 4, (0, 1 << 30), (3, 3, 0, 0), (0,) * 4, (1,) * 9),
        *((3, 3, 3), (3, 3, 3, 3, 1), (81,), (3, 3, 3, 4), (1, 1, 1, 1)),
    ]
    for shape in shapes:
        # In 0 numbers of no bytes a shape lies as well, if a convolution is to read them.
        raw = field(9, b"" if 0 in shape else bytes(324))
        if shape not in ((3, 3, 3), (81,), (3, 3, 3, 3, 1)) or len(shape) != 4:
            yield Attack(f"raw numbers of {shape}", model(conv, [_tensor(shape, raw)]))
        yield Attack(f"no numbers of {shape}", model(conv, [_tensor(shape)]))
    right = (3, 3, 3, 3)
    lists = {
        "floats that are cut off": field(4, bytes(323)),
        "too many floats": field(4, bytes(328)),
        "floats as whole numbers": field(7, bytes(81)),
        "raw numbers and others": field(9, bytes(324)) + field(4, bytes(324)),
        "texts": field(6, b"a") * 81,
        "a part of a larger one": field(3, field(1, 0) + field(2, 1)) + field(9, bytes(324)),
        "one number, 81 times as long": field(4, bytes(4)),
        "not a number": field(9, np.full(81, np.nan, "<f4").tobytes()),
        "infinity": field(9, np.full(81, np.inf, "<f4").tobytes()),
    }
    for what, fields in lists.items():
        yield Attack(what, model(conv, [_tensor(right, fields)]))
    for kind in (0, 4, 5, 8, 12, 13, 14, 15, 17, 18, 21, 23, 99, 1 << 40):
        yield Attack(f"kind {kind}", model(conv, [_tensor(right, field(9, bytes(324)), kind=kind)]))
    doubles = field(9, np.full(81, 1e300, "<f8").tobytes())
    yield Attack("doubles beyond floats", model(conv, [_tensor(right, doubles, kind=11)]))


def _in_other_files() -> Iterator[Attack]:
    conv = node("Conv", ["input", "w"], ["output"])
    places = (
        *("weights.bin", "./weights.bin", "../outside.bin", "../../../../../../etc/passwd"),
        *("/etc/passwd", "/dev/zero", "/proc/self/mem", "/proc/self/fd/0", "//server/share/w"),
        *("\\\\server\\share\\w", "C:\\Windows\\win.ini", "file:///etc/passwd", "~/.ssh/id_rsa"),
        *(
            "http://127.0.0.1:9/w",
            "weights.bin\0.txt",
            "",
            ".",
            "..",
            "a/../weights.bin",
            "\x1b[2J",
        ),
        *("link.bin", "$HOME/weights.bin", "|id", "`id`", "w" * 5000),
    )
    for place in places:
        where = field(13, field(1, "location") + field(2, place))
        numbers = field(13, field(1, "offset") + field(2, "0"))
        numbers += field(13, field(1, "length") + field(2, "324"))
        stored = _tensor((3, 3, 3, 3), where, numbers, field(14, 1))
        yield Attack(place[:20], model([conv], [stored]))
        if len(place) < 14:
            without = _tensor((3, 3, 3, 3), where, field(9, bytes(324)))
            yield Attack(f"{place!r}, beside numbers", model([conv], [without]))
    stored = _tensor((3, 3, 3, 3), field(14, 1))
    yield Attack("nowhere", model([conv], [stored]))
    constant = node("Constant", [], ["w"]) + field(
        5, field(1, "value") + field(5, stored) + field(20, 4)
    )
    yield Attack("in a node", model([constant, conv]))


# ONNX: its graph.


def _in_circles() -> Iterator[Attack]:
    for count in range(1, 9):
        ring = [
            node("Add", ["input", f"v{(number + 1) % count}"], [f"v{number}"])
            for number in range(count)
        ]
        yield Attack(f"{count} nodes", model(ring, output="v0"))
    yield Attack("the picture", model([node("Relu", ["input"], ["input"])], output="input"))
    yield Attack(
        "later ones", model([node("Relu", ["a"], ["output"]), node("Relu", ["input"], ["a"])])
    )


def _under_one_name() -> Iterator[Attack]:
    conv = node("Conv", ["input", "w"], ["output"], pads=[1] * 4)
    weight = tensor("w", ONES)
    entry = field(11, value_info("input", (1, 3, "h", "w")))
    yield Attack("two tensors", model([conv], [weight, weight]))
    yield Attack("two nodes", model([conv, conv], [weight]))
    yield Attack("two of one node", model([node("Split", ["input"], ["output", "output"], axis=1)]))
    yield Attack(
        "a node and a tensor", model([conv, node("Relu", ["input"], ["w"])], [weight], output="w")
    )
    yield Attack("two pictures", model([conv], [weight], extra=entry))
    yield Attack("two results", model([conv], [weight], extra=field(12, value_info("b", (1,)))))
    yield Attack("the picture is a tensor", model([conv], [weight, tensor("input", ONES)]))
    yield Attack("two graphs", model([conv], [weight]) * 2)
    yield Attack("the picture is the result", model([conv], [weight], output="nothing"))
    yield Attack("tensors without names", model([conv], [tensor("", ONES), tensor("", ONES)]))


def _of_many_nodes() -> Iterator[Attack]:
    for op in ("Relu", "Constant", "Identity"):
        many = [node(op, ["input"], [f"v{number}"]) for number in range(20_001)]
        yield Attack(f"20,001 of {op}", model(many, output="v0"))
    tensors = [tensor(f"t{number}", np.zeros(1, np.float32)) for number in range(10_001)]
    yield Attack("10,001 tensors", model([_RELU], tensors))
    for count in (65, 5000):
        wide = node("Concat", ["input"] * count, ["output"], axis=1)
        yield Attack(f"{count} inputs", model([wide]))
        wide = node("Split", ["input"], [f"v{number}" for number in range(count)], axis=1)
        yield Attack(f"{count} outputs", model([wide], output="v0"))
        more = {f"a{number}": 1 for number in range(count)}
        yield Attack(f"{count} attributes", model([node("Relu", ["input"], ["output"], **more)]))
    for times, name in ((2, "planes that double"), (64, "planes 64 times as many")):
        grown = [
            node("Concat", ["input" if not n else f"v{n - 1}"] * times, [f"v{n}"], axis=1)
            for n in range(60)
        ]
        yield Attack(name, model(grown, output="v59"))
    two = {"s": np.array([1, 1, 2, 2], np.float32)}
    for op in ("Resize", "Upsample"):
        last = ["", "s"] if op == "Resize" else ["s"]
        larger = [
            node(op, ["input" if not n else f"v{n - 1}", *last], [f"v{n}"], mode="nearest")
            for n in range(60)
        ]
        yield Attack(f"60 times {op}", model(larger, two, output="v59"))
    squares = [node("Mul", [f"v{n}"] * 2, [f"v{n + 1}"]) for n in range(3000)]
    first = node("Tanh", ["input"], ["v0"])
    yield Attack("3,000 squares", model([first, *squares], output="v3000"), may_be_read=True)
    sums = [node("Add", [f"v{n}", "input"], [f"v{n + 1}"]) for n in range(10_100)]
    yield Attack("10,100 sums", model([first, *sums], output="v10100"), may_be_read=True)
    layers = [node("Conv", [f"v{n}", "w"], [f"v{n + 1}"], pads=[1] * 4) for n in range(10_100)]
    yield Attack(
        "10,100 layers", model([first, *layers], {"w": ONES}, output="v10100"), may_be_read=True
    )


def _that_compute_bombs() -> Iterator[Attack]:
    def added(what: str, *nodes: bytes, **weights: Any) -> Attack:
        arrays = {key: np.array(each) for key, each in weights.items()}
        return Attack(what, model([*nodes, node("Add", ["input", "a"], ["output"])], arrays))

    large = [
        *([1 << 40], [1 << 62, 4], [1 << 20] * 2, [1 << 9] * 8, [-1], [1] * 9, [1 << 63 - 1]),
        *([-(1 << 62)] * 2, [1 << 13] * 2 + [2]),
    ]
    for shape in large:
        yield added(f"ConstantOfShape {shape}", node("ConstantOfShape", ["s"], ["a"]), s=shape)
        yield added(f"Expand {shape}", node("Expand", ["x", "s"], ["a"]), s=shape, x=[1.0])
        if shape != [-1]:
            yield added(f"Reshape {shape}", node("Reshape", ["x", "s"], ["a"]), s=shape, x=[1.0, 2])
    ranges: list[tuple[Any, Any, Any]] = [
        *((0, 1 << 50, 1), (0, -(1 << 50), -1), (0, 9, 0), (0.0, 1.0, 1e-12), (0.0, 1.0, 0.0)),
        *((0.0, np.inf, 1.0), (0.0, np.nan, 1.0), (np.nan, 0.0, 0.0), (-np.inf, np.inf, 1.0)),
    ]
    for begin, end, step in ranges:
        one = node("Range", ["b", "e", "s"], ["a"])
        yield added(f"Range {begin} {end} {step}", one, b=begin, e=end, s=step)
    # Each is small, and what they make together is not.
    column, row = np.zeros((1 << 15, 1), np.float32), np.zeros((1, 1 << 15), np.float32)
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "Equal", "Less", "Greater"):
        yield added(f"{op} of all pairs", node(op, ["x", "y"], ["a"]), x=column, y=row)
    yield added("Where of all pairs", node("Where", ["x", "y", "y"], ["a"]), x=column > 0, y=row)
    yield added(
        "Gather of all pairs",
        node("Gather", ["x", "i"], ["a"]),
        x=row,
        i=np.zeros(1 << 15, np.int64),
    )
    doubled = [node("Concat", [f"c{n}"] * 2, [f"c{n + 1}"], axis=0) for n in range(60)]
    yield added("Concat, 60 times", *doubled, node("Identity", ["c60"], ["a"]), c0=[1.0])
    wide = [node("Add", ["c", f"c{n}"], [f"c{n + 1}"]) for n in range(999)]
    yield added(
        "a thousand sums of a million",
        *(node("ConstantOfShape", ["s"], ["c0"]), *wide, node("Identity", ["c999"], ["a"])),
        s=[1 << 20],
        c=1.0,
    )
    broken: list[tuple[bytes, dict[str, Any]]] = [
        (node("Gather", ["x", "i"], ["a"], axis=7), {"x": [1.0], "i": 0}),
        (node("Gather", ["x", "i"], ["a"]), {"x": [1.0], "i": 1 << 62}),
        (node("Gather", ["x", "i"], ["a"]), {"x": [1.0], "i": 0.5}),
        (node("Slice", ["x", "i", "i", "i", "z"], ["a"]), {"x": [1.0], "i": [0], "z": [0]}),
        (node("Slice", ["x", "i", "i", "m"], ["a"]), {"x": [1.0], "i": [0], "m": [99]}),
        (node("Slice", ["x", "i", "m"], ["a"]), {"x": [1.0], "i": [0], "m": [1, 2]}),
        (node("Transpose", ["x"], ["a"], perm=[0, 0]), {"x": [[1.0]]}),
        (node("Transpose", ["x"], ["a"], perm=[1 << 60]), {"x": [1.0]}),
        (node("Unsqueeze", ["x", "i"], ["a"]), {"x": [1.0], "i": list(range(63))}),
        (node("Unsqueeze", ["x", "i"], ["a"]), {"x": [1.0], "i": [1 << 40]}),
        (node("Unsqueeze", ["x", "i"], ["a"]), {"x": [1.0], "i": [0] * 100_000}),
        (node("Squeeze", ["x", "i"], ["a"]), {"x": [1.0, 2.0], "i": [0]}),
        (node("Reshape", ["x", "i"], ["a"]), {"x": [1.0, 2.0], "i": [-1, -1]}),
        (node("Reshape", ["x", "i"], ["a"]), {"x": [1.0, 2.0], "i": [-7]}),
        (node("Concat", ["x", "i"], ["a"], axis=9), {"x": [1.0], "i": [0]}),
        (node("Cast", ["x"], ["a"], to=8), {"x": [1.0]}),
        (node("Div", ["i", "z"], ["a"]), {"i": [1], "z": [0]}),
        (node("Tile", ["x", "i"], ["a"]), {"x": [1.0], "i": [1 << 40]}),
        (node("ScatterND", ["x", "i", "x"], ["a"]), {"x": [1.0], "i": [[1 << 40]]}),
        (node("Einsum", ["x", "x"], ["a"], equation="i,j->ij"), {"x": [1.0]}),
        (node("RandomNormal", [], ["a"], shape=[1 << 40]), {}),
        (node("Constant", [], ["a"], value_string="x"), {}),
        (node("Constant", [], ["a"]), {}),
        (node("EyeLike", ["x"], ["a"]), {"x": [[1.0]]}),
        (node("Shape", ["a"], ["a"]), {}),
    ]
    for number, (one, weights) in enumerate(broken):
        yield added(f"broken {number}", one, **weights)


_OPERATORS = """
Abs Acos Acosh AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool
Bernoulli BitShift BitwiseAnd BitwiseNot BlackmanWindow CastLike Ceil Celu CenterCropPad Col2Im
Compress ConcatFromSequence ConvInteger Cos Cosh CumSum DFT DeformConv DequantizeLinear Det
DynamicQuantizeLinear Einsum Elu Equal Expand EyeLike Flatten Floor GRU Gather GatherElements
GatherND Gemm GlobalLpPool GlobalMaxPool GridSample HannWindow Hardmax If ImageDecoder IsInf
IsNaN LRN LSTM LogSoftmax Loop LpNormalization LpPool MatMul MatMulInteger MaxPool MaxRoiPool
MaxUnpool MeanVarianceNormalization MelWeightMatrix Multinomial NonMaxSuppression NonZero Not
OneHot Optional QLinearConv QuantizeLinear RNN RandomUniformLike ReduceL1 ReduceLogSum
ReduceProd ReduceSum ReverseSequence RoiAlign Round STFT Scan ScatterElements Selu SequenceAt
Shrink Sign Softmax Softsign StringNormalizer TfIdfVectorizer ThresholdedRelu Tile TopK Trilu
Unique PyOp system ATen
"""


def _with_other_operators() -> Iterator[Attack]:
    for op in _OPERATORS.split():
        yield Attack(op, model([node(op, ["input", "input"], ["output"])]))
    domains = (
        *("com.microsoft", "ai.onnx.ml", "ai.onnx.training", "org.pytorch.aten", "custom"),
        *("pkg.onnxscript.torch_lib", "../../lib.so", "\x1b[2J", "ai.onnx\0", "AI.ONNX"),
    )
    for domain in domains:
        yield Attack(domain, model([_RELU + field(7, domain)]))
    for number in (15, 25):
        inner = field(number, field(1, "x"))
        sparse = model([_RELU], extra=inner) if number == 15 else model([_RELU]) + inner
        yield Attack(f"field {number}", sparse)


def _with_attributes_that_lie() -> Iterator[Attack]:
    def made(op: str, *inputs: str, **attributes: Any) -> Attack:
        arrays = {"w": ONES, "s": np.array([1, 1, 2, 2], np.float32), "n": np.ones(3, np.float32)}
        one = node(op, ["input", *inputs], ["output"], **attributes)
        return Attack(f"{op} {attributes}", model([one], arrays))

    for word in ("strides", "pads", "dilations"):
        for value in ("x", 1, 1.5, [1.5, 1.5], [-1, -1], [1 << 62] * 2, [2, 3], [0, 7] * 30):
            yield made("Conv", "w", **{word: value})
    for value in ("x", 1.5, 0, -1, 2, 1 << 62, [3]):
        yield made("Conv", "w", group=value)
    for value in (3, "SAME", "\x1b[2J", "VALID\n"):
        yield made("Conv", "w", auto_pad=value)
    for value in ("x", 0, -2, 1 << 62, 1.5, [2]):
        yield made("DepthToSpace", blocksize=value)
        yield made("SpaceToDepth", blocksize=value)
    yield made("DepthToSpace", blocksize=2, mode="RGB")
    for value in ([0.0] * 4, [1.0, 1.0, -2.0, -2.0], [1.0, 1.0, 1e30, 1e30], [float("nan")] * 4):
        yield made("Upsample", mode="nearest", scales=value)
    for mode in ("linear", "cubic", "area", 3):
        yield made("Upsample", "s", mode=mode, cubic_coeff_a=-0.5)
    for value in ([9], [1.5], "x", [0], [2], [1 << 62], [-9]):
        yield made("ReduceMean", axes=value)
    for value in ([0, 0, 0, 0], [9, 8, 7, 6], [0.5] * 4, [0], "x", [3, 2, 1, -1]):
        yield made("Transpose", perm=value)
    for value in ([1] * 9, [1 << 62], [-1, 4], [0, 3], [1.5, 1.5]):
        yield made("Split", axis=1, split=value)
    for value in (-1.0, 0.0, float("nan"), float("inf"), "x"):
        yield made("InstanceNormalization", "n", "n", epsilon=value)
    for value in (0, -1, 2, 1 << 62, 1.5):
        yield made("GroupNormalization", "n", "n", num_groups=value)
    for value in ("x", [1], float("nan"), float("inf")):
        yield made("LeakyRelu", alpha=value)
    for value in ([1] * 7, [0, 0, -9, 0, 0, 0, 0, 0], [1 << 62] * 8, [0.5] * 8, [0, 1] * 4):
        yield made("Pad", pads=value)


def _with_odd_names() -> Iterator[Attack]:
    words = {
        "an order to a terminal": "\x1b[2J\x1b]0;x\x07",
        "lines": "a\nb\r\nc",
        "right to left": "\u202egnp.exe",
        "long": "n" * 4096,
        "longer": "n" * 4097,
        "empty": "",
        "markup": "{0.__class__} %s %n <b>",
    }
    for what, word in words.items():
        yield Attack(f"{what}, operator", model([node(word, ["input"], ["output"])]))
        named = node("Einsum", ["input"], ["output"]) + field(3, word)
        yield Attack(f"{what}, node", model([named]))
        yield Attack(f"{what}, input", model([node("Relu", [word + "."], ["output"])]))
        stored = field(1, 3) + field(2, 8) + field(8, word)
        yield Attack(f"{what}, tensor", model([_RELU], [stored]))
    for number in (1, 2, 3, 4, 7):
        yield Attack(f"bytes, field {number}", model([_RELU + field(number, b"\xff\xfe\xfa")]))


def _of_other_pictures() -> Iterator[Attack]:
    shapes: list[tuple[int | str, ...]] = [
        *((), (1,), (1, 3), (1, 3, 64), (1, 3, 64, 64, 1), (2, 3, "h", "w"), (1 << 40, 3, 64, 64)),
        *((1, 4, "h", "w"), (1, 1 << 40, "h", "w"), (1, "c", "h", "w"), (1, 2, 9, 9)),
    ]
    for shape in shapes:
        kind = field(
            1,
            field(1, 1)
            + field(2, b"".join(field(1, field(2 if isinstance(n, str) else 1, n)) for n in shape)),
        )
        graph = field(1, _RELU) + field(11, field(1, "input") + field(2, kind))
        yield Attack(f"{shape}", field(7, graph + field(12, value_info("output", (1,)))))
    for kind_of_numbers in (2, 3, 6, 7, 8, 9, 14, 99):
        graph = field(1, _RELU) + field(11, value_info("input", (1, 3, "h", "w"), kind_of_numbers))
        graph += field(12, value_info("output", (1, 3, "h", "w")))
        yield Attack(f"numbers of kind {kind_of_numbers}", field(7, graph))


KINDS = {
    "cut off": _cut_off,
    "bits": _with_bits_turned,
    "lengths": _with_lengths_that_lie,
    "nested": _nested_deeply,
    "shapes": _of_shapes_that_lie,
    "elsewhere": _in_other_files,
    "circles": _in_circles,
    "one name": _under_one_name,
    "many nodes": _of_many_nodes,
    "bombs": _that_compute_bombs,
    "operators": _with_other_operators,
    "attributes": _with_attributes_that_lie,
    "names": _with_odd_names,
    "pictures": _of_other_pictures,
}
"""The attacks of each kind."""
