"""Which part of every value a box of the result needs: one walk backward through the steps.

All boxes are in single pixels of a value, counted from its pixel (0, 0), however stored. Parts
that are computed are made up to whole units, at multiples of a unit, so that cells of any kind lie
alike in every tile; they may reach beyond a value's size. Where a value is zero there, nothing is
computed for it: else every layer of a deep network would add to what is made around a picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from waifu2x.lowering.ops.attention import AttentionStep
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.planewise import (
    BicubicResize,
    BilinearResize,
    DepthToSpace,
    PoolMaxima,
    SpaceToDepth,
)
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import larger, smaller
from waifu2x.lowering.plan.windows import keys_under, whole_windows
from waifu2x.lowering.program import MapStep, Program
from waifu2x.lowering.step_facts import reads, reads_whole, residual_of, stored_block
from waifu2x.lowering.values import View
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Work:
    """What is computed of some steps."""

    values: Mapping[int, Box]
    """For each value that is read or written: all that is read, and all that is written."""
    steps: Mapping[int, Box]
    """By the number of each step that runs: the results of a convolution before depth-to-space, the
    pixels of any other's target."""
    needed: Mapping[int, Box]
    """The part of each value that results depend on. What is read besides may be anything."""
    read: Mapping[int, Box]
    """The part of each value that steps read."""
    whole: frozenset[int]
    """Values that are read whole, which count here alone."""


