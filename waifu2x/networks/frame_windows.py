"""Runs a network of several frames, which makes the middle one of a window of them.

A single picture is a window of equal frames. Pictures get the mirrored pixels that the network
wants around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.call import (
    Call,
    Pictures,
    check,
    inner,
    mirrored,
    run_grey,
)
from waifu2x.backends.tta import run_chain
from waifu2x.imaging import planar_rgb

if TYPE_CHECKING:
    from waifu2x.backends import Network, Progress
    from waifu2x.imaging.planar import PlanarPicture
    from waifu2x.lowering.plan.support import Support
    from waifu2x.networks.model import Model


class WindowNetwork:
    """The network of one model of several frames. Threads may share it."""

    support: Support | None = None
    """None: results depend on more frames than one."""

    def __init__(self, network: Network, model: Model) -> None:
        """`network` runs the model, without the pixels around pictures."""
        self._network = network
        self._model = model
        self._planes = model.in_planes // model.frames

    @property
    def arithmetic(self) -> str:
        """The arithmetic of its network."""
        return self._network.arithmetic

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs windows, which have the planes of their frames one after the other, the earliest
        first; or single frames, each of them a window of equal ones; or windows as planes of films.
        Tiles, stacks and cores change no bit. Raises BackendError."""
        source, model = call.source, self._model
        if not isinstance(source, np.ndarray):
            self._run_planes(call)
            return call.results
        *many, height, width, planes = source.shape
        scale = model.scale
        is_grey = planes == 1 and self._planes == 3
        made = (*many, height * scale, width * scale, 1 if is_grey else self._planes)
        if call.out is None:
            call = replace(call, out=np.empty(made, call.dtype))
        if is_grey:
            return run_grey(self, call)
        if planes == self._planes:
            source = np.concatenate([source] * model.frames, axis=-1)
        call = replace(call, source=source, out_dtype=call.dtype)
        if model.surround is None:
            return self._network.run(call)
        stack = call.stacked()

        def execute(pictures: NDArray[Any], out: NDArray[Any], on_progress: Progress) -> None:
            wide = replace(
                stack, source=mirrored(pictures, model.surround), out_dtype=out.dtype, out=None,
                tta=1, on_progress=on_progress,
            )  # fmt: skip
            rows, columns = pictures.shape[1:3]
            out[:] = inner(self._network.run(wide), model, (rows, columns))

        run_chain(stack, [(model, execute)], [1.0])
        return call.results

    def _run_planes(self, call: Call[Sequence[PlanarPicture]]) -> None:
        if call.tta == 1 or self._model.surround is None:
            self._network.run(call)
            return
        check(call, [self._model])
        for number in range(call.count):  # mirrored pixels belong to each transformed picture
            one = call.part(number, number + 1)
            frames = [planar_rgb.to_rgb(picture) for picture in one.source]
            window = np.concatenate(
                [np.broadcast_to(rgb, (*rgb.shape[:2], 3)) for rgb in frames], -1
            )
            planar_rgb.from_rgb(self.run(one.with_pixels(window)), one.results[0])

    def close(self) -> None:
        """Closes its network."""
        self._network.close()
