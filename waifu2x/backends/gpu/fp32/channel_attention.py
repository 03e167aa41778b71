"""Attention between planes of the fp32 executor, by `kernels/channel_attention.cl`."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.backends.gpu.device.launch import Arguments, Groups, Launch, LaunchMaker, plain
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.avg_pool import GROUP, SUM_BYTES, VectorLayout, chunks_of
from waifu2x.backends.gpu.fp32.maps import UNIT, Map, Maps, bounds
from waifu2x.lowering.ops.attention import ChannelWeights, CrossSums, MixPlanes
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size

_LOCAL_FLOATS = 2048
"""The most that a run of pixels takes: what leaves room for other groups."""
_PIXELS = 32
_REGISTER_SUMS = 8
_MEMORY_SUMS = 1024
"""The most sums of a work-item, where they lie in registers and where not."""


class Fp32CrossSumsStep:
    """Sums of products of planes: of parts of the picture, then all of them."""

    def __init__(
        self, runtime: Runtime, program: Program, number: int, layout: VectorLayout, block: int
    ) -> None:
        """Raises BackendError."""
        step = program.steps[number]
        assert isinstance(step, CrossSums)
        self._layout = layout
        self._planes = step.first
        self._first = layout.sums[number]
        self._vector = layout.vectors[step.vector]
        self._elements = program.vectors[step.vector]
        depth = step.planes // step.heads
        macros = _macros(runtime, block, step.heads, depth, step.period)
        self._group = int(macros["GROUP"])
        slices = -(-depth * (depth + 2) // (self._group * int(macros["EACH"])))
        self._chunks = chunks_of(step.period)
        self._across = step.parts * step.heads * slices
        built = runtime.build("channel_attention", macros)
        self._multiply, self._add, self._floats = (
            built.kernel(name, self._group) for name in ("multiply", "add", "floats")
        )

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return any(own is kernel for own in (self._multiply, self._add, self._floats))

    def sums(self, source: Map, box: Box, vectors: Buffer, pictures: int) -> list[LaunchMaker]:
        """What adds the pixels of a box to the sums."""
        step = self._layout.size // SUM_BYTES
        top, left = source.corner
        places = (*self._planes, top, left, box.top - top, box.left - left, box.height, box.width)
        return [
            lambda: Launch(
                None,
                lambda: self._multiply,
                (self._across, self._chunks, pictures),
                lambda: plain(*source.start, *places, vectors, self._layout.partial, step),
            ),
            lambda: Launch(
                None,
                lambda: self._add,
                self._groups(2 * self._elements, pictures),
                lambda: plain(vectors, self._first, self._layout.partial, step),
            ),
        ]

    def finish(self, size: Size, vectors: Buffer, pictures: int) -> Launch:
        """The launch after which the vector has the sums, of a map of any size."""
        source = (vectors, self._first, self._layout.size // SUM_BYTES)
        target = (vectors, self._vector, self._layout.size // 4)
        groups = self._groups(self._elements, pictures)
        return Launch(None, lambda: self._floats, groups, lambda: plain(*source, *target))

    def _groups(self, count: int, pictures: int) -> Groups:
        return -(-count // self._group), 1, pictures

    def close(self) -> None:
        """Nothing to free."""


class Fp32ChannelWeightsStep:
    """The weights by which planes are mixed; temperatures are on the device."""

    def __init__(
        self, runtime: Runtime, step: ChannelWeights, layout: VectorLayout, block: int
    ) -> None:
        """Raises BackendError, OutOfMemoryError."""
        heads = len(step.temperature)
        period = math.isqrt(step.parts)
        macros = _macros(runtime, block, heads, step.planes // heads, period)
        self._group = int(macros["GROUP"])
        self._planes = step.planes * step.parts
        self._places = layout.vectors[step.source], layout.vectors[step.vector], layout.size // 4
        self._kernel = runtime.build("channel_attention", macros).kernel("weights", self._group)
        temperatures = np.ascontiguousarray(step.temperature, np.float32)
        self._temperatures = runtime.allocate(temperatures.nbytes)
        runtime.upload(self._temperatures, temperatures)

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, vectors: Buffer) -> Launch:
        """Its launch."""
        groups = -(-self._planes // self._group), 1, batch.source.shape[0]

        def arguments() -> Arguments:
            return plain(vectors, *self._places, self._temperatures)

        return Launch(None, lambda: self._kernel, groups, arguments)

    def close(self) -> None:
        """Frees the temperatures."""
        self._temperatures.release()


class Fp32MixStep:
    """Planes mixed by weights."""

    def __init__(
        self, runtime: Runtime, program: Program, step: MixPlanes, layout: VectorLayout, block: int
    ) -> None:
        """Raises BackendError."""
        self._step = step
        self._place = layout.vectors[step.vector], layout.size // 4
        target = program.values[step.target.value]
        self._zero_outside = target.zero_outside
        self._blocks = -(-target.parts[step.target.part] // block)
        macros = _macros(runtime, block, step.heads, step.planes // step.heads, step.period)
        self._group = int(macros["GROUP"])
        self._kernel = runtime.build("channel_attention", macros).kernel("mix_planes", self._group)

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, box: Box, maps: Maps, vectors: Buffer) -> Launch:
        """The launch for the results in a box."""
        step = self._step
        source, target = maps[step.source.value], maps[step.target.value]
        kept = Box(0, 0, *batch.sizes[step.target.value]) if self._zero_outside else box
        groups = -(-box.width // self._group), self._blocks, box.height * batch.source.shape[0]

        def arguments() -> Arguments:
            return plain(
                *(*source.start, *target.part_start(step.target.part)),
                *(*source.corner, *target.corner),
                *(step.first, box.top, box.left, box.height, box.width),
                *(vectors, *self._place, *bounds(kept, 0, 0)),
            )

        return Launch(None, lambda: self._kernel, groups, arguments)

    def close(self) -> None:
        """Nothing to free."""


def _macros(runtime: Runtime, block: int, heads: int, depth: int, period: int) -> Macros:
    """Those of all kernels, so that they are compiled together."""
    limits = runtime.limits
    group = 1 if limits.is_cpu else limits.group(GROUP)
    most = _MEMORY_SUMS if limits.is_cpu else _REGISTER_SUMS
    return {
        "GROUP": group,
        "UNIT": UNIT,
        "BLOCK": block,
        "HEADS": heads,
        "DEPTH": depth,
        "PERIOD": period,
        "CHUNKS": chunks_of(period),
        "PIXELS": max(1, min(_PIXELS, _LOCAL_FLOATS // (2 * depth))),
        "EACH": min(most, -(-depth * (depth + 2) // group)),
    }
