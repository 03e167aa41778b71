"""Places a graph's values in a program: in maps, parts of maps, or copies."""

from __future__ import annotations

from dataclasses import replace

from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.passes.joins import Joins
from waifu2x.lowering.values import Target, Value, View
from waifu2x.networks.nodes import Concatenate


class GraphPlaces:
    """Finds graph values in the program, and adds values and steps to it."""

    def __init__(self, graph: Joins) -> None:
        self._graph = graph
        self.values: list[Value] = [self._new_value(0)]
        self.steps: list[Step] = []
        self.vectors: list[int] = []
        """The size of each vector."""
        self.views: dict[int, tuple[View, ...]] = {0: (View(0),)}
        """The views of each graph value's parts, in single pixels."""
        self._copies: dict[tuple[int, int, bool], int] = {}
        self._joined: set[tuple[int, Target]] = set()
        """Graph values that were copied to where concatenations want them."""
        self._parts: dict[int, Target] = {}
        """The targets of graph values that are written directly into a concatenation."""
        self._wide: dict[tuple[int, ...], int] = {}
        """The values of concatenations, by the graph values of their parts."""
        self._place_concatenations()

    def source(self, value: int) -> View:
        """Returns a view of a graph value in one part, copied together if it has several."""
        views = self.views[value]
        return views[0] if len(views) == 1 else View(self.copied(value, 1, zero=False))

    def plain(self, value: int) -> View:
        """Returns a graph value as a whole value of the program."""
        view = self.source(value)
        if view == View(view.value) and view.value and len(self.values[view.value].parts) == 1:
            return view
        return View(self.copied(value, 1, zero=False))

    def plain_part(self, value: int, *, zero: bool) -> View:
        """Returns a graph value as one part of a map stored by single pixels; with `zero`, zero
        outside."""
        source = self.conv_source(value, 1, zero)
        if source.value == 0 or source.parts > 1:
            source = View(self.copied(value, 1, zero=zero))
        return source

    def unfolded(self, value: int) -> View:
        """Returns a graph value as a whole value stored by single pixels."""
        whole = self.plain(value)
        if self.values[whole.value].space_to_depth > 1:
            return View(self.copied(value, 1, zero=False))
        return whole

    def conv_source(self, value: int, stride: int, reaches: bool) -> View:
        """Returns the view that a convolution of that stride reads: stored by space-to-depth, and
        zero outside its size if the convolution `reaches` there."""
        views = self.views[value]
        first = views[0]
        stored = self.values[first.value]
        together = all(
            view == replace(first, first=first.first + part) for part, view in enumerate(views)
        )
        plain = first.value != 0 and first.offset == 0
        black = (
            self._graph.model.border == "zero"
            and self._graph.model.padding == 0
            and first.offset == 0
        )
        if stored.space_to_depth == stride and first.offset % stride == 0 and together:
            if reaches and plain:
                self.values[first.value] = replace(stored, zero_outside=True)
            if not reaches or plain or (first.value == 0 and black):
                return replace(first, offset=first.offset // stride, parts=len(views))
        return View(self.copied(value, stride, zero=reaches))

    def residual(self, other: int | None) -> View | None:
        """Returns the view of a graph value that a planewise step can add; None for None."""
        return None if other is None else self.added(other)

    def added(self, other: int) -> View:
        """Returns a view of a graph value that a planewise step can add."""
        view = self.source(other)
        if view.value == 0 or view.enlarge > 1:
            return View(self.copied(other, 1, zero=False))
        return view

    def copied(self, value: int, block: int, *, zero: bool) -> int:
        """Copies a graph value into a value of one part, and returns its number."""
        key = (value, block, zero)
        if key not in self._copies:
            index = self.add_value(value)
            stored = replace(self.values[index], space_to_depth=block, zero_outside=zero)
            self.values[index] = stored
            self._copies[key] = index
            plane = 0
            for view in self.views[value]:
                self.steps.append(Planewise(value, view, Target(index, 0, plane)))
                plane += self.values[view.value].parts[view.first]
        return self._copies[key]

    def target(self, value: int) -> Target:
        """Returns the target of a graph value, and records it as the value's place."""
        target = self._parts.get(value)
        if target is None:
            target = Target(self.add_value(value))
            stored = self.values[target.value]
            self.values[target.value] = replace(stored, space_to_depth=self._graph.blocks[value])
        self.views[value] = (View(target.value, first=target.part),)
        return target

    def add_value(self, value: int, parts: tuple[int, ...] = ()) -> int:
        """Adds a value of the size of a graph value to the program, and returns its number."""
        self.values.append(self._new_value(value, parts))
        return len(self.values) - 1

    def add_vector(self, size: int) -> int:
        """Adds a vector to the program, and returns its number."""
        self.vectors.append(size)
        return len(self.vectors) - 1

    def _new_value(self, value: int, parts: tuple[int, ...] = ()) -> Value:
        shape = self._graph.model.shapes[value]
        assert shape.resolution is not None
        return Value(value, parts or (shape.planes,), shape.resolution)

    def concatenate(self, value: int) -> None:
        """Records the place of a concatenation, and copies the operands that are not yet there."""
        flat = self._graph.flat(value)
        index = next(i for wide, i in self._wide.items() if wide[: len(flat)] == flat)
        for part, source in enumerate(flat):
            target = Target(index, part)
            if self._parts.get(source) != target and (source, target) not in self._joined:
                self._joined.add((source, target))
                self.steps.append(Planewise(source, self.source(source), target))
        self.views[value] = tuple(View(index, first=part) for part in range(len(flat)))

    def _place_concatenations(self) -> None:
        """Adds the values of concatenations, the longest first: shorter ones may begin them."""
        wanted = [v for v in self._graph.live if isinstance(self._graph.node(v), Concatenate)]
        for value in sorted(wanted, key=lambda v: -len(self._graph.flat(v))):
            flat = self._graph.flat(value)
            if any(wide[: len(flat)] == flat for wide in self._wide):
                continue
            index = self.add_value(value, tuple(self._graph.planes(part) for part in flat))
            self._wide[flat] = index
            for part, source in enumerate(flat):
                if (
                    source not in self._parts
                    and self._graph.is_made(source)
                    and self._graph.blocks[source] == 1
                    and source != len(self._graph.model.nodes)
                ):
                    self._parts[source] = Target(index, part)
