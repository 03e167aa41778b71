"""A node of an ONNX file and the values that it reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.readers.onnx import views
from waifu2x.networks.readers.onnx.graph import OnnxGraph
from waifu2x.networks.readers.onnx.messages import OnnxNode
from waifu2x.networks.readers.onnx.values import Constant, DividedMap, MapValue, Sizes, Value
from waifu2x.networks.readers.tensors import floats

Floats = NDArray[np.float32]


class NodeCall:
    """A node, and the values that it reads."""

    def __init__(self, graph: OnnxGraph, node: OnnxNode, inputs: Sequence[Value | None]) -> None:
        self.graph = graph
        self.node = node
        self.inputs = inputs

    def map(self, place: int = 0) -> MapValue:
        """Returns an input that is a map or a vector. Raises ModelError for others."""
        found = self.optional(place)
        if isinstance(found, DividedMap):
            found = views.map_of(self.graph, found)
        if not isinstance(found, MapValue):
            raise self.node.refused("it reads something other than a map: not supported")
        return self.graph.on_the_padded(found)

    def up_to_its_edges(self, found: MapValue) -> MapValue:
        """Returns a map that a node reads around each pixel.

        Raises ModelError for one that is cut to the picture's size: the node would read what was
        cut off.
        """
        if found.is_trimmed:
            raise self.node.refused(
                "it reads a map that is cut to the picture's size: not supported"
            )
        return found

    def view(self, place: int = 0) -> DividedMap:
        """Returns an input that is a map, its axes divided or not. Raises ModelError for others."""
        found = self.optional(place)
        return (
            found if isinstance(found, DividedMap) else views.view_of(self.graph, self.map(place))
        )

    def elements(self, place: int = 0) -> tuple[MapValue, DividedMap | None]:
        """Returns an input that is a map, and None.

        Where its axes are reordered or divided: the map that it is a view of, and the view.
        """
        found = self.optional(place)
        if isinstance(found, DividedMap):
            own = views.map_of(self.graph, found)
            return (found.source, found) if own is None else (self.graph.on_the_padded(own), None)
        return self.map(place), None

    def again(self, made: MapValue, view: DividedMap | None) -> Value:
        """Returns a map, computed of that of `elements`, as the same view."""
        return made if view is None else views.with_source(self.graph, view, made)

    def optional(self, place: int) -> Value | None:
        """Returns an input; None for one that is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def array(self, place: int) -> Floats | None:
        """Returns a constant input; None for one that is left out. Raises ModelError for others."""
        found = self.optional(place)
        if found is None:
            return None
        if not isinstance(found, Constant):
            raise self.node.refused("its weights are not constant: not supported")
        self.graph.count_use(found)
        where = f"{self.node.where}: input {place}"
        return floats(found.array, where)

    def whole(self, place: int) -> list[NDArray[np.int64] | None]:
        """Returns an input of whole numbers, for each of PICTURES; None if it is left out."""
        found = self.optional(place)
        if found is None:
            return [None] * 3
        if isinstance(found, Constant) and found.array.dtype.kind == "i":
            return [found.array] * 3
        if not isinstance(found, Sizes):
            raise self.node.refused("its numbers are not known before it runs: not supported")
        return list(found.arrays)

    def only(self, attribute: str, wanted: str) -> None:
        """Raises ModelError if an attribute has another value than this one."""
        found = self.node.get(attribute, wanted)
        if found != wanted:
            raise self.node.refused(f"{attribute} {found[:20]!r}: not supported")
