"""Tells how far results depend on pixels of the picture, to the bit: so that a part of a picture,
run as a picture of its own, gives the whole picture's bits.

Further than kernels read: a cell, such as one of Winograd's, rounds all of its results by all that
it reads. So each layer carries the least change of a pixel from cell to cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from waifu2x.lowering.ops.attention import AttentionStep
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.planewise import Resize
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Support:
    """How far the results of a network depend on pixels, the same along rows and columns."""

    unit: int
    """Pixels of the picture, at whose multiples a part of it may begin."""
    before: int
    """The most pixels, above or left of a part that begins and ends at multiples of `unit`, on
    which its results depend, and those one pixel of the result beyond it."""
    after: int
    """The same below or on the right."""


def support_of(program: Program, unit: tuple[int, int]) -> Support | None:
    """Returns the support of a program whose steps round their results to whole `unit`s of rows and
    columns; None if results depend on the whole picture, or on its size."""
    model = program.model
    if model.frames > 1 or model.surround is not None or not all(map(_is_local, program.steps)):
        return None
    side = math.lcm(model.multiple, *_sides(program, unit))
    scale, far = model.scale, side * 1024
    box = Box(far * scale - 1, far * scale - 1, side * scale + 2, side * scale + 2)
    work = geometry.work(program, range(len(program.steps)), {program.result: box}, unit)
    needed = work.needed[0]
    # The picture is counted with its padding.
    first = min(needed.top, needed.left) - model.padding
    end = max(needed.bottom, needed.right) - model.padding
    return Support(side, max(0, far - first), max(0, end - far - side))


def chained(supports: Sequence[Support | None], scales: Sequence[int]) -> Support | None:
    """Returns the support of networks that run one after the other, each with its scale; None if
    one of them has none."""
    made: Support | None = None
    for one, scale in zip(reversed(supports), reversed(scales), strict=True):
        if one is None:
            return None
        if made is None:
            made = one
            continue
        before, after = (
            round_up(-(-more // scale), one.unit) for more in (made.before, made.after)
        )
        unit = math.lcm(one.unit, made.unit // math.gcd(made.unit, scale))
        made = Support(unit, one.before + before, one.after + after)
    return made


def _is_local(step: object) -> bool:
    """Returns whether a step makes each pixel of a few near ones, wherever the picture ends."""
    return (
        isinstance(step, MapStep)
        and not isinstance(step, AttentionStep)
        and not step.read_whole
        and not (isinstance(step, Resize) and step.taps == "bilinear")
    )


def _sides(program: Program, unit: tuple[int, int]) -> Iterator[int]:
    """Yields the numbers of pixels of the picture at whose multiples all cells of a step begin."""
    for step in program.steps:
        assert isinstance(step, MapStep)
        value = program.values[step.target.value]
        for side in unit:
            cells = math.lcm(side, value.space_to_depth) * step.stored_block
            yield (cells / value.resolution).numerator
