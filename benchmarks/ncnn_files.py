"""Networks as files of ncnn: the same nodes and weights, for comparisons with ncnn."""

from __future__ import annotations

import struct
from collections import Counter

from waifu2x.networks.expressions import LEAKY, SIGMOID, TANH
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Enlarge,
    MultiplyMaps,
    PixelShuffle,
    PixelUnshuffle,
)

_ALONE = {TANH: "TanH", SIGMOID: "Sigmoid"}
"""Activations that are layers of their own."""


def ncnn_files(model: Model) -> tuple[str, bytes]:
    """The text of a .param and the bytes of its .bin: the first blob is the picture, padded as the
    model says, the last one the result.

    Raises ImportError for a network with a node or an activation that is not written.
    """
    writer = _Writer(model)
    for value, node in enumerate(model.nodes, 1):
        match node:
            case Convolution():
                writer.convolution(node, value)
            case Enlarge(factor=by):
                writer.layer("Interp", node.sources, value, f"0=1 1={by}.0 2={by}.0")
            case PixelShuffle(factor=by):
                writer.layer("PixelShuffle", node.sources, value, f"0={by}")
            case PixelUnshuffle(factor=by):
                writer.layer("Reorg", node.sources, value, f"0={by}")
            case Crop(pixels=edge):
                edges = f"-23309=2,{edge},{edge} -23310=2,-{edge},-{edge} -23311=2,1,2"
                writer.layer("Crop", node.sources, value, edges)
            case Add(factor=1):
                writer.layer("BinaryOp", node.sources, value, "0=0")
            case MultiplyMaps():
                writer.layer("BinaryOp", node.sources, value, "0=2")
            case Concatenate():
                writer.layer("Concat", node.sources, value, "0=0")
            case _:
                raise ImportError(f"{type(node).__name__} is not written in files for ncnn")
    return writer.text(), writer.weights


class _Writer:
    """Lines and weights in the making. ncnn wants a blob for each reader of a value: a Split makes
    those of a value that several layers read."""

    def __init__(self, model: Model) -> None:
        self._readers = Counter(source for node in model.nodes for source in node.sources)
        self._read: Counter[int] = Counter()
        self._lines: list[str] = []
        self._blobs = 0
        self.weights = b""
        self.layer("Input", (), 0, f"2={model.in_planes}")

    def layer(self, kind: str, read: tuple[int, ...], value: int, keys: str) -> None:
        """A layer that makes a value of the model of other values."""
        self._made(kind, [self._blob(source) for source in read], value, keys)

    def convolution(self, node: Convolution, value: int) -> None:
        """A convolution with its activation."""
        function, slopes = node.activation.function, node.activation.slopes
        keys = f"0={len(node.bias)} 1={node.weight.shape[-1]} 3={node.stride} 4={node.padding}"
        keys += f" 5=1 6={node.weight.size}"
        self.weights += struct.pack("<I", 0) + node.weight.tobytes() + node.bias.tobytes()
        if function in _ALONE:
            self._line("Convolution", [self._blob(node.source)], [f"c{value}"], keys)
            self._made(_ALONE[function], [f"c{value}"], value, "")
            return
        if function != LEAKY or (slopes != slopes[0]).any():
            raise ImportError("an activation is not written in files for ncnn")
        if slopes[0] != 1:
            keys += f" 9=2 -23310=1,{slopes[0]}" if slopes[0] else " 9=1"
        self.layer("Convolution", (node.source,), value, keys)

    def text(self) -> str:
        """All lines."""
        return "\n".join(["7767517", f"{len(self._lines)} {self._blobs}", *self._lines, ""])

    def _made(self, kind: str, read: list[str], value: int, keys: str) -> None:
        self._line(kind, read, [f"v{value}"], keys)
        if self._readers[value] > 1:
            copies = [f"v{value}_{copy}" for copy in range(self._readers[value])]
            self._line("Split", [f"v{value}"], copies, "")

    def _blob(self, value: int) -> str:
        if self._readers[value] < 2:
            return f"v{value}"
        self._read[value] += 1
        return f"v{value}_{self._read[value] - 1}"

    def _line(self, kind: str, read: list[str], made: list[str], keys: str) -> None:
        ends = f"{len(read)} {len(made)} {' '.join([*read, *made])}"
        self._lines.append(f"{kind} layer{len(self._lines)} {ends} {keys}".rstrip())
        self._blobs += len(made)
