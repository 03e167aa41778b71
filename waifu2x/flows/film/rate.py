"""Measures briefly how fast the network alone enlarges a film on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from waifu2x.api import Upscaler
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.encode import Shape

_PIXELS = 480 * 270
"""Pixels of the frame for a processor, whose time grows in proportion. A GPU gets a whole frame."""


class MeasuredRate(NamedTuple):
    """The measured speed of a network."""

    frames: float
    """Frames of the film a second."""
    device: str
    height: int
    width: int
    """Pixels of the measured frame."""


def measured(arguments: Mapping[str, Any], film: Film, shape: Shape) -> MeasuredRate:
    """Opens an Upscaler and times the second of two runs on a frame of noise, or a part of one.
    Raises BackendError, ModelError."""
    pictures = film.pictures
    with Upscaler(**arguments) as upscaler:
        enlarge = FrameEnlarger(upscaler, pictures, shape)
        backend = enlarge.backend
        height, width = pictures.height, pictures.width
        share = 1.0
        if backend.name not in ("cuda", "opencl") and height * width > _PIXELS:
            factor = (_PIXELS / (height * width)) ** 0.5
            height, width = (max(16, int(side * factor) // 2 * 2) for side in (height, width))
            share = height * width / (pictures.height * pictures.width)
        rows = round(Fraction(height * shape.height, pictures.height))
        columns = round(Fraction(width * shape.width, pictures.width))
        made = replace(shape, height=rows, width=columns)
        frame = [
            np.random.default_rng(0)
            .integers(0, 1 << pictures.pixels.bits, size)
            .astype(pictures.pixels.dtype)
            for size in pictures.pixels.shapes(height, width)
        ]
        pixels = made.encoding.pixels
        out = [np.empty(size, pixels.dtype) for size in pixels.shapes(made.height, made.width)]
        seconds = 0.0
        for _ in range(2):
            begun = time.monotonic()
            enlarge([frame], [out])
            seconds = time.monotonic() - begun
        name = f"{backend.name}: {backend.device.name}"
    return MeasuredRate(share / max(seconds, 1e-9), name, height, width)
