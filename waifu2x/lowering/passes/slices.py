"""Replaces slices of planes by nodes that make only those planes, before a graph is lowered: none
is copied.

- A slice of a convolution read only by slices becomes a convolution with those outputs; a depthwise
  one then reads a slice of its source.
- A slice of a concatenation becomes one of its sources, or slices of some, concatenated.
- Any other becomes a 1x1 convolution that passes its planes on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from waifu2x.lowering.passes.identities import without_unread
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.digests import note_rewritten
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Concatenate,
    Convolution,
    DepthwiseConvolution,
    Node,
    Slice,
)

_WITH_OUTPUTS = Convolution | DepthwiseConvolution


def without_slices(model: Model) -> Model:
    """Returns the same network without slices; the model itself if it has none."""
    if not any(isinstance(node, Slice) for node in model.nodes):
        return model
    made = without_unread(replace(model, nodes=tuple(_Rewriting(model).nodes)))
    note_rewritten(made, model)
    return made


class _Rewriting:
    """Rebuilds the nodes of a model without slices."""

    def __init__(self, model: Model) -> None:
        self.nodes: list[Node] = []
        self._planes = [model.in_planes]
        """The planes of each new value."""
        self._found: dict[tuple[int, int, int], int] = {}
        """The new values of slices, by source, first plane and number of planes."""
        readers: dict[int, list[Node]] = {}
        for node in model.nodes:
            for source in node.sources:
                readers.setdefault(source, []).append(node)
        last = len(model.nodes)
        divided = {
            value
            for value, found in readers.items()
            if value != last and all(isinstance(node, Slice) for node in found)
        }
        """Values read by slices alone."""
        self._divided: set[int] = set()
        """New values read by slices alone."""
        self._read_once: set[int] = set()
        """New values that one node reads."""
        places = [0]
        for value, node in enumerate(model.nodes, 1):
            if isinstance(node, Slice):
                found = self._slice(places[node.source], node.first, node.planes)
                if value == last and found != len(self.nodes):
                    found = self._passed_on(found, 0, node.planes)
            else:
                found = self._add(node.renumbered(places), model.shapes[value].planes)
            places.append(found)
            if value in divided:
                self._divided.add(found)
            if len(readers.get(value, ())) == 1:
                self._read_once.add(found)

    def _add(self, node: Node, planes: int) -> int:
        self.nodes.append(node)
        self._planes.append(planes)
        return len(self.nodes)

    def _slice(self, value: int, first: int, planes: int) -> int:
        """Returns the new value that has `planes` planes of another, from `first` on."""
        key = (value, first, planes)
        if key not in self._found:
            whole = planes == self._planes[value]
            self._found[key] = value if whole else self._made(value, first, planes)
        return self._found[key]

    def _made(self, value: int, first: int, planes: int) -> int:
        node = self.nodes[value - 1] if value else None
        if isinstance(node, Concatenate):
            return self._of_several(node, first, planes)
        if isinstance(node, _WITH_OUTPUTS) and value in self._divided:
            return self._with_outputs(node, first, planes)
        return self._passed_on(value, first, planes)

    def _of_several(self, node: Concatenate, first: int, planes: int) -> int:
        """Returns the new value of planes of a concatenation."""
        parts = []
        for source in node.sources:
            count = self._planes[source]
            start, stop = max(first, 0), min(first + planes, count)
            if start < stop:
                parts.append(self._slice(source, start, stop - start))
            first -= count
        if len(parts) == 1:
            return parts[0]
        return self._add(Concatenate(tuple(parts)), planes)

    def _with_outputs(self, node: _WITH_OUTPUTS, first: int, planes: int) -> int:
        """Returns the new value of some planes of a convolution, made by one with only those."""
        own = slice(first, first + planes)
        source = node.source
        if isinstance(node, DepthwiseConvolution):
            if source in self._read_once:
                self._divided.add(source)
            source = self._slice(source, first, planes)
        made = replace(
            node,
            source=source,
            weight=node.weight[own],
            bias=node.bias[own],
            activation=Activation(node.activation.function, node.activation.slopes[own]),
        )
        return self._add(made, planes)

    def _passed_on(self, value: int, first: int, planes: int) -> int:
        """Returns the new value of some planes of another, passed on by a 1x1 convolution."""
        weight = np.eye(planes, self._planes[value], first, dtype=np.float32)
        arrays = weight[:, :, np.newaxis, np.newaxis], np.zeros(planes, np.float32)
        return self._add(Convolution(value, *arrays, leaky(1.0, planes)), planes)
