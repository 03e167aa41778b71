"""Attention in windows, between maps of matrix units, by `kernels/tensor_attention.cu`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.step import Task, TensorStep
from waifu2x.backends.cuda.tensor.units import is_sm75
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.networks.windows import Windows
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_MATRIX = 16
"""Queries, or keys, of a product; planes of heads are padded to it."""
MOST_DEPTH = 64
"""Planes of a head, at most: of more, results do not fit the registers."""
_EIGHT = 8
"""Planes of a vector; keys side by side."""
LEAST_SCALE = 1e-3
"""Smaller ones make biases over the scale too large."""
MOST_BIASES = 1 << 12
"""Biases of a head, at most: of more, tables do not fit the shared memory of every chip."""
_MOST_STEP = 64
"""Keys whose logits are in registers at once..."""
_DEEP, _DEEP_STEP = 32, 32
"""...and of heads of more planes than that."""
_MOST_WARPS = 8
_SMALL_WARPS, _WARPS_AT_ONCE, _MOST_AT_ONCE, _FEWEST_AT_ONCE = range(4, 7), 20, 24, 16
"""Warps of small blocks, which are taken where a multiprocessor has room for so many warps of them:
while some wait for memory, others compute. Windows of few keys need fewer registers, and so have
the most warps; chips after sm_90 have the fewest..."""
_SMALL_ITEMS = 16
"""...and which have so much work, or copies of parts of vectors would take most of their time."""
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
class NearVectors:
    """How keys, or values, lie in shared memory: in vectors of 8 planes, as in their map."""

    eights: int
    """Vectors around the planes of a head, at most."""
    filled: int
    """Vectors of a pixel: as far as products read."""

    @property
    def pitch(self) -> int:
        """Vectors from a pixel to the next: an odd number, so that eight pixels are in different
        banks."""
        return self.filled | 1


def near_vectors(first: int, heads: int, depth: int, each: int) -> NearVectors:
    """Those of blocks of `each` of the heads, of `depth` planes, from plane `first` of a map on."""
    eights = max(-(-((first + head * depth) % _EIGHT + depth) // _EIGHT) for head in range(heads))

    def begins(head: int) -> int:
        block = head // each * each * depth
        return ((first + block) % _EIGHT + head * depth - block) // _EIGHT

    return NearVectors(eights, max(map(begins, range(heads))) + round_up(eights, 2))


@dataclass(frozen=True)
class AttentionShape:
    """How attention is cut, which no bit of the result depends on."""

    heads: int
    """Those of a block."""
    tiles: int
    """Those of a block, of 16 queries each."""
    chunk: int
    """Keys in shared memory at once."""
    step: int
    """Keys whose logits are in registers at once: this one decides in which order they add up, and
    follows from the windows."""
    warps: int
    queries: NearVectors
    keys: NearVectors
    values: NearVectors
    pairs: int
    """Biases of a block, each with the next."""
    bytes: int
    """Shared memory of a block."""
    blocks: int
    """At a time on a multiprocessor, at least: it decides how many registers there are."""


def numbered_keys(windows: Windows) -> tuple[int, int]:
    """Keys of a window from one row to the next, with such that are not there; and all of them."""
    row = round_up(windows.keys(1), _EIGHT)
    return row, windows.keys(0) * row


def attention_shape(
    step: AttendWindows, terms: int, shared_bytes: int, *, is_late: bool = False
) -> AttentionShape:
    """The shape in so much shared memory of a block: two blocks at a time where they fit, with all
    heads that do. `is_late`: for a chip after sm_90, whose compiler needs more registers."""
    windows, heads = step.windows, step.heads
    depth = step.planes // heads
    _, numbers = numbered_keys(windows)
    most = _MOST_STEP if depth <= _DEEP else _DEEP_STEP
    # The fewest keys that are none, then the most at once.
    together = min(range(most, 0, -_MATRIX), key=lambda step: (round_up(numbers, step), -step))

    chunk = round_up(numbers, together)
    tiles = -(-windows.rows * windows.columns // _MATRIX)

    def shape(
        each: int, chunk: int, counts: range, blocks: int = 0, tiles: int = tiles
    ) -> AttentionShape:
        queries, keys, values = (near_vectors(first, heads, depth, each) for first in step.first)
        pairs = _pairs(step, each, round_up(numbers, together))
        vectors = tiles * _MATRIX * queries.pitch + chunk * (keys.pitch + values.pitch)
        needed = vectors * 16 * terms + pairs * 8 + chunk // _EIGHT
        # The fewest that have no work in the last round.
        warps = min(counts, key=lambda warps: round_up(each * tiles, warps))
        blocks = blocks or at_once // warps
        return AttentionShape(
            each, tiles, chunk, together, warps, queries, keys, values, pairs, needed, blocks
        )

    is_short = chunk == together and not is_late
    at_once = _FEWEST_AT_ONCE if is_late else _MOST_AT_ONCE if is_short else _WARPS_AT_ONCE
    small_warps = _SMALL_WARPS[::-1] if is_short else _SMALL_WARPS
    divisors = [each for each in range(heads, 0, -1) if heads % each == 0]
    if terms == 1 and depth <= _MATRIX:
        for each in divisors:
            small = shape(each, chunk, small_warps)
            fits = small.blocks * (small.bytes + _RESERVED_BYTES) <= shared_bytes
            if fits and each * tiles >= _SMALL_ITEMS:
                return small
    # Two blocks leave too few registers for two terms of long heads, and on later chips of any.
    blocks = 1 if terms == 2 and (depth > _MATRIX or is_late) else 2
    counts = range(_MOST_WARPS, _MOST_WARPS // 2 - 1, -1)
    for each in divisors:
        found = shape(each, chunk, counts, blocks)
        if found.bytes <= shared_bytes // 2 - _RESERVED_BYTES:
            return found
    # As many queries as leave room for two steps of keys, or else for one.
    room = shared_bytes - _RESERVED_BYTES
    for least in (min(chunk, 2 * together), together):
        for own in range(tiles, 0, -1):
            found = shape(1, least, counts, blocks, own)
            if found.bytes <= room:
                single = shape(1, least + together, counts, blocks, own).bytes - found.bytes
                more = (room - found.bytes) // single * together
                return shape(1, min(chunk, least + more), counts, blocks, own)
    raise ValueError(f"{shared_bytes} bytes of shared memory for {windows}")


def _bias_pitch(windows: Windows) -> int:
    """Biases from a head to the next: vectors of two, each with the next."""
    rows, columns = windows.bias_sides
    return round_up(rows * columns, 2)


def _pairs(step: AttendWindows, each: int, keys: int) -> int:
    """Biases that blocks of so many heads and numbers of keys may read, with such that nobody
    needs."""
    if not step.has_bias:
        return 0
    windows = step.windows
    row, numbered = numbered_keys(windows)
    _, columns = windows.bias_sides
    pitch = _bias_pitch(windows)
    query = (windows.rows // windows.cell - 1) * columns + windows.columns // windows.cell - 1
    key = max(at // row * columns + at % row for at in range(0, keys, _EIGHT)) + _EIGHT - 1
    pairs = max((each - 1) * pitch + query + key, each * pitch)
    # Behind them, what rows of fewer than 8 keys read there: see `NONE_PAIRS` in the kernel.
    is_padded = windows.keys(1) < row == _EIGHT and windows.keys(1) % 2 == 0
    return pairs + ((windows.keys(0) - 1) * columns + 1 if is_padded and keys == numbered else 0)


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
        is_late = runtime.capability > (9, 0)
        self._shape = attention_shape(step, target.terms, runtime.shared_bytes, is_late=is_late)

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
        parts = -(-windows.rows * windows.columns // (shape.tiles * _MATRIX))
        blocks = (across, step.heads // shape.heads * parts, down * grid.pictures)
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
        row, keys = numbered_keys(windows)
        made: dict[str, str | int] = {
            "THREADS": shape.warps * 32,
            "BLOCKS": shape.blocks,
            "HEADS": step.heads,
            "HEADS_EACH": shape.heads,
            "DEPTH": depth,
            "TILES": shape.tiles,
            "CHUNK": shape.chunk,
            "STEP": shape.step,
            "KEY_ROWS": windows.keys(0),
            "KEY_COLUMNS": windows.keys(1),
            "KEY_ROW": row,
            "KEYS": round_up(keys, shape.step),
            "QUERY_FILLED": shape.queries.filled,
            "KEY_EIGHTS": shape.keys.eights,
            "KEY_FILLED": shape.keys.filled,
            "VALUE_EIGHTS": shape.values.eights,
            "VALUE_FILLED": shape.values.filled,
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
            "EACH": self._written,
            "PART": target.start(step.target.part) + step.target.plane,
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
            made["BIAS_PITCH"] = _bias_pitch(windows)
            made["BIAS_PAIRS"] = shape.pairs
        return made

    @property
    def _written(self) -> int:
        """Planes that it writes: who writes the last of a part writes the zeros behind it, too."""
        target, planes = self._step.target, self._step.planes
        if target.plane + planes < self.program.values[target.value].parts[target.part]:
            return planes
        return self._target.parts[target.part] - target.plane

    def _whole(self, task: Task, value: int) -> MapArguments:
        """A map, by places in the value."""
        layout, held = self._layouts[value], task.places[value].box
        assert isinstance(layout, MapLayout)
        return layout.arguments(held, task.grid, -held.top, -held.left)

    def _biases(self) -> NDArray[np.float32]:
        step = self._step
        if not step.has_bias:
            return np.zeros((1, 2), np.float32)
        flat = (step.bias.astype(np.float64) / step.scale).astype(np.float32)
        flat = flat.reshape(step.heads, -1)
        behind = _bias_pitch(step.windows) + 1 - flat.shape[1]
        flat = np.pad(flat, ((0, 0), (0, behind)))
        return np.stack([flat[:, :-1], flat[:, 1:]], axis=2)
