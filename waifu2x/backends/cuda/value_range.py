"""How large a network's values get: 16-bit floats end at 65504, and two of them at the same.

What can be proved of it from the weights alone is far too large for any deep network. So a few
small pictures, the worst that come to mind, go through the float64 reference once (cunet takes a
second or two, the others less); the answer is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x import __version__
from waifu2x.backends.reference import NumpyNetwork
from waifu2x.lowering.steps import Conv, Program
from waifu2x.networks.digests import model_digest
from waifu2x.system import cache

MOST = 65504 / 8
"""The largest value that is trusted to 16 bits: other pictures may make larger ones."""
_KIND = "ranges"
_FORMAT = "2"
_SIDE = 8
"""Pixels a side of the pictures that are not flat; around them networks see the border."""


def largest(program: Program) -> float:
    """The largest size of any value or weight, found by trying, or in the cache."""
    steps = " ".join(type(step).__name__ for step in program.steps)
    code = _FORMAT, __version__, steps, repr(program.values)
    key = cache.digest(*code, model_digest(program.model))
    return cache.number(_KIND, key, lambda: _measured(program))


def _measured(program: Program) -> float:
    sizes = [0.0]

    def note(made: NDArray[Any]) -> None:
        sizes.append(float(np.abs(made).max(initial=0.0)))

    for step in program.steps:
        if isinstance(step, Conv):
            note(step.weight)
    network = NumpyNetwork([program])
    network.on_made = note
    for picture in _pictures(program.model.in_planes):
        network(picture, np.float32)
    return float(np.max(sizes))  # not a number, if any is none


def _pictures(planes: int) -> list[NDArray[np.uint8]]:
    """Black, white, noise of black and white, and edges of all directions."""
    shape = (_SIDE, _SIDE, planes)
    rows, columns = np.ogrid[:_SIDE, :_SIDE]
    edges = (rows // 3 + columns // 3) % 2 ^ (rows + columns > _SIDE)
    noise = np.random.default_rng(0).integers(0, 2, shape)
    black = np.zeros((1, 1, planes))
    found = [black, black + 1, noise, edges[..., np.newaxis].repeat(planes, -1)]
    return [(picture * 255).astype(np.uint8) for picture in found]
