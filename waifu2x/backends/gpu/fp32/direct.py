"""Runs convolutions by `kernels/direct.cl`: any planes and taps, from and to pixels or maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.runtime import Limits, Macros
from waifu2x.backends.gpu.device.source import fields_of, vector_type
from waifu2x.backends.gpu.fp32.conv_planes import NARROW, Planes, padded_weight
from waifu2x.lowering.plan.box import round_up
from waifu2x.system.lazy_dataclass import dataclass

_FEW = 16
"""The most planes of result pixels that one work-item makes alone."""
_USUAL_TAPS = 3
_LINE = 4
"""The most results in a work-item's line for larger kernels."""
_LINE_DOWN = 2
"""The most results in a vertical line: its larger groups leave fewer registers."""


@dataclass(frozen=True)
class DirectShape:
    """The division of the work, as macros of the kernel."""

    line: int
    vectors: int
    width: int
    lanes: int
    group_x: int
    group_y: int
    down: bool = False
    load: int = 4

    stem = "direct"
    share = 1.0
    plane_groups = True

    @property
    def planes(self) -> int:
        return self.lanes * self.vectors * self.width

    @property
    def rows(self) -> int:
        return self.group_y * (self.line if self.down else 1)

    @property
    def columns(self) -> int:
        return self.group_x * (1 if self.down else self.line)

    @property
    def group(self) -> int:
        return self.lanes * self.group_x * self.group_y

    def macros(self, planes: Planes) -> Macros:
        return {
            "TAPS": planes.taps,
            "IN_PLANES": round_up(planes.in_count, self.load),
            "OUT_PLANES": round_up(planes.out_count, self.planes),
            "VECTOR": vector_type(self.width),
            "GROUP": self.group,
            **fields_of(self),
        }

    def pack(self, planes: Planes, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        inputs = round_up(planes.in_count, self.load)
        full = padded_weight(planes, weight, inputs, round_up(planes.out_count, self.planes))
        # The taps along the line of a work-item go innermost.
        order = (0, 3, 1, 2) if self.down else (0, 2, 1, 3)
        taps = full.transpose(order).reshape(-1, self.planes, planes.taps, inputs, planes.taps)
        return np.ascontiguousarray(taps.transpose(0, 2, 3, 4, 1))


def candidates(limits: Limits, planes: Planes) -> list[DirectShape]:
    """Returns the shapes that a convolution can take on a device, the default first."""
    found = _candidates(limits, planes)
    if planes.taps <= _USUAL_TAPS:
        return found
    # All pixels of a line are in registers: many taps leave fewer for results and planes.
    lines = (min(shape.line, _LINE_DOWN if shape.down else _LINE) for shape in found)
    pairs = zip(found, lines, strict=True)
    return list(dict.fromkeys(replace(shape, line=line, load=1) for shape, line in pairs))


def _candidates(limits: Limits, planes: Planes) -> list[DirectShape]:
    count = planes.out_count
    if limits.is_cpu:
        # Twelve vectors of sums at most, for the sixteen or more registers that processors have.
        width, load = limits.vector, NARROW if limits.vector >= NARROW else 1
        if count <= NARROW and (planes.to_pixels or planes.is_narrow):
            return [DirectShape(8, 1, load, 1, 1, 1, load=load)]
        if planes.is_narrow and not planes.to_pixels:
            return [DirectShape(3, 4, load, 1, 1, 1, load=load)]
        if count > 2 * width:
            return [DirectShape(3, 4, width, 1, 1, 1, load=load)]
        return [DirectShape(4, 2 if width < count else 1, width, 1, 1, 1, load=load)]
    usual = _for_gpus(planes, count)
    return list(dict.fromkeys(_fitted(shape, limits.max_group) for shape in usual))


def _for_gpus(planes: Planes, count: int) -> list[DirectShape]:
    """Returns shapes of groups of 64 work-items and more, for `count` output planes."""
    if planes.to_pixels and count <= NARROW:
        cuts = ((4, 8), (4, 4), (8, 4), (2, 8))
        return [DirectShape(line, 1, 4, 1, 32, rows, down=True) for line, rows in cuts]
    if planes.to_pixels and count <= _FEW:
        vectors = -(-count // 4)
        cuts = ((4, 4), (4, 8), (2, 8), (8, 4))
        return [DirectShape(line, vectors, 4, 1, 32, rows, down=True) for line, rows in cuts]
    if count <= _FEW:
        return [DirectShape(8, 1, 4, 4, 8, rows) for rows in (4, 8)]
    vectors = 2 if count > 32 else 1
    if planes.taps == 1:
        # Fewer multiply-adds for each load: the best shape depends on the caches.
        ways = ((4, vectors, 4), (4, 2 * vectors, 4), (4, vectors, 8), (8, vectors, 4))
        return [DirectShape(line, v, 4, 8, 4, rows) for line, v, rows in ways]
    return [DirectShape(8, vectors, 4, 8, 4, rows) for rows in (4, 8)]


def _fitted(shape: DirectShape, most: int) -> DirectShape:
    """Returns the shape with at most `most` work-items a group: fewer lines, then fewer planes."""
    while shape.group > most:
        if shape.group_y > 1:
            shape = replace(shape, group_y=shape.group_y // 2)
        elif shape.group_x > 1:
            shape = replace(shape, group_x=shape.group_x // 2)
        else:
            shape = replace(shape, lanes=shape.lanes // 2)
    return shape
