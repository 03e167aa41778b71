"""Convolutions of more than three taps in each direction, made up to threes with taps of zero.

Winograd's transforms are of 3x3 taps: a kernel of 17x17 is 36 of them, each over the source moved
by multiples of three pixels. They are inputs of one product at each frequency, so that the sums of
all are transformed back once: a quarter of the multiply-adds of the definition.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from waifu2x.backends.cpu.pack.maps import FEW
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program


def in_threes(program: Program) -> Program:
    """The program with more taps for convolutions that Winograd's method is for: those of maps of
    more than FEW planes."""
    steps = list(program.steps)
    for number, step in enumerate(steps):
        if isinstance(step, Conv) and step.taps > 3 and not step.resized and step.in_planes > FEW:
            more = round_up(step.taps, 3) - step.taps
            weight = np.pad(step.weight, ((0, 0), (0, 0), (0, more), (0, more)))
            steps[number] = replace(step, weight=weight)
    return replace(program, steps=tuple(steps))
