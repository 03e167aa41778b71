"""Packs programs: steps become tasks, weights go into the order in which code reads them."""

from __future__ import annotations

from waifu2x.backends.cpu.arithmetic import CELL_UNIT, PLAIN, Arithmetic, Fineness, unit_of
from waifu2x.backends.cpu.arrays import Arrays
from waifu2x.backends.cpu.conv_tasks import conv_tasks
from waifu2x.backends.cpu.maps import ProgramMaps
from waifu2x.backends.cpu.packed import PackedProgram
from waifu2x.backends.cpu.packing import Packing
from waifu2x.backends.cpu.picture import with_picture
from waifu2x.backends.cpu.planewise_tasks import planewise_task
from waifu2x.backends.cpu.records import WINOGRAD
from waifu2x.backends.cpu.tasks import ConvTask, PlanewiseTask
from waifu2x.lowering.costs import cost_of_pixel
from waifu2x.lowering.lower import lower
from waifu2x.lowering.segments import at_bottlenecks, segmented
from waifu2x.lowering.steps import Conv, PlanewiseStep
from waifu2x.networks.model import Model


def pack(model: Model, arithmetic: Arithmetic, fineness: Fineness = PLAIN) -> PackedProgram:
    """A model's program, packed."""
    program = at_bottlenecks(segmented(with_picture(lower(model))))
    arrays = Arrays()
    maps = ProgramMaps(program, arithmetic, arrays, fineness)
    packing = Packing(program, arithmetic, maps, arrays)
    tasks: dict[int, list[ConvTask | PlanewiseTask]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, Conv):
            tasks[number] = conv_tasks(packing, number, step)
        elif isinstance(step, PlanewiseStep):
            tasks[number] = [planewise_task(packing, number, step)]
    kinds = {task.kind for own in tasks.values() for task in own}
    return PackedProgram(
        program,
        arithmetic,
        [cost_of_pixel(program, step) for step in program.steps],
        maps.finished(),
        packing.vector_starts,
        tasks,
        CELL_UNIT if WINOGRAD in kinds else unit_of(arithmetic),
        arrays.weights(),
        arrays.constants(),
    )
