"""Depthwise convolutions, fp32, on vectors of planes.

A run of neighbouring pixels of one vector of planes is summed in registers, so that a tap's weights
are loaded once for all of them. Maps are floats, padded to whole vectors.

Bound: loads, one for each multiply-add. Best measured: 33 to 39 GMAC/s on two cores.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.activations import emit_activated
from waifu2x.backends.cpu.kernels.memory import KernelJob, locate_source, pixel_row, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import FUNCTIONS, JOINED, SOURCE_ROWS
from waifu2x.backends.cpu.pack.shapes import LANES

_RUN = 8 if VECTOR.registers >= 32 else 6
"""Neighbouring pixels whose sums are in registers."""


def _emit_function(v: Emitter, job: KernelJob, slot: ir.Value, plane: ir.Value) -> None:
    """Applies the function of a task to the vector in an accumulator; number 0 is a leaky ReLU."""
    total = v.get(slot)
    slopes = v.load_constant(job.constants, v.add(v.field(job.task, "slopes"), plane))
    for number in v.cases(v.field(job.task, "activation"), range(len(FUNCTIONS))):
        if number:
            v.set(slot, emit_activated(v, FUNCTIONS[number], total, slopes))
        else:
            v.set(slot, v.leaky(total, slopes))


def _emit_run(
    v: Emitter,
    job: KernelJob,
    row: ir.Value,
    offset: ir.Value,
    pixel: ir.Value,
    target: ir.Value,
    residual: ir.Value,
) -> None:
    """Computes all planes of a run of pixels that begins `offset` floats along the located row
    `row`; `target` and `residual` are the places of the first pixel."""

    def field(name: str) -> ir.Value:
        return v.field(job.task, name)

    scratch, constants = job.scratch, job.constants
    taps, planes = field("taps"), field("planes")
    area = v.mul(taps, taps)
    with v.loop(planes, LANES) as plane:
        bias = v.load_constant(constants, v.add(field("bias"), plane))
        slots = v.accumulators([bias] * _RUN)
        block = v.at(job.weights, v.add(field("weight"), v.mul(plane, area)))
        with v.loop(taps) as dy:
            start = v.integer(job.places, v.add(v.add(row, dy), SOURCE_ROWS))
            line = v.at(scratch, v.add(v.add(start, offset), plane))
            own = v.at(block, v.mul(v.mul(dy, taps), LANES))
            with v.loop(taps) as dx:
                factors = v.load(own, v.mul(dx, LANES))
                for n, slot in enumerate(slots):
                    value = v.load(line, v.mul(pixel, v.add(dx, n)))
                    v.set(slot, v.fma(value, factors, v.get(slot)))
        for n, slot in enumerate(slots):
            _emit_function(v, job, slot, plane)
            for _ in v.cases(v.at_least(field("residual"), 0), (1,)):
                place = v.add(v.add(residual, v.mul(field("residual_pixel"), n)), plane)
                other = v.load(scratch, place)
                for join in v.cases(field("join"), range(len(JOINED))):
                    v.set(slot, emit_activated(v, JOINED[join], v.get(slot), other))
            place = v.add(v.add(target, v.mul(field("target_pixel"), n)), plane)
            v.store(v.get(slot), scratch, place)


_run = vector_kernel(_emit_run)


@native
def convolve_depthwise(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a depthwise convolution."""
    task, maps = job.task, job.maps
    source, target = record(maps, task.source), record(maps, task.target)
    pixel, rows = source.pixel_floats, min(task.rows, task.end_row - task.next_row)
    locate_source(job, source, rows + task.taps - 1)
    for row in range(rows):
        y, added = task.next_row + row, 0
        to = pixel_row(target, y, task.column) + task.target_plane
        if task.residual >= 0:
            other, x = record(maps, task.residual), task.column + task.residual_offset
            added = pixel_row(other, y + task.residual_offset, x) + task.residual_plane
        # The last run may go past the columns, into the spare pixels of each row.
        for x in range(0, task.columns, _RUN):
            made, joined = to + x * task.target_pixel, added + x * task.residual_pixel
            _run(job, row, x * pixel, pixel, made, joined)
