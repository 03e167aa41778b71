"""The definition of attention, written once more: query by query, float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.attention import ChannelAttention, WindowAttention


def attention_in_windows(
    node: WindowAttention,
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The result, from the whole maps that the node reads: rows, columns, planes."""
    win, cell = node.windows, node.windows.cell
    rows, columns = queries.shape[:2]
    sides = (win.rows, win.columns)
    filled = [-(-length // win.filled_to) * win.filled_to for length in (rows, columns)]
    shifts = [
        0 if length <= side and not win.shifts_single else shift
        for length, side, shift in zip(
            filled, sides, (win.shift_rows, win.shift_columns), strict=True
        )
    ]
    depth = node.planes // node.heads
    made = np.zeros((rows, columns, node.planes))

    def lie(axis: int, place: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows or columns of the keys that a query has, and where they stand in the table."""
        side, shift, length = sides[axis], shifts[axis], filled[axis]
        window = [one for one in range(length) if (one - shift) // side == (place - shift) // side]
        begin = (place - shift) // side * side + shift
        found = np.arange(window[0] - win.overlap, window[-1] + 1 + win.overlap, cell) // cell
        first = (begin - win.overlap) // cell + (place - begin) // cell
        return found, found - first + side // cell - 1

    across = [lie(1, x) for x in range(columns)]
    for y in range(rows):
        own, down = lie(0, y)
        for x in range(columns):
            near, along = across[x]
            k, v = (_at(planes, own, near) for planes in (keys, values))
            for head in range(node.heads):
                part = slice(head * depth, (head + 1) * depth)
                q = queries[y, x, node.queries.first :][part]
                logits = k[..., node.keys.first :][..., part] @ q * node.scale
                logits = logits + node.bias[head].astype(np.float64)[np.ix_(down, along)]
                weights = np.exp(logits - logits.max())
                weights /= weights.sum()
                made[y, x, part] = np.tensordot(weights, v[..., node.values.first :][..., part], 2)
    return made


def _at(
    planes: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Some rows and columns of a map; zeros beyond it."""
    inside = (rows >= 0) & (rows < planes.shape[0])
    within = (columns >= 0) & (columns < planes.shape[1])
    taken = planes[np.ix_(rows.clip(0, len(planes) - 1), columns.clip(0, planes.shape[1] - 1))]
    return np.asarray(taken * (inside[:, None] & within)[..., None])


def attention_of_planes(
    node: ChannelAttention,
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The result, from the whole maps that the node reads: rows, columns, planes."""
    rows, columns = queries.shape[:2]
    made = np.zeros((rows, columns, node.planes))
    if node.window:
        corners = np.ndindex(-(-rows // node.window), -(-columns // node.window))
        parts = [
            tuple(slice(n * node.window, (n + 1) * node.window) for n in corner)
            for corner in corners
        ]
    else:
        places = np.ndindex(min(rows, node.period), min(columns, node.period))
        parts = [tuple(slice(n, None, node.period) for n in place) for place in places]
    for part in parts:
        made[part] = _planes_of_one_part(node, queries[part], keys[part], values[part])
    return made


def _planes_of_one_part(
    node: ChannelAttention,
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The same of a part of the maps."""
    rows, columns = queries.shape[:2]
    depth = node.planes // node.heads

    def matrix(planes: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        return planes[:, :, first : first + depth].reshape(-1, depth).T

    made = []
    for head, temperature in enumerate(node.temperature.astype(np.float64)):
        begin = head * depth
        q = matrix(queries, node.queries.first + begin)
        k = matrix(keys, node.keys.first + begin)
        q, k = (one / np.maximum(np.linalg.norm(one, axis=1), 1e-12)[:, None] for one in (q, k))
        powers = np.exp(q @ k.T * temperature)
        weights = powers / powers.sum(axis=1, keepdims=True)
        made.append(weights @ matrix(values, node.values.first + begin))
    return np.asarray(np.concatenate(made).T.reshape(rows, columns, -1))
