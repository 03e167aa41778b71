"""How exact the arithmetics of the processor are for a network: measured once, and kept.

By one drawing of the worst kind, flat fills with hard edges and lines: of SPAN, whose maps are
gates of each other, 16-bit integers keep 29 dB of it, of vgg_7 70. On examples/drawn.png 22 of 24
networks came out 3 dB worse to 3 dB better, on its photo all of them better. Nothing says while a
picture is computed that it is worse than that, as on GPUs (`cuda/tensor/choosing.py`): integers
have a scale for every cell, from its own values, and bf16 the exponents of floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import accuracy
from waifu2x.backends.cpu.arithmetic import Arithmetic, Fineness
from waifu2x.backends.cpu.compile.compiled import environment
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache, sources

Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""A picture (rows, columns, planes) through a network."""
_KIND = "accuracy"
_SOURCES = (
    "backends/accuracy.py",
    "backends/cpu/**/*.py",
    "backends/winograd.py",
    "lowering/**/*.py",
    "networks/**/*.py",
)
"""The files that decide what the processor makes of a model's file."""


def decibels(
    model: Model, arithmetic: Arithmetic, fineness: Fineness, fast: Run, exact: Run
) -> float:
    """PSNR in dB of a fast arithmetic against the exact one, found by trying, or in the cache.

    The answer is kept for this code, this processor and the model.
    """

    def found() -> float:
        picture = accuracy.drawing(model.in_planes)
        return accuracy.decibels(fast(picture), exact(picture))

    key = cache.digest(code(), model_digest(model), arithmetic, str(fineness))
    return cache.number(_KIND, key, found)


@once
def code() -> str:
    """The digest of all that decides what the processor makes of a model's file, but for the file:
    it does not change while the program runs."""
    return cache.digest(*environment(), sources.digest(_SOURCES))
