"""Attention between planes, of maps of matrix units: sums by `kernels/tensor_cross_sums.cu`, planes
mixed by `kernels/tensor_mix.cu`. The weights between them are a task of `tensor_vectors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor.cells import CellStep, within
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.step import LayerExtent, Range, Task, beyond
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.lowering.ops.attention import CrossSums, MixPlanes
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import larger
from waifu2x.lowering.program import Program

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_LARGEST = 64.0
"""The largest value whose products the integers that are summed have room for."""
_THREADS = 256
_MOST_SUMS = 6
"""Sums of a thread, at most, where several heads are taken at once."""
_MOST_PLANES = 128
"""Queries and keys of the heads that are taken at once."""
_BLOCKS = 8
"""Blocks that make sums, for each multiprocessor."""
_RUNS = 4
_PIXELS = 32


class CrossSumsArguments(NamedTuple):
    """`CrossSums` in `kernels/tensor_cross_sums.cu`."""

    source: Address
    sums: Address
    flags: Address
    source_map: MapArguments
    part: Range
    each: int
    across: int
    lines: int
    beyond: int


class MixArguments(NamedTuple):
    """`Mix` in `kernels/tensor_mix.cu`."""

    source: Address
    target: Address
    weights: Address
    flags: Address
    source_map: MapArguments
    target_map: MapArguments
    extent: LayerExtent
    valid: Range
    weights_each: int
    beyond: int


class TensorCrossSumsStep(CellStep):
    """Adds the pixels of a map to the sums of products of its planes."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        sums_place: int,
    ) -> None:
        super().__init__(runtime, program, number, layouts)
        step = program.steps[number]
        assert isinstance(step, CrossSums)
        self._step, self._layout = step, self.layout(step.source.value)
        self._sums_place = sums_place

    def launch(self, task: Task, box: Box) -> Launch:
        """The launch for the sums of a box."""
        step, layout, grid = self._step, self._layout, task.grid
        held = task.places[step.source.value].box
        depth = step.planes // step.heads
        sums = depth * (depth + 2)
        heads_each = next(
            heads
            for heads in range(step.heads, 0, -1)
            if step.heads % heads == 0
            and (heads == 1 or heads * sums <= _MOST_SUMS * _THREADS)
            and (heads == 1 or 2 * heads * depth <= _MOST_PLANES)
        )
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "GROUP": layout.group,
            "STORED": layout.stored,
            "QUERY_PLANE": step.first[0],
            "KEY_PLANE": step.first[1],
            "HEADS": step.heads,
            "HEADS_EACH": heads_each,
            "DEPTH": depth,
            "EACH": -(-heads_each * sums // _THREADS),
            "TERMS": layout.terms,
        }
        parts = step.heads // heads_each
        wanted = _BLOCKS * self.runtime.limits.compute_units
        lines = larger(1, box.height * parts * grid.pictures // wanted)
        arguments = CrossSumsArguments(
            task.address(step.source.value),
            Address(task.vectors.sums + 8 * self._sums_place),
            task.check.flags,
            layout.arguments(held, grid, 0, 0),
            within(box, held),
            task.vectors.sums_each,
            grid.across,
            lines,
            max(task.check.beyond, beyond(_LARGEST)),
        )
        blocks = (-(-box.height // lines), parts, grid.pictures)
        kernel = ("tensor_cross_sums", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))


class TensorMixStep(CellStep):
    """Planes mixed by weights."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        vector_places: Sequence[int],
    ) -> None:
        super().__init__(runtime, program, number, layouts)
        step = program.steps[number]
        assert isinstance(step, MixPlanes)
        self._step, self._source = step, self.layout(step.source.value)
        self._written = self.layout(step.target.value).parts[step.target.part]
        self._place = vector_places[step.vector]

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, source, written = self._step, self._source, self._written
        box, made = task.boxes[self.number], self.written(task, step.target)
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "RUNS": _RUNS,
            "HEADS": step.heads,
            "DEPTH": step.planes // step.heads,
            "MOST": most_mixed(step, written),
            "WRITTEN": written,
            "GROUP": source.group,
            "STORED": source.stored,
            "FIRST": step.first,
            "TERMS": source.terms,
            **made.macros,
        }
        arguments = MixArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            Address(task.vectors.vectors + 4 * self._place),
            task.check.flags,
            self.seen(task, step.source),
            made.arguments,
            made.extent,
            made.valid,
            task.vectors.vectors_each,
            task.check.beyond,
        )
        blocks = (-(-box.width // (_PIXELS * _RUNS)), box.height, task.grid.pictures)
        return self.launch_of(
            ("tensor_mix", chosen),
            _THREADS,
            mix_bytes(step, written),
            blocks,
            lambda: structs(arguments),
        )


def most_mixed(step: MixPlanes, written: int) -> int:
    """Planes of the heads that any 8 planes of the result belong to, at most."""
    depth = step.planes // step.heads

    def head(plane: int) -> int:
        return min(plane, step.planes - 1) // depth

    firsts = range(0, written, VECTOR_VALUES)
    return max((head(first + VECTOR_VALUES - 1) - head(first) + 1) * depth for first in firsts)


def mix_bytes(step: MixPlanes, written: int) -> int:
    """Shared memory of a block."""
    return 4 * (written * most_mixed(step, written) + step.planes * (_PIXELS + 1))
