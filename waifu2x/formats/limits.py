"""How much a file may hold: what a small file declares can be larger than any memory."""

from __future__ import annotations

from waifu2x.errors import ImageError

MAX_PIXELS = 250_000_000
"""The most that a file may hold, all its pictures together, unless the caller says otherwise."""


def check_pixels(name: str, size: tuple[int, int], count: int, total: int, most: int) -> None:
    """Raises ImageError if `total` pixels, of `count` pictures of about `size`, are too many."""
    if total > most:
        width, height = size
        what = f"{count} pictures of {width}x{height}" if count > 1 else f"{width}x{height}"
        raise ImageError(f"{name}: {what} pixels are more than --max-pixels {most} allows")
