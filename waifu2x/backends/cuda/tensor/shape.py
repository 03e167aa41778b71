"""Defines the shapes, or divisions of work, of convolutions on matrix units, and their macros."""

from __future__ import annotations

from waifu2x.backends.cuda.tensor.pack import (
    pack_middle,
    pack_quads,
    pack_rolling,
    pack_rows,
)
from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.backends.gpu.device.source import fields_of
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.symbols import smaller
from waifu2x.system.lazy_dataclass import dataclass

COLUMNS = 64
"""The columns of a tile."""
MOST_SUMS = 64
"""The most output planes of a convolution that makes pixels, or a map of few planes."""
_MOST_TAP_COLUMNS = 16
"""The most output planes where the taps of a row are columns of the matrix product."""
_PITCH = COLUMNS + 8
_FLOAT_BYTES = 4
_EPILOGUE_BYTES = 8
_BARRIER_BYTES = 8
ROWS_WIDTH = 64
"""The output planes of a tile of `kernels/tensor_rows.cu`."""
ROLLING_WIDTH = 32
"""The output planes of a tile of `kernels/tensor_rolling.cu`."""
_RING_UNIT = 1024
"""The unit, in bytes, of the size of a ring of rows."""


@dataclass(frozen=True)
class TensorJob:
    """The properties of a convolution on which its shapes depend."""

    inputs: int
    """The stored planes that it reads."""
    group: int
    """The planes of a group of its source."""
    outputs: int
    """The planes that it makes, before depth-to-space: padded for a map."""
    side: int
    """The side of its kernel."""
    terms: int
    """16-bit terms of a value: 1, or 2 for fp32's precision."""
    last: bool
    """Whether it makes pixels, or a map of few planes."""
    sparse_taps: int = 1
    """The number of equal parts of its outputs that read different taps of a larger kernel."""
    padding: int = 0
    """The padding planes at the end of each group that it reads."""
    scales: bool = False
    """Whether it scales the planes of its residual."""
    folds: bool = False
    """Whether it stores its result by space-to-depth."""
    hides: bool = False
    """Whether its activation may turn an infinite sum into a finite number."""
    own_gate: bool = False
    """Whether it makes a gate of its result."""

    @property
    def tap_columns(self) -> bool:
        """Whether the taps of a row are columns of the matrix product: so for few output planes,
        which would otherwise leave the units idle."""
        return self.last and self.side > 1 and self.outputs <= _MOST_TAP_COLUMNS

    @property
    def width(self) -> int:
        """The output planes of a tile."""
        if self.last:
            return round_up(self.outputs * (self.side if self.tap_columns else 1), 16)
        each = self.outputs // self.sparse_taps
        return next(width for width in (128, 64, 32) if each % width == 0)

    @property
    def taps(self) -> int:
        """The number of steps of a group of planes."""
        return self.side if self.tap_columns else self.side**2

    @property
    def steps(self) -> int:
        """The number of steps of a tile, each with its own weights."""
        return self.inputs // self.group * self.taps * (3 if self.terms == 2 else 1)


class _Tiles:
    """The division of the work into tiles of one row of columns, or several.

    `pack` packs weights (out, in, side, side) in the order in which the kernel `stem` reads them;
    `threads`, `width`, `shared` and `macros` return the threads of a block, the output planes of a
    tile, the bytes of shared memory of a block, and the macros that depend on the shape.
    """

    is_row_by_row = False
    """Whether blocks go down a picture row by row."""
    consumers = 1
    """The groups of warps of a block that make different tiles."""

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return COLUMNS


class _Warpgroups(_Tiles):
    """Tiles of `wgmma`: some warpgroups multiply, and warps of one more warpgroup copy."""

    warpgroups: int

    def threads(self, job: TensorJob) -> int:
        return (self.warpgroups + 1) * 128


class _Rows(_Warpgroups):
    """Tiles of one row."""

    ring: int
    is_row_by_row = True
    rows = blocks = 1

    @property
    def registers(self) -> tuple[int, int]:
        """The registers of threads that multiply, and of the others."""
        return 240, 24

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        registers, spare = self.registers
        return {
            "ROWS": self.rows,
            "RING": self.ring,
            "WARPGROUPS": self.warpgroups,
            "REGISTERS": registers,
            "SPARE_REGISTERS": spare,
            "USED": job.group - job.padding,
        }


@dataclass(frozen=True)
class WgmmaShape(_Warpgroups):
    """Macros of `kernels/tensor_wgmma.cu` that do not affect the result."""

    rows: int
    blocks: int
    registers: int
    b_stages: int
    warpgroups: int = 2
    a_stages: int = 2
    most_width: int = 128
    """The most output planes of a tile."""
    partial_rows: int = 0
    """The rows of a warpgroup whose sums are in shared memory at once, where they become pixels; 0
    for all."""

    stem = "tensor_wgmma"
    pack = staticmethod(pack_middle)

    def width(self, job: TensorJob) -> int:
        return min(job.width, self.most_width)

    def shared(self, job: TensorJob) -> int:
        pixel = job.group * 2
        pixels = (self.a_stages * (self.rows + job.side - 1) * _PITCH + 1) * pixel
        weights = self.b_stages * self.width(job) * pixel
        barriers = (2 * self.a_stages + 2 * self.b_stages + 2) * _BARRIER_BYTES
        rows = self.warpgroups * self._partial_rows
        partial = rows * COLUMNS * (job.width + 1) if job.last else 0
        epilogue = self.width(job) * _EPILOGUE_BYTES
        return pixels + weights + barriers + epilogue + partial * _FLOAT_BYTES

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        own = fields_of(self)
        del own["MOST_WIDTH"]
        return {**own, "PARTIAL_ROWS": self._partial_rows, "USED": job.group - job.padding}

    @property
    def _partial_rows(self) -> int:
        return self.partial_rows or self.rows // self.warpgroups


