"""Attention in windows, between maps of matrix units, by `kernels/tensor_attention.cu`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor_layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor_step import Task, TensorStep
from waifu2x.backends.cuda.units import is_sm75
from waifu2x.backends.gpu.launch import Launch
from waifu2x.lowering.attention_steps import AttendWindows
from waifu2x.lowering.geometry import round_up
from waifu2x.lowering.steps import Program
from waifu2x.networks.windows import Windows
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_MATRIX = 16
"""Queries, or keys, of a product; planes of heads are padded to it."""
MOST_DEPTH = 64
"""Planes of a head, at most: of more, results do not fit the registers."""
_MOST_STEP = 64
"""Keys whose logits are in registers at once..."""
_DEEP, _DEEP_STEP = 32, 32
"""...and of heads of more planes than that."""
_MOST_WARPS = 8
_RESERVED_BYTES = 1 << 10
"""Shared memory that the driver takes of each block's share."""
_LOG2E = math.log2(math.e)


class AttentionArguments(NamedTuple):
    """`Attention` in `kernels/tensor_attention.cu`."""

    queries: Address
    keys: Address
    values: Address
    target: Address
    biases: Address
    flags: Address
    query_map: MapArguments
    key_map: MapArguments
    value_map: MapArguments
    target_map: MapArguments
    first_top: int
    first_left: int
    down: int
    rows: int
    columns: int
    key_rows: int
    key_columns: int
    filled_rows: int
    filled_columns: int
    across: int
    beyond: int


@dataclass(frozen=True)
class AttentionShape:
    """How attention is cut, which no bit of the result depends on."""

    heads: int
    """Those of a block."""
    chunk: int
    """Keys in shared memory at once."""
    step: int
    """Keys whose logits are in registers at once: this one decides in which order they add up, and
    follows from the windows."""
    warps: int
    bytes: int
    """Shared memory of a block."""


def attention_shape(
    windows: Windows, heads: int, depth: int, terms: int, biases: int, shared_bytes: int
) -> AttentionShape:
    """The shape for windows of so many heads, of `depth` planes and so many biases each, in so much
    shared memory of a block: two blocks at a time where they fit, with all heads that do."""
    keys = windows.keys(0) * windows.keys(1)
    most = _MOST_STEP if depth <= _DEEP else _DEEP_STEP
    # The fewest keys that are none, then the most at once.
    step = min(range(most, 0, -_MATRIX), key=lambda step: (round_up(keys, step), -step))
    halves = round_up(depth, _MATRIX) + 8 + round_up(depth + 1, _MATRIX) + 8

    def needed(heads: int, chunk: int) -> int:
        return heads * chunk * halves * 2 * terms + round_up(heads * biases, 4) * 4 + chunk * 4

    room = shared_bytes // 2 - _RESERVED_BYTES
    chunk = round_up(keys, step)
    fitting = [
        each for each in range(heads, 0, -1) if heads % each == 0 and needed(each, chunk) <= room
    ]
    each = fitting[0] if fitting else 1
    if not fitting:
        room = shared_bytes - _RESERVED_BYTES
        fixed = needed(1, 0)
        chunk = min(chunk, (room - fixed) // (needed(1, step) - fixed) * step)
    items = each * -(-windows.rows * windows.columns // _MATRIX)
    # As many warps as have work in every round, at most.
    warps = min(range(_MOST_WARPS, 0, -1), key=lambda warps: (-(-items // warps) * warps, -warps))
    if warps < _MOST_WARPS // 2:
        warps = min(_MOST_WARPS, items)
    return AttentionShape(each, chunk, step, warps, needed(each, chunk))


class TensorAttentionStep(TensorStep):
    """Attention in windows."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, AttendWindows)
        target = layouts[step.target.value]
        assert isinstance(target, MapLayout)
        self._step, self._layouts, self._target = step, layouts, target
        sides = step.windows.bias_sides if step.has_bias else (0, 0)
        self._shape = attention_shape(
            step.windows,
            step.heads,
            step.planes // step.heads,
            target.terms,
            sides[0] * sides[1],
            runtime.shared_bytes,
        )

    def launch(self, task: Task) -> Launch:
        """The launch for the results in a box of whole windows."""
        step, windows, shape = self._step, self._step.windows, self._shape
        box, grid = task.boxes[self.number], task.grid
        down, across = box.height // windows.rows, box.width // windows.columns
        rows, columns = task.batch.sizes[step.source.value]
        arguments = AttentionArguments(
            task.address(step.source.value),
            task.address(step.keys.value),
            task.address(step.values.value),
            task.address(step.target.value),
            self.uploaded("biases", self._biases),
            task.check.flags,
            self._whole(task, step.source.value),
            self._whole(task, step.keys.value),
            self._whole(task, step.values.value),
            self._whole(task, step.target.value),
            box.top,
            box.left,
            down,
            rows,
            columns,
            *task.batch.sizes[step.keys.value],
            windows.filled(rows),
            windows.filled(columns),
            grid.across,
            task.check.beyond,
        )
        blocks = (across, step.heads // shape.heads, down * grid.pictures)
        return self.launch_of(
            ("tensor_attention", self._macros()),
            shape.warps * 32,
            shape.bytes,
            blocks,
            lambda: structs(arguments),
        )

    def _macros(self) -> dict[str, str | int]:
        step, windows, target, shape = self._step, self._step.windows, self._target, self._shape
        depth = step.planes // step.heads
        # Two blocks leave too few registers for two terms of long heads, and on later chips of any.
        is_alone = depth > _MATRIX or self.runtime.capability > (9, 0)
        made: dict[str, str | int] = {
            "THREADS": shape.warps * 32,
            "BLOCKS": 1 if target.terms == 2 and is_alone else 2,
            "HEADS": step.heads,
            "HEADS_EACH": shape.heads,
            "DEPTH": depth,
            "CHUNK": shape.chunk,
            "STEP": shape.step,
            "MOST_KEYS": windows.keys(0) * windows.keys(1),
            "WINDOW_ROWS": windows.rows,
            "WINDOW_COLUMNS": windows.columns,
            "OVERLAP": windows.overlap,
            "CELL": windows.cell,
            "SCALE": f"{float(np.float32(step.scale * _LOG2E))!r}f",
            "SHARED": shape.bytes,
            "SM75": int(is_sm75(self.runtime.capability)),
            "TERMS": target.terms,
            "OUT_GROUP": target.group,
            "OUT_STORED": target.stored,
            "EACH": target.parts[step.target.part],
            "PART": target.start(step.target.part),
            "S2D": 1,
            "RESIDUAL": 0,
        }
        names, views = ("QUERY", "KEY", "VALUE"), (step.source, step.keys, step.values)
        for name, view, plane in zip(names, views, step.first, strict=True):
            layout = self._layouts[view.value]
            assert isinstance(layout, MapLayout)
            made[f"{name}_GROUP"] = layout.group
            made[f"{name}_STORED"] = layout.stored
            made[f"{name}_PLANE"] = plane
        if step.has_bias:
            made["BIAS_ROWS"], made["BIAS_COLUMNS"] = windows.bias_sides
        return made

    def _whole(self, task: Task, value: int) -> MapArguments:
        """A map, by places in the value."""
        layout, held = self._layouts[value], task.places[value].box
        assert isinstance(layout, MapLayout)
        return layout.arguments(held, task.grid, -held.top, -held.left)

    def _biases(self) -> NDArray[np.float32]:
        step = self._step
        wanted = step.bias if step.has_bias else step.bias[:1, :1, :1]
        return (wanted.astype(np.float64) * _LOG2E).astype(np.float32)
