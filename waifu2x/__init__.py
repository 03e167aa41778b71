"""Upscale and denoise pictures with waifu2x networks.

import waifu2x

larger = waifu2x.upscale(image, scale=2, noise=1)  # a NumPy array or a PIL image

upscaler = waifu2x.Upscaler(scale=2)  # keeps the compiled network
for image in images:
    larger = upscaler(image)

with waifu2x.Engine() as engine:  # one device for any number of requests
    sharper = waifu2x.Upscaler(1, noise=2, engine=engine)
    larger = waifu2x.Upscaler(scale=4, model="vgg_7", engine=engine)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waifu2x.errors import BackendError, ImageError, ModelError, OutputError, Waifu2xError

if TYPE_CHECKING:
    from waifu2x.api import Upscaler, upscale
    from waifu2x.backends.engine import Engine

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "Engine",
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
    if name in ("Engine", "Upscaler", "upscale"):
        from waifu2x import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
