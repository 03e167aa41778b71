"""A network as a graph, made into steps: convolutions, what their epilogues and stores take along,
planewise steps.

Identities that keep the kinds of steps few:
- a convolution at a stride s is one over the source stored by space-to-depth, with k / s taps;
- a transposed convolution is a valid one with s * s times the planes, stored by depth-to-space;
  taps that do not exist are zero;
- a pixel shuffle behind a convolution is a store, an addition behind it a residual;
- a crop, and the enlargement of the picture, are ways to read;
- a concatenation is a value with several parts, each written where it is made.
Whatever fits none of these is a planewise step of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.lowering import phases
from waifu2x.lowering.identities import simplified
from waifu2x.lowering.steps import (
    BicubicResize,
    Conv,
    Copy,
    DepthToSpace,
    GatedAdd,
    GlobalAvgPool,
    Linear,
    Program,
    Scale,
    SpaceToDepth,
    Step,
    Target,
    Value,
    View,
    compacted,
    writes,
)
from waifu2x.networks.activations import Activation
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Gate,
    Interpolate,
    Mean,
    Multiply,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
    sources,
)
from waifu2x.system.lazy_dataclass import dataclass

_TAPS = 3
"""The most in each direction that a convolution of a program has."""


def lower(model: Model) -> Program:
    """The steps of a model, or of one that computes the same: the program says which.

    Raises ModelError for a convolution with too many taps.
    """
    return _Lowering(simplified(model)).program()


@dataclass(frozen=True)
class _Taps:
    """A convolution over its source as it is stored by space-to-depth."""

    weight: NDArray[np.float32]
    first: int
    """The first tap's place, from the result's own."""
    reaches: bool
    """Whether results inside their size read places outside the source's."""


