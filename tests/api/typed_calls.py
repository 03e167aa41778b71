"""Calls whose types a type checker has to know exactly; `test_typing.py` runs two over this file.

A line with an ignore has to be an error: an ignore that is not needed is one itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import waifu2x


class Tensor:
    """An array of some other library."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        """Its memory."""
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        """Its device."""
        return 1, 0


class Table:
    """A thing with values."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[np.uint8]:
        """Its values."""
        raise NotImplementedError


Pixels = NDArray[np.uint8 | np.uint16 | np.float32]


def images(
    image: Image.Image,
    bytes_: NDArray[np.uint8],
    words: NDArray[np.uint16],
    floats: NDArray[np.float32],
    tensor: Tensor,
    table: Table,
) -> None:
    """Calls that take and return images."""
    assert_type(waifu2x.upscale(image), Image.Image)
    assert_type(waifu2x.upscale(Image.open("a.png"), 2, 1, tta=8), Image.Image)
    assert_type(waifu2x.upscale(bytes_, width=640), NDArray[np.uint8])
    assert_type(waifu2x.upscale(words, scale=1.5), NDArray[np.uint16])
    assert_type(waifu2x.upscale(floats, noise="auto", model="vgg_7"), NDArray[np.float32])
    assert_type(waifu2x.upscale(np.zeros((4, 4, 3), np.uint8)), NDArray[np.uint8])
    assert_type(waifu2x.upscale(tensor), Pixels)
    assert_type(waifu2x.upscale(table), Pixels)
    waifu2x.upscale("a.png")  # type: ignore[call-overload]
    waifu2x.upscale([bytes_, bytes_])  # type: ignore[call-overload]
    waifu2x.upscale(image, scal=3)  # type: ignore[call-overload]
    waifu2x.upscale(image, noise="all")  # type: ignore[call-overload]
    waifu2x.upscale(image, fit="outside")  # type: ignore[call-overload]


def upscalers(image: Image.Image, bytes_: NDArray[np.uint8], tensor: Tensor) -> None:
    """Calls of an upscaler, and what it is."""
    parts: list[float] = []
    with waifu2x.Engine("cpu", [0, 1], "fp32") as engine:
        assert_type(engine, waifu2x.Engine)
        with waifu2x.Upscaler(2, engine=engine, min_size=(640, 480)) as upscaler:
            assert_type(upscaler, waifu2x.Upscaler)
            assert_type(upscaler(image, on_progress=parts.append), Image.Image)
            assert_type(upscaler(bytes_, on_progress=None), NDArray[np.uint8])
            assert_type(upscaler(tensor), Pixels)
            assert_type(upscaler.notices, tuple[str, ...])
            assert_type(upscaler.engine, waifu2x.Engine)
    waifu2x.Upscaler(2, model=Path("models"))
    waifu2x.Upscaler(2, 1, 1080)  # type: ignore[call-arg]


def files() -> None:
    """Calls for files."""
    made = waifu2x.upscale_file("a.jpg", Path("b.webp"), 2, quality=90, depth=8, tta=2)
    assert_type(made, waifu2x.UpscaledFile)
    assert_type((made.width, made.noise), tuple[int, int | None])
    assert_type(made.notices, tuple[str, ...])
    with waifu2x.Upscaler(2) as upscaler:
        assert_type(upscaler.upscale_file(made.path, "c.png", strip=True), waifu2x.UpscaledFile)
        upscaler.upscale_file("a.jpg", "b.png", scale=3)  # type: ignore[call-arg]
    waifu2x.upscale_file("a.jpg", "b.png", compression="more")  # type: ignore[arg-type]
    made.width = 3  # type: ignore[misc]


def lists() -> None:
    """Calls that list devices and models."""
    device = waifu2x.list_devices()[0]
    assert_type(device, waifu2x.DeviceInfo)
    assert_type((device.backend, device.number), tuple[str, int])
    model = waifu2x.list_models()[0]
    assert_type(model, waifu2x.ModelInfo)
    assert_type((model.name, model.noise_levels), tuple[str, tuple[int, ...]])
    model.name = "other"  # type: ignore[misc]
    options: waifu2x.UpscalerOptions = {"model": model.name, "tile": 256}
    assert_type(waifu2x.upscale(np.zeros((4, 4), np.uint16), **options), NDArray[np.uint16])


def errors() -> Sequence[type[waifu2x.Waifu2xError]]:
    """Uses the tree of errors, and a name that does not exist."""
    waifu2x.upscal  # type: ignore[attr-defined]  # noqa: B018
    return [waifu2x.ImageError, waifu2x.DeviceMemoryError, waifu2x.NotInstalledError]
