"""The interface for Python programs: it checks arguments, finds models and opens devices.

The package `waifu2x` has all of its names as well, and loads them when they are first used.
"""

from waifu2x.api.upscaler import Upscaler

__all__ = ["Upscaler"]
