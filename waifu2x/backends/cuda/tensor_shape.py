"""How a convolution on matrix units is cut: shapes that a chip can run, the usual one first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from waifu2x.backends.cuda.tensor_pack import (
    pack_middle,
    pack_quads,
    pack_rolling,
    pack_rows,
)
from waifu2x.backends.cuda.units import Units, is_sm75
from waifu2x.backends.gpu.runtime import Macros
from waifu2x.lowering.geometry import round_up
from waifu2x.system.lazy_dataclass import dataclass

COLUMNS = 64
"""Columns of a tile."""
MOST_ROWS = 8
"""The most rows of a tile of any kernel."""
MOST_SUMS = 64
"""Output planes of a convolution that makes pixels, or a map of few planes, at most."""
_MOST_TAP_COLUMNS = 16
"""The most output planes where the taps of a row are columns of the matrix product."""
_PITCH = COLUMNS + 8
_FLOAT_BYTES = 4
_EPILOGUE_BYTES = 8
_BARRIER_BYTES = 8
_RESERVED_BYTES = 1 << 10
"""Shared memory that the driver takes of each block's share."""
_HALO_COST = 0.4
"""The cost of a tile of one row: its share of a larger one's is read more often."""
_COPIED_COST = 1.15
"""The cost of weights that do not stay in shared memory."""
_ROWS_WIDTH = 64
"""Output planes of a tile of `kernels/tensor_rows.cu`."""
_ROLLING_WIDTH = 32
"""Output planes of a tile of `kernels/tensor_rolling.cu`."""
_MOST_HELD = 576
"""Weights of an output plane that a warpgroup holds in registers."""
_RING_UNIT = 1024
"""What the bytes of a ring of rows are a multiple of."""
_NARROW_COST = 1.4
"""The cost of a tile of fewer planes, with two terms: their weights do not stay in shared memory,
and more blocks read them more often."""


@dataclass(frozen=True)
class TensorJob:
    """What a convolution has to compute, as far as shapes go."""

    inputs: int
    """Planes that it reads, as they are stored."""
    group: int
    """Planes of a group of the map that it reads."""
    outputs: int
    """Planes that it makes, before depth-to-space: padded for a map."""
    side: int
    """Taps in each direction."""
    terms: int
    """16-bit terms of a value: 1, or 2 for fp32's precision."""
    last: bool
    """Whether it makes pixels, or a map of few planes."""
    sparse_taps: int = 1
    """Into how many equal parts of its planes it divides, each of which reads its own taps of a
    larger convolution."""

    @property
    def tap_columns(self) -> bool:
        """Whether the taps of a row are columns of the matrix product: they are where there are few
        planes, which would leave the units idle."""
        return self.last and self.side > 1 and self.outputs <= _MOST_TAP_COLUMNS

    @property
    def width(self) -> int:
        """Output planes of a tile."""
        if self.last:
            return round_up(self.outputs * (self.side if self.tap_columns else 1), 16)
        each = self.outputs // self.sparse_taps
        return next(width for width in (128, 64, 32) if each % width == 0)

    @property
    def taps(self) -> int:
        """Steps of a group of planes."""
        return self.side if self.tap_columns else self.side**2

    @property
    def steps(self) -> int:
        """Steps of a tile, each with its own weights."""
        return self.inputs // self.group * self.taps * (3 if self.terms == 2 else 1)


@dataclass(frozen=True)
class WgmmaShape:
    """Macros of `kernels/tensor_wgmma.cu` that leave the result as it is."""

    rows: int
    blocks: int
    registers: int
    b_stages: int
    warpgroups: int = 2
    a_stages: int = 2
    most_width: int = 128
    """Output planes of a tile, at most."""

    stem = "tensor_wgmma"
    columns = COLUMNS
    """Columns of a tile."""
    consumers = 1
    """Groups that make tiles of their own."""
    pack = staticmethod(pack_middle)
    """Its order of weights."""

    def threads(self, job: TensorJob) -> int:
        """Threads of a block: those that multiply, and four warps of which two copy."""
        return (self.warpgroups + 1) * 128

    def width(self, job: TensorJob) -> int:
        """Output planes of a tile."""
        return min(job.width, self.most_width)

    def shared(self, job: TensorJob) -> int:
        """Bytes of shared memory of a block."""
        pixel = job.group * 2
        pixels = (self.a_stages * (self.rows + job.side - 1) * _PITCH + 1) * pixel
        weights = self.b_stages * self.width(job) * pixel
        barriers = (2 * self.a_stages + 2 * self.b_stages + 2) * _BARRIER_BYTES
        partial = self.rows * COLUMNS * (job.width + 1) if job.last else 0
        epilogue = self.width(job) * _EPILOGUE_BYTES
        return pixels + weights + barriers + epilogue + partial * _FLOAT_BYTES

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        """Those of this shape."""
        own = {name.upper(): value for name, value in asdict(self).items()}
        del own["MOST_WIDTH"]
        return own


