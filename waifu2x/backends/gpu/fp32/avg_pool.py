"""Global average pooling and linear layers in fp32, by `kernels/avg_pool.cl` and `linear.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import Groups, Launch, LaunchMaker, plain
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, Limits, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.activation_text import dialect_macro
from waifu2x.backends.gpu.fp32.maps import UNIT, Map, blocks_of
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Value
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass

CHUNKS = 64
"""Parts of a box whose sums are made apart."""


def chunks_of(period: int) -> int:
    """The same for each place in cells of so many pixels a side, whose sums are apart anyway."""
    return max(1, CHUNKS // period**2)


GROUP = 64
_ALIGNMENT = 32
"""Floats: each vector begins at a multiple of it."""
SUM_BYTES = 8


@dataclass(frozen=True)
class VectorLayout:
    """Where the vectors, the sums and what they are made of lie, for one picture."""

    vectors: tuple[int, ...]
    """The first float of each."""
    sums: dict[int, int]
    """By the numbers of PictureSum steps: the first 64-bit integer of the sums."""
    partial: int
    """The first 64-bit integer of partial sums."""
    sum_count: int
    """64-bit integers of all sums of a picture, which lie before everything else."""
    size: int
    """Bytes of a picture."""


def vector_layout(program: Program, block: int) -> VectorLayout:
    """The layout of a program's vectors."""
    sums: dict[int, int] = {}
    count = partial = 0
    for number, step in enumerate(program.steps):
        if isinstance(step, GlobalAvgPool):
            sums[number] = count
            count += 2 * program.vectors[step.vector]
            blocks = _blocks(program.values[step.source.value], block)
            partial = max(partial, 2 * blocks * block * CHUNKS)
        elif isinstance(step, CrossSums):
            sums[number] = count
            own = 2 * program.vectors[step.vector]
            count += own
            partial = max(partial, own * chunks_of(step.period))
    at = count * SUM_BYTES // 4
    vectors = []
    for length in program.vectors:
        at = -(-at // _ALIGNMENT) * _ALIGNMENT
        vectors.append(at)
        at += length
    first = -(-at // _ALIGNMENT) * _ALIGNMENT * 4 // SUM_BYTES
    size = (first + partial) * SUM_BYTES
    return VectorLayout(tuple(vectors), sums, first, count, -(-size // 256) * 256)


class Sums:
    """The kernel that clears all sums."""

    def __init__(self, runtime: Runtime, layout: VectorLayout, block: int) -> None:
        """Raises BackendError."""
        self._runtime = runtime
        self._layout = layout
        macros = _macros(runtime.limits, block, blocks=1, planes=1, space_to_depth=1)
        group = int(macros["GROUP"])
        self._group = group
        self.kernel: Kernel = runtime.build("avg_pool", macros).kernel("clear", group)

    def clearing(self, vectors: Buffer, pictures: int) -> Launch:
        """Its launch. Sums lie before partial ones, which need no clearing."""
        count = self._layout.size // SUM_BYTES * (pictures - 1) + self._layout.sum_count
        groups = (-(-count // self._group), 1, 1)
        return Launch(None, lambda: self.kernel, groups, lambda: plain(vectors, count))


class Fp32AvgPoolStep:
    """A mean over the picture: sums of parts of it, then what is made of them."""

    def __init__(
        self, runtime: Runtime, program: Program, number: int, layout: VectorLayout, block: int
    ) -> None:
        """Raises BackendError."""
        step = program.steps[number]
        assert isinstance(step, GlobalAvgPool)
        value = program.values[step.source.value]
        self._runtime = runtime
        self._layout = layout
        self._first = layout.sums[number]
        self._vector = layout.vectors[step.vector]
        self._blocks = _blocks(value, block)
        self._planes = program.vectors[step.vector]
        macros = _macros(
            *(runtime.limits, block, self._blocks, self._planes, value.space_to_depth),
            squared=step.squared,
        )
        self._group = int(macros["GROUP"])
        built = runtime.build("avg_pool", macros)
        self._sum, self._add, self._mean = (
            built.kernel(name, self._group) for name in ("sum", "add", "mean")
        )

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return any(own is kernel for own in (self._sum, self._add, self._mean))

    def sums(self, source: Map, box: Box, vectors: Buffer, pictures: int) -> list[LaunchMaker]:
        """What adds the pixels of a box to the sums."""
        step = self._layout.size // SUM_BYTES
        top, left = source.corner
        places = (box.top - top, box.left - left, box.height, box.width)
        wide = (CHUNKS, self._blocks, pictures)
        return [
            lambda: Launch(
                None,
                lambda: self._sum,
                wide,
                lambda: plain(*source.start, *places, vectors, self._layout.partial, step),
            ),
            lambda: Launch(
                None,
                lambda: self._add,
                self._groups(2 * self._planes, pictures),
                lambda: plain(vectors, self._first, self._layout.partial, step),
            ),
        ]

    def finish(self, size: Size, vectors: Buffer, pictures: int) -> Launch:
        """The launch for the mean of a map of that size."""
        source = (vectors, self._first, self._layout.size // SUM_BYTES)
        target = (vectors, self._vector, self._layout.size // 4)
        factor = 1 / (size[0] * size[1])
        return Launch(
            None,
            lambda: self._mean,
            self._groups(self._planes, pictures),
            lambda: plain(*source, *target, factor),
        )

    def _groups(self, count: int, pictures: int) -> Groups:
        return -(-count // self._group), 1, pictures

    def close(self) -> None:
        """Nothing to free."""


class Fp32LinearStep:
    """A fully connected layer, its weights on the device."""

    def __init__(self, runtime: Runtime, step: Linear, layout: VectorLayout) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._runtime = runtime
        self._places = (layout.vectors[step.source], layout.vectors[step.vector], layout.size // 4)
        outputs, inputs = step.weight.shape
        self._outputs = outputs
        self._group = runtime.limits.group(GROUP)
        macros: dict[str, str | int] = {"GROUP": self._group, "INPUTS": inputs, "OUTPUTS": outputs}
        macros |= dialect_macro(step.activation.function)
        self._kernel = runtime.build("linear", macros).kernel("linear", self._group)
        weight = np.ascontiguousarray(step.weight.T, np.float32)
        epilogue = np.stack([step.bias, step.activation.slopes]).astype(np.float32)
        self._weight, self._bias = (
            runtime.allocate(weight.nbytes),
            runtime.allocate(epilogue.nbytes),
        )
        runtime.upload(self._weight, weight)
        runtime.upload(self._bias, epilogue)

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, vectors: Buffer) -> Launch:
        """Its launch."""
        return Launch(
            None,
            lambda: self._kernel,
            (-(-self._outputs // self._group), 1, batch.source.shape[0]),
            lambda: plain(vectors, *self._places, self._weight, self._bias),
        )

    def close(self) -> None:
        """Frees the weights."""
        self._weight.release()
        self._bias.release()


def _macros(
    limits: Limits,
    block: int,
    blocks: int,
    planes: int,
    space_to_depth: int,
    *,
    squared: bool = False,
) -> Macros:
    return {
        "GROUP": 1 if limits.is_cpu else limits.group(GROUP),
        "BLOCK": block,
        "BLOCKS": blocks,
        "PLANES": planes,
        "S2D": space_to_depth,
        "CHUNKS": CHUNKS,
        "SQUARED": int(squared),
        "UNIT": UNIT,
    }


def _blocks(value: Value, block: int) -> int:
    return blocks_of(value, block)[0]
