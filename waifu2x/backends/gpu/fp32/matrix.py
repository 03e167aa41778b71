"""Runs convolutions by `kernels/matrix.cl`: products of matrices of maps of 16-bit floats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.launch import KernelSpec
from waifu2x.backends.gpu.device.peak import measured
from waifu2x.backends.gpu.device.runtime import Limits, Macros, Runtime
from waifu2x.backends.gpu.device.source import switches, vector_type
from waifu2x.backends.gpu.fp32.conv_planes import NARROW, Planes, padded_weight
from waifu2x.backends.gpu.fp32.maps import HALF_VECTOR
from waifu2x.lowering.plan.box import round_up
from waifu2x.system.lazy_dataclass import dataclass

_TAPS = (1, 3)
_SHAPES = ((6, 2, 2, 1, 2), (8, 2, 2, 1, 2), (4, 4, 2, 2, 1), (6, 2, 1, 1, 2), (4, 2, 2, 1, 2))
"""Matrices of a subgroup down and in planes, and subgroups down, across and in planes: the default
first."""
_VECTOR_BYTES, _VECTOR_HALVES = 16, 8
_PEAK_SUBGROUPS, _PEAK_SIDE, _PEAK_REPEATS = 4, 4, 1024


class MatrixUnit(NamedTuple):
    """A product of matrices of 16-bit floats, summed in fp32, that a subgroup makes together."""

    m: int
    """Rows."""
    n: int
    """Columns."""
    k: int
    """The length of its sums."""
    subgroup: int
    """The work-items of a subgroup; 1 if there is no unit, which is for tests."""

    @property
    def exists(self) -> bool:
        """Whether the device has such units."""
        return self.subgroup > 1

    @property
    def macros(self) -> Macros:
        """The macros of `matrices.h`."""
        return {
            "SUB": self.subgroup,
            "MATRIX_M": self.m,
            "MATRIX_N": self.n,
            "MATRIX_K": self.k,
            **switches(HAS_UNITS=self.exists),
        }


def matrix_peak(runtime: Runtime, unit: MatrixUnit) -> float:
    """Measures the most multiply-adds a second that a unit reaches, by `kernels/matrix_peak.cl`."""
    group = _PEAK_SUBGROUPS * unit.subgroup
    macros: Macros = {
        "GROUP": group,
        "SUBGROUPS": _PEAK_SUBGROUPS,
        "SIDE": _PEAK_SIDE,
        "REPEATS": _PEAK_REPEATS,
        **unit.macros,
    }
    noise = np.random.default_rng(0).uniform(-1, 1, unit.k * (unit.m + unit.n)).astype(np.float16)
    source = runtime.allocate(noise.nbytes)
    try:
        runtime.upload(source, noise)
        work = _PEAK_SUBGROUPS * _PEAK_SIDE**2 * unit.m * unit.n * unit.k * _PEAK_REPEATS
        spec, groups = KernelSpec("matrix_peak", macros, group), 2 * runtime.limits.compute_units
        return measured(runtime, spec, groups, work, group * _VECTOR_BYTES, source)
    finally:
        source.release()


@dataclass(frozen=True)
class MatrixShape:
    """The division of the work, as macros of the kernel."""

    unit: MatrixUnit
    sub_m: int
    sub_n: int
    subs_y: int
    subs_x: int
    subs_n: int
    chunk: int = 16

    stem = "matrix"
    share = 1.0
    plane_groups = True

    @property
    def planes(self) -> int:
        return self.subs_n * self.sub_n * self.unit.n

    @property
    def rows(self) -> int:
        return self.subs_y * self.sub_m

    @property
    def columns(self) -> int:
        return self.subs_x * self.unit.m

    @property
    def group(self) -> int:
        return self.subs_y * self.subs_x * self.subs_n * self.unit.subgroup

    def local_bytes(self, taps: int) -> int:
        """Returns the bytes of shared memory, as the kernel counts them."""
        pixels = (self.rows + taps - 1) * (self.columns + taps - 1)
        staged = pixels * (self.chunk // _VECTOR_HALVES + 1)
        staged += taps**2 * self.chunk * (self.planes // _VECTOR_HALVES + 1)
        subgroups = self.subs_y * self.subs_x * self.subs_n
        results = subgroups * self.unit.m * (self.sub_n * self.unit.n // HALF_VECTOR + 1)
        return max(staged, results) * _VECTOR_BYTES * (1 if self.unit.exists else 2)

    def macros(self, planes: Planes) -> Macros:
        return {
            "TAPS": planes.taps,
            "IN_BLOCKS": -(-planes.in_count // planes.block),
            "CHUNKS": -(-planes.in_count // self.chunk),
            "CHUNK": self.chunk,
            "OUT_PLANES": round_up(planes.out_count, self.planes),
            "VECTOR": vector_type(HALF_VECTOR),
            "WIDTH": HALF_VECTOR,
            "GROUP": self.group,
            "SUB_M": self.sub_m,
            "SUB_N": self.sub_n,
            "SUBS_Y": self.subs_y,
            "SUBS_X": self.subs_x,
            "SUBS_N": self.subs_n,
            **self.unit.macros,
        }

    def pack(self, planes: Planes, weight: NDArray[np.float32]) -> NDArray[np.float16]:
        inputs = round_up(planes.in_count, self.chunk)
        full = padded_weight(planes, weight, inputs, round_up(planes.out_count, self.planes))
        parts = full.reshape(-1, self.planes, inputs // self.chunk, self.chunk, *full.shape[2:])
        return np.ascontiguousarray(parts.transpose(0, 2, 4, 5, 3, 1), np.float16)


def candidates(limits: Limits, planes: Planes, unit: MatrixUnit) -> list[MatrixShape]:
    """Returns the shapes that a convolution can take, the default first; none for few planes to
    read, and for more than 3x3 taps."""
    if planes.from_pixels or planes.in_count <= NARROW or planes.taps not in _TAPS:
        return []
    columns = -(-planes.out_count // unit.n)
    chunk = max(32 if planes.taps == 1 else 16, unit.k)
    found = []
    for sub_m, sub_n, subs_y, subs_x, subs_n in _SHAPES:
        narrow = min(sub_n, columns)
        subs = min(subs_n, -(-columns // narrow))
        # Subgroups that planes leave without work take more pixels.
        wide = subs_x * subs_n // subs
        found.append(MatrixShape(unit, sub_m, narrow, subs_y, wide, subs, chunk))
    return [
        shape
        for shape in dict.fromkeys(found)
        if shape.local_bytes(planes.taps) <= limits.local_bytes and shape.group <= limits.max_group
    ]
