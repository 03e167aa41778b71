"""Enlarges one picture by several model sets to one size, to compare them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.api import Upscaler
from waifu2x.backends import Progress, ignore, scaled
from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import ImageError, ModelError
from waifu2x.formats.metadata.jpeg_quality import quality_of
from waifu2x.formats.metadata.profiles import in_srgb_tone
from waifu2x.imaging import comparison, resample
from waifu2x.imaging.flatness import is_flat
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sizes import Part, rounded
from waifu2x.lowering.plan.box import Box
from waifu2x.networks import model_set
from waifu2x.networks.chains import models_of
from waifu2x.networks.model import Model
from waifu2x.networks.model_set import ModelSet
from waifu2x.networks.noise_levels import limits_of
from waifu2x.system.lazy_dataclass import dataclass

_LARGE = 64 << 20
"""Bytes of a result that is kept in a file."""


@dataclass(frozen=True, eq=False)
class Result:
    """The picture that one model set, Lanczos or nothing has made."""

    name: str
    """The model set, or "Lanczos", or "input"."""
    networks: str
    """Passes and noise level, for people; empty without a network."""
    pixels: NDArray[Any]
    """(H, W, 1 or 3), in the dtype of the picture."""
    psnr: float | None = None
    """In dB, against the original if there is one."""
    ssim: float | None = None


def opaque(picture: Picture) -> Picture:
    """Returns a picture on white, in its own dtype."""
    if picture.alpha is None:
        return picture
    pixels = comparison.on_white(picture, picture.pixels.dtype)
    return replace(picture, pixels=pixels, alpha=None)


def reduced(original: Picture, scale: Fraction) -> tuple[Picture, Picture]:
    """Reduces an opaque picture by Lanczos; returns it and the part of the original that it shows.
    Rows and columns below and on the right that do not fit are cut off, so that the reduced picture
    enlarged by `scale` has the size of that part. Raises ImageError for a picture that is too
    small."""
    height, width = original.pixels.shape[:2]
    small_height, small_width = math.floor(height / scale), math.floor(width / scale)
    if not small_height or not small_width:
        raise ImageError(f"a picture of {width}x{height} cannot be reduced {float(scale):g} times")
    rows, columns = rounded(small_height * scale), rounded(small_width * scale)
    cut = original.pixels[:rows, :columns]
    part = Part.of(rows, columns)
    pixels = resample.lanczos(cut, part, 1, small_height, small_width, cut.dtype)
    return replace(original, pixels=pixels), replace(original, pixels=cut)


@dataclass(frozen=True, eq=False)
class Contender:
    """A model set and its task."""

    name: str
    """The full name."""
    noise: int | None
    """The noise level that it removes: the nearest to the wanted one."""
    models: Sequence[Model]
    """Its models, held so that they are read once."""


def contenders(
    names: Sequence[str],
    scale: Fraction,
    noise: int | Picture | None,
    on_notice: Callable[[str], None] = lambda note: None,
) -> list[Contender]:
    """Returns the model sets of these names. `noise` is a level, or a picture from a JPEG, for
    which each set removes its best level. A set without the level takes the nearest, or none; one
    that can do nothing is left out. `on_notice` is called for both. Raises ModelError if a set is
    missing, or none is left."""
    found: list[Contender] = []
    faults, notices = list[ModelError](), list[str]()
    for name in names:
        models = model_set.find(name)
        wanted = _best(models, scale, noise) if isinstance(noise, Picture) else noise
        if wanted is None and scale == 1:
            faults.append(ModelError(f"{models.name}: a JPEG so good is better as it is"))
            notices.append(f"{faults[-1]}: left out")
            continue
        level, fault = _level(models, scale, wanted)
        if fault is not None:
            faults.append(fault)
            notices.append(f"{fault}: left out")
            continue
        if level != wanted:
            instead = "shown without" if level is None else f"shown with level {level}"
            notices.append(f"{models.name}: no model for noise level {wanted}: {instead}")
        factor = math.prod(models.factors(scale, level))
        found.append(Contender(models.name, level, models_of(models, factor, level)))
    if not found:
        raise faults[0]
    for notice in notices:
        on_notice(notice)
    return found


def _best(models: ModelSet, scale: Fraction, picture: Picture) -> int | None:
    """Returns the noise level that `-n auto` removes from a picture."""
    if picture.jpeg is None:
        return None
    level = limits_of(models).level(
        quality_of(picture.jpeg).quality,
        enlarges=scale > 1,
        is_flat=lambda: is_flat(picture.pixels),
    )
    with suppress(ModelError):
        if math.prod(models.factors(scale, level)) == math.prod(models.factors(scale)):
            return level
    return None


def _level(
    models: ModelSet, scale: Fraction, noise: int | None
) -> tuple[int | None, ModelError | None]:
    """Returns the level that a set removes instead, or the error why it can do nothing."""
    levels: list[int | None] = [noise]
    if noise is not None:
        wanted = noise
        nearest = sorted(models.noise_levels, key=lambda level: abs(level - wanted))
        levels = [*nearest, *([None] if scale > 1 else [])]
    fault: ModelError | None = None
    for level in levels:
        try:
            models.factors(scale, level)
        except ModelError as error:
            fault = error
        else:
            return level, None
    return None, fault or ModelError(f"{models.name}: cannot remove noise")


def results(
    picture: Picture,
    sets: Sequence[Contender],
    scale: Fraction,
    engine: Engine,
    *,
    original: Picture | None = None,
    on_progress: Progress = ignore,
    on_notice: Callable[[str], None] = lambda note: None,
) -> list[Result]:
    """Enlarges an opaque picture by Lanczos and by each model set, and compares with the original.
    For a scale of 1 the picture itself comes first. `on_notice` gets the notices of upscalers.
    Large results lie in temporary files. Raises as an Upscaler and its calls do."""
    height, width = picture.pixels.shape[:2]
    rows, columns = rounded(height * scale), rounded(width * scale)
    plain, part = picture.pixels, Part.of(height, width)
    if scale != 1:
        plain = resample.lanczos(plain, part, 1, rows, columns, plain.dtype)
    made = [_judged(Result("input" if scale == 1 else "Lanczos", "", _kept(plain)), original)]
    share = scaled(on_progress, 1 / len(sets))
    for each in sets:
        with Upscaler(scale, each.noise, model=each.name, engine=engine) as upscaler:
            for notice in upscaler.notices:
                on_notice(notice)
            enlarge = partial(upscaler.enlarger.picture, on_progress=share)
            larger = in_srgb_tone(picture, enlarge)
            said = [upscaler.passes, *([] if each.noise is None else [f"noise {each.noise}"])]
            passes = ", ".join(filter(None, said))
            made.append(_judged(Result(each.name, passes, _kept(larger.pixels)), original))
    return made


def _kept(pixels: NDArray[Any]) -> NDArray[Any]:
    """Returns the same values; those of a large picture in a file that vanishes with the array."""
    if pixels.nbytes < _LARGE:
        return pixels
    with tempfile.TemporaryFile() as file:
        kept = np.memmap(file, pixels.dtype, "w+", shape=pixels.shape)
    kept[:] = pixels
    return kept


def boxes(found: Sequence[Result], side: int, count: int) -> list[Box]:
    """Returns the squares where the results of the sets differ most; for one set, from Lanczos or
    the input."""
    compared = found[1:] if len(found) > 2 else found
    return comparison.worst_boxes([result.pixels for result in compared], side, count)


def _judged(result: Result, original: Picture | None) -> Result:
    if original is None:
        return result
    figures = comparison.compare(original, Picture(result.pixels))
    return replace(result, psnr=figures.psnr, ssim=figures.ssim)
