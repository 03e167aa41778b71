"""One picture through networks: which planes, in what order, and what size comes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.errors import ModelError
from waifu2x.imaging import alpha as transparency
from waifu2x.imaging import colour
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sizes import Plan, Request
from waifu2x.system.stopwatch import Stopwatch

if TYPE_CHECKING:
    from waifu2x.networks.chains import Chain, Chains

_FLOATS = 4
"""Times the bytes of a sample of 8 bits."""
_RESIZE_SHARE = 0.05
"""Of the work, where networks have a part in it: for progress."""


class Enlarger:
    """Makes pictures of the size that is asked for, without noise, by chains of networks.

    Calls may come from several threads.
    """

    def __init__(
        self, chains: Chains, request: Request, noise: int | None, tta: int, tile: int | None
    ) -> None:
        """`noise` is a level or None; `tta` and `tile` are those of a Network."""
        self.chains = chains
        self.request = request
        self.noise = noise
        self.tta = tta
        self.tile = tile

    def on(self, chains: Chains) -> Enlarger:
        """The same on other chains."""
        return Enlarger(chains, self.request, self.noise, self.tta, self.tile)

    def picture(
        self,
        picture: Picture,
        on_progress: Progress = ignore,
        stopwatch: Stopwatch | None = None,
    ) -> Picture:
        """A picture enlarged and denoised. `stopwatch` gets the seconds.

        Raises ModelError if it has transparency and there is no model to scale it, and
        BackendError.
        """
        height, width = picture.pixels.shape[:2]
        if self.leaves(height, width):
            on_progress(1.0)
            return picture
        plan = self._plan(height, width)
        spent = stopwatch or Stopwatch()
        with spent("prepare"):
            chain = self._chain(plan.factor, self.noise)
        # What is resized stays float until then.
        dtype = picture.pixels.dtype
        between = dtype if plan.part is None else np.dtype(np.float32)
        resizing = 0.0 if plan.part is None else _RESIZE_SHARE if chain else 1.0
        networks = scaled(on_progress, 1.0 - resizing)
        with spent("network"):
            pixels, alpha = self._through(picture, plan, chain, between, networks)
        if plan.part is not None:
            with spent("resize"):
                pixels, alpha = _resized(pixels, alpha, plan, dtype)
            on_progress(resizing)
        return replace(picture, pixels=pixels, alpha=alpha)

    def result_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of what becomes of a picture of that size.

        Raises ImageError if it would grow more than 32 times.
        """
        if self.request.leaves(height, width):
            return height, width
        plan = self._plan(height, width)
        return plan.height, plan.width

    def growth(self, height: int, width: int) -> float:
        """How many times the memory of a picture of that size its result takes while it is made.

        Raises ImageError as above.
        """
        if self.leaves(height, width):
            return 0.0
        plan = self._plan(height, width)
        area = (height * plan.factor) * (width * plan.factor)
        if plan.part is None:
            return area / (height * width)
        # Floats until they are resized, and after that once more.
        return _FLOATS * (area + plan.height * plan.width) / (height * width)

    def leaves(self, height: int, width: int) -> bool:
        """Whether a picture of that size comes back as it is. Raises ImageError as above."""
        if self.request.leaves(height, width):
            return True
        plan = self._plan(height, width)
        return self.noise is None and plan.part is None and plan.factor == 1

    def stack(self, pictures: NDArray[Any], on_progress: Progress = ignore) -> NDArray[Any] | None:
        """Pictures of one size, (pictures, height, width, planes), together; None where more than
        networks is to be done."""
        _, height, width, planes = pictures.shape
        if self.leaves(height, width):
            return None
        plan = self._plan(height, width)
        chain = self._chain(plan.factor, self.noise)
        if chain is None or plan.part is not None or chain.planes != planes:
            return None
        pictures = np.ascontiguousarray(pictures)
        return self._run(chain, pictures, pictures.dtype, on_progress)

    def enlargement(self, scale: Fraction) -> int:
        """By how much networks enlarge for a scale."""
        return math.prod(self.chains.factors(scale, self.noise))

    def _chain(self, factor: int, noise: int | None) -> Chain | None:
        """What enlarges so much and denoises; None if that is nothing.

        Raises ModelError, BackendError.
        """
        return None if factor == 1 and noise is None else self.chains.chain(factor, noise)

    def _plan(self, height: int, width: int) -> Plan:
        return self.request.plan(height, width, self.enlargement)

    def _through(
        self,
        picture: Picture,
        plan: Plan,
        chain: Chain | None,
        dtype: DTypeLike,
        on_progress: Progress,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Pixels and transparency, by networks in `dtype`, or as they are if there are none."""
        pixels, alpha = np.ascontiguousarray(picture.pixels), picture.alpha
        if chain is None:
            return pixels, alpha
        uneven = alpha is not None and np.ptp(alpha) > 0
        # Found before the work on the colours, as there may be none.
        opacity = self._transparency(plan.factor, chain) if uneven and plan.factor > 1 else None
        share = 1.0 if opacity is None else 0.5
        if alpha is not None and not alpha.all():
            bled = transparency.bleed(to_unit(pixels, np.float32), alpha, chain.reach)
            pixels = from_unit(bled, pixels.dtype)
        result = self._colours(chain, pixels, dtype, scaled(on_progress, share))
        if alpha is None:
            return result, None
        if opacity is not None:
            return result, self._alpha(opacity, alpha, dtype, scaled(on_progress, 1.0 - share))
        return result, alpha.repeat(plan.factor, 0).repeat(plan.factor, 1)

    def _colours(
        self, chain: Chain, pixels: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """Grey or RGB through networks of one or three planes."""
        planes = pixels.shape[-1]
        if planes == chain.planes:
            return self._run(chain, pixels, dtype, on_progress)
        if planes == 1:
            rgb = self._run(chain, pixels.repeat(3, axis=-1), np.float32, on_progress)
            return from_unit(colour.luma(rgb), dtype)
        unit = to_unit(pixels, np.float32)
        luma = self._run(chain, colour.luma(unit), np.float32, on_progress)
        from waifu2x.imaging import resample

        chroma = resample.bicubic(colour.chroma(unit), *luma.shape[:2])
        return from_unit(colour.to_rgb(luma, chroma), dtype)

    def _transparency(self, factor: int, colours: Chain) -> Chain:
        """The models that only scale: transparency is never denoised. Raises ModelError."""
        try:
            found = self._chain(factor, None)
            assert found is not None
            if found.planes != colours.planes:
                raise ModelError(
                    f"{self.chains.name}: its models do not all take {colours.planes} planes"
                )
        except ModelError as error:
            raise ModelError(f"transparency needs a scale model: {error}") from error
        return found

    def _alpha(
        self, chain: Chain, alpha: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """Transparency through models that only scale, the mean of the planes."""
        planes = alpha[..., np.newaxis].repeat(chain.planes, axis=-1)
        enlarged = self._run(chain, planes, np.float32, on_progress)
        return from_unit(enlarged.mean(axis=-1), dtype)

    def _run(
        self, chain: Chain, pixels: NDArray[Any], dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """A picture, or several of one size, through networks."""
        return chain.network(pixels, dtype, tile=self.tile, tta=self.tta, on_progress=on_progress)


def _resized(
    pixels: NDArray[Any], alpha: NDArray[Any] | None, plan: Plan, dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """A picture as networks made it, at the size of the plan."""
    from waifu2x.imaging import resample  # by Pillow, which few pictures need

    assert plan.part is not None
    size = plan.height, plan.width
    if alpha is not None and np.ptp(alpha) > 0:
        return resample.lanczos_with_alpha(pixels, alpha, plan.part, plan.factor, *size, dtype)
    result = resample.lanczos(pixels, plan.part, plan.factor, *size, dtype)
    return result, None if alpha is None else np.full(size, alpha[0, 0])
