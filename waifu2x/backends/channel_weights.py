"""Weights of attention between planes, for engines whose vectors are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.attention_steps import ChannelWeights

_SHORTEST = 1e-12
"""The least that a norm counts as."""


def channel_weights(step: ChannelWeights, sums: NDArray[Any]) -> NDArray[np.float64]:
    """The step's vector, in float64, from that of CrossSums."""
    heads = len(step.temperature)
    depth = step.planes // heads
    found = sums[: step.planes * (depth + 2)].astype(np.float64)
    products = found[: step.planes * depth].reshape(heads, depth, depth)
    norms = np.sqrt(found[step.planes * depth :].reshape(2, heads, depth)).clip(_SHORTEST)
    logits = products / (norms[0][:, :, None] * norms[1][:, None])
    logits *= step.temperature.astype(np.float64)[:, None, None]
    powers = np.exp(logits - logits.max(axis=2, keepdims=True))
    weights = powers / powers.sum(axis=2, keepdims=True)
    made: NDArray[np.float64] = weights.swapaxes(1, 2).ravel()
    return made
