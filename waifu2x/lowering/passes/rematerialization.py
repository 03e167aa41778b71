"""Recomputes values that are cheaper to make from the picture than to keep, where they are read
behind attention.

Transformers add the result of their first convolution to the input of their last one. Such a value
would be kept from the first segment to the last (see `segments`), to save few multiply-adds.
"""

from __future__ import annotations

from dataclasses import replace

from waifu2x.lowering.ops.attention import AttentionStep
from waifu2x.lowering.ops.base import MapStep, Step, compacted
from waifu2x.lowering.plan.costs import cost_of_pixel, cost_to_keep
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Value


def rematerialized(program: Program, apart: int = 1) -> Program:
    """Returns the program with cheap values recomputed behind attention; the same one if there are
    none.

    A value is recomputed for readers that lie at least `apart` attentions behind it.
    """
    cheap = cheap_values(program)
    made = _Remaking(program, cheap, apart)
    for step in program.steps:
        made.add(step)
    if len(made.steps) == len(program.steps):
        return program
    values, steps = compacted(made.values, made.steps, program.result)
    return replace(program, values=values, steps=steps)


def cheap_values(program: Program) -> dict[int, MapStep]:
    """Maps values that cost less to make from the picture than to keep to their steps."""
    costs = {0: 0.0}
    makers: dict[int, MapStep] = {}
    for step in program.steps:
        value = step.writes
        if not isinstance(step, MapStep) or value == program.result:
            continue
        stored = program.values[value]
        sources = {view.value for view in step.reads}
        whole = len(stored.parts) == 1 and value not in makers
        if not whole or step.read_whole or step.vectors_read or not sources <= costs.keys():
            makers.pop(value, None)
            costs.pop(value, None)
            continue
        cost = cost_of_pixel(program, step) + sum(costs[source] for source in sources)
        if cost <= cost_to_keep(program, value):
            makers[value] = step
            costs[value] = cost
    return makers


class _Remaking:
    """Rebuilds the steps of a program with copies of cheap values."""

    def __init__(self, program: Program, makers: dict[int, MapStep], apart: int) -> None:
        self.values: list[Value] = list(program.values)
        self.steps: list[Step] = []
        self._makers = makers
        self._depths = [0] * len(program.values)
        """The number of attentions, one after another, that each value depends on."""
        self._apart = apart
        self._made: dict[int, dict[int, int]] = {}
        """The numbers of each value's copies, by the depth of attention of their readers."""
        self._old: set[int] = set()
        """Values of the program whose own steps have been added."""

    def add(self, step: Step) -> None:
        """Adds the next step of the program; a step of a cheap value waits for a reader."""
        if step.writes in self._makers:
            return
        sources = {view.value for view in step.reads}
        depth = max((self._depths[source] for source in sources), default=0)
        numbers = {source: self._found(source, depth) for source in sources}
        self.steps.append(step.renumbered(numbers))
        if isinstance(step, MapStep):
            depth = max(depth + isinstance(step, AttentionStep), self._depths[step.writes])
            self._depths[step.writes] = depth

    def _found(self, value: int, depth: int) -> int:
        """Returns the number of the value, or of its copy, for readers at a depth of attention;
        adds its step now if need be."""
        if value not in self._makers:
            return value
        made = self._made.setdefault(value, {})
        near = [number for at, number in made.items() if 0 <= depth - at < self._apart]
        if not near:
            maker = self._makers[value]
            numbers = {view.value: self._found(view.value, depth) for view in maker.reads}
            if value in self._old:
                self.values.append(self.values[value])
                numbers[value] = len(self.values) - 1
            else:
                self._old.add(value)
                numbers[value] = value
            near = [numbers[value]]
            made[depth] = numbers[value]
            self.steps.append(maker.renumbered(numbers))
        return near[-1]
