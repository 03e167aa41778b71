"""Runs test-time augmentation: averages a network's results for several transforms of a picture.

It transforms pictures, not weights, so it is exact for every network, stride, padding and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress, scaled
from waifu2x.backends.call import Call
from waifu2x.imaging.dtypes import from_unit
from waifu2x.networks.model import Model

_BAND_ROWS = 64


class Transform(NamedTuple):
    """One of the eight symmetries of a square: mirrored, then transposed."""

    upside_down: bool
    mirrored: bool
    transposed: bool


IDENTITY = Transform(False, False, False)
_TRANSPOSED = Transform(False, False, True)
_ROTATED = (
    Transform(False, True, True),
    Transform(True, True, False),
    Transform(True, False, True),
)
_MIRRORED = (
    Transform(False, True, False),
    Transform(True, False, False),
    Transform(True, True, True),
)
TRANSFORMS = {
    1: (IDENTITY,),
    2: (IDENTITY, _TRANSPOSED),
    4: (IDENTITY, *_ROTATED),
    8: (IDENTITY, *_ROTATED, *_MIRRORED, _TRANSPOSED),
}
"""The transforms of each `tta`, identity first. These sets of two and four gave the best results:
with vgg_7 0.34 and 0.51 dB more than one, all eight 0.57 dB."""


class Execute(Protocol):
    """Runs one model on a C-contiguous stack of pictures (N, H, W, planes)."""

    def __call__(self, stack: NDArray[Any], out: NDArray[Any], on_progress: Progress, /) -> None:
        """Writes the results into `out`, a C-contiguous stack."""


def transformed(stack: NDArray[Any], transform: Transform) -> NDArray[Any]:
    """Returns a view of pictures (N, H, W, planes), mirrored and transposed."""
    if transform.upside_down:
        stack = stack[:, ::-1]
    if transform.mirrored:
        stack = stack[:, :, ::-1]
    return stack.swapaxes(1, 2) if transform.transposed else stack


def inverse(stack: NDArray[Any], transform: Transform) -> NDArray[Any]:
    """Returns a view of transformed pictures (N, H, W, planes) without the transform."""
    if transform.transposed:
        stack = stack.swapaxes(1, 2)
    return transformed(stack, transform._replace(transposed=False))


def run_chain(
    call: Call[NDArray[Any]], chain: Sequence[tuple[Model, Execute]], costs: Sequence[float]
) -> None:
    """Runs a stack through models, one after the other, and writes the results into `call.out`.

    Between models pixels are float32; `costs` are the models' shares of progress, up to a factor.
    """
    stack = call.source
    for number, (model, execute) in enumerate(chain):
        made = call.results
        if number < len(chain) - 1:
            count, height, width, _ = stack.shape
            sides = height * model.scale, width * model.scale
            made = np.empty((count, *sides, model.out_planes), np.float32)
        share = costs[number] / sum(costs)
        _mean(execute, stack, made, call.tta, scaled(call.on_progress, share))
        stack = made


def _mean(
    execute: Execute, stack: NDArray[Any], out: NDArray[Any], tta: int, on_progress: Progress
) -> None:
    """Writes the mean of `tta` transformed runs into `out`, summed in float32 and rounded once."""
    if tta == 1:
        execute(stack, out, on_progress)
        return
    share = scaled(on_progress, 1 / tta)
    total = np.empty(out.shape, np.float32)
    execute(stack, total, share)
    for transform in TRANSFORMS[tta][1:]:
        count, height, width, planes = out.shape
        sides = (width, height) if transform.transposed else (height, width)
        made = np.empty((count, *sides, planes), np.float32)
        execute(np.ascontiguousarray(transformed(stack, transform)), made, share)
        np.add(total, inverse(made, transform), out=total)
    write_mean(total, tta, out)


def write_mean(total: NDArray[np.float32], tta: int, out: NDArray[Any]) -> None:
    """Writes the mean of `tta` summed results into `out`, in its dtype; `total` is overwritten."""
    total *= np.float32(1 / tta)
    for picture, pixels in zip(total, out, strict=True):
        for top in range(0, len(picture), _BAND_ROWS):
            rows = slice(top, top + _BAND_ROWS)
            pixels[rows] = from_unit(picture[rows], out.dtype)
