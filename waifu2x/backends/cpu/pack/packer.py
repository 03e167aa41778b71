"""Packs programs: steps become tasks, weights go into the order in which code reads them."""

from __future__ import annotations

from waifu2x.backends.cpu.arithmetic import CELL_UNIT, PLAIN, Arithmetic, Fineness, unit_of
from waifu2x.backends.cpu.pack.arrays import Arrays
from waifu2x.backends.cpu.pack.attention_tasks import attention_task, mix_task, plane_attention_task
from waifu2x.backends.cpu.pack.conv_tasks import conv_tasks
from waifu2x.backends.cpu.pack.depthwise_tasks import depthwise_task
from waifu2x.backends.cpu.pack.layer_norm_tasks import layer_norm_task
from waifu2x.backends.cpu.pack.many_taps import in_threes
from waifu2x.backends.cpu.pack.maps import ProgramMaps
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.packing import Packing
from waifu2x.backends.cpu.pack.planewise_tasks import planewise_task, rearrange_task
from waifu2x.backends.cpu.pack.records import WINOGRAD
from waifu2x.backends.cpu.pack.tasks import MapTask
from waifu2x.backends.cpu.run.picture import with_picture
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows, MixPlanes
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import PlanewiseStep, Rearrange
from waifu2x.lowering.passes.rematerialization import rematerialized
from waifu2x.lowering.passes.segments import at_bottlenecks, segmented
from waifu2x.lowering.plan.costs import cost_of_pixel
from waifu2x.networks.model import Model


def pack(model: Model, arithmetic: Arithmetic, fineness: Fineness = PLAIN) -> PackedProgram:
    """A model's program, packed."""
    program = rematerialized(with_picture(in_threes(lower(model))))
    program = at_bottlenecks(segmented(program))
    arrays = Arrays()
    maps = ProgramMaps(program, arithmetic, arrays, fineness)
    packing = Packing(program, arithmetic, maps, arrays)
    tasks: dict[int, list[MapTask]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, Conv):
            tasks[number] = [*conv_tasks(packing, number, step)]
        elif isinstance(step, MixPlanes):
            tasks[number] = [mix_task(packing, number, step)]
        elif isinstance(step, AttendWindows):
            tasks[number] = [attention_task(packing, number, step)]
        elif isinstance(step, AttendPlanes):
            tasks[number] = [plane_attention_task(packing, number, step)]
        elif isinstance(step, NormPlanes):
            tasks[number] = [layer_norm_task(packing, number, step)]
        elif isinstance(step, Depthwise):
            tasks[number] = [depthwise_task(packing, number, step)]
        elif isinstance(step, Rearrange):
            tasks[number] = [rearrange_task(packing, number, step)]
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
