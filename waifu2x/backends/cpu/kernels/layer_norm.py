"""Layer norm, over the planes of a pixel, fp32, on vectors of planes.

A pixel is read three times, the last two from the L1 cache. Maps are floats, padded to whole
vectors.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import KernelJob, pixel_row, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.shapes import LANES


def _emit_row(
    v: Emitter, job: KernelJob, source: ir.Value, source_pixel: ir.Value, target: ir.Value
) -> None:
    """Computes a row of pixels. The biases follow the weights, then vectors of eps and of one over
    the number of planes."""

    def field(name: str) -> ir.Value:
        return v.field(job.task, name)

    constants = job.constants
    planes, count, weights = field("planes"), field("depth"), field("slopes")
    biases = v.add(weights, planes)
    eps = v.load_constant(constants, v.add(biases, planes))
    share = v.load_constant(constants, v.add(v.add(biases, planes), LANES))
    (sums,) = v.accumulators([v.splat(0.0)])

    def centred(pixel: ir.Value, plane: ir.Value, mean: ir.Value) -> ir.Value:
        value = v.minus(v.load(pixel, plane), mean)
        return v.first_lanes(value, v.minus_offset(count, plane))

    def averaged() -> ir.Value:
        return v.times(v.splat(v.total(v.get(sums))), share)

    with v.loop(field("columns")) as x:
        pixel = v.at(job.scratch, v.add(source, v.mul(source_pixel, x)))
        to = v.at(job.scratch, v.add(target, v.mul(field("target_pixel"), x)))
        v.set(sums, v.splat(0.0))
        with v.loop(planes, LANES) as plane:
            v.set(sums, v.plus(v.get(sums), centred(pixel, plane, v.splat(0.0))))
        mean = averaged()
        v.set(sums, v.splat(0.0))
        with v.loop(planes, LANES) as plane:
            value = centred(pixel, plane, mean)
            v.set(sums, v.fma(value, value, v.get(sums)))
        factor = v.divided(v.splat(1.0), v.root(v.plus(averaged(), eps)))
        with v.loop(planes, LANES) as plane:
            value = v.times(centred(pixel, plane, mean), factor)
            weight = v.load_constant(constants, v.add(weights, plane))
            bias = v.load_constant(constants, v.add(biases, plane))
            v.store(v.fma(value, weight, bias), to, plane)


_row = vector_kernel(_emit_row)


@native
def norm_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a norm over the planes of each pixel."""
    task = job.task
    source, target = record(job.maps, task.source), record(job.maps, task.target)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        x = task.column + task.source_offset
        start = pixel_row(source, y + task.source_offset, x) + task.source_plane
        to = pixel_row(target, y, task.column) + task.target_plane
        _row(job, start, source.pixel_floats, to)
