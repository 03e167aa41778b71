"""kernels/tensor_mma.cu on the processor: every shape that some chip may be given.

    python -m tests.helpers.emulated_mma [INPUTS OUTPUTS SIDE TERMS]

For machines without a GPU, and for schedules that a GPU hardly ever takes, by
`emulated_kernels.py`. Each result is compared with a convolution in float64, and each shape's to
the bit with the first one's; and a picture is to be flagged if, and only if, a value that is read
is infinite or, with BOUNDED, one that is stored is beyond what the kernel is told. Without
arguments, all of JOBS, which takes long; the exit code is 1 if anything differs. Needs g++ on
x86-64 with AVX2, FMA and F16C.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.by_hand.tensor_maps import unpacked
from tests.helpers import emulated_kernels
from waifu2x.backends.cuda.arguments import structs
from waifu2x.backends.cuda.tensor.candidates import candidates
from waifu2x.backends.cuda.tensor.layout import (
    COLUMNS_BEYOND,
    ROWS_BEYOND,
    MapArguments,
    MapLayout,
    batch_grid,
)
from waifu2x.backends.cuda.tensor.pack import pack_last, pack_middle, pack_quads
from waifu2x.backends.cuda.tensor.shape import MmaShape, TensorJob, depth, macros, results
from waifu2x.backends.cuda.tensor.step import LARGEST, LayerExtent, Range, beyond
from waifu2x.lowering.plan.box import Box

CHIPS = {(7, 5): 64, (8, 0): 163, (8, 6): 99, (9, 0): 227}
"""Shared memory of a block in KiB, by compute capability."""
SIZE = (9, 70)
"""Rows and columns of results: several tiles, none of them whole."""
SLOPE = 0.1
JOBS = (
    *((32, 32, 3, terms, 1) for terms in (1, 2)),
    *((32, 64, 3, terms, 1) for terms in (1, 2)),
    *((64, 64, 3, terms, 1) for terms in (1, 2)),
    *((128, 128, 3, terms, 1) for terms in (1, 2)),
    *((128, 3, 3, terms, 1) for terms in (1, 2)),
    *((128, 64, 1, terms, 1) for terms in (1, 2)),
    *((64, 256, 2, terms, 4) for terms in (1, 2)),
)
"""Planes read and made, taps in each direction, terms, sparse taps, as TensorJob has them."""


def main() -> None:
    """Runs the shapes of the jobs that the command line asks for. Exits with 1 if any differs."""
    numbers = [int(argument) for argument in sys.argv[1:]]
    chosen = [job for job in JOBS if job[:4] == tuple(numbers)] if numbers else JOBS
    if not chosen:
        sys.exit(f"none of {', '.join(map(str, JOBS))}")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for inputs, outputs, side, terms, sparse_taps in chosen:
            group = 64 if inputs % 64 == 0 else 32
            job = TensorJob(inputs, group, outputs, side, terms, outputs < 32, sparse_taps)
            wrong += differing(job, Path(folder))
    print(f"{wrong} shapes differ")
    sys.exit(wrong > 0)


def shapes_of(job: TensorJob) -> Iterator[MmaShape]:
    """The shapes of all chips, each once; those first that need least shared memory."""
    found = [
        shape
        for chip, memory in CHIPS.items()
        for shape in candidates(job, "mma", chip, memory << 10)
        if isinstance(shape, MmaShape)
    ]
    yield from sorted(dict.fromkeys(found), key=lambda shape: (shape.prefetched, shape.consumers))


def differing(job: TensorJob, folder: Path) -> int:
    """How many shapes make other results than they should."""
    work = Work(job)
    shapes = list(shapes_of(job))
    with ThreadPoolExecutor() as pool:
        libraries = list(pool.map(lambda shape: compiled(job, shape, folder), shapes))
    first: NDArray[np.uint8] | None = None
    wrong = 0
    for shape, library in zip(shapes, libraries, strict=True):
        made = [work.result(shape, library, late=late, seed=late + 1) for late in (False, True)]
        right = not work.flags[0]
        first = made[0] if first is None else first
        with work.infinite():
            work.result(shape, library, late=True, seed=3)
        right &= work.flags[0] == 1
        error = work.error(made[0])
        same = all(np.array_equal(one, first) for one in made)
        wrong += not same or not right or error > work.bound
        said = f"{'same bits' if same else 'OTHER BITS'}{'' if right else ', WRONG FLAGS'}"
        print(f"{job}: {shape}: {error:.1e}, {said}", flush=True)
    if not job.last:
        assert first is not None
        wrong += not flags_larger_values(work, shapes[0], first, folder)
    return wrong


def flags_larger_values(work: Work, shape: MmaShape, made: NDArray[np.uint8], folder: Path) -> bool:
    """Whether a kernel with BOUNDED flags a result for values that are too large, and no other."""
    library = compiled(work.job, shape, folder, bounded=1)
    most = np.abs(work.values(made)).astype(np.float16).max()
    flagged = []
    for allowed in (most, np.nextafter(most, np.float16(0))):
        again = work.result(shape, library, allowed=float(allowed), late=True, seed=4)
        flagged.append(np.array_equal(again, made) and int(work.flags[0]))
    print(f"{work.job}: flags of larger values: {flagged}", flush=True)
    return flagged == [0, 1]


def compiled(job: TensorJob, shape: MmaShape, folder: Path, bounded: int = 0) -> ctypes.CDLL:
    """The kernel for a shape, as a function of the processor's."""
    chosen: dict[str, str | int] = {
        **macros(job, shape),
        "ROWS_BEYOND": ROWS_BEYOND,
        "COLUMNS_BEYOND": COLUMNS_BEYOND,
        "STORED_GROUPS": job.inputs // job.group,
        "FIRST_GROUP": 0,
        "D2S": 2 if job.sparse_taps > 1 else 1,
        "ZERO": 0,
        "PLANE_SLOPES": 0,
        "ACTIVATE(x, slope)": "fmaxf(x, (slope) * (x))",
        "RESIDUAL": 0,
        "STACK": 0,
        "BOUNDED": bounded,
    }
    if job.last:
        chosen |= {"PLANES": job.outputs, "PIXEL": 0}
    else:
        each = job.outputs // job.sparse_taps
        target = 64 if each % 64 == 0 else 32
        chosen |= {"OUT_GROUP": target, "OUT_STORED": each, "EACH": each, "PART": 0, "S2D": 1}
    return emulated_kernels.compiled(
        "tensor_mma", chosen, shape.threads(job), shape.shared(job), folder
    )


