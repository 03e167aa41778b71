"""Arrays of NumPy and of other libraries: which are accepted, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import waifu2x
from waifu2x import ImageError, Upscaler

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
FLOATS = PIXELS.astype(np.float32) / 255


@pytest.fixture(scope="module")
def upscaler() -> Iterator[Upscaler]:
    with Upscaler(2, model="vgg_7", backend="numpy") as opened:
        yield opened


class Tensor:
    """An array that speaks nothing but DLPack, on a device of some kind."""

    def __init__(self, values: NDArray[Any], kind: int = 1) -> None:
        self.values = values
        self.kind = kind

    def __dlpack__(self, **options: Any) -> object:
        """Returns the capsule; it must not be asked for on another device."""
        assert self.kind == 1
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Its device."""
        return self.kind, 0


class WithGradient(Tensor):
    """A tensor that its library does not hand out."""

    def __dlpack__(self, **options: Any) -> object:
        """Raises what PyTorch does."""
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


class Nowhere(Tensor):
    """A tensor of shapes without memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Raises what PyTorch does."""
        raise ValueError("Unknown device type meta for Dlpack")


class Table:
    """A thing that becomes an array by a copy."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Its values."""
        return PIXELS.copy()


class Memory:
    """A thing that says where its pixels are."""

    def __init__(self) -> None:
        self.held = PIXELS.copy()
        self.__array_interface__ = self.held.__array_interface__


@pytest.mark.parametrize("image", [Tensor(PIXELS), Table(), Memory()], ids=lambda one: type(one))
def test_arrays_of_other_libraries(upscaler: Upscaler, image: Any) -> None:
    found = upscaler(image)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, upscaler(PIXELS))


def test_a_stack_of_another_library(upscaler: Upscaler) -> None:
    stack = np.stack([FLOATS, FLOATS[::-1]])
    np.testing.assert_array_equal(upscaler(Tensor(stack)), upscaler(stack))


def test_a_subclass_of_ndarray_is_an_array(upscaler: Upscaler) -> None:
    found = upscaler(np.ma.masked_array(PIXELS, mask=False))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, upscaler(PIXELS))


@pytest.mark.parametrize("kind", [2, 4, 8, 10])
def test_a_tensor_on_another_device(upscaler: Upscaler, kind: int) -> None:
    with pytest.raises(
        ImageError, match=r"this Tensor is on another device: copy it first, as ten"
    ):
        upscaler(Tensor(PIXELS, kind))


def test_a_tensor_that_its_library_keeps(upscaler: Upscaler) -> None:
    with pytest.raises(ImageError, match="cannot read this WithGradient: Can't export"):
        upscaler(WithGradient(PIXELS))
    with pytest.raises(ImageError, match="cannot read this Nowhere: Unknown device type meta"):
        upscaler(Nowhere(PIXELS))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("picture.png", "but got str: waifu2x.upscale_file reads and writes files"),
        ([PIXELS, PIXELS], "but got list: numpy.stack makes an array of pictures of one size"),
        (None, "or an object with __array__ or __dlpack__, but got NoneType$"),
        (np.zeros((3, 40, 50), np.uint8), r"first; put them last with numpy.moveaxis\(array, 0, "),
        (np.zeros((5, 1, 40, 50), np.uint8), r"put them last with numpy.moveaxis\(array, 1, -1\)"),
        (np.zeros((40, 50, 60), np.uint8), r"but got \(40, 50, 60\)$"),
        (np.zeros((4, 4), np.float64), r'but got float64; use array.astype\("float32"\), with'),
        (np.zeros((4, 4), bool), r'but got bool; use array.astype\("uint8"\) \* 255'),
        (np.zeros((4, 4), np.int64), "but got int64$"),
        (FLOATS * 255, "0 to 255; divide it by 255 if it holds 0 to 255, otherwise clip it"),
        (FLOATS * 65535, "0 to 65535; divide it by 65535 if it holds"),
        (FLOATS * 2 - 1, r"-1 to 1; use \(array \+ 1\) / 2 if it holds -1 to 1"),
        (FLOATS * 1.1, r"0 to 1.1; clip it first, as numpy.clip\(array, 0, 1\) does"),
        (np.where(FLOATS > 0.5, np.nan, FLOATS), "but got NaN; replace it first, as numpy.nan_to"),
        (np.where(FLOATS > 0.5, np.inf, FLOATS), "but got infinity; replace it first"),
        (np.where(FLOATS > 0.5, -np.inf, FLOATS), "but got infinity; replace it first"),
    ],
)
def test_what_cannot_be_a_picture(upscaler: Upscaler, image: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        upscaler(image)


@pytest.mark.parametrize("order", ["<", ">"])
def test_slight_overshoot_is_clipped(upscaler: Upscaler, order: str) -> None:
    beyond = FLOATS.copy()
    beyond[0, 0] = 1 + 1 / 256
    beyond[-1, -1] = -1 / 256
    expected = upscaler(beyond.clip(0, 1))
    np.testing.assert_array_equal(upscaler(beyond.astype(np.dtype(f"{order}f4"))), expected)
    assert (beyond.max(), beyond.min()) == (1 + 1 / 256, -1 / 256)


def test_negative_zero_is_zero(upscaler: Upscaler) -> None:
    np.testing.assert_array_equal(
        upscaler(np.full((4, 4), -0.0, np.float32)), upscaler(np.zeros((4, 4), np.float32))
    )


def test_one_call_tells_its_progress_and_stops_where_that_raises() -> None:
    parts: list[float] = []
    waifu2x.upscale(PIXELS, 2, model="vgg_7", backend="numpy", on_progress=parts.append)
    assert sum(parts) == pytest.approx(1.0)

    class CancelledError(Exception):
        """Ends the work."""

    def cancel(part: float) -> None:
        raise CancelledError

    with Upscaler(2, model="vgg_7", backend="numpy") as upscaler:
        with pytest.raises(CancelledError):
            upscaler(PIXELS, on_progress=cancel)
        assert upscaler(PIXELS, on_progress=None).shape == (18, 24, 3)
