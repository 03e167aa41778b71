"""Upscale and denoise pictures with waifu2x networks.

import waifu2x

larger = waifu2x.upscale(image, scale=2, noise=1)  # a NumPy array or a PIL image

upscaler = waifu2x.Upscaler(scale=2)  # keeps the compiled network
for image in images:
    larger = upscaler(image)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waifu2x.errors import BackendError, ImageError, ModelError, OutputError, Waifu2xError

if TYPE_CHECKING:
    from waifu2x.api import Upscaler, upscale

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "ImageError",
    "ModelError",
    "OutputError",
    "Upscaler",
    "Waifu2xError",
    "__version__",
    "upscale",
]


def __getattr__(name: str) -> Any:
    # Late, so that `waifu2x --help` does not wait for NumPy.
    if name in ("Upscaler", "upscale"):
        from waifu2x import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
