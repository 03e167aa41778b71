"""Runs attention between planes: sums products by `kernels/tensor_cross_sums.cu`, and mixes planes
by `kernels/tensor_mix.cu`. `vectors` makes the weights from the sums."""

from __future__ import annotations

from waifu2x.backends.cuda.tensor.avg_pool import TensorSumStep
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.step import TensorStep, TensorTask, beyond
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.lowering.ops.attention import CrossSums, MixPlanes

_LARGEST = 64.0
"""The largest value whose products fit the integers of the sums."""
_THREADS = 256
_MOST_SUMS = 6
"""The most sums of a thread that computes several heads at once."""
_MOST_PLANES = 128
"""The most planes of queries and keys of the heads computed at once."""
_RUNS = 4
_PIXELS = 32


class TensorCrossSumsStep(TensorSumStep[CrossSums]):
    """Adds products of planes to sums over the picture."""

    def launch(self, task: TensorTask) -> Launch:
        step, layout = self.step, self.layout(self.step.source.value)
        depth = step.planes // step.heads
        sums = depth * (depth + 2)
        heads_each = next(
            heads
            for heads in range(step.heads, 0, -1)
            if step.heads % heads == 0
            and (heads == 1 or heads * sums <= _MOST_SUMS * _THREADS)
            and (heads == 1 or 2 * heads * depth <= _MOST_PLANES)
        )
        macros = {
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
        spec = KernelSpec("tensor_cross_sums", macros, _THREADS)
        most = max(task.check.beyond, beyond(_LARGEST))
        return self.launch_lines(
            task, spec, step.heads // heads_each, task.sums[self.number].height, most
        )


class TensorMixStep(TensorStep[MixPlanes]):
    """Mixes planes by weights."""

    def launch(self, task: TensorTask) -> Launch:
        step, box = self.step, task.boxes[self.number]
        written = self.layout(step.target.value).parts[step.target.part]
        read, made = self.read(task, step.source), self.written(task, step.target)
        macros = {
            "THREADS": _THREADS,
            "RUNS": _RUNS,
            "HEADS": step.heads,
            "DEPTH": step.planes // step.heads,
            "MOST": most_mixed(step, written),
            "WRITTEN": written,
            "FIRST": step.first,
            **read.macros,
            **made.macros,
        }
        weights = {
            "weights": self.vector(task, step.vector),
            "weights_each": task.vectors.vectors_each,
        }
        blocks = -(-box.width // (_PIXELS * _RUNS)), box.height, task.grid.pictures
        spec = KernelSpec("tensor_mix", macros, _THREADS, shared=mix_bytes(step, written))
        return self.launch_with(spec, blocks, {**read.fields, **made.fields, **weights})


def most_mixed(step: MixPlanes, written: int) -> int:
    """Returns the most planes of the heads of any 8 consecutive planes of the result."""
    depth = step.planes // step.heads

    def head(plane: int) -> int:
        return min(plane, step.planes - 1) // depth

    firsts = range(0, written, VECTOR_VALUES)
    return max((head(first + VECTOR_VALUES - 1) - head(first) + 1) * depth for first in firsts)


def mix_bytes(step: MixPlanes, written: int) -> int:
    """Returns the bytes of shared memory of a block."""
    return 4 * (written * most_mixed(step, written) + step.planes * (_PIXELS + 1))
