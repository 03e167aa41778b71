"""Runs attention in windows on matrix units, by `kernels/tensor_attention.cu`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.tensor.layout import MapArguments
from waifu2x.backends.cuda.tensor.step import TensorContext, TensorStep, TensorTask
from waifu2x.backends.cuda.tensor.units import is_sm75
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.backends.gpu.device.source import float_text
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.plan.box import round_up
from waifu2x.networks.windows import Windows
from waifu2x.system.lazy_dataclass import dataclass

_MATRIX = 16
"""The queries, or keys, of a matrix product; planes of heads are padded to a multiple of it."""
MOST_DEPTH = 64
"""The most planes of a head whose results fit the registers."""
_EIGHT = 8
"""The planes of a vector, and keys side by side."""
LEAST_SCALE = 1e-3
"""The least scale: biases divided by a smaller one become too large."""
MOST_BIASES = 1 << 12
"""The most biases of a head whose table fits the shared memory of every chip."""
_MOST_STEP = 64
"""The most keys whose logits are in registers at once."""
_DEEP, _DEEP_STEP = 32, 32
"""Heads of more planes than the first number have at most the second number of such keys."""
_MOST_WARPS = 8
_SMALL_WARPS, _WARPS_AT_ONCE, _MOST_AT_ONCE, _FEWEST_AT_ONCE = range(4, 7), 20, 24, 16
"""The warps of small blocks, and the resident warps wanted on a multiprocessor, so that some
compute while others wait for memory. Windows of few keys need fewer registers, and get the most
warps; chips after sm_90 get the fewest."""
_SMALL_ITEMS = 16
"""The least work of a block: with less, copies of partial vectors take most of the time."""
_RESERVED_BYTES = 1 << 10
"""The bytes of shared memory of each block that the driver reserves."""
_LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class NearVectors:
    """The layout of queries, keys or values in shared memory: vectors of 8 planes, as in maps."""

    eights: int
    """The most vectors that hold planes of a head."""
    filled: int
    """The vectors of a pixel that matrix products read."""

    @property
    def pitch(self) -> int:
        """The stride between pixels in vectors: odd, so that eight pixels use different banks."""
        return self.filled | 1


def near_vectors(first: int, heads: int, depth: int, each: int) -> NearVectors:
    """Returns the layout for blocks of `each` of `heads` heads of `depth` planes, which begin at
    plane `first` of a map."""
    eights = max(-(-((first + head * depth) % _EIGHT + depth) // _EIGHT) for head in range(heads))

    def begins(head: int) -> int:
        block = head // each * each * depth
        return ((first + block) % _EIGHT + head * depth - block) // _EIGHT

    return NearVectors(eights, max(map(begins, range(heads))) + round_up(eights, 2))


@dataclass(frozen=True)
class AttentionShape:
    """The division of the work of attention; it does not change a bit of the results."""

    heads: int
    """The heads of a block."""
    tiles: int
    """The tiles of 16 queries of a block."""
    chunk: int
    """The keys in shared memory at once."""
    step: int
    """The keys whose logits are in registers at once. It decides the order of summation, so it
    depends on the windows only."""
    warps: int
    queries: NearVectors
    keys: NearVectors
    values: NearVectors
    pairs: int
    """The pairs of a bias and the next one of a block."""
    bytes: int
    """The bytes of shared memory of a block."""
    blocks: int
    """The least resident blocks of a multiprocessor, which limits the registers of each."""


def numbered_keys(windows: Windows) -> tuple[int, int]:
    """Returns the padded number of keys of a row of a window, and that of all its rows."""
    row = round_up(windows.keys(1), _EIGHT)
    return row, windows.keys(0) * row


def attention_shape(
    step: AttendWindows, terms: int, shared_bytes: int, *, is_late: bool = False
) -> AttentionShape:
    """Returns the shape for `shared_bytes` of a block: two resident blocks if they fit, each with
    as many heads as fit. `is_late`: for a chip after sm_90, whose code needs more registers."""
    windows, heads = step.windows, step.heads
    depth = step.planes // heads
    _, numbers = numbered_keys(windows)
    most = _MOST_STEP if depth <= _DEEP else _DEEP_STEP
    # The fewest padding keys, then the most keys at once.
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
        # The number of warps that leaves the fewest idle in the last round.
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
    # Two blocks leave too few registers for two terms of deep heads, on later chips of any heads.
    blocks = 1 if terms == 2 and (depth > _MATRIX or is_late) else 2
    counts = range(_MOST_WARPS, _MOST_WARPS // 2 - 1, -1)
    for each in divisors:
        found = shape(each, chunk, counts, blocks)
        if found.bytes <= shared_bytes // 2 - _RESERVED_BYTES:
            return found
    # The most queries that leave memory for two steps of keys, or else for one.
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
    """Returns the stride between heads in biases, an even number."""
    rows, columns = windows.bias_sides
    return round_up(rows * columns, 2)


def _pairs(step: AttendWindows, each: int, keys: int) -> int:
    """Returns how many pairs of biases a block of `each` heads and `keys` keys may read."""
    if not step.has_bias:
        return 0
    windows = step.windows
    row, numbered = numbered_keys(windows)
    _, columns = windows.bias_sides
    pitch = _bias_pitch(windows)
    query = (windows.rows // windows.cell - 1) * columns + windows.columns // windows.cell - 1
    key = max(at // row * columns + at % row for at in range(0, keys, _EIGHT)) + _EIGHT - 1
    pairs = max((each - 1) * pitch + query + key, each * pitch)
    # Rows of fewer than 8 keys read further pairs behind them: see `NONE_PAIRS` in the kernel.
    is_padded = windows.keys(1) < row == _EIGHT and windows.keys(1) % 2 == 0
    return pairs + ((windows.keys(0) - 1) * columns + 1 if is_padded and keys == numbered else 0)


class TensorAttentionStep(TensorStep[AttendWindows]):
    """Attention in windows."""

    def __init__(self, context: TensorContext, number: int) -> None:
        super().__init__(context, number)
        runtime = context.runtime
        self._target = self.layout(self.step.target.value)
        is_late = runtime.capability > (9, 0)
        self._shape = attention_shape(
            self.step, context.terms, runtime.shared_bytes, is_late=is_late
        )

    def launch(self, task: TensorTask) -> Launch:
        """Returns the launch for the results in a box of whole windows."""
        step, windows, shape = self.step, self.step.windows, self._shape
        box, grid = task.boxes[self.number], task.grid
        down, across = box.height // windows.rows, box.width // windows.columns
        (rows, columns), keys = (task.batch.sizes[view.value] for view in (step.source, step.keys))
        fields = {
            "queries": task.address(step.source.value),
            "keys": task.address(step.keys.value),
            "values": task.address(step.values.value),
            "out": task.address(step.target.value),
            "biases": self.uploaded("biases", self._biases),
            "flags": task.check.flags,
            "query_map": self._whole(task, step.source.value),
            "key_map": self._whole(task, step.keys.value),
            "value_map": self._whole(task, step.values.value),
            "to": self._whole(task, step.target.value),
            "first_top": box.top,
            "first_left": box.left,
            "down": down,
            "rows": rows,
            "columns": columns,
            "key_rows": keys[0],
            "key_columns": keys[1],
            "filled_rows": windows.filled(rows),
            "filled_columns": windows.filled(columns),
            "across": grid.across,
            "beyond": task.check.beyond,
        }
        parts = -(-windows.rows * windows.columns // (shape.tiles * _MATRIX))
        blocks = (across, step.heads // shape.heads * parts, down * grid.pictures)
        threads = shape.warps * 32
        spec = KernelSpec("tensor_attention", self._macros(), threads, shared=shape.bytes)
        return self.launch_with(spec, blocks, fields)

    def _macros(self) -> dict[str, str | int]:
        step, windows, target, shape = self.step, self.step.windows, self._target, self._shape
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
            "SCALE": float_text(step.scale * _LOG2E),
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
            layout = self.layout(view.value)
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
        """The number of planes that it writes: with a part's last plane, the zeros behind it."""
        target, planes = self.step.target, self.step.planes
        if target.plane + planes < self.program.values[target.value].parts[target.part]:
            return planes
        return self._target.parts[target.part] - target.plane

    def _whole(self, task: TensorTask, value: int) -> MapArguments:
        """Returns the arguments of a map whose coordinates are those of the value."""
        layout, held = self.layout(value), task.places[value].box
        return layout.arguments(held, task.grid, -held.top, -held.left)

    def _biases(self) -> NDArray[np.float32]:
        step = self.step
        if not step.has_bias:
            return np.zeros((1, 2), np.float32)
        flat = (step.bias.astype(np.float64) / step.scale).astype(np.float32)
        flat = flat.reshape(step.heads, -1)
        behind = _bias_pitch(step.windows) + 1 - flat.shape[1]
        flat = np.pad(flat, ((0, 0), (0, behind)))
        return np.stack([flat[:, :-1], flat[:, 1:]], axis=2)
