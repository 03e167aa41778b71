"""The arrays that results of networks are written into, and what closed networks say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.errors import BackendError
from waifu2x.networks.model import Model


def result_shape(models: Iterable[Model], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what models make, one after the other, of pixels (..., H, W, planes)."""
    *rest, height, width, planes = shape
    for model in models:
        height, width, planes = height * model.scale, width * model.scale, model.out_planes
    return (*rest, height, width, planes)


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
