"""Weights of attention between planes, for engines that keep vectors in NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.attention import ChannelWeights

_SHORTEST = 1e-12
"""Lower bound of norms."""


def channel_weights(step: ChannelWeights, sums: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the step's vector, in float64, from that of CrossSums."""
    heads, parts = len(step.temperature), step.parts
    depth = step.planes // heads
    found = sums[: step.planes * (depth + 2) * parts].astype(np.float64).reshape(parts, -1)
    products = found[:, : step.planes * depth].reshape(parts, heads, depth, depth)
    norms = np.sqrt(found[:, step.planes * depth :].reshape(parts, 2, heads, depth))
    weights = softmax(products, norms[:, 0], norms[:, 1], step.temperature)
    made: NDArray[np.float64] = weights.swapaxes(2, 3).ravel()
    return made


def softmax(
    products: NDArray[np.float64],
    query_norms: NDArray[np.float64],
    key_norms: NDArray[np.float64],
    temperature: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Returns weights (..., heads, queries, keys) from the products of queries and keys, of that
    shape, too, and the norms of both, (..., heads, planes)."""
    norms = query_norms.clip(_SHORTEST)[..., None] * key_norms.clip(_SHORTEST)[..., None, :]
    logits = products / norms * temperature.astype(np.float64)[:, None, None]
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return weights