@dataclass(frozen=True)
class MmaShape:
    """Macros of `kernels/tensor_mma.cu` that leave the result as it is."""

    rows: int
    """Rows of a tile, which is a consumer group's."""
    blocks: int
    warp: tuple[int, int]
    """What a warp makes of a row: columns, and output planes at most."""
    b_stages: int
    """Taps whose weights are in shared memory at once; of decoupled warps, rows of taps."""
    prefetched: int = 0
    """Rows of pixels that are copied before their K-block begins."""
    consumers: int = 1
    """Groups of warps of a block, each of which makes tiles of its own."""
    decoupled: bool = False
    """Whether warps wait by barriers of their own, up to a row of taps apart."""
    most_width: int = 64
    """Output planes of a tile, at most."""
    is_sm75: bool = False
    """For sm_75."""

    stem = "tensor_mma"
    columns = COLUMNS
    """Columns of a tile."""
    pack = staticmethod(pack_quads)
    """Its order of weights."""

    def threads(self, job: TensorJob) -> int:
        """Threads of a block."""
        columns, _ = self.warp
        warps = self.rows * (COLUMNS // columns) * (self.width(job) // self._each(job))
        return self.consumers * warps * 32

    def width(self, job: TensorJob) -> int:
        """Output planes of a tile."""
        return min(job.width, self.most_width)

    def shared(self, job: TensorJob) -> int:
        """Bytes of shared memory of a block."""
        pixel = job.group * 2
        columns = COLUMNS if job.tap_columns else COLUMNS + job.side - 1
        reads = self.rows + job.side - 1
        ring = reads + self.prefetched
        if 0 < self.prefetched < reads and not self.decoupled:
            ring = self.rows + self.prefetched
        partial = self.rows * COLUMNS * (job.width + 1) * _FLOAT_BYTES if job.last else 0
        weights = self.b_stages * self.width(job) * pixel
        if self.decoupled:
            weights = weights * job.side + 3 * _BARRIER_BYTES
        return self.consumers * max(ring * columns * pixel, partial) + weights

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        """Those of this shape."""
        columns, _ = self.warp
        return {
            "ROWS": self.rows,
            "BLOCKS": self.blocks,
            "WARP_COLUMNS": columns,
            "WARP_WIDTH": self._each(job),
            "PREFETCHED": self.prefetched,
            "CONSUMERS": self.consumers,
            "DECOUPLED": int(self.decoupled),
            "B_STAGES": self.b_stages,
            "SM75": int(self.is_sm75),
        }

    def _each(self, job: TensorJob) -> int:
        """Output planes of a warp: of a last convolution all, so that it has what it sums up."""
        return self.width(job) if job.last else min(self.width(job), self.warp[1])


@dataclass(frozen=True)
class RowsShape:
    """Macros of `kernels/tensor_rows.cu` that leave the result as it is."""

    ring: int
    """Rows of input in shared memory."""

    stem = "tensor_rows"
    pack = staticmethod(pack_rows)
    """Its order of weights."""
    rows = blocks = consumers = 1
    columns = 128
    """Columns of a tile, which is one row."""

    def threads(self, job: TensorJob) -> int:
        """Threads of a block: two warpgroups that multiply, and a third of which a warp copies."""
        return 3 * 128

    def width(self, job: TensorJob) -> int:
        """Output planes of a tile."""
        return _ROWS_WIDTH

    def shared(self, job: TensorJob) -> int:
        """Bytes of shared memory of a block."""
        pixel = job.group * 2
        row = job.inputs // job.group * (self.columns + 8) * pixel
        staged = 2 * self.columns * _ROWS_WIDTH * 2
        barriers = (2 * self.ring + 2) * _BARRIER_BYTES
        return round_up(self.ring * row + pixel, _RING_UNIT) + staged + barriers

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        """Those of this shape."""
        return {"ROWS": self.rows, "RING": self.ring}


@dataclass(frozen=True)
class RollingShape:
    """Macros of `kernels/tensor_rolling.cu` that leave the result as it is."""

    warpgroups: int
    """Those that multiply, 64 columns each."""
    ring: int
    """Groups of a row of input in shared memory."""

    stem = "tensor_rolling"
    pack = staticmethod(pack_rolling)
    """Its order of weights."""
    rows = blocks = consumers = 1

    @property
    def columns(self) -> int:
        """Columns of a tile, which is one row."""
        return self.warpgroups * COLUMNS

    def threads(self, job: TensorJob) -> int:
        """Threads of a block: those that multiply, and four warps of which one copies."""
        return (self.warpgroups + 1) * 128

    def width(self, job: TensorJob) -> int:
        """Output planes of a tile."""
        return _ROLLING_WIDTH

    def shared(self, job: TensorJob) -> int:
        """Bytes of shared memory of a block."""
        pixel = job.group * 2
        weights = job.inputs // job.group * job.side * 5 * _ROLLING_WIDTH * pixel
        pixels = self.ring * (self.columns + 8) * pixel + pixel
        barriers = (2 * self.ring + self.warpgroups + 1) * _BARRIER_BYTES
        return weights + pixels + _ROLLING_WIDTH * _EPILOGUE_BYTES + barriers

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        """Those of this shape."""
        return {
            "ROWS": self.rows,
            "RING": self.ring,
            "WARPGROUPS": self.warpgroups,
            "REGISTERS": 232 if self.warpgroups == 2 else 152,
            "SPARE_REGISTERS": 40 if self.warpgroups == 2 else 56,
        }


Shape = WgmmaShape | MmaShape | RowsShape | RollingShape


def macros(job: TensorJob, shape: Shape) -> Macros:
    """The macros of a kernel that depend on the job and its shape alone."""
    width = shape.width(job)
    return {
        "IN_PLANES": job.inputs,
        "GROUP": job.group,
        "SIDE": job.side,
        "WIDTH": width,
        "DEPTH": depth(job, shape),
        "TERMS": job.terms,
        "LAST": int(job.last),
        "TAP_COLUMNS": int(job.tap_columns),
        "SPARSE_TAPS": job.sparse_taps,
        "TILE_COLUMNS": shape.columns,
        "TILE_RESULTS": results(job, shape),
        "THREADS": shape.threads(job),
        "SHARED": shape.shared(job),
        **shape.macros(job),
    }


def results(job: TensorJob, shape: Shape) -> int:
    """Columns of a tile that are results: not all where the taps of a row are columns of the
    matrix product."""
    return shape.columns - (job.side - 1 if job.tap_columns else 0)


def depth(job: TensorJob, shape: Shape) -> int:
    """Tiles of output planes."""
    return 1 if job.last else job.outputs // shape.width(job)


def grid(job: TensorJob, shape: Shape, tiles: int, multiprocessors: int) -> int:
    """Blocks, which take one tile after the other."""
    deep = depth(job, shape)
    return min(-(-tiles // shape.consumers), max(1, multiprocessors * shape.blocks // deep)) * deep


def candidates(
    job: TensorJob, units: Units, capability: tuple[int, int], shared_bytes: int
) -> list[Shape]:
    """Shapes that fit a block's shared memory, the usual one for large pictures first."""
    shapes: list[Shape]
    if units == "wgmma":
        shapes = [*_row_by_row(job), *_wgmma_shapes(job)]
    elif is_sm75(capability):
        shapes = [
            MmaShape(rows, blocks, (32, 64), min(3 if job.taps > 1 else 2, job.steps), is_sm75=True)
            for rows, blocks in ((4, 2), (4, 1), (2, 2), (2, 1))
        ]
    else:
        shapes = list(_mma_shapes(job))
    fitting = [
        shape
        for shape in shapes
        if (shape.shared(job) + _RESERVED_BYTES) * shape.blocks <= shared_bytes + _RESERVED_BYTES
    ]
    rolling: list[Shape] = [shape for shape in fitting if isinstance(shape, RollingShape)]
    # Of several groups they add in another order than tiles do, which then no size takes.
    return rolling if rolling and job.inputs > job.group else fitting


def _row_by_row(job: TensorJob) -> Iterator[RowsShape | RollingShape]:
    """Shapes that go down a picture row by row: where all weights of 64 output planes fit the
    registers of a warpgroup, else those of 32 shared memory."""
    if job.terms == 2 or job.side == 1 or job.last:
        return
    each = job.outputs // job.sparse_taps
    if job.inputs * job.taps <= _MOST_HELD and each % _ROWS_WIDTH == 0:
        yield RowsShape(11 if job.inputs > 32 else 16)
    elif job.group == 32 and job.side == 3 and job.sparse_taps == 1:
        most = 8 if job.inputs <= 96 else 5 if job.inputs > 160 else 6
        yield from (RollingShape(3, most), RollingShape(2, 8), RollingShape(2, 5))


def _wgmma_shapes(job: TensorJob) -> list[WgmmaShape]:
    """Measured on an H200, see benchmarks/results. Weights stay in shared memory where they fit."""
    all_of_them = job.steps
    order: tuple[tuple[int, int], ...]
    if job.last:
        # Rows are read again by the tile below: more of them matter more than weights that stay.
        return [
            WgmmaShape(rows, blocks, 104 if blocks == 2 else 232, stages, a_stages=a_stages)
            for rows, blocks, a_stages in ((8, 1, 2), (4, 1, 2), (4, 2, 1), (2, 2, 2), (2, 1, 2))
            for stages in dict.fromkeys((all_of_them, 4, 6))
            # A tile's next K-block is copied before the last one is done with.
            if stages <= all_of_them and (a_stages > 1 or job.steps == job.taps)
        ]
    if job.side == 1:
        return list(_single_tap_shapes(job))
    if job.width == 32:
        order = ((4, 2), (8, 1), (6, 1), (4, 1))
    elif job.width == 64:
        order = ((8, 1), (6, 1), (4, 1)) if job.group == 32 else ((6, 1), (4, 1))
    else:
        order = ((4, 1),)
    # K-blocks of few planes are short: two of them are prefetched.
    shapes = [
        WgmmaShape(rows, 1, 232, all_of_them, a_stages=3)
        for rows in (8, 6, 4)
        if job.width == 32 == job.group < job.inputs
    ]
    shapes += [
        WgmmaShape(rows, blocks, 104 if blocks == 2 else 232, stages)
        for stages in dict.fromkeys((all_of_them, 4, 6, 9))
        if stages <= all_of_them
        for rows, blocks in dict.fromkeys((*order, (2, 1)))
    ]
    # For small pictures: more blocks, each with fewer planes.
    narrow = [
        WgmmaShape(2, 1, 232, stages, most_width=width)
        for width in (64, 32)
        if width < job.width
        for stages in dict.fromkeys((all_of_them, 9))
        if stages <= all_of_them
    ]
    return shapes + narrow


def _single_tap_shapes(job: TensorJob) -> Iterator[WgmmaShape]:
    """Device memory is the bound: more tiles on their way, and where they fit two blocks."""
    usual = 2 if job.outputs > job.inputs else 4
    for rows, blocks, a_stages, width in (
        (2, 2, usual, 64),
        (2, 1, usual, 128),
        (2, 2, 6 - usual, 64),
        (2, 2, usual, 32),
        (4, 1, 4, 128),
        (4, 1, 2, 128),
    ):
        if blocks == 2 and job.terms == 2:
            # Two terms of what is added want more registers than two blocks leave.
            continue
        registers = 104 if blocks == 2 else 232
        for stages in dict.fromkeys((job.steps, 4)):
            if stages <= job.steps:
                yield WgmmaShape(
                    rows, blocks, registers, stages, a_stages=a_stages, most_width=width
                )


def _mma_shapes(job: TensorJob) -> Iterator[MmaShape]:
    """For chips with asynchronous copies: those for much shared memory, measured on an H200, then
    those for 163 and for 99 KiB of it. Chips with so little have slower units, which smaller tiles
    feed."""
    whole, half, quarter = (64, 64), (32, 64), (32, 32)
    all_of_them = job.steps
    shapes: tuple[MmaShape, ...]
    if job.last:
        few = (MmaShape(8, 2, whole, all_of_them), MmaShape(4, 3, whole, 4))
        shapes = (
            *(few if job.width == 16 else ()),
            MmaShape(4, 2, whole, 4),
            MmaShape(2, 2, half, 3),
            MmaShape(2, 1, half, 3),
        )
    elif job.side == 1:
        shapes = (
            MmaShape(4, 2, whole, all_of_them, prefetched=4),
            MmaShape(4, 1, whole, all_of_them, prefetched=4, most_width=128),
            MmaShape(4, 2, whole, 2, prefetched=4),
            MmaShape(2, 2, half, 2, prefetched=2),
            MmaShape(2, 1, half, 2, prefetched=2),
        )
    elif job.group == 32:
        blocks, whole_block = 3 if job.width == 32 else 2, 4 + job.side - 1
        alone = MmaShape(4, blocks, whole, all_of_them, prefetched=whole_block)
        shapes = (
            *((alone,) if job.width == 32 and job.terms == 1 else ()),
            MmaShape(4, 1, whole, all_of_them, prefetched=whole_block, consumers=blocks),
            alone,
            MmaShape(4, 1, whole, all_of_them, prefetched=4, consumers=blocks),
            MmaShape(4, blocks, whole, 4, prefetched=whole_block),
            MmaShape(4, 2, whole, 4, prefetched=whole_block),
            MmaShape(4, 1, whole, all_of_them, prefetched=4, consumers=2),
            MmaShape(4, 1, half, all_of_them, prefetched=4),
            MmaShape(2, 2, half, 3, prefetched=2),
            MmaShape(2, 2, quarter, 4, prefetched=2, most_width=32),
        )
    else:
        shapes = (
            MmaShape(4, 1, whole, all_of_them, prefetched=4, consumers=2),
            MmaShape(8, 1, whole, 3, prefetched=8, decoupled=True),
            MmaShape(4, 2, whole, 3),
            MmaShape(4, 1, half, 3, prefetched=4),
            MmaShape(2, 2, quarter, 4),
            MmaShape(2, 1, quarter, 3, prefetched=2),
        )
    for shape in dict.fromkeys(shapes):
        stages = min(shape.b_stages, all_of_them)
        most = job.side if 0 < shape.prefetched < shape.rows + job.side - 1 else job.taps
        if shape.decoupled or stages == all_of_them or stages - 1 <= most:
            yield replace(shape, b_stages=stages)


def ranked(
    job: TensorJob, shapes: list[Shape], rows: int, columns: int, multiprocessors: int
) -> tuple[list[Shape], str]:
    """The usual shape first, and the class of sizes in which a measured one may be better.

    A small picture takes what keeps more of the chip busy. Of few tiles for each multiprocessor
    the last may be a large part, so that tiles of other rows than the usual save a tenth and more;
    where device memory is the bound, or warps feed the units, rows are not all that counts.
    """

    def rounds(shape: Shape, each: int) -> int:
        """Rows of COLUMNS that the busiest multiprocessor computes, of so many planes each time."""
        across = -(-columns // shape.columns)
        tiles = -(-across * -(-rows // shape.rows) * each // shape.consumers)
        found = -(-tiles // multiprocessors) * shape.rows * shape.consumers
        if isinstance(shape, RowsShape):
            # Two warpgroups have their turns one after the other, the last one alone.
            return (found + 1) * (shape.columns // COLUMNS)
        if isinstance(shape, RollingShape):
            # Rows of input above and below are multiplied, too.
            return (found + job.side - 1) * (shape.columns // COLUMNS)
        return found

    def clocks(shape: Shape) -> float:
        """About the clocks of the busiest multiprocessor: multiplying, or reading shared memory."""
        width = shape.width(job)
        reads = width // 2 if isinstance(shape, RollingShape) else 16 + width // 4
        found = rounds(shape, depth(job, shape)) * max(width // 2, reads)
        return found * _NARROW_COST if job.terms == 2 and width < job.width else found

    def cost(shape: Shape) -> float:
        """The same with what else it takes, where there is more than one round."""
        copied = 1 if shape.b_stages == job.steps else _COPIED_COST
        return clocks(shape) * (1 + _HALO_COST / shape.rows) * copied

    usual = rounds(shapes[0], 1)
    if usual <= 2 * MOST_ROWS:
        return sorted(shapes, key=clocks), "small"
    if usual <= 4 * MOST_ROWS and isinstance(shapes[0], WgmmaShape) and job.taps > 1:
        alike = [shape for shape in shapes if shape.width(job) == shapes[0].width(job)]
        found = sorted(alike, key=cost)
        if cost(found[0]) < 0.9 * cost(shapes[0]):
            return [*found, *(shape for shape in shapes if shape not in alike)], "middle"
    return shapes, "large"
