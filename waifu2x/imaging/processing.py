"""Processing around networks: a picture becomes calls of networks, their results a picture.

Neither needs a device: both are functions of the picture, of the request and of facts about chains,
so they may run in a process without networks.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.errors import ImageError, ModelError
from waifu2x.imaging import colour
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sizes import Box, Part, Request, ResizePlan
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.machine import available_memory
from waifu2x.system.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waifu2x.imaging.blend import Blend
    from waifu2x.networks.chains import ChainFacts, Facts

_FLOAT_BYTES = 4
"""Bytes of a float for each byte of an 8-bit sample."""
_SMALL = 1 << 26
"""Bytes that any machine has."""
_LARGE = 1 << 30
_MOST_EXCESS = 8
"""By how much a model may enlarge more than is asked for, where that takes more than _LARGE bytes.
"""
_KEPT_PLANS = 64
"""Sizes of pictures whose plans are kept."""
RESIZE_SHARE = 0.05
"""The share of a picture's progress that a resize has, beside networks."""


@dataclass(frozen=True, eq=False)
class ChainCall:
    """One call of a chain's network."""

    factor: int
    noise: int | None
    """With `factor`, it names the chain."""
    pixels: NDArray[Any]
    """(height, width, planes of the chain, or 1: grey), or (pictures, height, width, planes);
    C-contiguous."""
    shape: tuple[int, ...]
    """The shape of the result."""
    dtype: np.dtype[Any]
    """The dtype of the result."""
    share: float
    """The call's share of the picture's progress."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A picture that is ready for networks, with the data that `finish` needs."""

    picture: Picture
    """The source, with spread colours under transparent pixels; if there is nothing to do, the
    result."""
    calls: tuple[ChainCall, ...]
    """The colours; then the transparency, if networks scale it. Empty if no network is needed."""
    plan: ResizePlan | None
    """None if there is nothing to do."""
    blend: Blend | None = None
    """The share of networks, where there is a plain enlargement besides."""
    masked: Part | None = None
    """The part of the blend's mask for the result."""

    @property
    def finish_share(self) -> float:
        """Returns the share of the picture's progress that `finish` has."""
        return 1.0 - sum(call.share for call in self.calls)


