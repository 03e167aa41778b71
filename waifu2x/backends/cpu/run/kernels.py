"""Finds the compiled code of tasks, and has it built ahead of its use."""

from __future__ import annotations

from functools import cache

from waifu2x.backends.cpu.compile.compiled import Compiled, begin
from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.tasks import CpuTask
from waifu2x.backends.cpu.run.work_queue import run_strips
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.base import PictureSum

_OF_KIND = {
    records.FEW_INPUTS: "few_inputs",
    records.POINTWISE: "pointwise",
    records.WINOGRAD: "winograd",
    records.INTEGER_WINOGRAD: "integer_winograd",
    records.INTEGER_POINTWISE: "integer_pointwise",
    records.FEW_OUTPUTS: "few_outputs",
    records.TILES: "tiles",
    records.PIXEL_TILES: "tiles",
    records.FEW_TILES: "few_tiles",
    records.ATTENTION: "attention",
    records.PLANE_ATTENTION: "plane_attention",
    records.MIX: "mix",
    records.DEPTHWISE: "depthwise",
    records.LAYER_NORM: "layer_norm",
    records.REARRANGE: "rearrange",
    records.READ: "read",
    records.LOAD: "load",
    records.KEEP: "keep",
    records.POOL: "pool",
    records.CROSS: "cross",
}
"""The entry point in `kernels/strip.py` of each kind of task, but for the two below."""
_PLANEWISE = {
    records.BY_VALUES: "planewise_values",
    records.BY_PLANES: "planewise_vectors",
    records.BY_FLOATS: "planewise_floats",
    records.BY_RESIZING: "resizing",
    records.BY_MAXIMA: "resizing",
    records.BY_SIZES: "resizing",
}
_WRITE = {
    records.BY_VALUES: "write_values",
    records.BY_PLANES: "write_stored",
    records.BY_FLOATS: "write_stored",
    records.BY_RESIZING: "write_resized",
}
"""Those of planewise steps and of writing, by the method of reading their source."""
NAMES = tuple(sorted({*_OF_KIND.values(), *_PLANEWISE.values(), *_WRITE.values()}))
"""All entry points of kernels."""
_SLOW = {"attention", "integer_pointwise", "integer_winograd", "planewise_values", "winograd"}
"""Those whose compilation takes longest, and begins first."""


def begin_common() -> None:
    """Begins to build what most programs need, if it is not there; returns at once."""
    begin([run_strips, _code("read"), _code("write_stored")])


def begin_for(packed: PackedProgram) -> None:
    """Begins to build what the tasks of a program need, if it is not there; returns at once."""
    begin([run_strips, *_codes(packed)])


def load_for(packed: PackedProgram) -> None:
    """Loads what the tasks of a program need. Raises BackendError if it cannot be compiled."""
    run_strips.load()
    for code in _codes(packed):
        code.load()


def address(task: CpuTask) -> int:
    """Returns the address of a task's code, which is loaded or compiled if necessary. Raises
    BackendError."""
    return _code(_name(task)).address


def _codes(packed: PackedProgram) -> list[Compiled]:
    """Returns the code of all tasks of a program, except of phases that only large pictures
    need."""
    kinds = {records.READ}
    for step in packed.program.steps:
        if isinstance(step, PictureSum):
            summed = records.CROSS if isinstance(step, CrossSums) else records.POOL
            kinds |= {records.KEEP, records.LOAD, summed}
    names = {_OF_KIND[kind] for kind in kinds}
    names |= {_name(task) for tasks in packed.tasks.values() for task in tasks}
    return [_code(name) for name in sorted(names, key=lambda name: (name not in _SLOW, name))]


def _name(task: CpuTask) -> str:
    """Returns the name of a task's entry point."""
    if task.kind == records.PLANEWISE:
        return _PLANEWISE[task.fields.get("method", records.BY_VALUES)]
    if task.kind == records.WRITE:
        return _WRITE[task.fields.get("method", records.BY_VALUES)]
    return _OF_KIND[task.kind]


@cache
def _code(name: str) -> Compiled:
    """Returns the code of an entry point, one object for each: its users share what is loaded."""
    return Compiled("strip", name)
