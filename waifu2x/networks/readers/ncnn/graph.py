"""The graph of a .param file while it is read: the network's value for each blob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import PixelShuffle
from waifu2x.networks.readers.limits import MAX_BYTES, ModelBudget, shown
from waifu2x.networks.readers.ncnn.files import BinFile, Line
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GateFactor:
    """sigmoid(value) + shift, on its way to become the factor of a gate."""

    value: int
    shift: float


Blob = int | GateFactor | NDArray[np.float32]
"""A value of the graph, or what becomes part of a node: an array is a constant for each plane."""


class BlobGraph:
    """The network's graph so far, its blobs by name, and the line that is being read."""

    def __init__(self, name: str, lines: Sequence[Line], weights: BinFile) -> None:
        """`name` stands for the .param file in messages."""
        self.weights = weights
        self.budget = ModelBudget(name, size=4 * MAX_BYTES)
        """For weights that are computed rather than read."""
        self.shared: set[int] = set()
        """Values that more than one layer reads: no activation can be folded into those."""
        self._name = name
        self._net: GraphBuilder | None = None
        """None until the picture's planes are known."""
        self._line = lines[0]
        self._blobs: dict[str, Blob] = {}
        self._uses = Counter(blob for line in lines for blob in line.inputs)
        self._crops: list[tuple[int, int, str]] = []
        """Values cropped, values whose size they are cropped to, and lines."""

    def begin(self, line: Line) -> None:
        """Goes on to another line, whose inputs must be there."""
        if (not self._blobs) != (line.kind == "Input"):
            raise ModelError(f"{line.where}: expected one Input, and that first")
        for blob in line.inputs:
            if blob not in self._blobs:
                raise ModelError(
                    f"{line.where}: it reads blob {shown(blob)}, which no line before makes"
                )
            found = self._blobs[blob]
            if self._uses[blob] > 1 and isinstance(found, int):
                self.shared.add(found)
        self._line = line
        if self._net:
            self._net.layer = line.label

    def end(self, made: Blob) -> None:
        """Names what a line has made as its outputs."""
        line = self._line
        line.finish()
        for blob in line.outputs:
            if blob in self._blobs:
                raise ModelError(f"{line.where}: blob {blob} is made twice")
            self._blobs[blob] = made

    def begin_picture(self, planes: int) -> None:
        """Sets the planes of the picture, once they are known."""
        self._net = GraphBuilder(self._name, planes)
        self._net.layer = self._line.label

    @property
    def net(self) -> GraphBuilder:
        """Returns the nodes so far. Raises ModelError while nothing says the picture's planes."""
        if self._net is None:
            raise ModelError(
                f"{self._line.where}: the Input does not say its planes: key 2 is missing"
            )
        return self._net

    def planes(self, source: int, needed: int) -> int:
        """Returns the planes of a value; the picture's, if not known yet, become `needed`."""
        if self._net is None:
            self.begin_picture(needed)
        return self.net.planes(source)

    def is_vector(self, value: int) -> bool:
        """Returns whether a value is a vector."""
        return self._net is not None and self._net.is_vector(value)

    def blob(self, name: str) -> Blob:
        """Returns a blob that an earlier line has made."""
        return self._blobs[name]

    def expect(self, inputs: int, outputs: int = 1) -> None:
        """Raises ModelError unless the line reads `inputs` and makes `outputs` blobs."""
        found = len(self._line.inputs), len(self._line.outputs)
        if found != (inputs, outputs):
            raise ModelError(
                f"{self._line.where}: {found[0]} blobs in and {found[1]} out,"
                f" but expected {inputs} and {outputs}"
            )

    def read(self, count: int) -> tuple[int, ...]:
        """Returns the `count` values that the line reads to make one blob."""
        self.expect(count)
        return tuple(map(self.value, self._line.inputs))

    def value(self, name: str) -> int:
        """Returns the value that a blob is. Raises ModelError for other blobs."""
        found = self._blobs[name]
        if not isinstance(found, int):
            raise ModelError(
                f"{self._line.where}: it reads blob {shown(name)} otherwise than a gate would"
            )
        return found

    def crop_to(self, value: int, reference: int) -> None:
        """Remembers that a value is a crop to the size of another, for `finish` to compare."""
        self._crops.append((value, reference, self._line.where))

    def finish(self) -> Model:
        """Returns the network, once all lines are read.

        Files do not say how a picture is padded, nor what a program does after the network. Padded
        networks with pnnx's names of blobs are Real-CUGAN's: the border is a reflection, and the
        picture, enlarged, is added where the last layer shuffles (its 4x networks).
        """
        name, net = self._name, self._net
        if self.weights.left:
            raise ModelError(
                f"{name}: its .bin file has {self.weights.left} bytes more than the layers take"
            )
        if net is None or not net.last:
            raise ModelError(f"{name}: no layer says how many planes the picture has")
        used = {source for node in net.nodes for source in node.sources}
        for value in range(net.last):
            if value not in used:
                raise ModelError(f"{name}: {net.maker(value)}: nothing reads what it makes")
        shape = net.shape(net.last)
        if not shape.origin or not {"in0", "out0"} <= self._blobs.keys():
            model = net.model(same_planes=True)
        else:
            pixels = shape.origin * (shape.resolution or 0)
            whole = shape.resolution and shape.resolution.denominator == pixels.denominator == 1
            if isinstance(net.node(net.last), PixelShuffle) and whole:
                made = net.last
                net.add(made, net.crop(net.enlarge(0, int(shape.resolution or 0)), int(pixels)))
            model = net.model("reflect", same_planes=True)
        self._check_crops(model)
        return model

    def _check_crops(self, model: Model) -> None:
        """Raises ModelError for crops to a size that are no crops by as much on each side."""
        for length in (model.multiple, 5 * model.multiple):
            sizes = model.sizes(length, length)
            for cropped, reference, where in self._crops:
                if sizes[cropped] != sizes[reference]:
                    raise ModelError(
                        f"{where}: it crops {sizes[cropped][0]} pixels to {sizes[reference][0]}:"
                        " only as much on each side is supported"
                    )
