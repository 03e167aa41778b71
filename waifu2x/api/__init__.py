"""What Python programs use: arguments checked, models found, devices opened, arrays, images, files.

All of it is in the package `waifu2x` as well, which loads it when it is first used.
"""

from waifu2x.api.upscaler import Upscaler

__all__ = ["Upscaler"]