def work(
    program: Program,
    steps: Sequence[int],
    roots: Mapping[int, Box],
    unit: tuple[int, int] = (1, 1),
    sizes: Sequence[Size] | None = None,
) -> Work:
    """What some steps, in order, have to compute for boxes of the values that are wanted.

    A step runs if anything wants its target. `unit` is in rows and columns of a step's own results.
    With the `sizes` of all values, a step that writes zeros outside its target's size is taken to
    depend on nothing there; else a whole tile of its results is computed.
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
        block, stored = stored_block(step), program.values[step.target.value].space_to_depth
        units = (math.lcm(unit[0], stored), math.lcm(unit[1], stored))
        own = sizes[step.source.value] if sizes is not None else None

        box = _computed(step, divided(needed[step.target.value], block), units, own)
        boxes[number] = box
        made = scaled(box, block)
        written[step.target.value] = hull(made, written.get(step.target.value))
        inside = box
        if sizes is not None and program.values[step.target.value].zero_outside:
            size = Box(0, 0, *sizes[step.target.value])
            inside = overlap(box, divided(size, block))
            if inside.height and inside.width:
                inside = _computed(step, inside, units, own)
        for part, found in ((box, read), (inside, needed)):
            if not part.height or not part.width:
                continue
            if isinstance(step, AttentionStep):
                _read_windows(step, part, sizes, found)
                continue
            if reads_whole(step):
                whole.add(step.source.value)
                continue
            wanted = source_box(program, number, part)
            found[step.source.value] = hull(wanted, found.get(step.source.value))
            residual = residual_of(step)
            if residual:
                wanted = viewed(residual, scaled(part, block))
                if isinstance(step, Conv) and step.resized:
                    wanted = Box(
                        wanted.top - 1, wanted.left - 1, wanted.height + 2, wanted.width + 2
                    )
                found[residual.value] = hull(wanted, found.get(residual.value))
    values = dict(written)
    for value, box in (*roots.items(), *read.items()):
        values[value] = hull(box, values.get(value))
    return Work(values, dict(sorted(boxes.items())), needed, read, frozenset(whole))


def _computed(step: MapStep, box: Box, unit: tuple[int, int], size: Size | None) -> Box:
    """All that a step computes, whose source has that size, where a box of it is wanted."""
    if isinstance(step, AttentionStep):
        return whole_windows(step.windows, box, size)
    return aligned(box, unit)


def _read_windows(
    step: AttentionStep, box: Box, sizes: Sequence[Size] | None, found: dict[int, Box]
) -> None:
    """Adds what attention reads for a box of whole windows: nothing of what is beyond a map."""
    under = keys_under(step.windows, box)
    boxes = (step.source, box), (step.keys, under), (step.values, under)
    for view, wanted in boxes:
        if sizes is not None:
            wanted = overlap(wanted, Box(0, 0, *sizes[view.value]))
        if wanted.height and wanted.width:
            found[view.value] = hull(wanted, found.get(view.value))


def source_box(program: Program, number: int, box: Box) -> Box:
    """The pixels of its source that a step reads for its results in a box."""
    step = program.steps[number]
    assert isinstance(step, MapStep)
    match step:
        case Conv() | Depthwise():
            more = step.taps - 1
            grown = Box(box.top, box.left, box.height + more, box.width + more)
            stored = program.values[step.source.value].space_to_depth
            return scaled(viewed(step.source, grown), stored)
        case BicubicResize(up=up, down=down):
            wide = Box(box.top * down, box.left * down, box.height * down, box.width * down)
            near = divided(wide, up)
            return Box(near.top - 1, near.left - 1, near.height + 3, near.width + 3)
        case BilinearResize(up=up, down=down, radius=radius):
            near, more = divided(scaled(box, down), up), 2 * radius + 1
            return Box(near.top - radius, near.left - radius, near.height + more, near.width + more)
        case PoolMaxima(kernel=kernel, stride=stride):
            first, more = scaled(box, stride), kernel - stride
            return Box(first.top, first.left, first.height + more, first.width + more)
        case DepthToSpace():
            return viewed(step.source, divided(box, step.block))
        case SpaceToDepth():
            return viewed(step.source, scaled(box, step.block))
        case _:
            return viewed(step.source, box)


def viewed(view: View, box: Box) -> Box:
    """The pixels of a value under a box of a view of it."""
    moved = Box(box.top + view.offset, box.left + view.offset, box.height, box.width)
    return divided(moved, view.enlarge)


def sizes(program: Program, height: int, width: int) -> tuple[Size, ...]:
    """Rows and columns of every value for a picture of that size; of the result, without what made
    the picture up to a multiple."""
    graph = program.model.sizes(height, width)
    scale = program.model.scale
    found = [graph[value.graph] for value in program.values]
    found[program.result] = (height * scale, width * scale)
    return tuple(found)


def tiles(size: Size, down: int, across: int, unit: int) -> Iterator[Box]:
    """A value's pixels in `down` x `across` boxes, cut at multiples of a unit; some may be empty.

    Boxes of the same number of two values lie at about the same part of the picture.
    """
    rows, columns = _cuts(size[0], down, unit), _cuts(size[1], across, unit)
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            yield Box(top, left, bottom - top, right - left)


def _cuts(length: int, count: int, unit: int) -> list[int]:
    # Rounded, in numbers that may be symbols.
    each = 2 * count * unit
    inner = [(2 * length * index + count * unit) // each * unit for index in range(1, count)]
    return [0, *(smaller(cut, length) for cut in inner), length]


def read_by(program: Program) -> dict[int, list[int]]:
    """The numbers of the steps that read each value."""
    found: dict[int, list[int]] = {value: [] for value in range(len(program.values))}
    for number, step in enumerate(program.steps):
        for value in {view.value for view in reads(step)}:
            found[value].append(number)
    return found


def round_up(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def divided(box: Box, by: int) -> Box:
    """The pixels of a picture `by` times smaller that a box touches."""
    top, left = box.top // by, box.left // by
    return Box(top, left, -(-box.bottom // by) - top, -(-box.right // by) - left)


def scaled(box: Box, by: int) -> Box:
    """The same pixels in a picture `by` times larger."""
    return Box(box.top * by, box.left * by, box.height * by, box.width * by)


def aligned(box: Box, unit: tuple[int, int]) -> Box:
    """The smallest box of whole units around it."""
    top, left = box.top // unit[0] * unit[0], box.left // unit[1] * unit[1]
    bottom, right = -(-box.bottom // unit[0]) * unit[0], -(-box.right // unit[1]) * unit[1]
    return Box(top, left, bottom - top, right - left)


def overlap(box: Box, other: Box) -> Box:
    """What lies in both; without pixels if nothing does."""
    top, left = larger(box.top, other.top), larger(box.left, other.left)
    bottom, right = smaller(box.bottom, other.bottom), smaller(box.right, other.right)
    return Box(top, left, max(bottom - top, 0), max(right - left, 0))


def hull(box: Box, other: Box | None) -> Box:
    """The smallest box around both."""
    if other is None:
        return box
    top, left = smaller(box.top, other.top), smaller(box.left, other.left)
    bottom, right = larger(box.bottom, other.bottom), larger(box.right, other.right)
    return Box(top, left, bottom - top, right - left)
