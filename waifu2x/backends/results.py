"""The arrays that results of networks are written into, grey pictures, and what closed networks
say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import OnRecomputed, Progress, ignore
from waifu2x.errors import BackendError
from waifu2x.imaging.colour import luma
from waifu2x.imaging.dtypes import from_unit
from waifu2x.networks.model import Model

if TYPE_CHECKING:
    from waifu2x.backends import Network

_BAND_ROWS = 64


def result_shape(models: Sequence[Model], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what models make, one after the other, of pixels (..., H, W, planes)."""
    *rest, height, width, planes = shape
    grey = is_grey(models, shape)
    for model in models:
        height, width, planes = height * model.scale, width * model.scale, model.out_planes
    return (*rest, height, width, 1 if grey else planes)


def is_grey(models: Sequence[Model], shape: tuple[int, ...]) -> bool:
    """Whether pixels (..., H, W, planes) are grey, and models read and make three planes."""
    return shape[-1] == 1 and bool(models) and models[0].in_planes == 3


def grey(
    network: Network,
    pixels: NDArray[Any],
    out: NDArray[Any],
    *,
    tile: int | None = None,
    tta: int = 1,
    on_progress: Progress = ignore,
    on_recomputed: OnRecomputed = ignore,
) -> None:
    """Writes into `out`, grey, what a network makes of grey pictures: on three equal planes.

    For networks whose kernels read and write three planes only.
    """
    planes = pixels.repeat(3, axis=-1)
    made = network(
        planes,
        np.float32,
        tile=tile,
        tta=tta,
        on_progress=on_progress,
        on_recomputed=on_recomputed,
    )
    many = made.ndim == 4
    for rgb, result in zip(made, out, strict=True) if many else [(made, out)]:
        for top in range(0, len(rgb), _BAND_ROWS):
            rows = slice(top, top + _BAND_ROWS)
            result[rows] = from_unit(luma(rgb[rows]), out.dtype)


def check_out(
    out: NDArray[Any] | None, shape: tuple[int, ...], dtype: DTypeLike, pixels: NDArray[Any]
) -> None:
    """Raises ValueError for an `out` that a call cannot write its result into; None is none."""
    if out is None:
        return
    if out.shape != shape or out.dtype != np.dtype(dtype):
        raise ValueError(
            f"Expected out of shape {shape} and dtype {np.dtype(dtype)},"
            f" but got {out.shape} and {out.dtype}"
        )
    if not out.flags.c_contiguous or not out.flags.writeable:
        fault = "read-only" if out.flags.c_contiguous else "not C-contiguous"
        raise ValueError(f"Expected out to be writable and C-contiguous, but it is {fault}")
    if np.may_share_memory(out, pixels):
        raise ValueError("Expected out to have memory of its own, but it shares that of the pixels")


def closed_network() -> BackendError:
    """What a call of a closed network raises."""
    return BackendError("this network is closed: compile its models again")
