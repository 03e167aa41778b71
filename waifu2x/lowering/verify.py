"""Whether a program, its phases and the places of its maps are whole: to be asked after each pass.

`verify` has a check for each class of step: planes and resolutions that fit together, views and
targets within their values, vectors that are there. What holds for all steps comes first: whatever
is read was written before, whole; and no plane is written twice. An error names the step, its
class and the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from waifu2x.lowering import phases
from waifu2x.lowering.liveness import Name, Span
from waifu2x.lowering.phases import Phase
from waifu2x.lowering.steps import (
    BicubicResize,
    Conv,
    Copy,
    DepthToSpace,
    GatedAdd,
    GlobalAvgPool,
    Linear,
    MapStep,
    PlanewiseStep,
    Program,
    Scale,
    SpaceToDepth,
    Step,
    Target,
    VectorStep,
    View,
    factors_of,
    made_planes,
    reads,
    residual_of,
    writes,
)


class InvalidProgramError(AssertionError):
    """A pass has made a program that cannot be run: a fault of ours, not of the network."""


def verify(program: Program) -> None:
    """Raises InvalidProgramError for a program that is not whole."""
    _Verifier(program).check()


class _Verifier:
    """The state of one walk through a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values = program.values
        self._written: dict[tuple[int, int], set[int]] = {}
        """The planes of each part of a value that steps so far have written."""
        self._vectors: set[int] = set()
        self._where = "program"

    def check(self) -> None:
        self._check_values()
        for number, step in enumerate(self._program.steps):
            self._where = f"step {number} ({type(step).__name__})"
            self._check_reads(step)
            if isinstance(step, MapStep):
                self._check_target(step.target)
            _CHECKS[type(step)](self, step)
            if isinstance(step, MapStep):
                self._check_write(step)
            else:
                self._check_vector(step)
        self._where = "program"
        for part, planes in enumerate(self._values[-1].parts):
            done = self._written.get((self._program.result, part), set())
            self._must(len(done) == planes, "steps", "nothing writes the whole result")
        self._check_result_and_cuts()

    def _must(self, condition: bool, field: str, what: str) -> None:
        if not condition:
            name = self._program.model.name
            raise InvalidProgramError(f"{name}: {self._where}: {field}: {what}")

    # What holds for all.

    def _check_values(self) -> None:
        shapes = self._program.model.shapes
        for number, value in enumerate(self._values):
            self._where = f"value {number}"
            known = 0 <= value.graph < len(shapes)
            self._must(known, "graph", f"the model has no value {value.graph}")
            whole = bool(value.parts) and min(value.parts) > 0
            self._must(whole, "parts", f"{value.parts}")
            shape = shapes[value.graph]
            same = value.resolution == shape.resolution
            self._must(
                same, "resolution", f"{value.resolution}, but {shape.resolution} in the model"
            )
            single = value.space_to_depth == 1 or len(value.parts) == 1
            self._must(single, "space_to_depth", "above 1 with several parts")
            self._must(value.space_to_depth >= 1, "space_to_depth", f"{value.space_to_depth}")
        for number in (0, self._program.result):
            self._where, value = f"value {number}", self._values[number]
            plain = len(value.parts) == 1 and value.space_to_depth == 1
            self._must(plain, "parts", "pixels are stored one by one, in one part")
        self._where = "value 0"
        planes = self._values[0].planes == self._program.model.in_planes
        self._must(planes, "parts", f"{self._values[0].parts}, but the picture has others")
        self._where = f"value {self._program.result}"
        planes = self._values[-1].planes == self._program.model.out_planes
        self._must(planes, "parts", f"{self._values[-1].parts}, but the result has others")

    def _check_reads(self, step: Step) -> None:
        for field, view in zip(("source", "residual"), reads(step), strict=False):
            known = 0 <= view.value < len(self._values)
            self._must(known, field, f"there is no value {view.value}")
            self._must(view.value != self._program.result, field, "reads the result")
            parts = self._values[view.value].parts
            inside = view.first >= 0 and view.parts >= 1 and view.first + view.parts <= len(parts)
            self._must(inside, field, f"parts {view.first} and on, {view.parts}, of {len(parts)}")
            self._must(view.enlarge >= 1, field, f"enlarged {view.enlarge} times")
            for part in range(view.first, view.first + view.parts) if view.value else ():
                done = self._written.get((view.value, part), set())
                whole = len(done) == parts[part]
                self._must(whole, field, f"part {part} of value {view.value} is not written yet")

    def _check_target(self, target: Target) -> None:
        known = 0 < target.value < len(self._values)
        self._must(known, "target", f"no value to write: {target.value}")
        parts = self._values[target.value].parts
        self._must(0 <= target.part < len(parts), "target", f"no part {target.part}")

    def _check_write(self, step: MapStep) -> None:
        target, planes, is_copy = step.target, self._planes_made(step), isinstance(step, Copy)
        stored = self._values[target.value]
        self._must(is_copy or not target.plane, "target", "begins within a part")
        most = stored.parts[target.part]
        fits = target.plane >= 0 and target.plane + planes <= most
        self._must(fits, "target", f"{planes} planes from {target.plane} on, of {most}")
        self._must(is_copy or planes == most, "target", f"{planes} planes of {most}")
        done = self._written.setdefault((target.value, target.part), set())
        own = set(range(target.plane, target.plane + planes))
        self._must(done.isdisjoint(own), "target", "planes that are written twice")
        done |= own
        made = self._resolution_made(step)
        same = made == stored.resolution
        self._must(same, "target", f"resolution {stored.resolution}, but {made} are made")

    def _check_vector(self, step: VectorStep) -> None:
        vectors = self._program.vectors
        known = 0 <= step.vector < len(vectors)
        self._must(known, "vector", f"there is no vector {step.vector}")
        self._must(step.vector not in self._vectors, "vector", "written twice")
        self._vectors.add(step.vector)

    def _check_result_and_cuts(self) -> None:
        steps, cuts = self._program.steps, self._program.cuts
        writers = sum(writes(step) == self._program.result for step in steps)
        self._must(writers == 1, "steps", f"{writers} steps write the result")
        ordered = list(cuts) == sorted({*cuts}) and all(0 < cut < len(steps) for cut in cuts)
        self._must(ordered, "cuts", f"{cuts}")
        for value in phases.crossing(self._program):
            zero = self._values[value].zero_outside
            self._must(
                zero, "steps", f"value {value} is read in a later phase, but not zero outside"
            )
        for cut in cuts:
            both = {writes(s) for s in steps[:cut]} & {writes(s) for s in steps[cut:]} - {-1}
            self._must(not both, "cuts", f"values {both} are written on both sides of {cut}")

    # What steps make.

    def _planes_read(self, view: View) -> int:
        """Planes of a view's single pixels."""
        return sum(self._values[view.value].parts[view.first : view.first + view.parts])

    def _planes_made(self, step: MapStep) -> int:
        """Planes of a pixel of the target."""
        if isinstance(step, Conv):
            return step.out_planes // step.depth_to_space**2
        return made_planes(step, self._planes_read(step.source))

    def _resolution_made(self, step: MapStep) -> Fraction:
        """Pixels of the target for each pixel of the picture."""
        source = self._values[step.source.value]
        made = source.resolution * step.source.enlarge
        match step:
            case Conv():
                return made / source.space_to_depth * step.depth_to_space
            case DepthToSpace():
                return made * step.block
            case SpaceToDepth():
                return made / step.block
            case BicubicResize():
                return made * step.up / step.down
        return made

    # The table: a check for each class.

    def _conv(self, step: Conv) -> None:
        weight, block, source = step.weight, step.depth_to_space, self._values[step.source.value]
        square = weight.ndim == 4 and weight.shape[2] == weight.shape[3]
        known = step.taps in ((5,) if step.resized else (1, 3))
        self._must(square and known, "weight", f"shape {weight.shape}")
        planes = self._planes_read(step.source) * source.space_to_depth**2
        fits = step.in_planes == planes
        self._must(fits, "weight", f"reads {step.in_planes} planes of {planes}")
        for field, array in (("bias", step.bias), ("activation", step.activation.slopes)):
            self._must(array.shape == (step.out_planes,), field, f"shape {array.shape}")
        whole = block >= 1 and step.out_planes % block**2 == 0
        self._must(whole, "depth_to_space", f"{block}, of {step.out_planes} planes")
        is_picture = step.source.value == 0
        self._must(is_picture or step.source.enlarge == 1, "source", "a map that is enlarged")
        target = self._values[step.target.value]
        single = target.space_to_depth == 1
        self._must(block == 1 or single, "depth_to_space", "into a value by space-to-depth")
        for field, vector, view in (
            ("factors", step.factors, step.source),
            ("residual_factors", step.residual_factors, step.residual),
        ):
            if vector is not None:
                self._must(vector in self._vectors, field, f"{vector} is not written yet")
                self._must(view is not None and view.value != 0, field, "of no map")
                assert view is not None
                planes, size = self._planes_read(view), self._program.vectors[vector]
                self._must(planes == size, field, f"{size} for {planes} planes")
        self._must(step.factors is None or step.taps == 1, "factors", "with several taps")
        if step.resized:
            made = (4, 4, step.out_planes // 4, *weight.shape[1:])
            self._must(step.resized.weight.shape == made, "resized", f"not {made}")
            self._must(step.resized.bias.shape == made[:3], "resized", f"not {made[:3]}")
            last = block == 2 and step.target.value == self._program.result
            self._must(last, "resized", "other than the result, by blocks of 2")
        gates = step.residual is not None and step.factor == 1
        self._must(gates or not step.gated, "gated", "without a residual, or with a factor")
        if step.residual:
            added = self._values[step.residual.value]
            self._residual(step, step.residual)
            is_picture = step.residual.value == 0
            alike = added.space_to_depth == block or (is_picture and step.residual.enlarge == block)
            self._must(
                alike, "residual", f"stored by blocks of {added.space_to_depth}, not {block}"
            )
            aligned = step.residual.offset % block == 0
            self._must(aligned, "residual", f"offset {step.residual.offset} in blocks of {block}")
            self._must(target.space_to_depth == 1, "residual", "with a target by space-to-depth")

    def _planewise(self, step: PlanewiseStep) -> None:
        self._must(step.source.parts == 1, "source", "several parts")
        residual = residual_of(step)
        if residual:
            self._residual(step, residual)
            # An engine may let the last step read the picture itself.
            is_last = step.target.value == self._program.result
            self._must(residual.value != 0 or is_last, "residual", "of the picture")

    def _residual(self, step: MapStep, view: View) -> None:
        self._must(view.enlarge == 1 or view.value == 0, "residual", "enlarged")
        self._must(view.parts == 1, "residual", "several parts")
        planes, made = self._planes_read(view), self._planes_made(step)
        self._must(planes == made, "residual", f"{planes} planes added to {made}")
        found = self._values[view.value].resolution * view.enlarge
        wanted = self._resolution_made(step)
        self._must(found == wanted, "residual", f"resolution {found} added to {wanted}")

    def _depth_to_space(self, step: DepthToSpace) -> None:
        planes = self._planes_read(step.source)
        whole = step.block >= 1 and planes % step.block**2 == 0
        self._must(whole, "block", f"{step.block}, of {planes} planes")
        self._planewise(step)

    def _space_to_depth(self, step: SpaceToDepth) -> None:
        self._must(step.block >= 1, "block", f"{step.block}")
        self._planewise(step)

    def _scale(self, step: Scale) -> None:
        self._must(step.vector in self._vectors, "vector", f"{step.vector} is not written yet")
        planes, size = self._planes_read(step.source), self._program.vectors[step.vector]
        self._must(planes == size, "vector", f"{size} factors for {planes} planes")
        self._planewise(step)

    def _resize(self, step: BicubicResize) -> None:
        self._must(min(step.up, step.down) >= 1, "up", f"{step.up} / {step.down}")
        self._whole("source", step.source)
        single = self._values[step.source.value].space_to_depth == 1
        self._must(single, "source", "stored by space-to-depth")
        self._planewise(step)

    def _pool(self, step: GlobalAvgPool) -> None:
        self._whole("source", step.source)
        planes = self._planes_read(step.source)
        sizes = self._program.vectors[step.vector : step.vector + 1]
        self._must(sizes == (planes,), "vector", f"of {sizes} for {planes} planes")

    def _linear(self, step: Linear) -> None:
        self._must(
            step.source in self._vectors, "source", f"vector {step.source} is not written yet"
        )
        vectors = self._program.vectors
        wanted = (*vectors[step.vector : step.vector + 1], vectors[step.source])
        self._must(step.weight.shape == wanted, "weight", f"{step.weight.shape}, not {wanted}")
        for field, array in (("bias", step.bias), ("activation", step.activation.slopes)):
            self._must(array.shape == wanted[:1], field, f"shape {array.shape}")

    def _whole(self, field: str, view: View) -> None:
        """A view of all of a value other than the picture."""
        self._must(view == View(view.value) and view.value != 0, field, f"{view}")
        parts = self._values[view.value].parts
        self._must(len(parts) == 1, field, f"a value of {len(parts)} parts")


_CHECKS: Mapping[type[Step], Callable[[_Verifier, Any], None]] = {
    Conv: _Verifier._conv,
    Copy: _Verifier._planewise,
    DepthToSpace: _Verifier._depth_to_space,
    SpaceToDepth: _Verifier._space_to_depth,
    Scale: _Verifier._scale,
    GatedAdd: _Verifier._planewise,
    BicubicResize: _Verifier._resize,
    GlobalAvgPool: _Verifier._pool,
    Linear: _Verifier._linear,
}


def verify_phases(program: Program, plan: Sequence[Phase]) -> None:
    """Raises InvalidProgramError for phases that do not compute a program."""
    steps, name = program.steps, program.model.name
    live: frozenset[int] = frozenset()
    vectors: set[int] = set()
    done: list[int] = []

    def must(condition: bool, number: int, field: str, what: str) -> None:
        if not condition:
            raise InvalidProgramError(f"{name}: phase {number}: {field}: {what}")

    for number, phase in enumerate(plan):
        maps = set(phase.given)
        must(maps <= live | {0}, number, "given", f"{maps - live - {0}} is not kept")
        must(list(phase.steps) == sorted({*phase.steps}), number, "steps", "out of order")
        for index in phase.steps:
            step = steps[index]
            read = {view.value for view in reads(step)}
            must(read <= maps, number, "steps", f"step {index} reads {read - maps}, not made")
            ready = factors_of(step) <= vectors
            must(ready, number, "steps", f"step {index} reads a vector before its mean is complete")
            maps.add(writes(step))
        must(set(phase.kept) <= maps, number, "kept", "a value that is not made")
        zero = all(program.values[value].zero_outside for value in phase.kept)
        must(zero, number, "kept", "a value that is not zero outside")
        for index in (*phase.averages, *phase.dense):
            step = steps[index]
            assert isinstance(step, VectorStep)
            there = step.source in vectors
            if isinstance(step, GlobalAvgPool):
                there = step.source.value in maps
            must(there, number, "averages", f"step {index} reads what is not there")
            vectors.add(step.vector)
        done += [*phase.steps, *phase.averages, *phase.dense]
        must(phase.live <= live | set(phase.kept), number, "live", "values that are not kept")
        must(bool(phase.roots(program)), number, "roots", "it makes nothing")
        live = phase.live
    ends = [index for phase in plan for index in (*phase.averages, *phase.dense)]
    must(len(ends) == len(set(ends)), len(plan), "averages", "a mean is taken twice")
    must(set(done) == set(range(len(steps))), len(plan), "steps", "some never run")


def verify_places(
    spans: Mapping[Name, Span], offsets: Mapping[Name, int], total: int, alignment: int
) -> None:
    """Raises InvalidProgramError for places of maps of which two overlap at some step."""
    for name, span in spans.items():
        start, end = offsets[name], offsets[name] + span.size
        if start < 0 or start % alignment or end > total:
            raise InvalidProgramError(f"map {name}: offset {start}, to {end} of {total}")
        for other, near in spans.items():
            apart = end <= offsets[other] or offsets[other] + near.size <= start
            if other != name and span.meets(near) and not apart and span.size and near.size:
                raise InvalidProgramError(f"maps {name} and {other} overlap at {start}")