@dataclass(frozen=True)
class MmaShape(_Tiles):
    """Macros of `kernels/tensor_mma.cu` that do not affect the result."""

    rows: int
    """The rows of a tile, which one consumer group makes."""
    blocks: int
    warp: tuple[int, int]
    """The columns, and at most the output planes, that a warp makes in a row."""
    b_stages: int
    """The taps whose weights are in shared memory at once; of decoupled warps, rows of taps."""
    prefetched: int = 0
    """The rows of pixels that are copied before their K-block begins."""
    consumers: int = 1
    """The groups of warps of a block, which make different tiles."""
    decoupled: bool = False
    """Whether warps synchronise by barriers of their own, and may be a row of taps apart."""
    most_width: int = 64
    """The most output planes of a tile."""
    is_sm75: bool = False
    """Whether it is for sm_75."""

    stem = "tensor_mma"
    pack = staticmethod(pack_quads)

    def threads(self, job: TensorJob) -> int:
        columns, _ = self.warp
        warps = self.rows * (COLUMNS // columns) * (self.width(job) // self._each(job))
        return self.consumers * warps * 32

    def width(self, job: TensorJob) -> int:
        return min(job.width, self.most_width)

    def shared(self, job: TensorJob) -> int:
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
        """Returns the output planes of a warp: all of a last convolution, as a warp sums them."""
        return self.width(job) if job.last else min(self.width(job), self.warp[1])


@dataclass(frozen=True)
class RowsShape(_Rows):
    """Macros of `kernels/tensor_rows.cu` that do not affect the result."""

    ring: int
    """The rows of input in shared memory."""

    stem = "tensor_rows"
    pack = staticmethod(pack_rows)
    warpgroups = 2
    columns = 128

    def width(self, job: TensorJob) -> int:
        return ROWS_WIDTH

    def shared(self, job: TensorJob) -> int:
        pixel = job.group * 2
        row = job.inputs // job.group * (self.columns + 8) * pixel
        staged = self.warpgroups * self.columns * ROWS_WIDTH * 2
        if job.own_gate:
            # With the residual and the gate's weights beside it.
            staged = 2 * staged + ROWS_WIDTH * ROWS_WIDTH * 2
        barriers = (2 * self.ring + self.warpgroups) * _BARRIER_BYTES
        return round_up(self.ring * row + pixel, _RING_UNIT) + staged + barriers

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        return {**super().macros(job), "OWN_GATE": int(job.own_gate)}


@dataclass(frozen=True)
class RollingShape(_Rows):
    """Macros of `kernels/tensor_rolling.cu` that do not affect the result."""

    warpgroups: int
    """The warpgroups that multiply, 64 columns each."""
    ring: int
    """The groups of a row of input in shared memory."""

    stem = "tensor_rolling"
    pack = staticmethod(pack_rolling)

    @property
    def columns(self) -> int:
        return self.warpgroups * COLUMNS

    @property
    def registers(self) -> tuple[int, int]:
        return (232, 40) if self.warpgroups == 2 else (152, 56)

    def width(self, job: TensorJob) -> int:
        return ROLLING_WIDTH

    def shared(self, job: TensorJob) -> int:
        pixel = job.group * 2
        weights = job.inputs // job.group * job.side * 5 * ROLLING_WIDTH * pixel
        pixels = self.ring * (self.columns + 8) * pixel + pixel
        barriers = (2 * self.ring + self.warpgroups + 1) * _BARRIER_BYTES
        return weights + pixels + ROLLING_WIDTH * _EPILOGUE_BYTES + barriers


Shape = WgmmaShape | MmaShape | RowsShape | RollingShape


def macros(job: TensorJob, shape: Shape) -> Macros:
    """Returns the macros of a kernel that depend only on the job and its shape."""
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
    """Returns the columns of a tile that become results: fewer than all if the taps of a row are
    columns of the matrix product."""
    return shape.columns - (job.side - 1 if job.tap_columns else 0)


def depth(job: TensorJob, shape: Shape) -> int:
    """Returns the number of tiles of output planes."""
    return 1 if job.last else job.outputs // shape.width(job)


def grid(job: TensorJob, shape: Shape, tiles: int, multiprocessors: int) -> int:
    """Returns the number of blocks; each takes one tile after the other."""
    deep = depth(job, shape)
    most = max(1, multiprocessors * shape.blocks // deep)
    return smaller(-(-tiles // shape.consumers), most) * deep
