"""Arrays of any library as pictures: checks, conversions and messages for what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.imaging.dtypes import PIXEL_DTYPES
from waifu2x.imaging.picture import Picture, with_alpha

_Made = TypeVar("_Made")

OVERSHOOT = 1 / 255
"""How far floats may lie outside [0, 1], as after resampling: they are clipped."""

_CPU_KINDS = (1, 3, 11, 13)
"""DLPack's numbers of memory that this processor can read: its own, memory page-locked for CUDA or
ROCm, and CUDA's managed memory."""
_ONE_BITS = np.float32(1).view(np.uint32)


class HasArray(Protocol):
    """An object with `__array__`: pandas, xarray, PyTorch, JAX and many others have it."""

    def __array__(self) -> np.ndarray[Any, Any]:
        """Returns its values as a NumPy array."""


class HasArrayInterface(Protocol):
    """An object with NumPy's older protocol, `__array_interface__`."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Returns where its values are, and their type."""


class HasDlpack(Protocol):
    """A tensor of any library that speaks DLPack."""

    def __dlpack__(self) -> object:
        """Returns a capsule with its memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the kind of its device, by DLPack's numbers, and its number."""


ArrayLike = HasArray | HasArrayInterface | HasDlpack
"""Arrays and tensors of other libraries."""


def as_array(image: object) -> NDArray[Any]:
    """Returns an array of any library as a NumPy array, sharing its memory if possible. Raises
    ImageError for other objects, and for an array in the memory of another device."""
    if isinstance(image, np.ndarray):
        return np.asarray(image)
    kind = type(image).__name__
    if hasattr(image, "__dlpack__") and hasattr(image, "__dlpack_device__"):
        tensor = cast(HasDlpack, image)
        if _converted(tensor, lambda it: it.__dlpack_device__()[0], kind) not in _CPU_KINDS:
            raise ImageError(
                f"Expected an array in the memory of the processor, but this {kind} is on another"
                " device: copy it first, as tensor.cpu() does"
            )
        return _converted(tensor, np.from_dlpack, kind)
    if hasattr(image, "__array_interface__") or hasattr(image, "__array__"):
        return _converted(image, np.asarray, kind)
    raise ImageError(
        "Expected a NumPy array, a PIL image, or an object with __array__ or __dlpack__, but got"
        f" {kind}{_advice(image)}"
    )


def _converted(image: Any, convert: Callable[[Any], _Made], kind: str) -> _Made:
    try:
        return convert(image)
    except Exception as error:  # any of the other library's, for a tensor with a gradient say
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"NumPy cannot read this {kind}: {reason}") from error


def _advice(image: object) -> str:
    if isinstance(image, str | bytes) or hasattr(image, "__fspath__"):
        return ": waifu2x.upscale_file reads and writes files"
    if isinstance(image, list | tuple):
        return ": numpy.stack makes an array of pictures of one size"
    return ""


def checked(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array of one picture or several in native byte order, floats clipped to [0, 1].
    Raises ImageError for unsuitable shapes, dtypes and values."""
    if array.ndim not in (2, 3, 4) or (array.ndim > 2 and not 1 <= array.shape[-1] <= 4):
        raise ImageError(
            "Expected shape (H, W), (H, W, 1 to 4) or (N, H, W, 1 to 4), but got"
            f" {array.shape}{_planes_last(array)}"
        )
    if not array.size:
        raise ImageError(f"Expected at least one pixel, but got shape {array.shape}")
    native = array.dtype.newbyteorder("=")
    if native not in PIXEL_DTYPES:
        raise ImageError(
            f"Expected uint8, uint16 or float32, but got {array.dtype}{_other_dtype(array.dtype)}"
        )
    array = array.astype(native, copy=False)
    return _in_range(array) if native.kind == "f" else array


def _planes_last(array: NDArray[Any]) -> str:
    """Returns advice for an array whose planes seem to come first, as in PyTorch."""
    if array.ndim not in (3, 4) or not 1 <= array.shape[-3] <= 4:
        return ""
    return (
        ": its planes seem to come first; put them last with"
        f" numpy.moveaxis(array, {array.ndim - 3}, -1)"
    )


def _other_dtype(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "f":
        return '; use array.astype("float32"), with values in [0, 1]'
    if dtype.kind == "b":
        return '; use array.astype("uint8") * 255'
    return ""


def _in_range(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Clips floats that lie just outside [0, 1]. Raises ImageError for others."""
    # As integers, floats of [0, 1] are at most 1.0's; negative ones, NaN and infinity are larger.
    # So one pass is enough, in half the time of a minimum and a maximum.
    if array.view(np.uint32).max() <= _ONE_BITS:
        return array
    low, high = float(array.min()), float(array.max())
    if low >= -OVERSHOOT and high <= 1 + OVERSHOOT:
        return array.clip(0, 1)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ImageError(
            f"Expected float32 in [0, 1], but got {('NaN' if np.isnan(low) else 'infinity')}",
            "replace it first, as numpy.nan_to_num does",
        )
    raise ImageError(
        f"Expected float32 in [0, 1], but got {low:g} to {high:g}; {_into_range(low, high)}"
    )


def _into_range(low: float, high: float) -> str:
    """Returns advice for floats of another common range."""
    if low < -OVERSHOOT:
        return "use (array + 1) / 2 if it holds -1 to 1, otherwise clip it"
    for most in (255, 65535):
        if 1.5 < high <= most:
            return f"divide it by {most} if it holds 0 to {most}, otherwise clip it"
    return "clip it first, as numpy.clip(array, 0, 1) does"


def to_picture(array: NDArray[Any]) -> Picture:
    """Returns a checked array of one picture, (H, W) or (H, W, 1 to 4), as a Picture."""
    planes = array[..., np.newaxis] if array.ndim == 2 else array
    if planes.shape[-1] in (2, 4):
        return Picture(planes[..., :-1], planes[..., -1])
    return Picture(planes)


def from_picture(picture: Picture, dimensions: int) -> NDArray[Any]:
    """Returns a Picture as an array of 2 dimensions, (H, W), or 3, (H, W, planes)."""
    samples = with_alpha(picture)
    return samples[..., 0] if dimensions == 2 else samples