class Work:
    """A convolution, its operands and what it should make."""

    def __init__(self, job: TensorJob) -> None:
        self.job = job
        rng = np.random.default_rng(1)
        rows, columns = SIZE
        halo = 2 if job.sparse_taps > 1 else job.side - 1
        self._source = MapLayout((job.inputs,), 1, job.group, job.terms)
        self._box = Box(0, 0, rows + halo, columns + halo)
        count = self._source.bytes(self._box, batch_grid(1)) // 2
        self._map = np.clip(rng.standard_normal(count), -0.3, 3).astype(np.float16)
        if job.terms == 2:
            # The low terms of as many values.
            cut = self._source.arguments(self._box, batch_grid(1), 0, 0).group * 8
            self._map[cut * (job.inputs // job.group) :] *= np.float16(2**-11)
        shape = (job.outputs, job.inputs, job.side, job.side)
        scale = np.sqrt(1.4 / np.prod(shape[1:]))
        self._weight = (rng.standard_normal(shape) * scale).astype(np.float32)
        self._bias = rng.standard_normal(job.outputs).astype(np.float32)
        if job.terms == 1:
            self._weight = self._weight.astype(np.float16).astype(np.float32)
        self.bound = 5e-4 if job.terms == 1 and not job.last else 2e-5
        """The largest error that is right: half of the last of 11 bits, or sums in 24 bits."""
        each = job.outputs // job.sparse_taps
        self._scale = 2 if job.sparse_taps > 1 else 1
        self._target = MapLayout((each,), 1, 64 if each % 64 == 0 else 32, job.terms)
        self._target_box = Box(0, 0, rows * self._scale, columns * self._scale)
        self._expected = self._exact()
        self.flags = np.zeros(1, np.uint32)
        """The flags set by the last result."""

    def _exact(self) -> NDArray[np.float64]:
        """(rows, columns, planes), in float64."""
        job, (rows, columns) = self.job, SIZE
        values = unpacked(self._map.view(np.uint8), self._source, self._box, 1)[0]
        result = np.zeros(
            (rows * self._scale, columns * self._scale, job.outputs // job.sparse_taps)
        )
        each = job.outputs // job.sparse_taps
        for pixel in range(job.sparse_taps):
            dy, dx = divmod(pixel, 2)
            planes = slice(pixel * each, (pixel + 1) * each)
            total = np.tile(self._bias[planes].astype(np.float64), (rows, columns, 1))
            for ky in range(job.side):
                for kx in range(job.side):
                    part = values[dy + ky :, dx + kx :][:rows, :columns]
                    total += part @ self._weight[planes, :, ky, kx].T.astype(np.float64)
            result[dy :: self._scale, dx :: self._scale] = np.maximum(total, SLOPE * total)
        return result

    def result(
        self,
        shape: MmaShape,
        library: ctypes.CDLL,
        *,
        late: bool,
        seed: int,
        allowed: float = LARGEST,
    ) -> NDArray[np.uint8]:
        """A shape's result, by one block for each tile of planes, as bytes of a map or floats."""
        job, (rows, columns) = self.job, SIZE
        width = shape.width(job)
        pack: Any = pack_last if job.tap_columns else pack_middle if job.last else pack_quads
        weights = np.ascontiguousarray(pack(self._weight, width, job.group, job.terms))
        planes = width if job.last else job.outputs
        epilogue = np.zeros((2, planes), np.float32)
        epilogue[0, : job.outputs] = self._bias
        across = -(-columns // results(job, shape))
        tiles = across * -(-rows // shape.rows)
        grid, target = batch_grid(1), self._target_box
        if job.last:
            size = rows * columns * job.outputs * 4
            write = MapArguments(columns, 0, 0, 0, rows, columns)
        else:
            size = self._target.bytes(target, grid)
            write = self._target.arguments(target, grid, 0, 0)
        made = np.full(size, 0x7F, np.uint8)
        self.flags[:] = 0
        codes, values = structs(
            "tensor_mma",
            {
                "in": self._map.ctypes.data,
                "weights": weights.ctypes.data,
                "epilogue": epilogue.ctypes.data,
                "out": made.ctypes.data,
                "residual": None,
                "flags": self.flags.ctypes.data,
                "from": self._source.arguments(self._box, grid, 0, 0),
                "to": write,
                "added": None,
                "extent": LayerExtent(rows, columns, across, tiles),
                "valid": None,
                "stored": Range(0, 0, rows, columns),
                "factor": 1.0,
                "slope": SLOPE,
                "beyond": beyond(allowed),
                "factors": None,
                "added_factors": None,
                "factors_each": 0,
                "margin": None,
            },
        )
        packed = struct.pack(codes, *values)
        library.launch(packed, depth(job, shape), 1, 1, int(late), seed)
        return made

    @contextmanager
    def infinite(self) -> Iterator[None]:
        """The last value that is read is infinite meanwhile."""
        at = self._source.arguments(self._box, batch_grid(1), 0, 0)
        groups = self.job.inputs // self.job.group
        place = (groups - 1) * at.group * 8
        place += ((self._box.height - 1) * at.pitch + self._box.width - 1) * self.job.group
        kept = self._map[place]
        self._map[place] = np.inf
        yield
        self._map[place] = kept

    def error(self, made: NDArray[np.uint8]) -> float:
        """The largest error of any value, relative where the value is beyond 1."""
        sizes = np.maximum(np.abs(self._expected), 1)
        return float((np.abs(self.values(made) - self._expected) / sizes).max())

    def values(self, made: NDArray[np.uint8]) -> NDArray[np.float64]:
        """The values of a result, (rows, columns, planes)."""
        if self.job.last:
            return made.view(np.float32).reshape(self._expected.shape).astype(np.float64)
        planes: NDArray[np.float64] = unpacked(made, self._target, self._target_box, 1)[0]
        return planes


if __name__ == "__main__":
    main()
