"""The interface for Python programs: it checks arguments, finds models and opens devices.

The package `waifu2x` has all of its names as well, and loads them when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waifu2x.api.upscaler import Upscaler

__all__ = ["Upscaler"]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "Upscaler":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Late: helps import the table of settings, and need not wait for NumPy.
        from waifu2x.api.upscaler import Upscaler

        return Upscaler
