"""The graph of an ONNX file, whose values may have functions, paddings and cuts pending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import SIGMOID
from waifu2x.networks.model import Border
from waifu2x.networks.nodes import (
    Add,
    Convolution,
    Dense,
    DepthwiseConvolution,
    Gate,
    GroupNorm,
    LayerNorm,
    Node,
    Weighted,
)
from waifu2x.networks.readers.limits import ModelBudget
from waifu2x.networks.readers.onnx import elementwise as functions
from waifu2x.networks.readers.onnx.messages import OnnxNode
from waifu2x.networks.readers.onnx.values import (
    NOTHING,
    Constant,
    Lengths,
    MapSize,
    MapValue,
    PendingFunction,
    map_size,
)
from waifu2x.system.lazy_dataclass import dataclass

_SIGMOID_LESS_HALF = SIGMOID - 0.5


_BORDERS: dict[str, Border] = {"reflect": "reflect", "edge": "replicate", "constant": "zero"}
_MULTIPLES = range(2, 65)


@dataclass(frozen=True)
class Edge:
    """How the file pads the picture."""

    margin: int = 0
    """Pixels on each side."""
    border: Border = "reflect"
    multiple: int = 1
    """Rows and columns are padded to a multiple of it, below and on the right."""


class OnnxGraph(GraphBuilder):
    """A GraphBuilder for the nodes of an ONNX file, one after the other."""

    def __init__(
        self, name: str, planes: int, pictures: Sequence[tuple[int, int]], budget: ModelBudget
    ) -> None:
        """`pictures` are rows and columns of the three for which sizes are computed."""
        super().__init__(name, planes)
        self.size = map_size(zip(*pictures, strict=True))
        self.budget = budget
        self.edge: Edge | None = None
        """The padding of the picture, once the file has named it."""
        self.of_node: OnnxNode
        """The node that is being read."""
        self._sizes: dict[MapSize, int] = {}
        """The first map of each size."""
        self._plain: dict[tuple[int, PendingFunction], int] = {}
        self._used: set[int] = set()
        """The identities of constants that a node has taken."""
        self._simple: dict[int, NDArray[np.int64] | None] = {}
        """Layers that only scale planes, or put them into this order: part of the one before."""

    def begin(self, node: OnnxNode) -> None:
        """Sets the node that is read now, for messages."""
        self.of_node = node
        self.layer = node.label

    def count_use(self, found: Constant) -> None:
        """Counts the numbers of a constant that other nodes have taken before, once more: each
        layer keeps its own."""
        if id(found) in self._used:
            self.budget.take_bytes(4 * found.array.size)
        self._used.add(id(found))

    def note(self, found: MapValue) -> None:
        """Remembers the size of a map, so that others can be resized to it."""
        if found.is_plain and not found.is_trimmed and not self.is_vector(found.value):
            self._sizes.setdefault(found.size, found.value)

    def of_size(self, size: MapSize) -> int | None:
        """Returns a map of that size; None without one."""
        return self._sizes.get(size)

    def is_raw(self, found: MapValue) -> bool:
        """Returns whether a map is the picture itself, before any padding."""
        return not found.value and not found.pad and found.shown == self.size

    def padded(self, found: MapValue, sides: Sequence[Lengths], mode: str) -> MapValue:
        """Returns the picture padded above, below, left and right."""
        node, (above, below, left, right) = self.of_node, sides
        margins = {*above, *left}
        margin = margins.pop()
        border = _BORDERS.get(mode)
        more = [[by - margin for by in each] for each in (below, right)]
        multiple = (
            1
            if not any(map(any, more))
            else next(
                (m for m in _MULTIPLES if more == [[-n % m for n in each] for each in self.size]), 0
            )
        )
        if margins or margin < 0 or not multiple or border is None:
            raise node.refused("it pads the picture by other than a margin and to a multiple")
        if border == "zero" and not found.pending.is_nothing:
            raise node.refused("it pads the picture by zeros behind a function: not supported")
        edge = Edge(margin, border, multiple)
        if self.edge not in (None, edge) or any(0 in each.sources for each in self._nodes):
            raise node.refused("it pads a picture that something else reads too: not supported")
        self.edge = edge
        size = map_size(
            [-(-n // multiple) * multiple + 2 * margin for n in each] for each in self.size
        )
        return MapValue(0, size, found.pending)

    def on_the_padded(self, found: MapValue) -> MapValue:
        """Returns the picture as a part of the padded one; other maps as they are."""
        edge = self.edge
        if edge is None or not self.is_raw(found):
            return found
        margin = (edge.margin,) * 3
        size = map_size([n + 2 * edge.margin for n in each] for each in self.size)
        cuts = (margin, margin, margin, margin)
        return replace(found, size=size, cuts=cuts, is_trimmed=edge.multiple > 1)

    def plain(self, found: MapValue) -> int:
        """Returns a map's value with everything pending done. Raises ModelError if it cannot be."""
        if found.pad:
            raise self.of_node.refused("a padding that is not a convolution's: not supported")
        value = self._with_functions(found)
        if any(map(any, found.cuts)):
            sides = {length for side in found.cuts for length in side}
            if len(sides) > 1 or found.is_trimmed:
                raise self.of_node.refused("it reads a part of a map that is not its middle")
            value = self.crop(value, sides.pop())
        return value

    def _with_functions(self, found: MapValue) -> int:
        if found.pending.is_nothing:
            return found.value
        key = found.value, found.pending
        if key not in self._plain:
            self._plain[key] = self._computed(found.value, found.pending)
        return self._plain[key]

    def _computed(self, value: int, pending: PendingFunction) -> int:
        planes = self.planes(value)
        function = pending.function
        if function is None:
            factors, shifts = (
                np.resize(np.array(each, np.float32), planes)
                for each in (pending.factors, pending.shifts)
            )
            return self.scaled(value, factors, shifts, leaky(1.0, planes))
        if functions.has_softplus(function):
            raise self.of_node.refused("a Softplus that is no part of Mish: not supported")
        slope = functions.leaky_slope(function)
        if slope is not None:
            return self.activated(value, leaky(slope, planes))
        return self.activated(value, elementwise(functions.canonical(function), planes))

    def activated(self, value: int, activation: Activation) -> int:
        """Adds an activation of a value as a node."""
        planes = self.planes(value)
        return self.scaled(
            value, np.ones(planes, np.float32), np.zeros(planes, np.float32), activation
        )

    def scaled(
        self,
        value: int,
        factors: NDArray[np.float32],
        shifts: NDArray[np.float32],
        activation: Activation,
    ) -> int:
        """Adds an activation of a value times factors plus shifts, one for each plane."""
        planes = self.planes(value)
        self.budget.take_bytes(4 * planes * planes)
        weight = np.diag(factors)
        if self.is_vector(value):
            made = self.dense(value, weight, shifts, activation)
        else:
            made = self.convolution(value, weight[:, :, np.newaxis, np.newaxis], shifts, activation)
        self._simple[made] = None
        return made

    def rearranged(self, value: int, order: NDArray[np.int64]) -> int:
        """Adds the planes of a map in this order; some may be missing or repeated."""
        planes = self.planes(value)
        if len(order) == planes and (order == np.arange(planes)).all():
            return value
        self.budget.take_bytes(4 * planes * len(order))
        weight = np.zeros((len(order), planes, 1, 1), np.float32)
        weight[np.arange(len(order)), order] = 1
        made = self.convolution(value, weight, np.zeros(len(order), np.float32))
        self._simple[made] = order
        return made

    def sum(self, left: MapValue, right: MapValue, factor: float) -> MapValue:
        """Adds left + right * factor."""
        right = self.times(right, factor)
        for one, other in ((right, left), (left, right)):
            by = _only_factor(one.pending)
            if by is not None:  # what scales it is part of the sum
                value = self.plain(replace(one, pending=NOTHING))
                return self.like(left, self.add(value, self.plain(other), by))
        return self.like(left, self.add(self.plain(right), self.plain(left)))

    def times(self, found: MapValue, factor: float) -> MapValue:
        """Returns a map times a number."""
        if factor == 1:
            return found
        pending = functions.with_constant("*", found.pending, (factor,), is_first=False)
        if pending is None:
            return MapValue(
                *(self.plain(found), found.shown),
                pending=replace(NOTHING, factors=(factor,)),
                is_trimmed=found.is_trimmed,
            )
        return replace(found, pending=pending)

    def multiplied(self, left: MapValue, right: MapValue) -> MapValue:
        """Adds the product of maps of as many planes or of one, or of a map and a vector."""
        if self.is_vector(left.value) or self.planes(left.value) < self.planes(right.value):
            left, right = right, left
        if not self.is_vector(right.value):
            for factor, other in ((left, right), (right, left)):
                gated = self._gated(factor, other)
                if gated is not None:
                    return self.like(left, gated)
        return self.like(left, self.multiply(self.plain(left), self.plain(right)))

    def _gated(self, factor: MapValue, other: MapValue) -> int | None:
        """Adds (a + b) * (sigmoid(a) - 1/2) as one node; None for other products."""
        function = factor.pending.function
        added = self.node(other.value)
        if function is None or not other.is_plain or not isinstance(added, Add):
            return None
        if added.factor != 1 or not functions.is_the_same(function, _SIGMOID_LESS_HALF):
            return None
        pair = [added.source, added.other]
        if factor.value not in pair:
            return None
        pair.remove(factor.value)
        return self.append(Gate(factor.value, pair[0]))

    def like(self, found: MapValue, value: int) -> MapValue:
        """Returns a value, nothing pending, of the size that the file counts for a map."""
        return MapValue(value, found.shown, is_trimmed=found.is_trimmed)

    def tidied(self, result: int) -> GraphBuilder:
        """Returns the graph of a result, without unused nodes, functions merged into layers."""
        needed, uses = {result}, [0] * (self.last + 1)
        for value in range(self.last, 0, -1):
            if value in needed:
                for source in self._nodes[value - 1].sources:
                    needed.add(source)
                    uses[source] += 1
        net = GraphBuilder(self.name, self.planes(0))
        places = [0] * (self.last + 1)
        for value in sorted(needed - {0}):
            node = self._nodes[value - 1]
            source = node.sources[0]
            net.layer = self.maker(value)
            merged = None
            if value in self._simple and uses[source] == 1:
                merged = _merged(net.node(places[source]), node, self._simple[value])
            if merged is None:
                places[value] = net.append(node.renumbered(places))
            else:
                net.exchange(places[source], merged)
                places[value] = places[source]
        return net


