"""Turns the kernels of strided and transposed convolutions into those of valid ones.

The maps are stored by space-to-depth for that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.lowering.ops.conv import MOST_TAPS
from waifu2x.networks.nodes import Convolution, TransposedConvolution
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Taps:
    """A valid convolution, on maps stored by space-to-depth, equal to one of another kind."""

    weight: NDArray[np.float32]
    first: int
    """The first tap's offset from the result's own pixel."""
    reaches: bool
    """Whether results inside their size read pixels outside the source's."""


def convolution_taps(node: Convolution, where: str) -> Taps:
    """Returns the taps, on pixels as stored, of out[y] = sum of weight[k] * in[y * stride + k -
    padding] over k."""
    side, stride = node.weight.shape[-1], node.stride
    places = [divmod(k - node.padding, stride) for k in range(side)]
    first = places[0][0]
    count = tap_count(places[-1][0] - first + 1, where)
    made, read = node.weight.shape[:2]
    weight = np.zeros((made, stride, stride, read, count, count), np.float32)
    for ky, (y, dy) in enumerate(places):
        for kx, (x, dx) in enumerate(places):
            weight[:, dy, dx, :, y - first, x - first] = node.weight[:, :, ky, kx]
    stored = weight.reshape(made, stride**2 * read, count, count)
    return Taps(stored, first, reaches=node.padding > 0)


def transposed_taps(node: TransposedConvolution, where: str) -> Taps:
    """Returns the taps of in[y + a] for out[y * stride + dy]: weight[k], where k = dy + crop - a *
    stride."""
    side, stride = node.weight.shape[-1], node.stride
    places = [
        (k, (phase + node.crop - k) // stride, phase)
        for phase in range(stride)
        for k in range(side)
        if (phase + node.crop - k) % stride == 0
    ]
    first = min(a for _, a, _ in places)
    last = max(a for _, a, _ in places)
    count = tap_count(last - first + 1, where)
    made, read = node.weight.shape[:2]
    weight = np.zeros((stride, stride, made, read, count, count), np.float32)
    for ky, y, dy in places:
        for kx, x, dx in places:
            weight[dy, dx, :, :, y - first, x - first] = node.weight[:, :, ky, kx]
    # How far beyond the source's last pixel the last result reads.
    beyond = (side - 2 * node.crop - 1) // stride + last
    shuffled = weight.reshape(stride**2 * made, read, count, count)
    return Taps(shuffled, first, reaches=first < 0 or beyond > 0)


def tap_count(count: int, where: str) -> int:
    """Returns the taps of a step that needs `count`: never 2. Raises ModelError for too many."""
    if count > MOST_TAPS:
        raise ModelError(f"{where}: a kernel of {count} taps for each pixel; {MOST_TAPS} at most")
    return 3 if count == 2 else count


def shuffled(planes: int, factor: int) -> NDArray[np.intp]:
    """Returns the indices that reorder the planes of a pixel shuffle's source, [plane][dy][dx], to
    [dy][dx][plane]."""
    order = np.arange(planes).reshape(planes // factor**2, factor, factor)
    return order.transpose(1, 2, 0).ravel()