class Processing:
    """Processes the pictures of one request, before and after networks.

    Threads may share it. Methods that take a size raise ImageError if a picture of that size would
    grow more than 32 times.
    """

    def __init__(self, facts: Facts, request: Request, noise: int | None) -> None:
        """`noise` is the level to remove, or None."""
        self.facts = facts
        self.request = request
        self.noise = noise
        # Several methods ask for the plan of a size, which takes exact fractions.
        self._plan = functools.lru_cache(maxsize=_KEPT_PLANS)(self._resize_plan)

    def prepare(self, picture: Picture) -> Prepared:
        """Returns the network calls for a picture.

        A picture whose pixels are C-contiguous, opaque, and grey or of as many planes as the
        networks take is not copied: its pixels are those of the call. Raises ImageError if it would
        grow more than 32 times, or more before it is reduced than memory holds; ModelError if it
        has transparency and there is no model to scale it.
        """
        height, width = picture.pixels.shape[:2]
        if self.leaves(height, width):
            return Prepared(picture, (), None)
        plan, blend = self._plan(height, width), self.request.blend
        if self._is_plain:
            part = plan.part or Part.of(height, width)
            picture = replace(picture, pixels=np.ascontiguousarray(picture.pixels))
            return Prepared(picture, (), replace(plan, factor=1, part=part))
        masked = None
        if blend is not None and blend.mask is not None:
            shown = plan.part or Part.of(height, width)
            size = plan.height, plan.width
            masked = blend.mask.part_for((height, width), size, shown)
        if plan.factor == 1 and self.noise is None:
            picture = replace(picture, pixels=np.ascontiguousarray(picture.pixels))
            return Prepared(picture, (), plan)
        chain = self.facts.facts(plan.factor, self.noise)
        box = plan.needed(chain.radius, height, width)
        if box is not None:
            picture, plan = _cut(picture, box), plan.within(box)
        picture = replace(picture, pixels=np.ascontiguousarray(picture.pixels))
        alpha = picture.alpha
        uneven = alpha is not None and np.ptp(alpha) > 0
        opacity = self._scaling(plan.factor, chain) if uneven and plan.factor > 1 else None
        if alpha is not None and not alpha.all():
            bled = bleed(to_unit(picture.pixels, np.float32), alpha, chain.radius)
            picture = replace(picture, pixels=from_unit(bled, picture.pixels.dtype))
        share = 1.0 if plan.part is None and blend is None else 1.0 - RESIZE_SHARE
        is_last = plan.part is None and blend is None
        calls = [_colours_call(picture.pixels, plan.factor, chain, self.noise, share, is_last)]
        if opacity is not None:
            assert alpha is not None
            planes = alpha[..., np.newaxis].repeat(opacity.planes, axis=-1)
            halved = share / 2
            calls = [
                replace(calls[0], share=halved),
                _call(planes, np.float32, plan.factor, opacity, None, halved),
            ]
        _check_memory(calls, plan)
        return Prepared(picture, tuple(calls), plan, blend, masked)

    @property
    def _is_plain(self) -> bool:
        """Returns whether networks have no share in results."""
        return self.request.blend is not None and self.request.blend.strength == 0

    def result_size(self, height: int, width: int) -> tuple[int, int]:
        """Returns rows and columns of the result of a picture of that size."""
        if self.request.leaves(height, width):
            return height, width
        plan = self._plan(height, width)
        return plan.height, plan.width

    def shown(self, height: int, width: int) -> Part:
        """Returns the part of a picture of that size that the result shows."""
        plan = None if self.request.leaves(height, width) else self._plan(height, width)
        return plan.part if plan and plan.part else Part.of(height, width)

    def growth(self, height: int, width: int) -> float:
        """Returns the bytes that making a result takes, for each byte of a picture of that size."""
        if self.leaves(height, width):
            return 0.0
        plan = self._plan(height, width)
        seen = height * width
        if plan.factor > 1 or self.noise is not None:
            radius = self.facts.facts(plan.factor, self.noise).radius
            if box := plan.needed(radius, height, width):
                seen = (box[0].stop - box[0].start) * (box[1].stop - box[1].start)
        area, made = seen * plan.factor**2, plan.height * plan.width
        is_blended = self.request.blend is not None
        if plan.part is None and not is_blended:
            return area / (height * width)
        # Floats until they are resized, and after that once more; a plain enlargement and a mask.
        return _FLOAT_BYTES * (area + made * (1 + 2 * is_blended)) / (height * width)

    def leaves(self, height: int, width: int) -> bool:
        """Returns whether a picture of that size stays as it is."""
        if self.request.leaves(height, width):
            return True
        plan = self._plan(height, width)
        return self.noise is None and plan.part is None and plan.factor == 1

    def network_factor(self, height: int, width: int, planes: int) -> int | None:
        """Returns the factor of the chain that makes the whole result of an opaque picture of that
        size; None if more or less than a network is needed. Raises ModelError."""
        factor = self.chain_factor(height, width)
        is_more = self._plan(height, width).part is not None or self.request.blend is not None
        if factor is None or is_more:
            return None
        return factor if planes in (self.facts.facts(factor, self.noise).planes, 1) else None

    def chain_factor(self, height: int, width: int) -> int | None:
        """Returns the factor of the chain that a picture of that size goes through; None for no
        chain."""
        if self.leaves(height, width) or self._is_plain:
            return None
        plan = self._plan(height, width)
        return None if plan.factor == 1 and self.noise is None else plan.factor

    def frames(self, height: int, width: int) -> int:
        """Returns how many frames of a film the chain for a picture of that size takes; 1 without
        a chain."""
        factor = self.chain_factor(height, width)
        return 1 if factor is None else self.facts.facts(factor, self.noise).frames

    def enlargement(self, scale: Fraction) -> int:
        """Returns the factor by which networks enlarge to reach a scale."""
        return math.prod(self.facts.factors(scale, self.noise))

    def _resize_plan(self, height: int, width: int) -> ResizePlan:
        return self.request.plan(height, width, self.enlargement)

    def _scaling(self, factor: int, colours: ChainFacts) -> ChainFacts:
        """Returns the chain for transparency, which is never denoised. Raises ModelError."""
        try:
            found = self.facts.facts(factor, None)
            if found.planes != colours.planes:
                raise ModelError(
                    f"{self.facts.name}: its models do not all take {colours.planes} planes"
                )
        except ModelError as error:
            raise error.of("transparency needs a scale model") from error
        return found


def finish(
    prepared: Prepared, results: Sequence[NDArray[Any]], stopwatch: Stopwatch | None = None
) -> Picture:
    """Makes the picture from the results of its calls, in their order.

    A result that needs nothing more is not copied. `stopwatch` gets the seconds of `prepare`, and
    of `resize` if there is one.
    """
    plan, source = prepared.plan, prepared.picture
    if plan is None:
        return source
    spent = stopwatch or Stopwatch()
    pixels, alpha, dtype = source.pixels, source.alpha, source.pixels.dtype
    if results:
        is_last = plan.part is None and prepared.blend is None
        between = dtype if is_last else np.dtype(np.float32)
        with spent("prepare"):
            seen = prepared.calls[0].pixels.shape[-1]
            pixels = _coloured(results[0], seen, pixels, between)
            if len(results) > 1:
                alpha = from_unit(results[1].mean(axis=-1), between)
            elif alpha is not None:
                alpha = alpha.repeat(plan.factor, 0).repeat(plan.factor, 1)
    blend = prepared.blend
    resized = dtype if blend is None else np.dtype(np.float32)
    if plan.part is not None:
        with spent("resize"):
            pixels, alpha = _resized(pixels, alpha, plan, resized)
    if blend is not None:
        from waifu2x.imaging.blend import blended

        with spent("resize"):
            alpha = None if alpha is None else to_unit(alpha, np.float32)
            part = plan.part or Part.of(*source.pixels.shape[:2])
            plain = replace(plan, factor=1, part=part)
            beside = _resized(source.pixels, source.alpha, plain, resized)
            pixels, alpha = blended((pixels, alpha), beside, blend, prepared.masked, dtype)
    return replace(source, pixels=pixels, alpha=alpha)