def _only_factor(pending: PendingFunction) -> float | None:
    """Returns the pending factor, if nothing else is pending and it is the same for all planes."""
    if pending.function or len(set(pending.factors)) > 1 or set(pending.shifts) != {0.0}:
        return None
    return pending.factors[0]


def _merged(before: Node | None, node: Node, order: NDArray[np.int64] | None) -> Node | None:
    """Returns a layer merged with a reordering or scaling of its planes behind it, or None."""
    assert isinstance(node, Convolution | Dense)
    if isinstance(before, LayerNorm | GroupNorm):
        if order is not None or not node.activation.is_linear:
            return None
        factors = np.diagonal(node.weight[:, :, 0, 0])
        bias = before.bias * factors + node.bias
        return replace(before, weight=before.weight * factors, bias=bias)
    if not isinstance(before, Weighted) or not before.activation.is_linear:
        return None
    if order is None:
        factors = np.diagonal(node.weight.reshape(node.weight.shape[:2]))
        weight = before.weight * factors.reshape(-1, *[1] * (before.weight.ndim - 1))
        bias = before.bias * factors + node.bias
    elif len(order) == len(before.bias) and not isinstance(before, DepthwiseConvolution):
        weight, bias = before.weight[order], before.bias[order]
    else:
        return None
    return replace(before, weight=weight, bias=bias, activation=node.activation)
