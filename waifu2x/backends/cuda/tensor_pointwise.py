"""Convolutions of one tap into many planes, by `kernels/tensor_pointwise.cu`: their shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from waifu2x.backends.cuda.tensor_pack import pack_middle
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.backends.cuda.tensor_shape import TensorJob

_WIDTH = 64
_COLUMNS = 64
_PITCH = _COLUMNS + 8
_MOST_INPUTS = 128
"""Planes of a pixel that registers hold."""


@dataclass(frozen=True)
class PointwiseShape:
    """Macros of `kernels/tensor_pointwise.cu` that leave the result as it is."""

    ring: int
    """Tiles of pixels in shared memory."""
    warpgroups: int = 3
    """Those that multiply, each a tile of its own."""

    stem = "tensor_pointwise"
    pack = staticmethod(pack_middle)
    """Its order of weights."""
    columns = _COLUMNS
    """Columns of a tile, which is one row."""
    is_row_by_row = False
    rows = blocks = 1

    @property
    def consumers(self) -> int:
        """Groups that make tiles of their own."""
        return self.warpgroups

    @property
    def b_stages(self) -> int:
        """All weights are in shared memory."""
        return 0

    def threads(self, job: TensorJob) -> int:
        """Threads of a block: those that multiply, and four warps of which one copies."""
        return (self.warpgroups + 1) * 128

    def width(self, job: TensorJob) -> int:
        """Output planes that are made at a time."""
        return _WIDTH

    def shared(self, job: TensorJob) -> int:
        """Bytes of shared memory of a block."""
        pixels = self.ring * _PITCH * job.inputs * 2
        weights = job.outputs * job.inputs * 2
        return pixels + weights + job.outputs * 8 + (2 * self.ring + 1) * 8

    def macros(self, job: TensorJob) -> dict[str, str | int]:
        """Those of this shape."""
        return {
            "ROWS": self.rows,
            "RING": self.ring,
            "WARPGROUPS": self.warpgroups,
            "REGISTERS": 152,
            "SPARE_REGISTERS": 56,
        }


def pointwise_shapes(job: TensorJob) -> Iterator[PointwiseShape]:
    """Those for a convolution, the usual one first."""
    fits = job.side == 1 and job.terms == 1 and not job.last and job.inputs <= _MOST_INPUTS
    if fits and job.outputs > job.inputs and job.outputs % _WIDTH == 0:
        for ring in (8, 4):
            yield PointwiseShape(ring)
