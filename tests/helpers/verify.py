"""Checks programs and plans: whether a pass has left a program whole.

`verify` asks each step to check itself. Before that, it checks that all that is read was written
before, whole, and that no plane is written twice. An error names the step, its class and the field
that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.ops.base import (
    Checker,
    InvalidProgramError,
    MapStep,
    PictureSum,
    Step,
    VectorStep,
)
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.plan import phases
from waifu2x.lowering.plan.liveness import Name, Span
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program


def verify(program: Program) -> None:
    """Raises InvalidProgramError for a program that is not whole."""
    _Verifier(program).check()


class _Verifier(Checker):
    """Walks through a program once: checks what holds for all steps, and each step by itself."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.written_planes: dict[tuple[int, int], set[int]] = {}
        """The planes of each part of a value that steps so far have written."""

    def check(self) -> None:
        self._check_values()
        for number, step in enumerate(self.program.steps):
            self.where = f"step {number} ({type(step).__name__})"
            self._check_reads(step)
            if isinstance(step, MapStep):
                self.target(step)
            step.check(self)
            if isinstance(step, MapStep):
                self._check_write(step)
            elif isinstance(step, VectorStep):
                self._check_vector(step)
        self.where = "program"
        for part, planes in enumerate(self.values[-1].parts):
            done = self.written_planes.get((self.program.result, part), set())
            self.must(len(done) == planes, "steps", "nothing writes the whole result")
        self._check_result_and_cuts()

    # Checks of all programs.

    def _check_values(self) -> None:
        shapes = self.program.model.shapes
        for number, value in enumerate(self.values):
            self.where = f"value {number}"
            known = 0 <= value.graph < len(shapes)
            self.must(known, "graph", f"the model has no value {value.graph}")
            whole = bool(value.parts) and min(value.parts) > 0
            self.must(whole, "parts", f"{value.parts}")
            shape = shapes[value.graph]
            same = value.resolution == shape.resolution
            self.must(
                same, "resolution", f"{value.resolution}, but {shape.resolution} in the model"
            )
            single = value.space_to_depth == 1 or len(value.parts) == 1
            self.must(single, "space_to_depth", "above 1 with several parts")
            self.must(value.space_to_depth >= 1, "space_to_depth", f"{value.space_to_depth}")
        for number in (0, self.program.result):
            self.where, value = f"value {number}", self.values[number]
            plain = len(value.parts) == 1 and value.space_to_depth == 1
            self.must(plain, "parts", "pixels are stored one by one, in one part")
        self.where = "value 0"
        planes = self.values[0].planes == self.program.model.in_planes
        self.must(planes, "parts", f"{self.values[0].parts}, but the picture has others")
        self.where = f"value {self.program.result}"
        planes = self.values[-1].planes == self.program.model.out_planes
        self.must(planes, "parts", f"{self.values[-1].parts}, but the result has others")

    def _check_reads(self, step: Step) -> None:
        for field, view in zip(("source", "residual"), step.reads, strict=False):
            known = 0 <= view.value < len(self.values)
            self.must(known, field, f"there is no value {view.value}")
            self.must(view.value != self.program.result, field, "reads the result")
            parts = self.values[view.value].parts
            inside = view.first >= 0 and view.parts >= 1 and view.first + view.parts <= len(parts)
            self.must(inside, field, f"parts {view.first} and on, {view.parts}, of {len(parts)}")
            self.must(view.enlarge >= 1, field, f"enlarged {view.enlarge} times")
            for part in range(view.first, view.first + view.parts) if view.value else ():
                done = self.written_planes.get((view.value, part), set())
                whole = len(done) == parts[part]
                self.must(whole, field, f"part {part} of value {view.value} is not written yet")

    def _check_write(self, step: MapStep) -> None:
        target, planes = step.target, step.planes_made(self.program)
        # Some planes of a part may be written by one step, and the rest by others.
        fills = isinstance(step, AttendWindows) or (isinstance(step, Planewise) and step.is_copy)
        stored = self.values[target.value]
        self.must(fills or not target.plane, "target", "begins within a part")
        most = stored.parts[target.part]
        fits = target.plane >= 0 and target.plane + planes <= most
        self.must(fits, "target", f"{planes} planes from {target.plane} on, of {most}")
        self.must(fills or planes == most, "target", f"{planes} planes of {most}")
        done = self.written_planes.setdefault((target.value, target.part), set())
        own = set(range(target.plane, target.plane + planes))
        self.must(done.isdisjoint(own), "target", "planes that are written twice")
        done |= own
        made = step.resolution_made(self.program)
        same = made == stored.resolution
        self.must(same, "target", f"resolution {stored.resolution}, but {made} are made")

    def _check_vector(self, step: VectorStep) -> None:
        vectors = self.program.vectors
        known = 0 <= step.vector < len(vectors)
        self.must(known, "vector", f"there is no vector {step.vector}")
        self.must(step.vector not in self.vectors, "vector", "written twice")
        self.vectors.add(step.vector)

    def _check_result_and_cuts(self) -> None:
        steps, cuts = self.program.steps, self.program.cuts
        writers = sum(step.writes == self.program.result for step in steps)
        self.must(writers == 1, "steps", f"{writers} steps write the result")
        ordered = list(cuts) == sorted({*cuts}) and all(0 < cut < len(steps) for cut in cuts)
        self.must(ordered, "cuts", f"{cuts}")
        for value in phases.crossing(self.program):
            zero = self.values[value].zero_outside
            self.must(
                zero, "steps", f"value {value} is read in a later phase, but not zero outside"
            )
        for cut in cuts:
            both = {s.writes for s in steps[:cut]} & {s.writes for s in steps[cut:]} - {-1}
            self.must(not both, "cuts", f"values {both} are written on both sides of {cut}")


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
            read = {view.value for view in step.reads}
            must(read <= maps, number, "steps", f"step {index} reads {read - maps}, not made")
            far = {view.value for view in step.read_whole}
            must(far <= set(phase.given), number, "steps", f"step {index} reads what is not kept")
            ready = set(step.vectors_read) <= vectors
            must(ready, number, "steps", f"step {index} reads a vector before its mean is complete")
            maps.add(step.writes)
        must(set(phase.kept) <= maps, number, "kept", "a value that is not made")
        zero = all(program.values[value].zero_outside for value in phase.kept)
        must(zero, number, "kept", "a value that is not zero outside")
        for index in (*phase.averages, *phase.dense):
            step = steps[index]
            assert isinstance(step, VectorStep)
            if isinstance(step, PictureSum):
                there = step.source.value in maps
            else:
                there = set(step.vectors_read) <= vectors
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
    """Raises InvalidProgramError if the places of two maps overlap at some step."""
    for name, span in spans.items():
        start, end = offsets[name], offsets[name] + span.size
        if start < 0 or start % alignment or end > total:
            raise InvalidProgramError(f"map {name}: offset {start}, to {end} of {total}")
        for other, near in spans.items():
            apart = end <= offsets[other] or offsets[other] + near.size <= start
            if other != name and span.meets(near) and not apart and span.size and near.size:
                raise InvalidProgramError(f"maps {name} and {other} overlap at {start}")
