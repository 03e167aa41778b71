"""What `choosing.py` has found for networks that many use, so that their first picture need not
wait for it. `python benchmarks/bench_trusted.py` measures them again, and prints these rows."""

from __future__ import annotations

from collections.abc import Mapping

from waifu2x.backends.cuda.tensor.step import LARGEST

RECORDED: Mapping[str, float] = {
    "83ee2819de1815c0": LARGEST,  # vgg_7/art, noise 0, 1x
    "29c5bcffb348d89c": LARGEST,  # vgg_7/art, noise 1, 1x
    "12c9d1954f09688e": LARGEST,  # vgg_7/art, noise 2, 1x
    "2ec55156848546cc": LARGEST,  # vgg_7/art, noise 3, 1x
    "76449dbc1138cf2e": LARGEST,  # vgg_7/art, 2x
    "f94251863bde4acd": LARGEST,  # upconv_7/art, 2x
    "390f86cfc7f576fb": LARGEST,  # cunet/art, noise 1, 1x
    "e3534d80f6d2064d": LARGEST,  # cunet/art, 2x
    "b781d09f565d72b4": LARGEST,  # cunet/art, noise 1, 2x
    "171d153c8c579382": LARGEST,  # cugan/se, 2x
    "6b1126378ce13655": LARGEST,  # cugan/pro, 2x
    "3d4313c78f6e3b22": LARGEST,  # realesrgan/animevideo, 2x
    "2532d1ee6cc6033c": LARGEST,  # realesrgan/anime, 4x
    "1d39b6d7467ea8e7": 128.0,  # span/photo, 2x
}
"""By the first 16 digits of the model's digest."""
