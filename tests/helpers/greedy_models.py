"""Small ONNX files that ask for much: of steps, planes, parts, products, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers import measured
from tests.helpers.onnx_files import model, node

Greedy = tuple[str, bytes]


def models() -> Iterator[Greedy]:
    """Name and content of each file."""
    yield from _concatenations()
    yield from _chains()
    yield from _shared_weights()
    yield from _planes()
    yield from _dense()
    yield from _means()
    yield from _resizes()
    yield from _margins()
    yield from _groups()
    yield from _norms()


def _weight(made: int, read: int, taps: int = 1) -> np.ndarray[Any, Any]:
    return np.full((made, read, taps, taps), 1 / (read * taps**2), np.float32)


def _concatenations() -> Iterator[Greedy]:
    """The picture many times beside itself, and reduced to three planes by a shuffle or a layer."""
    for first, second in ((64, 16), (32, 32), (1024, 1), (16, 64), (64, 64), (2, 512), (4, 64)):
        nodes = [
            node("Concat", ["input"] * first, ["a"], axis=1),
            node("Concat", ["a"] * second, ["b"], axis=1),
        ]
        name = f"{first} by {second} parts"
        if first * second == 1024:
            shuffle = node("DepthToSpace", ["c"], ["output"], blocksize=32, mode="CRD")
            yield f"{name}, Relu", model([*nodes, node("Relu", ["b"], ["c"]), shuffle])
            shuffle = node("DepthToSpace", ["b"], ["output"], blocksize=32, mode="CRD")
            yield f"{name}, shuffled", model([*nodes, shuffle])
        conv = node("Conv", ["b", "w"], ["output"])
        yield f"{name}, Conv", model([*nodes, conv], {"w": _weight(3, 3 * first * second)})
    # Each of the one before, twice.
    nodes, last = [], "input"
    for level in range(10):
        nodes.append(node("Concat", [last, last], [f"x{level}"], axis=1))
        last = f"x{level}"
    nodes += [
        node("Sigmoid", [last], ["s"]),
        node("DepthToSpace", ["s"], ["output"], blocksize=32, mode="DCR"),
    ]
    yield "doubled ten times", model(nodes)
    # Many concatenations of the same parts.
    for count in (200, 800):
        nodes = []
        for number in range(count):
            nodes.append(node("Concat", ["input"] * 200, [f"x{number}"], axis=1))
            nodes.append(node("Conv", [f"x{number}", "w"], [f"y{number}"]))
        nodes += _sum([f"y{number}" for number in range(count)])
        yield f"{count} concatenations of 200", model(nodes, {"w": _weight(3, 600)})


def _sum(names: Sequence[str], output: str = "output") -> list[bytes]:
    nodes, last = [], names[0]
    for number, name in enumerate(names[1:]):
        made = output if number == len(names) - 2 else f"{output}_sum{number}"
        nodes.append(node("Add", [last, name], [made]))
        last = made
    return nodes


def _chains() -> Iterator[Greedy]:
    """One small node after another."""
    ops: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
        "Relu": ("Relu", (), {}),
        "Sigmoid": ("Sigmoid", (), {}),
        "Tanh": ("Tanh", (), {}),
        "Add itself": ("Add", ("x",), {}),
        "Mul itself": ("Mul", ("x",), {}),
        "Add input": ("Add", ("input",), {}),
        "Conv": ("Conv", ("w",), {}),
        "Conv 3x3": ("Conv", ("w3",), {"pads": [1, 1, 1, 1]}),
        "MaxPool": ("MaxPool", (), {"kernel_shape": [1, 1]}),
        "Mul": ("Mul", ("f",), {}),
    }
    weights = {
        "w": _weight(3, 3),
        "w3": _weight(3, 3, 3),
        "f": np.full((1, 3, 1, 1), 0.99, np.float32),
    }
    for word, (op, more, attributes) in ops.items():
        for count in (1000, 9000):
            nodes, last = [], "input"
            for number in range(count):
                made = "output" if number == count - 1 else f"x{number}"
                others = [last if each == "x" else each for each in more]
                nodes.append(node(op, [last, *others], [made], **attributes))
                last = made
            yield f"{count} of {word}", model(nodes, weights)


def _shared_weights() -> Iterator[Greedy]:
    """One array of the file, as the weights of many layers."""
    for planes, taps, count in ((64, 3, 2000), (512, 1, 400), (512, 3, 40), (1024, 1, 60)):
        nodes = [node("Conv", ["input", "first"], ["x0"])]
        for number in range(count):
            pads = [taps // 2] * 4
            nodes.append(node("Conv", [f"x{number}", "w"], [f"x{number + 1}"], pads=pads))
        nodes.append(node("Conv", [f"x{count}", "last"], ["output"]))
        weights = {"first": _weight(planes, 3), "last": _weight(3, planes)}
        yield (
            f"{count} layers of {planes} planes, {taps}x{taps}, one weight",
            model(nodes, {**weights, "w": _weight(planes, planes, taps)}),
        )


def _planes() -> Iterator[Greedy]:
    """Weights that are made from next to nothing."""
    for planes in (1024, 2048, 4096):
        for op in ("Relu", "Sigmoid", "Mul"):
            for count in (1, 8):
                nodes, last = [node("Conv", ["input", "first"], ["x0"])], "x0"
                for number in range(count):
                    more = ["f"] if op == "Mul" else []
                    # Read twice, so that no layer before takes it along.
                    nodes.append(node(op, [last, *more], [f"y{number}"]))
                    nodes.append(node("Add", [last, f"y{number}"], [f"z{number}"]))
                    last = f"z{number}"
                nodes.append(node("Conv", [last, "last"], ["output"]))
                factors = np.linspace(0.9, 1, planes, dtype=np.float32).reshape(1, -1, 1, 1)
                weights = {"first": _weight(planes, 3), "last": _weight(3, planes), "f": factors}
                yield f"{count} of {op} of {planes} planes", model(nodes, weights)


def _dense() -> Iterator[Greedy]:
    """Each layer reads all before it."""
    for count, made in ((60, 16), (200, 4), (400, 2), (600, 1)):
        nodes, names, weights = [], ["input"], {}
        for number in range(count):
            planes = 3 + number * made
            nodes.append(node("Concat", list(names), [f"c{number}"], axis=1))
            nodes.append(node("Conv", [f"c{number}", f"w{number}"], [f"x{number}"]))
            weights[f"w{number}"] = _weight(made, planes)
            names.append(f"x{number}")
        nodes.append(node("Concat", names, ["all"], axis=1))
        nodes.append(node("Conv", ["all", "last"], ["output"]))
        weights["last"] = _weight(3, 3 + count * made)
        yield f"{count} layers that read all before", model(nodes, weights)


def _means() -> Iterator[Greedy]:
    """Means over the picture, each of what the one before it scales."""
    for count in (20, 200, 2000):
        nodes, last = [], "input"
        for number in range(count):
            made = "output" if number == count - 1 else f"x{number}"
            nodes.append(node("GlobalAveragePool", [last], [f"m{number}"]))
            nodes.append(node("Mul", [last, f"m{number}"], [made]))
            last = made
        yield f"{count} means one after another", model(nodes)
        nodes = [node("GlobalAveragePool", ["input"], [f"m{number}"]) for number in range(count)]
        nodes += [node("Mul", ["input", f"m{number}"], [f"y{number}"]) for number in range(count)]
        yield f"{count} means side by side", model([*nodes, *_sum([f"y{n}" for n in range(count)])])


def _resizes() -> Iterator[Greedy]:
    """Maps far larger than the picture."""
    for factor in (2, 16, 32):
        for count in (1, 50, 400):
            nodes = []
            for number in range(count):
                nodes.append(
                    node(
                        "Resize",
                        ["input", "", "up"],
                        [f"u{number}"],
                        mode="nearest",
                        coordinate_transformation_mode="asymmetric",
                        nearest_mode="floor",
                    )
                )
                nodes.append(node("Conv", [f"u{number}", "w"], [f"y{number}"]))
            if count == 1:
                nodes[-1] = node("Conv", ["u0", "w"], ["output"])
            else:
                nodes += _sum([f"y{number}" for number in range(count)])
            weights = {"up": np.array([1, 1, factor, factor], np.float32), "w": _weight(3, 3)}
            yield f"{count} maps {factor} times the picture", model(nodes, weights)
    planes = 3 * 32**2
    for taps in (1, 3):
        nodes = [
            node("Conv", ["input", "w"], ["x"], pads=[taps // 2] * 4),
            node("DepthToSpace", ["x"], ["y"], blocksize=32, mode="CRD"),
            node("Conv", ["y", "wide"], ["z"]),
            node("Conv", ["z", "last"], ["output"]),
        ]
        weights = {"w": _weight(planes, 3, taps), "wide": _weight(256, 3), "last": _weight(3, 256)}
        yield f"256 planes at 32 times the picture, {taps}", model(nodes, weights)


def _margins() -> Iterator[Greedy]:
    """Layers that read far beyond each pixel."""
    for taps, count in ((3, 400), (15, 60), (31, 30), (63, 14), (127, 2)):
        nodes, last = [], "input"
        for number in range(count):
            made = "output" if number == count - 1 else f"x{number}"
            nodes.append(node("Conv", [last, "w"], [made], pads=[taps // 2] * 4))
            last = made
        yield f"{count} layers of {taps}x{taps}", model(nodes, {"w": _weight(3, 3, taps)})
    for pads in (8, 100, 1000):
        pad = np.array([0, 0, pads, pads, 0, 0, pads, pads], np.int64)
        nodes = [
            node("Pad", ["input", "p"], ["x"], mode="reflect"),
            node("Conv", ["x", "w"], ["output"]),
        ]
        weights = {"p": pad, "w": _weight(3, 3, 2 * pads + 1 if pads < 100 else 1)}
        yield f"a margin of {pads}", model(nodes, weights)


def _groups() -> Iterator[Greedy]:
    """Convolutions of many groups."""
    for planes, groups, count in (
        *((1024, 64, 1), (1024, 64, 20), (4096, 256, 1), (4096, 2048, 1)),
        *((2048, 1024, 4), (1024, 1024, 200)),
    ):
        nodes, last = [node("Conv", ["input", "first"], ["x"])], "x"
        for number in range(count):
            nodes.append(node("Conv", [last, "w"], [f"y{number}"], group=groups))
            last = f"y{number}"
        nodes.append(node("Conv", [last, "last"], ["output"]))
        weights = {
            "first": _weight(planes, 3),
            "w": _weight(planes, planes // groups),
            "last": _weight(3, planes),
        }
        yield f"{count} layers of {planes} planes in {groups} groups", model(nodes, weights)
    for parts in (16, 256, 1024):
        nodes = [
            node("Conv", ["input", "first"], ["x"]),
            node("Split", ["x"], [f"s{n}" for n in range(parts)], axis=1, num_outputs=parts),
            node("Concat", [f"s{n}" for n in reversed(range(parts))], ["y"], axis=1),
            node("Conv", ["y", "last"], ["output"]),
        ]
        weights = {"first": _weight(1024, 3), "last": _weight(3, 1024)}
        yield f"1024 planes in {parts} parts, turned round", model(nodes, weights, opset=18)


def _norms() -> Iterator[Greedy]:
    """Norms one after another."""
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    for count in (50, 1000):
        nodes, last = [], "input"
        for number in range(count):
            made = "output" if number == count - 1 else f"x{number}"
            nodes.append(node("InstanceNormalization", [last, "g", "b"], [made]))
            last = made
        yield f"{count} norms one after another", model(nodes, {"g": ones, "b": zeros})


_WORK = """
import numpy as np
import waifu2x
from pathlib import Path
from waifu2x.networks.readers import read_model

def work(path):
    picture = np.full((24, 20, 3), 128, np.uint8)
    picture[5:] = 90
    enlarges = read_model(Path(path)).scale > 1
    asked = {"scale": 2} if enlarges else {"scale": 1, "noise": 0}
    return waifu2x.upscale(picture, model=path, backend="cpu", **asked).shape
"""


def run(path: Path, limit: int) -> tuple[str, float, int]:
    """Enlarges a picture by a file's network in a process of its own; returns as `measured.run`."""
    return measured.run(_WORK, limit, path)