def _check_memory(calls: Sequence[ChainCall], plan: ResizePlan) -> None:
    """Raises ImageError if results of calls, which are whole and in floats before they are resized,
    take more memory than is free, or much for a result that is far smaller."""
    if plan.part is None:
        return
    needed = sum(math.prod(call.shape) * call.dtype.itemsize for call in calls)
    if needed < _SMALL:
        return
    height, width, _ = calls[0].pixels.shape
    takes = (
        f"a picture of {width}x{height} takes {needed / 2**30:.1f} GiB of memory when the model"
        f" enlarges it {plan.factor} times"
    )
    growth = max(plan.width / plan.part.width, plan.height / plan.part.height)
    if needed > _LARGE and plan.factor > _MOST_EXCESS * growth:
        raise ImageError(
            f"{takes}, for a result of {float(growth):.4g} times",
            "use a model that enlarges less, or a larger scale",
        )
    free = available_memory()
    if free is not None and needed > free:
        raise ImageError(
            f"{takes}, before it is reduced, but {free / 2**30:.1f} GiB are free",
            "use a model that enlarges less",
        )


def _cut(picture: Picture, box: Box) -> Picture:
    alpha = None if picture.alpha is None else np.ascontiguousarray(picture.alpha[box])
    return replace(picture, pixels=picture.pixels[box], alpha=alpha)


def _colours_call(
    pixels: NDArray[Any],
    factor: int,
    chain: ChainFacts,
    noise: int | None,
    share: float,
    is_last: bool,
) -> ChainCall:
    # Pixels that are resized, blended or recoloured stay floats until then.
    dtype: DTypeLike = np.float32
    if pixels.shape[-1] in (chain.planes, 1):
        dtype = pixels.dtype if is_last else np.float32
    else:
        pixels = np.ascontiguousarray(colour.luma(to_unit(pixels, np.float32)))
    return _call(pixels, dtype, factor, chain, noise, share)


def _call(
    pixels: NDArray[Any],
    dtype: DTypeLike,
    factor: int,
    chain: ChainFacts,
    noise: int | None,
    share: float,
) -> ChainCall:
    height, width, planes = pixels.shape
    shape = height * chain.scale, width * chain.scale, planes
    return ChainCall(factor, noise, pixels, shape, np.dtype(dtype), share)


def _coloured(
    result: NDArray[Any], seen: int, source: NDArray[Any], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Returns pixels with the source's planes, from a network that saw `seen` planes of it."""
    if seen == source.shape[-1]:
        return result
    from waifu2x.imaging import resample

    chroma = resample.bicubic(colour.chroma(to_unit(source, np.float32)), *result.shape[:2])
    return from_unit(colour.to_rgb(result, chroma), dtype)


def _resized(
    pixels: NDArray[Any], alpha: NDArray[Any] | None, plan: ResizePlan, dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    from waifu2x.imaging import resample  # it needs Pillow, and few pictures need it

    assert plan.part is not None
    size = plan.height, plan.width
    if alpha is not None and np.ptp(alpha) > 0:
        return resample.lanczos_with_alpha(pixels, alpha, plan.part, plan.factor, *size, dtype)
    result = resample.lanczos(pixels, plan.part, plan.factor, *size, dtype)
    if alpha is None:
        return result, None
    return result, np.broadcast_to(
        from_unit(to_unit(alpha[:1, :1], np.float32), dtype), size
    ).copy()


def bleed(planes: NDArray[np.float32], alpha: NDArray[Any], radius: int) -> NDArray[np.float32]:
    """Fills transparent pixels of planes (H, W, C) with the colours of visible ones near them.

    `alpha` is (H, W), 0 where a pixel is transparent. In each of `radius` rounds the pixels next to
    known ones get the mean of those; pixels farther away become 0. The original waifu2x does this
    before it scales (alpha_util.lua, nunif's alpha.py).
    """
    known = alpha > 0
    result = np.where(known[..., np.newaxis], planes, np.float32(0))
    for _ in range(radius):
        if known.all():
            break
        total = _sum_3x3(result)
        count = _sum_3x3(known[..., np.newaxis].astype(np.float32))
        fresh = ~known & (count[..., 0] > 0)
        result[fresh] = total[fresh] / count[fresh]
        known = known | fresh
    return result


def _sum_3x3(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums each pixel of (H, W, C) and its eight neighbours, 0 outside."""
    padded = np.pad(planes, ((1, 1), (1, 1), (0, 0)))
    height, width = planes.shape[:2]
    total = np.zeros_like(planes)
    for y in range(3):
        for x in range(3):
            total += padded[y : y + height, x : x + width]
    return total
