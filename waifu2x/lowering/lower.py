"""Lowers a network's graph to steps: convolutions, with epilogues and stores that absorb the nodes
behind them, and planewise steps.

Identities that keep the kinds of steps few:
- a convolution at a stride s is one over the source stored by space-to-depth, with k / s taps;
- a transposed convolution is a valid one with s * s times the planes, stored by depth-to-space;
  taps that do not exist are zero;
- a pixel shuffle behind a convolution is a store, an addition behind it a residual;
- a crop, and the enlargement of the picture, are ways to read;
- a concatenation is a value with several parts, each written where it is made.
Everything else is a planewise step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from waifu2x.lowering.bilinear import bilinear_resize
from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.base import compacted
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import (
    InterleavePixels,
    Planewise,
    PoolMaxima,
    Resize,
    SampleGrid,
)
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.passes.identities import simplified
from waifu2x.lowering.passes.joins import Joins
from waifu2x.lowering.passes.places import GraphPlaces
from waifu2x.lowering.passes.slices import without_slices
from waifu2x.lowering.plan import phases
from waifu2x.lowering.program import Program
from waifu2x.lowering.taps import convolution_taps, shuffled, tap_count, transposed_taps
from waifu2x.lowering.values import Target, View
from waifu2x.networks.activations import Activation
from waifu2x.networks.attention import ChannelAttention, WindowAttention
from waifu2x.networks.expressions import ADD, GATE, MULTIPLY, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    DepthwiseConvolution,
    Enlarge,
    Gate,
    GridSample,
    GroupNorm,
    Interleave,
    Interpolate,
    InterpolateTo,
    LayerNorm,
    MaxPool,
    Mean,
    Multiply,
    MultiplyMaps,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
)
from waifu2x.networks.windows import Windows


def lower(model: Model) -> Program:
    """Returns the program of a model, or of a cheaper equivalent, which is then `Program.model`.

    Raises ModelError for a convolution with too many taps.
    """
    return _Lowering(simplified(without_slices(model))).program()


class _Lowering:
    """Holds the state of one lowering. A "graph value" is a value of the model; a "value", one of
    the program."""

    def __init__(self, model: Model) -> None:
        self._graph = Joins(model)
        self._places = GraphPlaces(self._graph)
        self._vector_of: dict[int, int] = {}

    def program(self) -> Program:
        """Lowers all nodes; the result becomes the last value."""
        last = len(self._graph.model.nodes)
        for value in self._graph.live:
            if value not in self._graph.fused:
                self._lower(value)
        result = self._result(last)
        values, steps = compacted(self._places.values, self._places.steps, result)
        made = Program(self._graph.model, values, tuple(self._places.vectors), steps)
        return phases.with_zeros_around(made)

    def _lower(self, value: int) -> None:
        node, places = self._graph.node(value), self._places
        add = places.steps.append
        match node:
            case Crop():
                views = places.views[node.source]
                places.views[value] = tuple(
                    replace(view, offset=view.offset + node.pixels) for view in views
                )
            case Concatenate():
                places.concatenate(value)
            case Enlarge() if self._graph.is_view(value):
                (view,) = places.views[node.source]
                offset = view.offset * node.factor
                places.views[value] = (replace(view, offset=offset, enlarge=node.factor),)
            case Mean():
                vector = self._add_vector(value)
                add(GlobalAvgPool(value, places.plain(node.source), vector))
            case Dense():
                source, vector = self._vector_of[node.source], self._add_vector(value)
                add(Linear(value, source, vector, node.weight, node.bias, node.activation))
            case Gate():
                self._join(value, places.source(node.source), 1.0, places.added(node.other))
            case Interpolate():
                whole, target = places.unfolded(node.source), places.target(value)
                add(Resize(value, whole, target, node.up, node.down, "bicubic"))
            case InterpolateTo():
                whole, target = places.unfolded(node.source), places.target(value)
                add(bilinear_resize(self._graph.model, value, node, whole, target))
            case MaxPool():
                whole, target = places.unfolded(node.source), places.target(value)
                add(PoolMaxima(value, whole, target, node.kernel, node.stride))
            case Interleave():
                whole, target = places.unfolded(node.source), self._zero_target(value)
                add(InterleavePixels(value, whole, target, node.parts, node.inverse))
            case GridSample():
                whole, offsets = map(places.unfolded, node.sources)
                if offsets.value == whole.value:
                    offsets = View(places.copied(node.offsets, 1, zero=True))
                target = self._zero_target(value)
                add(SampleGrid(value, whole, target, node.scale, node.groups, offsets))
            case MultiplyMaps():
                inner = self._graph.taken(value)
                self._sum(value, node.source if inner is None else inner, 1.0)
            case LayerNorm():
                part, target = places.plain_part(node.source, zero=False), places.target(value)
                add(NormPlanes(value, part, target, node.weight, node.bias, node.eps))
            case ChannelAttention() if not node.window:
                self._channel_attention(value, node)
            case WindowAttention() | ChannelAttention():
                self._attention(value, node)
            case Add():
                inner = self._graph.taken(value)
                factor = node.factor if inner in (node.source, None) else 1.0
                self._sum(value, node.source if inner is None else inner, factor)
            case _:
                self._sum(value, value, 1.0)

    def _add_vector(self, value: int) -> int:
        """Adds the vector of a graph value, and returns its number."""
        self._vector_of[value] = vector = self._places.add_vector(self._graph.planes(value))
        return vector

    def _sum(self, value: int, inner: int, factor: float) -> None:
        """Adds the step of the node that makes `inner`, fused with the addition into `value`."""
        other, places = self._graph.residual_of(value), self._places
        add, node = places.steps.append, self._graph.node(inner)
        if other is not None and inner not in self._graph.fused:
            # Neither operand's step can absorb the addition.
            self._join(value, places.source(inner), factor, places.added(other))
            return
        match node:
            case PixelShuffle() if node.source in self._graph.fused:
                self._conv(value, node.source, factor, node.factor, other)
            case Convolution() | TransposedConvolution():
                self._conv(value, inner, factor, 1, other)
            case DepthwiseConvolution():
                self._depthwise(value, inner, other)
            case PixelShuffle():
                source, added = places.source(node.source), places.residual(other)
                target = places.target(value)
                add(Planewise(inner, source, target, factor, added, depth_to_space=node.factor))
            case PixelUnshuffle():
                source, target = places.source(node.source), places.target(value)
                add(Planewise(inner, source, target, space_to_depth=node.factor))
            case Enlarge():
                source = places.source(node.source)
                if source.enlarge > 1:
                    source = View(places.copied(node.source, 1, zero=False))
                source = replace(source, offset=source.offset * node.factor, enlarge=node.factor)
                add(Planewise(inner, source, places.target(value)))
            case Multiply():
                source, vector = places.source(node.source), self._vector_of[node.factors]
                added, target = places.residual(other), places.target(value)
                add(Planewise(inner, source, target, factor, added, vector=vector))
            case GroupNorm():
                self._group_norm(value, inner, factor, places.residual(other))
            case _:
                raise AssertionError(node)

    def _join(self, value: int, source: View, factor: float, residual: View) -> None:
        """Adds a planewise step that writes join(source * factor, residual)."""
        target, join = self._places.target(value), self._join_of(value)
        self._places.steps.append(Planewise(value, source, target, factor, residual, join))

    def _join_of(self, value: int) -> Expression:
        """Returns the function by which the node of a value joins two maps; ADD by default."""
        match self._graph.node(value):
            case MultiplyMaps():
                return MULTIPLY
            case Gate():
                return GATE
        return ADD

    def _group_norm(self, value: int, inner: int, factor: float, added: View | None) -> None:
        """Adds means of planes and of their squares, then a planewise scale and shift."""
        node = self._graph.node(inner)
        assert isinstance(node, GroupNorm)
        source = self._places.plain(node.source)
        plane_means, squares, factors, shifts = (
            self._places.add_vector(len(node.bias)) for _ in range(4)
        )
        self._places.steps += [
            GlobalAvgPool(inner, source, plane_means),
            GlobalAvgPool(inner, source, squares, squared=True),
        ]
        arrays = node.weight, node.bias, node.groups, node.eps
        for shifted, vector in ((False, factors), (True, shifts)):
            self._places.steps.append(
                NormVector(inner, plane_means, vector, squares, *arrays, shifted)
            )
        target = self._places.target(value)
        self._places.steps.append(
            Planewise(inner, source, target, factor, added, vector=factors, shifts=shifts)
        )

    def _zero_target(self, value: int) -> Target:
        """Returns the target of a graph value, marked as zero outside its size."""
        target = self._places.target(value)
        stored = self._places.values[target.value]
        self._places.values[target.value] = replace(stored, zero_outside=True)
        return target

    def _attention(self, value: int, node: WindowAttention | ChannelAttention) -> None:
        """Adds the step of attention in windows, or between planes."""
        source, keys, values = map(self._places.unfolded, node.sources)
        target = self._zero_target(value)
        first = node.queries.first, node.keys.first, node.values.first
        maps = value, source, target, keys, values, first, node.planes
        if isinstance(node, WindowAttention):
            step = AttendWindows(*maps, node.windows, node.scale, node.bias)
            self._places.steps.append(step)
        else:
            windows = Windows(node.window, node.window)
            self._places.steps.append(AttendPlanes(*maps, windows, node.temperature))

    def _channel_attention(self, value: int, node: ChannelAttention) -> None:
        depth, parts = node.planes // node.heads, node.period**2
        sums = self._places.add_vector(node.planes * (depth + 2) * parts)
        weights = self._places.add_vector(node.planes * depth * parts)
        source, values = (
            self._places.unfolded(node.queries.source),
            self._places.unfolded(node.values.source),
        )
        first = node.queries.first, node.keys.first
        self._places.steps += [
            CrossSums(value, source, sums, first, node.planes, node.heads, node.period),
            ChannelWeights(value, sums, weights, node.planes, node.temperature, parts),
            MixPlanes(
                *(value, values, self._places.target(value), node.values.first),
                *(node.planes, node.heads, weights, node.period),
            ),
        ]

    def _conv(self, value: int, inner: int, factor: float, shuffle: int, other: int | None) -> None:
        """Adds a convolution, transposed or not, fused with the shuffle and addition behind it."""
        node = self._graph.node(inner)
        assert isinstance(node, Convolution | TransposedConvolution)
        where = f"{self._graph.model.name}: node {inner}"
        if isinstance(node, Convolution):
            taps, stride = convolution_taps(node, where), node.stride
            rows = shuffled(len(node.bias), shuffle)
        else:
            taps, stride = transposed_taps(node, where), 1
            shuffle = node.stride
            rows = np.tile(np.arange(len(node.bias)), shuffle**2)
        weight = taps.weight[rows] if isinstance(node, Convolution) else taps.weight
        activation = Activation(node.activation.function, node.activation.slopes[rows])
        source = self._places.conv_source(node.source, stride, taps.reaches)
        source = replace(source, offset=source.offset + taps.first)
        residual = None
        later = None
        if other is not None:
            view = self._places.source(other)
            fits = (
                view.value != 0
                and self._places.values[view.value].space_to_depth == shuffle
                and view.offset % shuffle == 0
                and view.enlarge == 1
            )
            residual, later = (view, None) if fits else (None, view)
        target = (
            self._places.target(value) if later is None else Target(self._places.add_value(value))
        )
        self._places.steps.append(
            Conv(
                node=inner,
                source=source,
                weight=np.ascontiguousarray(weight),
                bias=node.bias[rows],
                activation=activation,
                target=target,
                depth_to_space=shuffle,
                factor=factor,
                residual=residual,
                join=self._join_of(value) if residual else ADD,
            )
        )
        if later is not None:
            # The epilogue cannot add it.
            assert other is not None
            self._join(value, View(target.value), 1.0, self._places.added(other))

    def _depthwise(self, value: int, inner: int, other: int | None) -> None:
        """Adds a depthwise convolution, fused with the addition or product behind it."""
        node = self._graph.node(inner)
        assert isinstance(node, DepthwiseConvolution)
        tap_count(node.weight.shape[-1], f"{self._graph.model.name}: node {inner}")
        source = self._places.plain_part(node.source, zero=node.padding > 0)
        residual = self._places.residual(other)
        if (
            residual
            and other is not None
            and self._places.values[residual.value].space_to_depth > 1
        ):
            residual = View(self._places.copied(other, 1, zero=False))
        self._places.steps.append(
            Depthwise(
                node=inner,
                source=replace(source, offset=source.offset - node.padding),
                weight=np.ascontiguousarray(node.weight[:, 0]),
                bias=node.bias,
                activation=node.activation,
                target=self._places.target(value),
                residual=residual,
                join=self._join_of(value),
            )
        )

    def _result(self, last: int) -> int:
        """Returns the last node's value, copied if need be: one step writes it, none reads it."""
        views = self._places.views[last]
        index = views[0].value
        if index and views == (View(index),) and not self._graph.readers[last]:
            stored = self._places.values[index]
            writers = [step for step in self._places.steps if step.writes == index]
            plain = len(writers) == 1 and not writers[0].is_inner
            if stored.graph == last and len(stored.parts) == 1 and plain:
                return index
        source = self._places.source(last)
        index = self._places.add_value(last)
        self._places.steps.append(Planewise(last, source, Target(index)))
        return index
