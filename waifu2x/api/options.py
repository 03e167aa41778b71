"""Keyword arguments of the functions for Python programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from waifu2x.api.settings.uses import UseName
from waifu2x.backends import Precision, Progress, ignore
from waifu2x.backends.engine.closing import told
from waifu2x.backends.engine.engine import Engine
from waifu2x.formats.table import Compression, Range
from waifu2x.imaging.arrays import ArrayLike
from waifu2x.imaging.blend import Mask
from waifu2x.imaging.sizes import Fit

FilePath = str | os.PathLike[str]
OnProgress = Callable[[float], object]
"""Called with each further part of the work that is done, a number from 0 to 1. The parts of a call
add up to 1. The return value is ignored; an exception ends the work, and comes out of the call."""


class UpscalerOptions(TypedDict, total=False):
    """The keyword arguments of an Upscaler, which `upscale` and `upscale_file` take as well."""

    width: int | None
    height: int | None
    fit: Fit
    longer_side: int | None
    shorter_side: int | None
    min_size: tuple[int, int] | None
    only_smaller_than: int | None
    strength: float
    mask: FilePath | ArrayLike | Mask | None
    tta: int
    model: str | os.PathLike[str] | None
    best_for: UseName | None
    engine: Engine | None
    backend: str | None
    device: int | Sequence[int] | Literal["all"] | None
    precision: Precision | None
    tile: int | None


class FileOptions(TypedDict, total=False):
    """The keyword arguments of `upscale_file` that are about the files."""

    format: str | None
    quality: int | Literal["like"] | None
    compression: Compression
    depth: Literal["auto", 8, 10, 12, 16]
    to: Range | None
    background: tuple[int, int, int]
    strip: bool
    copy_times: bool
    overwrite: bool
    max_pixels: int
    on_progress: OnProgress | None


def progress_of(on_progress: OnProgress | None) -> Progress:
    """Wraps a caller's function for progress, which may be None."""
    return ignore if on_progress is None else told(on_progress)
