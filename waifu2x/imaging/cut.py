"""What of a picture networks need for a result that shows only a part of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from waifu2x.imaging.sizes import Part, ResizePlan

_ALIGNED = 16
"""Pixels of a cut's left and top edges: networks that halve maps see the same cells as before."""
_FILTER = 3
"""Pixels on each side that Lanczos weighs, of the larger of source and result."""
_WORTH = 0.95
"""The share of a picture up to which the cut is worth being made."""

Box = tuple[slice, slice]
"""Rows and columns."""


def needed(plan: ResizePlan, radius: int, height: int, width: int) -> Box | None:
    """The rows and columns of a picture that its result depends on; None for all, or nearly.

    `radius` is the receptive-field radius of the networks. Only means over a whole picture, which
    some networks take, see less than before.
    """
    if plan.part is None:
        return None
    part = plan.part
    # A second pass sees half as far as a first one, a third a quarter: together less than twice.
    rows = _span(part.top, part.height, plan.height, plan.factor, 2 * radius, height)
    columns = _span(part.left, part.width, plan.width, plan.factor, 2 * radius, width)
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return (rows, columns) if area <= _WORTH * height * width else None


def within(plan: ResizePlan, box: Box) -> ResizePlan:
    """The plan for what is left of a picture."""
    assert plan.part is not None
    rows, columns = box
    part = plan.part
    moved = Part(part.left - columns.start, part.top - rows.start, part.width, part.height)
    return replace(plan, part=moved)


def _span(
    start: Fraction, extent: Fraction, made: int, factor: int, radius: int, size: int
) -> slice:
    """The pixels of one direction: `made` of the result show `extent` from `start`."""
    step = max(extent / made, Fraction(1, factor))
    beyond = radius + math.ceil(_FILTER * step) + 1
    first = max(0, math.floor(start) - beyond) // _ALIGNED * _ALIGNED
    return slice(first, min(size, math.ceil(start + extent) + beyond))
