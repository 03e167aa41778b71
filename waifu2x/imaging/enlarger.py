"""Takes one picture through networks: prepares, computes, finishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.backends.call import Call
from waifu2x.errors import ModelError
from waifu2x.imaging import colour, flatness
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.processing import ChainCall, Processing, finish
from waifu2x.imaging.sizes import Request
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.stopwatch import Stopwatch

if TYPE_CHECKING:
    from waifu2x.networks.chains import Chains, Facts
    from waifu2x.networks.noise_levels import NoiseLimits


class Compute(Protocol):
    """Runs the network calls of a picture. Threads may share it."""

    def __call__(
        self, calls: Sequence[ChainCall], on_progress: Progress, on_recomputed: Callable[[], None]
    ) -> list[NDArray[Any]]:
        """Returns the results of `calls`, in their order.

        `on_progress` gets parts that add up to the calls' shares; it may raise to stop the work.
        `on_recomputed` is called if a call had to be computed again, in wider numbers. Raises
        ModelError, BackendError.
        """


@dataclass(frozen=True)
class Networks:
    """Runs calls by the networks of this process."""

    chains: Chains
    tta: int
    tile: int | None
    """Both as of a Call."""

    def __call__(
        self, calls: Sequence[ChainCall], on_progress: Progress, on_recomputed: Callable[[], None]
    ) -> list[NDArray[Any]]:
        """Runs the calls in turn, once all their networks are compiled."""
        networks = [self.chains.network(call.factor, call.noise) for call in calls]
        return [
            network.run(
                Call(
                    call.pixels,
                    call.dtype,
                    tile=self.tile,
                    tta=self.tta,
                    on_progress=scaled(on_progress, call.share),
                    on_recomputed=lambda picture: on_recomputed(),
                )
            )
            for network, call in zip(networks, calls, strict=True)
        ]


class Enlarger(Processing):
    """Enlarges and denoises pictures as one request asks for. Threads may share it."""

    def __init__(
        self,
        facts: Facts,
        request: Request,
        noise: int | None,
        compute: Compute,
        limits: NoiseLimits | None = None,
    ) -> None:
        """`noise` is the level to remove, or None; `compute` runs networks.

        `limits`, with a noise of None, are the levels that pictures may get by their quality: such
        an enlarger is for `level_for` and `at_level`; by itself it removes no noise.
        """
        super().__init__(facts, request, noise)
        self._compute = compute
        self.limits = limits
        # Each keeps its own plans.
        self._at_levels: dict[int | None, Enlarger] = {}

    @property
    def chooses(self) -> bool:
        """Returns whether the level depends on the picture."""
        return self.limits is not None

    def level_for(self, quality: int, picture: Picture) -> int | None:
        """Returns the best noise level for a JPEG of that quality; None to leave it.

        Also None if the networks lack the level, or would have to enlarge more for it, and if the
        picture becomes smaller. Raises ImageError if it would grow more than 32 times.
        """
        height, width = picture.pixels.shape[:2]
        if self.limits is None or self.request.leaves(height, width):
            return self.noise
        plan = self._plan(height, width)
        if plan.factor == 1 and (plan.height < height or plan.width < width):
            return None
        level = self.limits.level(
            quality, enlarges=plan.factor > 1, is_flat=lambda: flatness.is_flat(picture.pixels)
        )
        if level is None:
            return None
        try:
            same = self.at_level(level)._plan(height, width).factor == plan.factor
            if same:
                self.facts.facts(plan.factor, level)
        except ModelError:
            return None
        return level if same else None

    def at_level(self, noise: int | None) -> Enlarger:
        """Returns the enlarger of the same request that removes this level from all pictures."""
        if noise not in self._at_levels:
            made = Enlarger(self.facts, self.request, noise, self._compute)
            self._at_levels.setdefault(noise, made)
        return self._at_levels[noise]

    def growth(self, height: int, width: int) -> float:
        """Returns the bytes as `Processing.growth` does, for any level that may be chosen."""
        # Noise removal alone makes a result where there would be none.
        least = 1.0 if self.limits is not None and self.limits.alone else 0.0
        return max(super().growth(height, width), least)

    def picture(
        self,
        picture: Picture,
        on_progress: Progress = ignore,
        stopwatch: Stopwatch | None = None,
        on_recomputed: Callable[[], None] = lambda: None,
    ) -> Picture:
        """Enlarges and denoises a picture.

        `stopwatch` gets the seconds of `prepare`, `network` and `resize`; `on_recomputed` is called
        if the picture had to be computed again, in wider numbers. Raises ImageError if the picture
        would grow more than 32 times, ModelError if it has transparency and there is no model to
        scale it, and BackendError.
        """
        spent = stopwatch or Stopwatch()
        with spent("prepare"):
            prepared = self.prepare(picture)
        results, again = [], list[bool]()
        if prepared.calls:
            with spent("network"):
                results = self._compute(prepared.calls, on_progress, lambda: again.append(True))
        if again:
            on_recomputed()
        finished = finish(prepared, results, spent)
        if prepared.finish_share:
            on_progress(prepared.finish_share)
        return finished

    def window(self, pictures: Sequence[Picture]) -> Picture:
        """Enlarges the middle one of frames in a row, of one size and with the same planes, by a
        network that takes as many. Raises as `picture` does."""
        frames = [self.prepare(picture) for picture in pictures]
        middle = frames[len(frames) // 2]
        if not middle.calls or middle.plan is None:
            return finish(middle, [])
        planes = self.facts.facts(middle.plan.factor, self.noise).planes
        is_grey = middle.calls[0].pixels.shape[-1] < planes
        parts = [[one.calls[0].pixels for one in frames]]
        if len(middle.calls) > 1:
            parts.append([_opacity(one.picture) for one in frames])
        calls = [
            replace(call, pixels=_side_by_side(of_frames, planes))
            for call, of_frames in zip(middle.calls, parts, strict=True)
        ]
        results = self._compute(calls, ignore, lambda: None)
        if is_grey:
            results[0] = from_unit(colour.luma(to_unit(results[0], np.float32)), results[0].dtype)
        return finish(middle, results)

    def stack(self, pictures: NDArray[Any], on_progress: Progress = ignore) -> NDArray[Any] | None:
        """Enlarges opaque pictures of one size, (pictures, height, width, planes), in one call.
        Returns None if more than a network is needed. Raises as `picture` does."""
        count, height, width, planes = pictures.shape
        factor = self.network_factor(height, width, planes)
        if factor is None:
            return None
        chain = self.facts.facts(factor, self.noise)
        pictures = np.ascontiguousarray(pictures)
        shape = count, height * chain.scale, width * chain.scale, planes
        call = ChainCall(factor, self.noise, pictures, shape, pictures.dtype, 1.0)
        (results,) = self._compute([call], on_progress, lambda: None)
        return results


def _opacity(picture: Picture) -> NDArray[np.float32]:
    """Returns the transparency of a frame, (H, W, 1)."""
    if picture.alpha is None:
        return np.ones((*picture.pixels.shape[:2], 1), np.float32)
    return np.asarray(picture.alpha, np.float32)[..., np.newaxis]


def _side_by_side(frames: Sequence[NDArray[Any]], planes: int) -> NDArray[Any]:
    """Returns the planes of all frames as those of one picture; grey ones have `planes` equal
    ones."""
    return np.concatenate(
        [np.broadcast_to(frame, (*frame.shape[:2], planes)) for frame in frames], axis=-1
    )
