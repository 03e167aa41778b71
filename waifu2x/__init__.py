"""Upscale and denoise pictures with waifu2x networks.

>>> import waifu2x
>>> larger = waifu2x.upscale(image, scale=2, noise=1)  # a NumPy array, a PIL image, a tensor

>>> with waifu2x.Upscaler(scale=2) as upscaler:  # keeps the compiled network
...     results = [upscaler(image) for image in images]

>>> with waifu2x.Engine() as engine:  # one device for any number of requests
...     sharper = waifu2x.Upscaler(1, noise=2, engine=engine)
...     larger = waifu2x.Upscaler(scale=4, model="vgg_7", engine=engine)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waifu2x.errors import (
    BackendError,
    DeviceError,
    DeviceMemoryError,
    ExistsError,
    ImageError,
    ModelError,
    NoDeviceError,
    NotInstalledError,
    OutputError,
    UnavailableError,
    Waifu2xError,
)

if TYPE_CHECKING:
    from waifu2x.api.files import UpscaledFile
    from waifu2x.api.functions import upscale, upscale_file
    from waifu2x.api.options import FileOptions, UpscalerOptions
    from waifu2x.api.upscaler import Upscaler
    from waifu2x.backends import DeviceInfo, list_devices
    from waifu2x.backends.engine.engine import Engine
    from waifu2x.networks.listing import ModelInfo, list_models

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "DeviceError",
    "DeviceInfo",
    "DeviceMemoryError",
    "Engine",
    "ExistsError",
    "FileOptions",
    "ImageError",
    "ModelError",
    "ModelInfo",
    "NoDeviceError",
    "NotInstalledError",
    "OutputError",
    "UnavailableError",
    "UpscaledFile",
    "Upscaler",
    "UpscalerOptions",
    "Waifu2xError",
    "__version__",
    "list_devices",
    "list_models",
    "upscale",
    "upscale_file",
]

if not TYPE_CHECKING:  # to a type checker, this function would make any name a name of the package
    _MODULES = {
        "DeviceInfo": "waifu2x.backends",
        "FileOptions": "waifu2x.api.options",
        "Engine": "waifu2x.backends.engine.engine",
        "ModelInfo": "waifu2x.networks.listing",
        "UpscaledFile": "waifu2x.api.files",
        "Upscaler": "waifu2x.api.upscaler",
        "UpscalerOptions": "waifu2x.api.options",
        "list_devices": "waifu2x.backends",
        "list_models": "waifu2x.networks.listing",
        "upscale": "waifu2x.api.functions",
        "upscale_file": "waifu2x.api.functions",
    }

    def __getattr__(name):
        from importlib import import_module

        # Late, so that `waifu2x --help` does not wait for NumPy.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found

    def __dir__():
        return [*globals(), *_MODULES]
