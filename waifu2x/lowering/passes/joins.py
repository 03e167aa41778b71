"""Nodes of a graph that one step computes together, and the storage of their values."""

from __future__ import annotations

from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    DepthwiseConvolution,
    Enlarge,
    Gate,
    GroupNorm,
    Interpolate,
    InterpolateTo,
    Mean,
    Multiply,
    MultiplyMaps,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
)

_PLANEWISE = (
    Add | Enlarge | Gate | GroupNorm | Multiply | MultiplyMaps | PixelShuffle | PixelUnshuffle
)
_READS_FOLDED = _PLANEWISE | Interpolate | Mean
"""Nodes, besides convolutions, that read maps stored by space-to-depth, too."""
_MADE_FOLDED = _PLANEWISE | Convolution | TransposedConvolution
"""Nodes whose maps may be stored by space-to-depth."""
_TAKES_ALONG = (
    *(Convolution, TransposedConvolution, DepthwiseConvolution),
    *(PixelShuffle, Multiply, GroupNorm),
)
"""Nodes whose steps may absorb an addition behind them."""


class Joins:
    """Decides which nodes of a model one step computes together, and how values are stored."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.live = _live(model)
        """The values that the result depends on, the picture left out, in order."""
        self.readers: dict[int, list[int]] = {value: [] for value in range(len(model.nodes) + 1)}
        """For each value, the values whose nodes read it."""
        for value in self.live:
            for source in _read(model.nodes[value - 1]):
                self.readers[source].append(value)
        self.fused = self._fusions()
        """Values that are never stored, with the value whose step absorbs each."""
        self._flat = self._flattened()
        self.blocks = {value: self._stored_block(value) for value in self.live}
        """The block of space-to-depth by which each is stored."""

    def node(self, value: int) -> Node | None:
        """Returns the node that makes a graph value; None for the picture."""
        return self.model.nodes[value - 1] if value else None

    def planes(self, value: int) -> int:
        """Planes of a value."""
        return self.model.shapes[value].planes

    def residual_of(self, value: int) -> int | None:
        """Returns the graph value that the step of a value adds, or multiplies by; None if none."""
        node = self.node(value)
        inner = self.taken(value)
        if not isinstance(node, Add | MultiplyMaps):
            return None
        return node.other if inner in (node.source, None) else node.source

    def taken(self, value: int) -> int | None:
        """Returns the graph value that is fused into the step of another; None if none."""
        operands = self.model.nodes[value - 1].sources
        return next((v for v in operands if self.fused.get(v) == value), None)

    def flat(self, value: int) -> tuple[int, ...]:
        """Returns the operands of a concatenation, with inner concatenations expanded."""
        return self._flat.get(value, (value,))

    def _flattened(self) -> dict[int, tuple[int, ...]]:
        """Maps each concatenation to its operands, as `flat` returns them."""
        found: dict[int, tuple[int, ...]] = {}
        for value in self.live:
            node = self.node(value)
            if isinstance(node, Concatenate):
                parts = [found.get(source, (source,)) for source in node.sources]
                found[value] = parts[0] if len(parts) == 1 else sum(parts, ())
        return found

    def is_made(self, value: int) -> bool:
        """Returns whether a step writes a graph value; others are views of values."""
        if value == 0 or isinstance(self.node(value), Crop | Concatenate):
            return False
        return not self.is_view(value)

    def is_view(self, value: int) -> bool:
        """Returns whether a value is the enlarged picture, which is only a view of it."""
        node = self.node(value)
        if not isinstance(node, Enlarge):
            return False
        source = node.source
        while source and isinstance(self.node(source), Crop):
            source = self.model.nodes[source - 1].sources[0]
        return source == 0

    def _fusions(self) -> dict[int, int]:
        """Maps graph values that are never stored to their only reader, which absorbs them."""
        fused: dict[int, int] = {}
        for value in self.live:
            node = self.node(value)
            if isinstance(node, PixelShuffle):
                source = self.node(node.source)
                if isinstance(source, Convolution) and self.readers[node.source] == [value]:
                    fused[node.source] = value
            elif isinstance(node, Add):
                for operand in sorted({node.source, node.other}, reverse=True):
                    if self._can_add(value, node, operand):
                        fused[operand] = value
                        break
            elif isinstance(node, MultiplyMaps):
                for operand in sorted({node.source, node.other}, reverse=True):
                    kinds = Convolution | DepthwiseConvolution
                    only = self.readers[operand] == [value]
                    if only and isinstance(self.node(operand), kinds):
                        fused[operand] = value
                        break
        return fused

    def _can_add(self, value: int, node: Add, operand: int) -> bool:
        """Returns whether the step of an operand of an addition can take the other operand as its
        residual."""
        kinds = _TAKES_ALONG
        made = self.node(operand)
        if not isinstance(made, kinds) or self.readers[operand] != [value]:
            return False
        if isinstance(made, PixelShuffle) and not isinstance(self.node(made.source), Convolution):
            return False
        if isinstance(made, DepthwiseConvolution) and node.factor != 1:
            return False
        return operand == node.source or node.factor == 1

    def _stored_block(self, value: int) -> int:
        """Returns the block of a graph value's storage: its space-to-depth if all convolutions that
        read it have one stride."""
        node = self.node(value)
        if not isinstance(node, _MADE_FOLDED) or value == len(self.model.nodes):
            return 1
        if self._shuffle_of(value) > 1 or self.residual_of(value) is not None:
            return 1
        strides = set()
        for reader, offset in self._convolutions(value):
            if reader is None or offset % reader.stride:
                return 1
            strides.add(reader.stride)
        return strides.pop() if len(strides) == 1 else 1

    def _convolutions(self, value: int) -> list[tuple[Convolution | None, int]]:
        """Returns the convolutions that read a graph value, and the crop of each; None for a node
        that reads only plain maps."""
        found: list[tuple[Convolution | None, int]] = []
        left = [(value, 0)]
        while left:
            cropped, offset = left.pop()
            for reader in self.readers[cropped]:
                node = self.node(reader)
                if isinstance(node, Crop):
                    left.append((reader, offset + node.pixels))
                elif isinstance(node, Convolution):
                    found.append((node, offset))
                elif not isinstance(node, _READS_FOLDED):
                    found.append((None, offset))
        return found

    def _shuffle_of(self, value: int) -> int:
        """Returns the depth-to-space of the convolution that makes a graph value, else 1."""
        node = self.node(value)
        if isinstance(node, Add):
            inner = self.taken(value)
            return self._shuffle_of(inner) if inner else 1
        if isinstance(node, PixelShuffle):
            return node.factor if node.source in self.fused else 1
        return node.stride if isinstance(node, TransposedConvolution) else 1


def _live(model: Model) -> list[int]:
    """Returns the graph values that the result depends on, without the picture, in order."""
    live = {len(model.nodes)}
    for value in range(len(model.nodes), 0, -1):
        if value in live:
            live.update(_read(model.nodes[value - 1]))
    return sorted(live - {0})


def _read(node: Node) -> tuple[int, ...]:
    """Returns the values whose numbers a node reads, not those whose size alone it needs."""
    return (node.source,) if isinstance(node, InterpolateTo) else node.sources
