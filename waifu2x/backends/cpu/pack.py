"""A program as tasks, its weights in the order in which the compiled code reads them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu import weights, zero_points
from waifu2x.backends.cpu.forms import Form, round_up
from waifu2x.backends.cpu.layout import (
    AVERAGE,
    BY_FLOATS,
    BY_INTEGERS,
    BY_PLANES,
    BY_RESIZING,
    BY_VALUES,
    CELL,
    FEW_INPUTS,
    FEW_OUTPUTS,
    FEW_TILES,
    FUNCTIONS,
    INTEGER_POINTWISE,
    INTEGER_WINOGRAD,
    KEEP,
    LOAD,
    MOST_SHUFFLED,
    MOVE,
    POINTWISE,
    READ,
    SILU,
    TILES,
    WINOGRAD,
    WRITE,
    aligned,
)
from waifu2x.backends.cpu.shapes import BLOCK, CONFIG_FLOATS, INTEGER_BLOCK, LANES, PART_PAIRS
from waifu2x.backends.cpu.tasks import Reach, Task
from waifu2x.lowering import geometry
from waifu2x.lowering.phases import Phase
from waifu2x.lowering.steps import (
    BicubicResize,
    Conv,
    DepthToSpace,
    GatedAdd,
    GlobalAvgPool,
    MapStep,
    PlanewiseStep,
    Program,
    Scale,
    SpaceToDepth,
    View,
    factor_of,
    made_planes,
    residual_of,
    stored_block,
)
from waifu2x.networks.expressions import LEAKY
from waifu2x.networks.nodes import cubic_taps

_FEW = 4
"""The most planes that a map may have to be stored without padding."""
_TILE_ROWS = 2
"""Rows at a time on tiles: the fewest, to leave the L2 cache to the weights."""
_TILE_COLUMNS = 4
"""What tiles compute whole multiples of."""
_LEAST_BFLOATS = 32
"""The fewest planes of a map in bf16: with fewer, rounding errors do not even out."""
_LEAST_INTEGERS = 32
"""The fewest planes that a 1x1 product reads as integers: with fewer, that costs what it saves."""
_ROWS = 4
"""Rows at a time of tasks that could do with any number."""

Arithmetic = Literal["fp32", "int16", "bf16"]
"""Of products of maps with many planes: on vectors, in floats or in integers, or on tiles."""


class PackedProgram:
    """Tasks of every step, and the arrays that they point into."""

    def __init__(self, program: Program, arithmetic: Arithmetic, finer: int = 0) -> None:
        """In bf16, so many of the first products on tiles read maps in two terms, for whatever
        loses too much otherwise: what they round goes through all that follow."""
        self.program = program
        self._arithmetic = arithmetic
        bfloats = arithmetic == "bf16"
        self._block = {"fp32": LANES, "int16": INTEGER_BLOCK, "bf16": BLOCK}[arithmetic]
        self._rows = _TILE_ROWS if bfloats else CELL
        self.costs = _costs(program)
        """Of each step for a pixel of the picture, in multiply-adds."""
        self.readers = geometry.read_by(program)
        self.unit = (self._rows, _TILE_COLUMNS if bfloats else CELL)
        """Rows and columns that steps compute whole multiples of."""
        resizes = [step for step in program.steps if isinstance(step, BicubicResize)]
        self._resized = {value for s in resizes for value in (s.source.value, s.target.value)}
        """Values that stay floats: rows of those are resized."""
        inner = [step for step in program.steps if isinstance(step, Conv) and step.source.value]
        self._finer = {id(step) for step in inner[:finer]}
        self.on_tiles: set[int] = set()
        """The steps that run in bf16."""
        self.in_integers: set[int] = set()
        """And in 16-bit integers."""
        self._weights: list[NDArray[np.float32]] = [weights.tile_config()]
        self._constants: list[NDArray[np.float32]] = []
        self._sizes = [CONFIG_FLOATS, 0]
        zero_points_of = zero_points.find(program) if bfloats else []
        self.forms = [self._form(value) for value in range(len(program.values))]
        """Of all maps: the program's values first, then what is only between two tasks."""
        for value, points in enumerate(zero_points_of):
            self.forms[value] = self._stored(value, points)
        self.pictures: dict[int, int] = {}
        """The maps that hold the picture, by how much it is enlarged."""
        self.vector_starts = np.cumsum(
            [0, *(round_up(size, LANES) for size in program.vectors)]
        ).tolist()
        """Where each vector begins among all of them, and how long they are together."""
        self.tasks: dict[int, tuple[Task, ...]] = {}
        """Of each step that writes a map, in order."""
        for number, step in enumerate(program.steps):
            if isinstance(step, Conv):
                self.tasks[number] = tuple(self._product(number, step))
            elif isinstance(step, PlanewiseStep):
                self.tasks[number] = (self._move(number, step),)
        self.weights = np.concatenate(self._weights, out=aligned(self._sizes[0]))
        self.constants = np.concatenate(
            [*self._constants, np.zeros(LANES, np.float32)], out=aligned(self._sizes[1] + LANES)
        )

    def phase_tasks(self, phase: Phase) -> list[Task]:
        """Everything that a strip of a phase runs."""
        tasks = [
            Task(
                *(LOAD, value, _ROWS, (), value),
                fields={"target": value, "group": self._kept_by(value)},
            )
            for value in phase.given
            if value
        ]
        own = [task for number in phase.steps for task in self.tasks[number]]
        read = {reach.map for task in own for reach in task.reaches}
        tasks += [
            Task(READ, 0, _ROWS, (), map_, fields={"target": map_, "enlarge": enlarge})
            for enlarge, map_ in self.pictures.items()
            if map_ in read
        ]
        tasks += own
        ends = [(value, KEEP, value) for value in phase.kept]
        for number in phase.averages:
            step = self.program.steps[number]
            assert isinstance(step, GlobalAvgPool)
            ends.append((step.source.value, AVERAGE, number))
        for value, kind, number in sorted(ends):
            form = self.forms[value]
            unit = form.fold if kind == AVERAGE else 1
            by = self._kept_by(value)
            if kind == AVERAGE:
                even = not form.terms and form.fold == 1 and form.planes % LANES == 0
                by = BY_PLANES if even else BY_VALUES
            fields = {"source": value, "planes": form.parts[0], "group": by}
            tasks.append(
                Task(
                    kind,
                    number,
                    _ROWS,
                    (Reach(value, unit=unit, parts=len(form.parts)),),
                    fields=fields,
                )
            )
        return tasks

    def kept_floats(self, value: int) -> int:
        """Memory of a pixel in memory of a map that is kept whole."""
        form = self.forms[value]
        if self._kept_by(value) == BY_INTEGERS:
            return form.values // 2 + -(-form.values // (2 * PART_PAIRS))
        return form.pixel_floats

    def _kept_by(self, value: int) -> int:
        """How a map is kept: where products read 16-bit integers, as such."""
        whole = self.forms[value].values % INTEGER_BLOCK == 0
        return BY_INTEGERS if self._arithmetic == "int16" and whole else BY_VALUES

    def cut(self, value: int) -> int:
        """At multiples of how many rows and columns a value may be cut so that no cell of the step
        that makes it is computed twice."""
        units = [self.program.values[value].space_to_depth]
        for step in self.program.steps:
            if isinstance(step, MapStep) and step.target.value == value:
                units.append(self.unit[1] * stored_block(step))
        return math.lcm(*units)

    # Maps.

    def _form(self, value: int) -> Form:
        """In floats."""
        stored = self.program.values[value]
        narrow = (
            len(stored.parts) == 1
            and stored.space_to_depth == 1
            and stored.planes <= _FEW
            and not any(product.taps == 1 for product in self._products(value))
        )
        padded = tuple(p if narrow else round_up(p, self._block) for p in stored.parts)
        return Form(stored.parts, padded, stored.space_to_depth)

    def _products(self, value: int) -> list[Conv]:
        """Those whose source is a value."""
        steps = [self.program.steps[number] for number in self.readers[value]]
        return [s for s in steps if isinstance(s, Conv) and s.source.value == value]

    def _stored(self, value: int, points: NDArray[np.float64]) -> Form:
        """As bf16 if products read it on tiles: in one term if nothing else does, and in two for
        whatever loses too much by that."""
        form = self.forms[value]
        products = self._products(value)
        if (
            value in self._resized
            or not value
            or not products
            or self.program.values[value].planes < _LEAST_BFLOATS
        ):
            return form
        others = len(self.readers[value]) > len(products) or any(
            product.residual and product.residual.value == value for product in products
        )
        two = others or any(self._is_sensitive(product) for product in products)
        padded = np.zeros(form.planes)
        for part, count in enumerate(form.parts):
            first = sum(form.parts[:part])
            padded[form.start(part) : form.start(part) + count] = points[first : first + count]
        return replace(
            form, terms=2 if two else 1, zero_point=padded, zero_offset=self._constant(padded)
        )

    def _is_sensitive(self, step: Conv) -> bool:
        """Whether nothing evens out the rounding of what a product reads: it makes pixels, or what
        is as good as pixels. Or whether it shall be taken for one of those."""
        target = self.forms[step.target.value]
        makes_pixels = step.target.value == self.program.result or target.planes <= _FEW
        return makes_pixels or id(step) in self._finer

    def _add_map(self, form: Form) -> int:
        self.forms.append(form)
        return len(self.forms) - 1

    def _source_map(self, view: View) -> int:
        """The map that a view reads."""
        if view.value:
            return view.value
        enlarge = view.enlarge
        if enlarge not in self.pictures:
            planes = self.program.model.in_planes
            self.pictures[enlarge] = self._add_map(Form((planes,), (planes,)))
        return self.pictures[enlarge]

    # Products.

    def _product(self, number: int, step: Conv) -> list[Task]:
        """A product; before it, the picture with padded planes where it needs those, and behind it
        a move where its own epilogue does not do."""
        program, tasks = self.program, list[Task]()
        source, view = self._source_map(step.source), step.source
        form = self.forms[source]
        if not view.value and step.taps == 1:
            wide = replace(form, padded=(round_up(form.parts[0], self._block),))
            reach = Reach(source, offset=view.offset)
            source = self._add_map(wide)
            tasks.append(
                self._moving(
                    MOVE, number, reach, form, wide, source, {"source_offset": view.offset}
                )
            )
            form, view = wide, replace(view, offset=0)
        is_result = step.target.value == program.result
        target = self.forms[step.target.value]
        kind = self._kind(step, form)
        few = kind in (FEW_OUTPUTS, FEW_TILES)
        plain = (
            not is_result
            and step.activation.function == LEAKY
            and (step.factor == 1 or step.residual is not None)
            and target.fold <= 2
            and step.depth_to_space <= MOST_SHUFFLED
        )
        if few:
            fits = (
                target.padded == target.parts and step.depth_to_space == 1 and step.residual is None
            )
        else:
            fits = target.planes % self._block == 0
            if kind != TILES:
                added = [self.forms[step.residual.value]] if step.residual else []
                fits = fits and not any(form.terms for form in (target, *added))
        plain = plain and fits
        if kind in (TILES, FEW_TILES):
            self.on_tiles.add(number)
        if kind in (INTEGER_WINOGRAD, INTEGER_POINTWISE):
            self.in_integers.add(number)
        if plain:
            map_, shuffle, planes = (
                step.target.value,
                step.depth_to_space,
                target.padded[step.target.part],
            )
        else:
            block = LANES if number in self.in_integers else self._block
            shuffle, planes = 1, len(step.bias) if few else round_up(len(step.bias), block)
            map_ = self._add_map(Form((len(step.bias),), (planes,)))
        tasks.append(self._sum(number, step, view, source, kind, map_, shuffle, planes, plain))
        if not plain:
            group = len(step.bias) // step.depth_to_space**2
            fields: dict[str, int | float] = {
                "shuffle": step.depth_to_space,
                "plane_step": 1,
                "row_step": step.depth_to_space * group,
                "column_step": group,
                "activation": FUNCTIONS.index(step.activation.function),
                "factor": step.factor,
            }
            reach = Reach(map_, down=step.depth_to_space)
            tasks.append(
                self._moving(
                    WRITE if is_result else MOVE,
                    number,
                    reach,
                    self.forms[map_],
                    target,
                    step.target.value,
                    fields,
                    step.residual,
                    (step.target.part, 0),
                    step.depth_to_space,
                )
            )
        return tasks

    def _kind(self, step: Conv, source: Form) -> int:
        """How a product is computed."""
        few = step.taps == 3 and len(step.bias) <= _FEW
        if source.terms:
            return FEW_TILES if few and self._is_sensitive(step) else TILES
        if step.taps == 1:
            many = self._arithmetic == "int16" and step.in_planes >= _LEAST_INTEGERS
            return INTEGER_POINTWISE if many else POINTWISE
        if self._arithmetic == "int16":
            inner = step.source.value and source.planes % INTEGER_BLOCK == 0
            return INTEGER_WINOGRAD if inner else FEW_INPUTS
        if source.planes % LANES:
            return FEW_INPUTS
        return FEW_OUTPUTS if few else WINOGRAD

    def _sum(
        self,
        number: int,
        step: Conv,
        view: View,
        source: int,
        kind: int,
        map_: int,
        shuffle: int,
        planes: int,
        plain: bool,
    ) -> Task:
        """The task of a product itself, into a map with `planes` planes in each group."""
        form, target = self.forms[source], self.forms[map_]
        groups = shuffle**2
        count = len(step.bias) // groups
        depth = (
            form.fold**2 * form.planes
            if view.parts == len(form.parts)
            else sum(form.padded[view.first : view.first + view.parts])
        )
        made = (np.arange(groups)[:, np.newaxis] * planes + np.arange(count)).ravel()
        weight = np.zeros((groups * planes, depth, step.taps, step.taps), np.float32)
        weight[np.ix_(made, form.positions(view.first, view.parts))] = step.weight
        # They are read in whole vectors.
        bias = np.zeros(round_up(groups * planes, LANES), np.float32)
        slopes = np.zeros_like(bias)
        bias[made] = step.bias
        if form.terms:
            # The inputs come less their zero point: its share of the result is a constant.
            points = np.tile(form.zero_point, form.fold**2)[
                form.start(view.first) + form.positions(view.first, view.parts)
            ]
            bias[made] += step.weight.sum(axis=(2, 3), dtype=np.float64) @ points
        slopes[made] = step.activation.slopes if step.activation.function == LEAKY else 1
        rows = {POINTWISE: target.fold, INTEGER_POINTWISE: target.fold, WINOGRAD: CELL}.get(
            kind, self._rows
        )
        if kind == WINOGRAD:
            self.unit = (CELL, CELL)
        part = step.target.part if plain else 0
        pixel, pair, block = target.strides(shuffle)
        fields: dict[str, int | float] = {
            "source": source,
            "target": map_,
            "residual": -1,
            "depth": depth,
            "planes": groups * planes,
            "group_planes": planes,
            "weight": self._weight(_PACKERS[kind](weight, planes)),
            "bias": self._constant(bias),
            "slopes": self._constant(slopes),
            "source_offset": view.offset,
            "source_plane": form.start(view.first) // (2 if form.terms else 1),
            "target_plane": target.start(part),
            "shuffle": shuffle,
            "factor": step.factor,
            "target_pixel": pixel,
            "target_pair": pair,
            "target_block": block,
            "taps": step.taps,
            "steps": depth // BLOCK,
            "source_terms": form.terms if self._is_sensitive(step) else 1,
            "target_terms": target.terms,
            "target_rest": target.values,
            "target_zero": target.zero_offset + (target.start(part) if target.terms else 0),
        }
        reaches = [
            Reach(
                source,
                offset=view.offset,
                more=step.taps - 1,
                first=view.first,
                parts=view.parts,
            )
        ]
        if plain and step.residual is not None:
            added = self.forms[step.residual.value]
            reaches.append(self._residual_reach(step.residual, shuffle))
            pixel, pair, block = added.strides(shuffle)
            fields |= {
                "residual": step.residual.value,
                "residual_offset": step.residual.offset,
                "residual_plane": added.start(step.residual.first),
                "residual_pixel": pixel,
                "residual_pair": pair,
                "residual_block": block,
                "residual_terms": added.terms,
                "residual_rest": added.values,
                "residual_zero": added.zero_offset,
            }
            if added.terms:
                fields["residual_zero"] = added.zero_offset + added.start(step.residual.first)
        return Task(
            kind, number, rows, tuple(reaches), map_, part, (shuffle, target.fold), fields=fields
        )

    def _residual_reach(self, view: View, up: int = 1) -> Reach:
        unit = self.forms[view.value].fold
        return Reach(view.value, up=up, offset=view.offset, unit=unit, first=view.first)

    # Moves.

    def _move(self, number: int, step: PlanewiseStep) -> Task:
        view, program = step.source, self.program
        source = self._source_map(replace(view, enlarge=1))
        form, target = self.forms[source], self.forms[step.target.value]
        shuffle = step.block if isinstance(step, DepthToSpace) else 1
        unshuffle = step.block if isinstance(step, SpaceToDepth) else 1
        is_result = step.target.value == program.result
        fields: dict[str, int | float] = {
            "source_offset": view.offset,
            "source_plane": form.start(view.first),
            "enlarge": view.enlarge,
            "shuffle": shuffle,
            "unshuffle": unshuffle,
            "plane_step": shuffle**2,
            "row_step": shuffle,
            "column_step": 1,
            "factor": factor_of(step),
        }
        if isinstance(step, Scale):
            fields["factors"] = self.vector_starts[step.vector]
        reach = Reach(
            source,
            up=unshuffle,
            down=shuffle,
            offset=view.offset,
            unit=view.enlarge * form.fold,
            first=view.first,
        )
        if isinstance(step, GatedAdd):
            fields["gate"] = 1
        if isinstance(step, BicubicResize):
            up, down = step.up, step.down
            taps = cubic_taps(up, down).ravel()
            fields |= {"up": up, "enlarge": down, "cubic": self._constant(taps)}
            reach = Reach(source, up=down, down=up, offset=-1, more=3, first=view.first)
        planes = made_planes(step, form.parts[view.first])
        kind = WRITE if is_result else MOVE
        return self._moving(
            kind,
            number,
            reach,
            form,
            target,
            step.target.value,
            fields,
            residual_of(step),
            (step.target.part, step.target.plane),
            planes=planes,
            part=view.first,
        )

    def _moving(
        self,
        kind: int,
        number: int,
        reach: Reach,
        source: Form,
        target: Form,
        map_: int,
        fields: dict[str, int | float],
        residual: View | None = None,
        place: tuple[int, int] = (0, 0),
        scale: int = 1,
        planes: int | None = None,
        part: int = 0,
    ) -> Task:
        """A MOVE, or a WRITE: fields that are not given are those of a plain copy."""
        if planes is None:
            planes = target.parts[place[0]]
        fields = {
            "source": reach.map,
            "target": map_,
            "residual": -1,
            "factors": -1,
            "shuffle": 1,
            "unshuffle": 1,
            "enlarge": 1,
            "plane_step": 1,
            "factor": 1.0,
            "planes": planes,
            "target_plane": target.start(place[0]) + place[1],
            **fields,
        }
        if place[1] + planes == target.parts[place[0]]:
            fields["padding"] = target.padded[place[0]] - target.parts[place[0]]
        reaches = [reach]
        added_planes = 0
        if residual is not None:
            residual = replace(residual, value=self._source_map(residual))
            reaches.append(self._residual_reach(residual))
            added = self.forms[residual.value]
            added_planes = added.padded[residual.first]
            fields |= {
                "residual": residual.value,
                "residual_offset": residual.offset,
                "residual_plane": added.start(residual.first),
            }
        fields["group"] = BY_RESIZING if "up" in fields else BY_VALUES
        added_forms = [self.forms[residual.value]] if residual else []
        even = (
            "up" not in fields
            and fields["unshuffle"] == 1
            and not any(form.fold > 1 for form in (source, *added_forms))
        )
        curved = bool(fields.get("activation") or fields.get("gate"))
        floats = even and not curved and not any(form.terms for form in (source, *added_forms))
        floats = floats and fields["factors"] == -1
        if kind == WRITE:
            plain = residual is None and fields["factor"] == fields["shuffle"] == 1
            if floats and plain and fields["enlarge"] == 1 and source.planes == planes:
                fields["group"] = BY_PLANES
            elif floats:
                fields["group"] = BY_FLOATS
            return Task(kind, number, _ROWS, tuple(reaches), scale=scale, fields=fields)
        padded = target.padded[place[0]]
        whole = (
            place[1] == 0
            and planes == target.parts[place[0]] == source.parts[part]
            and padded % LANES == 0
            and fields["shuffle"] == fields["enlarge"] == 1
            and fields.get("activation", 0) in (0, SILU)
            and (source.padded[part] == padded or source.planes <= _FEW)
            and added_planes in (0, padded)
        )
        if even and whole and target.fold <= 2:
            pixel, pair, _ = target.strides(1)
            if source.padded[part] == padded:
                fields |= {"planes": padded, "padding": 0}
            fields |= {
                "group": BY_PLANES,
                "source_terms": source.terms,
                "source_rest": source.values,
                "source_zero": source.zero_offset + source.start(part),
                "target_pixel": pixel,
                "target_pair": pair,
                "target_terms": target.terms,
                "target_rest": target.values,
                "target_zero": target.zero_offset + target.start(place[0]),
            }
            if residual is not None:
                (added,) = added_forms
                fields |= {
                    "residual_pixel": added.strides(1)[0],
                    "residual_terms": added.terms,
                    "residual_rest": added.values,
                    "residual_zero": added.zero_offset + added.start(residual.first),
                }
        elif floats and not fields.get("padding") and not target.terms and target.fold == 1:
            fields["group"] = BY_FLOATS
        rows = round_up(_ROWS, target.fold)
        rate = (1, target.fold)
        return Task(kind, number, rows, tuple(reaches), map_, place[0], rate, scale, fields)

    # Arrays.

    def _weight(self, values: NDArray[np.float32]) -> int:
        """Where these weights begin."""
        self._weights.append(values)
        self._sizes[0] += values.size
        return self._sizes[0] - values.size

    def _constant(self, values: NDArray[np.floating]) -> int:
        """Where these constants begin."""
        self._constants.append(values.astype(np.float32))
        self._sizes[1] += values.size
        return self._sizes[1] - values.size


_PACKERS = {
    FEW_INPUTS: weights.pack_direct,
    POINTWISE: weights.pack_direct,
    WINOGRAD: weights.pack_winograd,
    INTEGER_WINOGRAD: weights.pack_integers,
    INTEGER_POINTWISE: weights.pack_integer_points,
    FEW_OUTPUTS: weights.pack_few_outputs,
    TILES: weights.pack_tiles,
    FEW_TILES: weights.pack_few_tiles,
}


def _costs(program: Program) -> list[float]:
    """What each step costs for a pixel of the picture, in multiply-adds."""
    costs = []
    for step in program.steps:
        cost = 0.0
        if isinstance(step, Conv):
            resolution = program.values[step.target.value].resolution / step.depth_to_space
            cost = float(step.weight.size * resolution**2)
        elif isinstance(step, MapStep):
            resolution = program.values[step.target.value].resolution
            cost = float(16 * program.values[step.target.value].planes * resolution**2)
        costs.append(cost)
    return costs
