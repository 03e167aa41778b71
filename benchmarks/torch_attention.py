"""Attention of a model's nodes in PyTorch, for networks beside ours: see torch_peers.Graph.

Maps are tensors (1, planes, rows, columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from waifu2x.networks.attention import ChannelAttention, WindowAttention
from waifu2x.networks.windows import Axis, Windows


class WindowsOf(torch.nn.Module):  # type: ignore[misc]
    """WindowAttention as the networks' own programs compute it: the map filled up and rolled, cut
    into windows, products of matrices with the bias between them; `fused` asks PyTorch for its
    attention in one kernel instead, which reads the bias as a mask."""

    def __init__(self, node: WindowAttention, fused: bool) -> None:
        """Raises ValueError for windows with keys of their own: no network timed here has them."""
        super().__init__()
        windows = node.windows
        if windows.overlap or windows.cell > 1:
            raise ValueError("windows whose keys lie elsewhere")
        self.node, self.fused = node, fused
        self.heads = node.heads
        rows, columns = np.divmod(np.arange(windows.rows * windows.columns), windows.columns)
        down = rows - rows[:, None] + windows.rows - 1
        across = columns - columns[:, None] + windows.columns - 1
        self.register_buffer("bias", torch.from_numpy(node.bias[:, down, across].copy()))
        self._masks: dict[Any, Any] = {}

    def forward(self, queries: Any, keys: Any, values: Any) -> Any:
        """The result for maps that hold the node's planes and perhaps others."""
        node, windows = self.node, self.node.windows
        height, width = queries.shape[2:]
        parts = [
            _divided(source[:, place.first : place.first + node.planes], windows, self.heads)
            for source, place in (
                (queries, node.queries),
                (keys, node.keys),
                (values, node.values),
            )
        ]
        bias = self._bias(parts[0], height, width)
        if self.fused:
            attention = torch.nn.functional.scaled_dot_product_attention
            made = attention(*parts, attn_mask=bias, scale=node.scale)
        else:
            logits = parts[0] * node.scale @ parts[1].transpose(2, 3) + bias
            made = logits.softmax(3) @ parts[2]
        return _whole(made, windows, height, width)

    def _bias(self, like: Any, height: int, width: int) -> Any:
        """(windows or 1, heads, queries, keys): the node's, and -100 between parts of a window that
        the roll has brought together."""
        key = height, width, like.dtype
        if key not in self._masks:
            windows, parts = self.node.windows, []
            axes: tuple[tuple[Axis, int], ...] = ((0, height), (1, width))
            for axis, length in axes:
                size, shift = windows.size(axis), windows.shift(axis, length)
                filled = _filled(windows, axis, length)
                part = np.zeros(filled)
                if shift:
                    part[filled - size :], part[filled - shift :] = 1, 2
                # Pixels that fill a map up beyond the node's size have no keys.
                part[np.roll(np.arange(filled) >= windows.filled(length), -shift)] = 3
                parts.append(part)
            places = torch.from_numpy(parts[0][:, None] * 4 + parts[1])[None, None]
            regions = _cut(places, windows)[:, 0]
            mask = (regions[:, :, None] != regions[:, None]).double()[:, None] * -100
            mask = mask if bool(mask.any()) else mask[:1]
            bias = self.bias.to(like)
            self._masks[key] = bias + mask.to(like)
        return self._masks[key]


def _filled(windows: Windows, axis: Axis, length: int) -> int:
    """Rows, or columns, of a map filled up to whole windows, at least as far as there are keys."""
    size = windows.size(axis)
    return -(-windows.filled(length) // size) * size


def _divided(values: Any, windows: Windows, heads: int) -> Any:
    """A map as (windows, heads, pixels, planes of a head)."""
    height, width = values.shape[2:]
    fill = 0, _filled(windows, 1, width) - width, 0, _filled(windows, 0, height) - height
    values = torch.nn.functional.pad(values, fill) if any(fill) else values
    shifts = windows.shift(0, height), windows.shift(1, width)
    values = torch.roll(values, [-shift for shift in shifts], (2, 3)) if any(shifts) else values
    cut = _cut(values, windows)
    return cut.reshape(len(cut), heads, -1, cut.shape[2]).transpose(2, 3)


def _cut(values: Any, windows: Windows) -> Any:
    """A map (1, planes, rows, columns) as (windows, planes, pixels)."""
    planes, height, width = values.shape[1:]
    rows, columns = windows.rows, windows.columns
    cut = values.reshape(planes, height // rows, rows, width // columns, columns)
    return cut.permute(1, 3, 0, 2, 4).reshape(-1, planes, rows * columns)


def _whole(made: Any, windows: Windows, height: int, width: int) -> Any:
    """Returns the windows of `_divided` as a map again."""
    rows, columns = windows.rows, windows.columns
    down, across = _filled(windows, 0, height) // rows, _filled(windows, 1, width) // columns
    made = made.transpose(2, 3).reshape(down, across, -1, rows, columns)
    made = made.permute(2, 0, 3, 1, 4).reshape(1, -1, down * rows, across * columns)
    shifts = windows.shift(0, height), windows.shift(1, width)
    made = torch.roll(made, shifts, (2, 3)) if any(shifts) else made
    return made[:, :, :height, :width]


def between_planes(node: ChannelAttention, temperature: Any, source: Any, values: Any) -> Any:
    """ChannelAttention of the map of queries and keys, and of that of values."""
    heads, (height, width) = len(temperature), source.shape[2:]
    queries, keys, values = (
        one[:, place.first : place.first + node.planes].reshape(heads, -1, height * width)
        for one, place in ((source, node.queries), (source, node.keys), (values, node.values))
    )
    normalize = torch.nn.functional.normalize
    sums = normalize(queries, dim=2) @ normalize(keys, dim=2).transpose(1, 2)
    made = (sums * temperature[:, None, None]).softmax(2) @ values
    return made.reshape(1, node.planes, height, width)
