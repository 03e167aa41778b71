"""Finds the box of every value that a box of the result needs, in one backward walk through the
steps.

All boxes are in single pixels of a value, counted from its pixel (0, 0), however stored. Boxes that
are computed are rounded to whole units, at multiples of a unit, so that cells of any kind lie alike
in every tile; they may reach beyond a value's size. Where a value is zero there, nothing is
computed for it: otherwise every layer of a deep network would widen the halo around a picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.plan.box import Box, divided, hull, overlap, scaled
from waifu2x.lowering.plan.symbols import smaller
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Work:
    """The boxes of values and steps that are computed for some results."""

    values: Mapping[int, Box]
    """For each value: the hull of its boxes that are read and written."""
    steps: Mapping[int, Box]
    """For each step that runs, by number: the box of a convolution's results before depth-to-space,
    of any other's target."""
    needed: Mapping[int, Box]
    """The box of each value that results depend on; other pixels read may hold anything."""
    read: Mapping[int, Box]
    """The box of each value that steps read."""
    whole: frozenset[int]
    """Values that are read whole; the fields above leave those reads out."""


def work(
    program: Program,
    steps: Sequence[int],
    roots: Mapping[int, Box],
    unit: tuple[int, int] = (1, 1),
    sizes: Sequence[Size] | None = None,
) -> Work:
    """Returns the work of `steps`, numbers in order, for the boxes `roots` of the values wanted.

    A step runs if its target is wanted. `unit` is in rows and columns of a step's own results.
    With the `sizes` of all values, a step that writes zeros outside its target's size depends on
    nothing there; without, it computes a whole tile of results.
    """
    needed = dict(roots)
    read: dict[int, Box] = {}
    boxes: dict[int, Box] = {}
    written: dict[int, Box] = {}
    whole: set[int] = set()
    for number in reversed(steps):
        step = program.steps[number]
        if not isinstance(step, MapStep) or step.target.value not in needed:
            continue
        block, stored = step.stored_block, program.values[step.target.value].space_to_depth
        units = (math.lcm(unit[0], stored), math.lcm(unit[1], stored))
        own = sizes[step.source.value] if sizes is not None else None

        box = step.computed(divided(needed[step.target.value], block), units, own)
        boxes[number] = box
        made = scaled(box, block)
        written[step.target.value] = hull(made, written.get(step.target.value))
        inside = box
        if sizes is not None and program.values[step.target.value].zero_outside:
            size = Box(0, 0, *sizes[step.target.value])
            inside = overlap(box, divided(size, block))
            if inside.height and inside.width:
                inside = step.computed(inside, units, own)
        for part, found in ((box, read), (inside, needed)):
            if part.height and part.width:
                whole.update(view.value for view in step.read_whole)
                for value, wanted in step.read_boxes(program, part, sizes):
                    found[value] = hull(wanted, found.get(value))
    values = dict(written)
    for value, box in (*roots.items(), *read.items()):
        values[value] = hull(box, values.get(value))
    return Work(values, dict(sorted(boxes.items())), needed, read, frozenset(whole))


def sizes(program: Program, height: int, width: int) -> tuple[Size, ...]:
    """Returns rows and columns of every value for a picture of that size; the result's do not count
    the padding of the picture to a multiple."""
    graph = program.model.sizes(height, width)
    scale = program.model.scale
    found = [graph[value.graph] for value in program.values]
    found[program.result] = (height * scale, width * scale)
    return tuple(found)


def tiles(size: Size, down: int, across: int, unit: int) -> Iterator[Box]:
    """Divides a value into `down` x `across` boxes, cut at multiples of a unit; some may be empty.

    The n-th boxes of two values cover about the same part of the picture.
    """
    rows, columns = _cuts(size[0], down, unit), _cuts(size[1], across, unit)
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            yield Box(top, left, bottom - top, right - left)


def _cuts(length: int, count: int, unit: int) -> list[int]:
    # Rounds with integers alone, since they may be symbols.
    each = 2 * count * unit
    inner = [(2 * length * index + count * unit) // each * unit for index in range(1, count)]
    return [0, *(smaller(cut, length) for cut in inner), length]


def read_by(program: Program) -> dict[int, list[int]]:
    """Returns the numbers of the steps that read each value."""
    found: dict[int, list[int]] = {value: [] for value in range(len(program.values))}
    for number, step in enumerate(program.steps):
        for value in {view.value for view in step.reads}:
            found[value].append(number)
    return found
