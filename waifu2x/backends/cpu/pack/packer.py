"""Packs programs: steps become tasks, and weights get the order in which kernels read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from waifu2x.backends.cpu.arithmetic import CELL_UNIT, PLAIN, Arithmetic, Fineness, unit_of
from waifu2x.backends.cpu.pack import attention, conv, norm, planewise
from waifu2x.backends.cpu.pack.maps import FEW
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.packing import Packers, Packing
from waifu2x.backends.cpu.pack.records import WINOGRAD
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.passes.rematerialization import rematerialized
from waifu2x.lowering.passes.segments import at_bottlenecks, segmented
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.costs import cost_of_pixel
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target
from waifu2x.networks.expressions import MULTIPLY
from waifu2x.networks.model import Model

_PACKERS: Packers = {
    **attention.PACKERS,
    **conv.PACKERS,
    **norm.PACKERS,
    **planewise.PACKERS,
}
"""The functions that pack steps that write maps, by class."""


def pack(model: Model, arithmetic: Arithmetic, fineness: Fineness = PLAIN) -> PackedProgram:
    """Lowers and packs a model in an arithmetic."""
    program = rematerialized(with_picture(in_threes(lower(model))))
    program = at_bottlenecks(segmented(program))
    packing = Packing(program, arithmetic, fineness)
    tasks = {
        number: _PACKERS[type(step)](packing, number, step)
        for number, step in enumerate(program.steps)
        if type(step) in _PACKERS
    }
    kinds = {task.kind for own in tasks.values() for task in own}
    return PackedProgram(
        program,
        arithmetic,
        [cost_of_pixel(program, step) for step in program.steps],
        packing.maps.finished(),
        packing.vector_starts,
        tasks,
        CELL_UNIT if WINOGRAD in kinds else unit_of(arithmetic),
        packing.arrays.weights(),
        packing.arrays.constants(),
        {},
    )


def in_threes(program: Program) -> Program:
    """Pads the kernels of convolutions of more than 3x3 taps, and more than FEW planes of input,
    with zeros to a multiple of three taps in each direction.

    Winograd's transforms are of 3x3 taps: a kernel of 17x17 is 36 of them, each over the source
    shifted by multiples of three pixels. They are inputs of one matrix product at each frequency,
    so their sum is transformed back once: a quarter of the multiply-adds of the definition.
    """
    steps = list(program.steps)
    for number, step in enumerate(steps):
        if isinstance(step, Conv) and step.taps > 3 and not step.resized and step.in_planes > FEW:
            more = round_up(step.taps, 3) - step.taps
            weight = np.pad(step.weight, ((0, 0), (0, 0), (0, more), (0, more)))
            steps[number] = replace(step, weight=weight)
    return replace(program, steps=tuple(steps))


def with_picture(program: Program) -> Program:
    """Removes a copy of the picture, perhaps enlarged, that the step of the result adds: that step
    then reads the picture itself, since a copy is slow to make, keep and read.

    The residual becomes a view of value 0, with the same number of planes.
    """
    steps = program.steps
    last = next(step for step in steps if step.writes == program.result)
    if not isinstance(last, Planewise) or last.residual is None or last.join == MULTIPLY:
        return program
    added = last.residual
    writers = [step for step in steps if step.writes == added.value]
    copy = writers[0]
    if copy != Planewise(copy.node, copy.reads[0], Target(added.value)):
        return program
    if len(writers) > 1 or copy.source.value or len(read_by(program)[added.value]) > 1:
        return program
    source = replace(copy.source, offset=copy.source.offset + added.offset)
    short = {id(last): replace(last, residual=source), id(copy): None}
    changed = (short.get(id(step), step) for step in steps)
    return replace(program, steps=tuple(step for step in changed if step is not None))