class _Lowering:
    """The state of one lowering. Graph values are those of the model, others those of the
    program."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._live = _live(model)
        self._readers: dict[int, list[int]] = {value: [] for value in range(len(model.nodes) + 1)}
        for value in self._live:
            for source in sources(model.nodes[value - 1]):
                self._readers[source].append(value)
        self._values: list[Value] = [self._new_value(0)]
        self._steps: list[Step] = []
        self._vectors: list[int] = []
        self._views: dict[int, tuple[View, ...]] = {0: (View(0),)}
        """Where a graph value is found: the views of its parts, in single pixels."""
        self._vector_of: dict[int, int] = {}
        self._copies: dict[tuple[int, int, bool], int] = {}
        self._fused = self._fusions()
        self._blocks = {value: self._stored_block(value) for value in self._live}
        self._parts: dict[int, Target] = {}
        """Graph values that are made where a concatenation wants them."""
        self._wide: dict[tuple[int, ...], int] = {}
        """Values with several parts, by the graph values of their parts."""
        self._place_concatenations()

    def program(self) -> Program:
        """All steps; the result becomes the last value."""
        last = len(self._model.nodes)
        for value in self._live:
            if value not in self._fused:
                self._lower(value)
        result = self._result(last)
        values, steps = compacted(self._values, self._steps, result)
        made = Program(self._model, values, tuple(self._vectors), steps)
        return phases.with_zeros_around(made)

    # What is fused with what.

    def _fusions(self) -> dict[int, int]:
        """Graph values that are never made, since the one node that reads them takes them along."""
        fused: dict[int, int] = {}
        for value in self._live:
            node = self._node(value)
            if isinstance(node, PixelShuffle):
                source = self._node(node.source)
                if isinstance(source, Convolution) and self._readers[node.source] == [value]:
                    fused[node.source] = value
            elif isinstance(node, Add):
                for operand in sorted({node.source, node.other}, reverse=True):
                    if self._can_add(value, node, operand):
                        fused[operand] = value
                        break
        return fused

    def _can_add(self, value: int, node: Add, operand: int) -> bool:
        """Whether an operand of an addition is a sum that can take the other one as its
        residual."""
        kinds = Convolution | TransposedConvolution | PixelShuffle | Multiply
        made = self._node(operand)
        if not isinstance(made, kinds) or self._readers[operand] != [value]:
            return False
        if isinstance(made, PixelShuffle) and not isinstance(self._node(made.source), Convolution):
            return False
        return operand == node.source or node.factor == 1

    def _stored_block(self, value: int) -> int:
        """How a graph value is stored: by space-to-depth if all convolutions that read it do so at
        one stride."""
        node = self._node(value)
        if isinstance(node, Crop | Concatenate | Mean | Dense | Interpolate) or value == len(
            self._model.nodes
        ):
            return 1
        if self._shuffle_of(value) > 1 or self._residual_of(value) is not None:
            return 1
        strides = set()
        for reader, offset in self._convolutions(value):
            if reader is None or offset % reader.stride:
                return 1
            strides.add(reader.stride)
        return strides.pop() if len(strides) == 1 else 1

    def _convolutions(self, value: int, offset: int = 0) -> list[tuple[Convolution | None, int]]:
        """The convolutions that read a graph value and by what it is cropped for them; None for
        what reads only plain maps."""
        found: list[tuple[Convolution | None, int]] = []
        for reader in self._readers[value]:
            node = self._node(reader)
            if isinstance(node, Crop):
                found += self._convolutions(reader, offset + node.pixels)
            elif isinstance(node, Convolution):
                found.append((node, offset))
            elif isinstance(node, TransposedConvolution | Concatenate):
                found.append((None, offset))
        return found

    def _shuffle_of(self, value: int) -> int:
        """The block of depth-to-space of the convolution that makes a graph value, else 1."""
        node = self._node(value)
        if isinstance(node, Add):
            inner = self._taken(value)
            return self._shuffle_of(inner) if inner else 1
        if isinstance(node, PixelShuffle):
            return node.factor if node.source in self._fused else 1
        return node.stride if isinstance(node, TransposedConvolution) else 1

    def _residual_of(self, value: int) -> int | None:
        """The graph value that the step which makes a value adds."""
        node = self._node(value)
        inner = self._taken(value)
        if not isinstance(node, Add):
            return None
        return node.other if inner in (node.source, None) else node.source

    def _taken(self, value: int) -> int | None:
        """The graph value that the node of another takes along."""
        operands = sources(self._model.nodes[value - 1])
        return next((v for v in operands if self._fused.get(v) == value), None)

    def _place_concatenations(self) -> None:
        """Makes the values of concatenations, the longest first: shorter ones may be their
        starts."""
        wanted = [v for v in self._live if isinstance(self._node(v), Concatenate)]
        for value in sorted(wanted, key=lambda v: -len(self._flat(v))):
            flat = self._flat(value)
            if any(wide[: len(flat)] == flat for wide in self._wide):
                continue
            index = self._add_value(value, tuple(self._planes(part) for part in flat))
            self._wide[flat] = index
            for part, source in enumerate(flat):
                if (
                    source not in self._parts
                    and self._is_made(source)
                    and self._blocks[source] == 1
                    and source != len(self._model.nodes)
                ):
                    self._parts[source] = Target(index, part)

    def _flat(self, value: int) -> tuple[int, ...]:
        """The graph values of a concatenation, none of them one itself."""
        node = self._node(value)
        if not isinstance(node, Concatenate):
            return (value,)
        return tuple(part for source in node.sources for part in self._flat(source))

    def _is_made(self, value: int) -> bool:
        """Whether a step writes a graph value, rather than its being a way to read another."""
        if value == 0 or isinstance(self._node(value), Crop | Concatenate):
            return False
        return not self._is_view(value)

    def _is_view(self, value: int) -> bool:
        """Whether it is the picture, enlarged."""
        node = self._node(value)
        if not isinstance(node, Enlarge):
            return False
        source = node.source
        while source and isinstance(self._node(source), Crop):
            source = sources(self._model.nodes[source - 1])[0]
        return source == 0

    # Nodes to steps.

    def _lower(self, value: int) -> None:
        node = self._node(value)
        match node:
            case Crop():
                self._views[value] = tuple(
                    replace(view, offset=view.offset + node.pixels)
                    for view in self._views[node.source]
                )
            case Concatenate():
                self._concatenate(value)
            case Enlarge() if self._is_view(value):
                (view,) = self._views[node.source]
                offset = view.offset * node.factor
                self._views[value] = (replace(view, offset=offset, enlarge=node.factor),)
            case Mean():
                self._vector_of[value] = vector = self._add_vector(self._planes(value))
                source = self._plain(node.source)
                self._steps.append(GlobalAvgPool(value, source, vector))
            case Dense():
                source_vector = self._vector_of[node.source]
                self._vector_of[value] = vector = self._add_vector(self._planes(value))
                self._steps.append(
                    Linear(value, source_vector, node.weight, node.bias, node.activation, vector)
                )
            case Gate():
                source, residual = self._source(node.source), self._added(node.other)
                self._steps.append(GatedAdd(value, source, self._target(value), residual))
            case Interpolate():
                whole = self._plain(node.source)
                if self._values[whole.value].space_to_depth > 1:
                    whole = View(self._copied(node.source, 1, zero=False))
                target = self._target(value)
                self._steps.append(BicubicResize(value, whole, target, node.up, node.down))
            case Add():
                inner = self._taken(value)
                factor = node.factor if inner in (node.source, None) else 1.0
                self._sum(value, node.source if inner is None else inner, factor)
            case _:
                self._sum(value, value, 1.0)

    def _sum(self, value: int, inner: int, factor: float) -> None:
        """The step of the node that makes `inner`, whose result is `value`: with what is added."""
        other = self._residual_of(value)
        node = self._node(inner)
        if other is not None and inner not in self._fused:
            # Neither operand can take the other one along.
            source, residual = self._source(inner), self._added(other)
            self._steps.append(Copy(value, source, self._target(value), factor, residual))
            return
        match node:
            case PixelShuffle() if node.source in self._fused:
                self._conv(value, node.source, factor, node.factor, other)
            case Convolution() | TransposedConvolution():
                self._conv(value, inner, factor, 1, other)
            case PixelShuffle():
                source, added = self._source(node.source), self._residual(other)
                target = self._target(value)
                self._steps.append(DepthToSpace(inner, source, target, node.factor, factor, added))
            case PixelUnshuffle():
                source = self._source(node.source)
                self._steps.append(SpaceToDepth(inner, source, self._target(value), node.factor))
            case Enlarge():
                source = self._source(node.source)
                if source.enlarge > 1:
                    source = View(self._copied(node.source, 1, zero=False))
                source = replace(source, offset=source.offset * node.factor, enlarge=node.factor)
                self._steps.append(Copy(inner, source, self._target(value)))
            case Multiply():
                source, vector = self._source(node.source), self._vector_of[node.factors]
                added = self._residual(other)
                target = self._target(value)
                self._steps.append(Scale(inner, source, target, vector, factor, added))
            case _:
                raise AssertionError(node)

    def _conv(self, value: int, inner: int, factor: float, shuffle: int, other: int | None) -> None:
        """A convolution of either kind, with what follows it."""
        node = self._node(inner)
        assert isinstance(node, Convolution | TransposedConvolution)
        where = f"{self._model.name}: node {inner}"
        if isinstance(node, Convolution):
            taps, stride = _convolution_taps(node, where), node.stride
            rows = _shuffled(len(node.bias), shuffle)
        else:
            taps, stride = _transposed_taps(node, where), 1
            shuffle = node.stride
            rows = np.tile(np.arange(len(node.bias)), shuffle**2)
        weight = taps.weight[rows] if isinstance(node, Convolution) else taps.weight
        activation = Activation(node.activation.function, node.activation.slopes[rows])
        source = self._conv_source(node.source, stride, taps.reaches)
        source = replace(source, offset=source.offset + taps.first)
        residual = None
        later = None
        if other is not None:
            view = self._source(other)
            fits = (
                view.value != 0
                and self._values[view.value].space_to_depth == shuffle
                and view.offset % shuffle == 0
                and view.enlarge == 1
            )
            residual, later = (view, None) if fits else (None, view)
        target = self._target(value) if later is None else Target(self._add_value(value))
        self._steps.append(
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
            )
        )
        if later is not None:
            # It cannot be added on the way.
            residual = self._residual(other)
            copy = Copy(value, View(target.value), self._target(value), residual=residual)
            self._steps.append(copy)

    def _residual(self, other: int | None) -> View | None:
        """What a planewise step adds, if it adds a graph value."""
        return None if other is None else self._added(other)

    def _added(self, other: int) -> View:
        """A graph value as a view that a planewise step can add."""
        view = self._source(other)
        if view.value == 0 or view.enlarge > 1:
            return View(self._copied(other, 1, zero=False))
        return view

    def _concatenate(self, value: int) -> None:
        flat = self._flat(value)
        index = next(i for wide, i in self._wide.items() if wide[: len(flat)] == flat)
        for part, source in enumerate(flat):
            target = Target(index, part)
            made = self._parts.get(source) == target
            copied = any(
                isinstance(step, Copy) and step.target == target and step.node == source
                for step in self._steps
            )
            if not made and not copied:
                self._steps.append(Copy(source, self._source(source), target))
        self._views[value] = tuple(View(index, first=part) for part in range(len(flat)))

    def _result(self, last: int) -> int:
        """The value of the last node, as one that a single step writes and none reads."""
        views = self._views[last]
        index = views[0].value
        if index and views == (View(index),) and not self._readers[last]:
            stored = self._values[index]
            writers = sum(writes(step) == index for step in self._steps)
            if stored.graph == last and len(stored.parts) == 1 and writers == 1:
                return index
        source = self._source(last)
        index = self._add_value(last)
        self._steps.append(Copy(last, source, Target(index)))
        return index

    # Where values are.

    def _node(self, value: int) -> Node | None:
        """What makes a graph value; None for the picture."""
        return self._model.nodes[value - 1] if value else None

    def _planes(self, value: int) -> int:
        return self._model.shapes[value].planes

    def _source(self, value: int) -> View:
        """A graph value as one view of one part, gathered if it has several."""
        views = self._views[value]
        return views[0] if len(views) == 1 else View(self._copied(value, 1, zero=False))

    def _plain(self, value: int) -> View:
        """A graph value as a whole value of the program."""
        view = self._source(value)
        if view == View(view.value) and view.value and len(self._values[view.value].parts) == 1:
            return view
        return View(self._copied(value, 1, zero=False))

    def _conv_source(self, value: int, stride: int, reaches: bool) -> View:
        """What a convolution reads: by space-to-depth at its stride, zero outside if it reaches
        there."""
        views = self._views[value]
        first = views[0]
        stored = self._values[first.value]
        together = all(
            view == replace(first, first=first.first + part) for part, view in enumerate(views)
        )
        plain = first.value != 0 and first.offset == 0
        black = self._model.border == "zero" and self._model.padding == 0 and first.offset == 0
        if stored.space_to_depth == stride and first.offset % stride == 0 and together:
            if reaches and plain:
                self._values[first.value] = replace(stored, zero_outside=True)
            if not reaches or plain or (first.value == 0 and black):
                return replace(first, offset=first.offset // stride, parts=len(views))
        return View(self._copied(value, stride, zero=reaches))

    def _copied(self, value: int, block: int, *, zero: bool) -> int:
        """A graph value in a value of one part, by copies."""
        key = (value, block, zero)
        if key not in self._copies:
            index = self._add_value(value)
            stored = replace(self._values[index], space_to_depth=block, zero_outside=zero)
            self._values[index] = stored
            self._copies[key] = index
            plane = 0
            for view in self._views[value]:
                self._steps.append(Copy(value, view, Target(index, 0, plane)))
                plane += self._values[view.value].parts[view.first]
        return self._copies[key]

    def _target(self, value: int) -> Target:
        """Where a graph value is made; from now on it is found there."""
        target = self._parts.get(value)
        if target is None:
            target = Target(self._add_value(value))
            stored = self._values[target.value]
            self._values[target.value] = replace(stored, space_to_depth=self._blocks[value])
        self._views[value] = (View(target.value, first=target.part),)
        return target

    def _new_value(self, value: int, parts: tuple[int, ...] = ()) -> Value:
        shape = self._model.shapes[value]
        assert shape.resolution is not None
        return Value(value, parts or (shape.planes,), shape.resolution)

    def _add_value(self, value: int, parts: tuple[int, ...] = ()) -> int:
        self._values.append(self._new_value(value, parts))
        return len(self._values) - 1

    def _add_vector(self, size: int) -> int:
        self._vectors.append(size)
        return len(self._vectors) - 1


def _live(model: Model) -> list[int]:
    """The graph values that the result depends on, the picture left out, in order."""
    live = {len(model.nodes)}
    for value in range(len(model.nodes), 0, -1):
        if value in live:
            live.update(sources(model.nodes[value - 1]))
    return sorted(live - {0})


def _convolution_taps(node: Convolution, where: str) -> _Taps:
    """out[y] = sum of weight[k] * in[y * stride + k - padding] over k, by places as stored."""
    side, stride = node.weight.shape[-1], node.stride
    places = [divmod(k - node.padding, stride) for k in range(side)]
    first = places[0][0]
    count = _tap_count(places[-1][0] - first + 1, where)
    made, read = node.weight.shape[:2]
    weight = np.zeros((made, stride, stride, read, count, count), np.float32)
    for ky, (y, dy) in enumerate(places):
        for kx, (x, dx) in enumerate(places):
            weight[:, dy, dx, :, y - first, x - first] = node.weight[:, :, ky, kx]
    stored = weight.reshape(made, stride**2 * read, count, count)
    return _Taps(stored, first, reaches=node.padding > 0)


def _transposed_taps(node: TransposedConvolution, where: str) -> _Taps:
    """out[y * stride + dy] by the taps of in[y + a]: weight[k], where k = dy + crop - a *
    stride."""
    side, stride = node.weight.shape[-1], node.stride
    places = [
        (k, (phase + node.crop - k) // stride, phase)
        for phase in range(stride)
        for k in range(side)
        if (phase + node.crop - k) % stride == 0
    ]
    first = min(a for _, a, _ in places)
    last = max(a for _, a, _ in places)
    count = _tap_count(last - first + 1, where)
    made, read = node.weight.shape[:2]
    weight = np.zeros((stride, stride, made, read, count, count), np.float32)
    for ky, y, dy in places:
        for kx, x, dx in places:
            weight[dy, dx, :, :, y - first, x - first] = node.weight[:, :, ky, kx]
    # The last result of n pixels, and how far beyond the source's last pixel it reads.
    beyond = (side - 2 * node.crop - 1) // stride + last
    shuffled = weight.reshape(stride**2 * made, read, count, count)
    return _Taps(shuffled, first, reaches=first < 0 or beyond > 0)


def _tap_count(count: int, where: str) -> int:
    if count > _TAPS:
        raise ModelError(f"{where}: a kernel of {count} taps for each pixel; {_TAPS} at most")
    return 1 if count == 1 else _TAPS


def _shuffled(planes: int, factor: int) -> NDArray[np.intp]:
    """The planes of a pixel shuffle's source, [plane][dy][dx], in the order [dy][dx][plane]."""
    order = np.arange(planes).reshape(planes // factor**2, factor, factor)
    return order.transpose(1, 2, 0).ravel()
