"""Whether a program's phases, and the places of its maps, are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waifu2x.lowering.ops.checker import InvalidProgramError
from waifu2x.lowering.plan.liveness import Name, Span
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import PictureSum, Program, VectorStep
from waifu2x.lowering.step_facts import factors_of, reads, reads_whole, vectors_read, writes


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
            far = read if reads_whole(step) else set()
            must(far <= set(phase.given), number, "steps", f"step {index} reads what is not kept")
            ready = factors_of(step) <= vectors
            must(ready, number, "steps", f"step {index} reads a vector before its mean is complete")
            maps.add(writes(step))
        must(set(phase.kept) <= maps, number, "kept", "a value that is not made")
        zero = all(program.values[value].zero_outside for value in phase.kept)
        must(zero, number, "kept", "a value that is not zero outside")
        for index in (*phase.averages, *phase.dense):
            step = steps[index]
            assert isinstance(step, VectorStep)
            if isinstance(step, PictureSum):
                there = step.source.value in maps
            else:
                there = vectors_read(step) <= vectors
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
