"""One picture through networks, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.processing import Processing, finish
from waifu2x.imaging.sizes import Request
from waifu2x.system.stopwatch import Stopwatch

if TYPE_CHECKING:
    from waifu2x.networks.chains import Chains


class Enlarger(Processing):
    """Enlarges and denoises pictures by chains of networks, as one request asks for.

    Threads may share it.
    """

    def __init__(
        self, chains: Chains, request: Request, noise: int | None, tta: int, tile: int | None
    ) -> None:
        """`noise` is a level or None; `tta` and `tile` are as for a Network."""
        super().__init__(chains, request, noise)
        self.chains = chains
        self.tta = tta
        self.tile = tile

    def picture(
        self,
        picture: Picture,
        on_progress: Progress = ignore,
        stopwatch: Stopwatch | None = None,
    ) -> Picture:
        """A picture enlarged and denoised: prepared, through networks, finished.

        `stopwatch` gets the seconds of `prepare`, `network` and `resize`. Raises ImageError if the
        picture would grow more than 32 times, ModelError if it has transparency and there is no
        model to scale it, and BackendError.
        """
        spent = stopwatch or Stopwatch()
        with spent("prepare"):
            prepared = self.prepare(picture)
            networks = [self.chains.network(call.factor, call.noise) for call in prepared.calls]
        results = []
        for call, network in zip(prepared.calls, networks, strict=True):
            report = scaled(on_progress, call.share)
            with spent("network"):
                results.append(
                    network(
                        call.pixels, call.dtype, tile=self.tile, tta=self.tta, on_progress=report
                    )
                )
        finished = finish(prepared, results, spent)
        if prepared.finish_share:
            on_progress(prepared.finish_share)
        return finished

    def stack(self, pictures: NDArray[Any], on_progress: Progress = ignore) -> NDArray[Any] | None:
        """Opaque pictures of one size, (pictures, height, width, planes), in one call.

        None where more than a network is to be done. Raises as `picture` does.
        """
        _, height, width, planes = pictures.shape
        if self.leaves(height, width):
            return None
        plan = self._plan(height, width)
        if plan.part is not None or (plan.factor == 1 and self.noise is None):
            return None
        if self.chains.facts(plan.factor, self.noise).planes != planes:
            return None
        network = self.chains.network(plan.factor, self.noise)
        pictures = np.ascontiguousarray(pictures)
        return network(
            pictures, pictures.dtype, tile=self.tile, tta=self.tta, on_progress=on_progress
        )
