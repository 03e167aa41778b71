"""Chooses the precision of `auto` on matrix units: measures whether 16 bits suffice for a network.

It measures once for a network and a kind of device, by the pictures of `backends/accuracy.py`, and
stores the answer; RECORDED holds those of known networks. 16 bits must keep the promised PSNR of a
smooth drawing and of a photo. Where they do not keep that of the hard drawing, whose values are far
larger then (SPAN answers single hard pixels with values 60 times as large, and keeps 33 dB instead
of 77), they are trusted for smaller values only. Kernels flag any picture with larger values, which
is then computed in fp32, as are pictures whose values exceed the range of 16 bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from waifu2x import __version__
from waifu2x.backends import accuracy
from waifu2x.backends.accuracy import PROMISED
from waifu2x.backends.cuda.tensor.step import LARGEST
from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.network import FlaggedError
from waifu2x.errors import printable
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache, sources

_LOG = logging.getLogger(__name__)
_KIND = "accuracy"
_STEMS = (
    *("tensor_first", "tensor_gather", "tensor_mma", "tensor_planewise", "tensor_wgmma"),
    *("tensor_rows", "tensor_rolling", "tensor_pair", "tensor_edges"),
    *("tensor_attention", "tensor_norm", "tensor_depthwise", "tensor_cross_sums", "tensor_mix"),
    *("tensor_avg_pool", "tensor_vectors"),
)
_SOURCES = (
    "backends/accuracy.py",
    "backends/cuda/**/*.py",
    "backends/gpu/**/*.py",
    "lowering/**/*.py",
    "networks/**/*.py",
)
"""The files on which the kernels' results for a model depend."""
_REPEATS = 4
"""The number of copies of a probe down and across, so that kernels for large pictures run."""
IN_FP32 = 0.0
"""Stands for no trusted value: fp32 by two 16-bit terms."""
IN_FLOATS = -1.0
"""Stands for no trusted value, nor range enough for two terms: fp32 on other units."""

RECORDED: Mapping[str, float] = {
    "83ee2819de1815c0": LARGEST,  # vgg_7/art, noise 0, 1x
    "29c5bcffb348d89c": LARGEST,  # vgg_7/art, noise 1, 1x
    "12c9d1954f09688e": LARGEST,  # vgg_7/art, noise 2, 1x
    "2ec55156848546cc": LARGEST,  # vgg_7/art, noise 3, 1x
    "76449dbc1138cf2e": LARGEST,  # vgg_7/art, 2x
    "f94251863bde4acd": LARGEST,  # upconv_7/art, 2x
    "390f86cfc7f576fb": LARGEST,  # cunet/art, noise 1, 1x
    "e3534d80f6d2064d": LARGEST,  # cunet/art, 2x
    "b781d09f565d72b4": LARGEST,  # cunet/art, noise 1, 2x
    "171d153c8c579382": LARGEST,  # cugan/se, 2x
    "6b1126378ce13655": LARGEST,  # cugan/pro, 2x
    "3d4313c78f6e3b22": LARGEST,  # realesrgan/animevideo, 2x
    "2532d1ee6cc6033c": LARGEST,  # realesrgan/anime, 4x
    "1d39b6d7467ea8e7": 128.0,  # span/photo, 2x
}
"""Measured answers for common networks, by the first 16 digits of the model's digest, so that their
first picture need not wait. `benchmarks/bench_trusted.py` measures them and prints these rows."""

Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Runs a picture (rows, columns, planes) through a network; raises FlaggedError for values beyond
the trusted ones."""
Trial = Callable[[float], AbstractContextManager[Run]]
"""Opens a network on the device for the time of the context: in 16 bits, trusted up to a value, or
IN_FP32. Raises BackendError."""


def trusted(model: Model, kind: str, trial: Trial) -> float:
    """Returns the largest value up to which 16 bits keep the promise of `auto` for a model, or
    IN_FP32, or IN_FLOATS. `kind` identifies chips that compute alike.

    Raises BackendError if it must be measured and cannot be.
    """
    digest = model_digest(model)
    known = RECORDED.get(digest[:16])
    if known is None:
        code = sources.digest(_SOURCES), *map(source.digest, _STEMS)
        key = cache.digest(__version__, *code, kind, digest)
        known = cache.number(
            _KIND, key, lambda: _measured((model.in_planes, accuracy.side(model)), trial)
        )
    if known <= 0:
        _LOG.warning(
            "%s: %s, using fp32 (slower)",
            printable(model.name),
            "its values exceed 16 bits" if known == IN_FLOATS else "fp16 is too coarse",
        )
    return known


def _measured(form: tuple[int, int], trial: Trial) -> float:
    """Measures by pictures of some planes and of some pixels a side."""
    usual = [_repeated(accuracy.smooth_drawing(*form)), _repeated(accuracy.photo(*form))]
    hard = _repeated(accuracy.drawing(*form))
    with trial(IN_FP32) as exact:
        try:
            expected = [exact(picture) for picture in usual]
        except FlaggedError:
            return IN_FLOATS
        try:
            of_hard = exact(hard)
        except FlaggedError:
            of_hard = None
    with trial(LARGEST) as fast:
        try:
            for picture, exactly in zip(usual, expected, strict=True):
                if accuracy.decibels(fast(picture), exactly) < PROMISED:
                    return IN_FP32
        except FlaggedError:
            return IN_FP32
        try:
            found = fast(hard)
        except FlaggedError:
            return LARGEST
    if of_hard is not None and accuracy.decibels(found, of_hard) >= PROMISED:
        return LARGEST
    most = _smallest(usual, trial)
    return most if _is_flagged([hard], most, trial) else IN_FP32


def _smallest(pictures: list[NDArray[np.uint8]], trial: Trial) -> float:
    """Returns the smallest power of two, or LARGEST, that no value of these pictures exceeds."""
    below, enough = 0, math.ceil(math.log2(LARGEST))
    while enough - below > 1:
        middle = (below + enough) // 2
        if _is_flagged(pictures, 2.0**middle, trial):
            below = middle
        else:
            enough = middle
    return min(2.0**enough, LARGEST)


def _is_flagged(pictures: list[NDArray[np.uint8]], most: float, trial: Trial) -> bool:
    """Returns whether any picture has values beyond `most`."""
    with trial(most) as fast:
        try:
            for picture in pictures:
                fast(picture)
        except FlaggedError:
            return True
    return False


def _repeated(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.tile(picture, (_REPEATS, _REPEATS, 1))
