"""Runs a network of several frames, which makes the middle one of a window of them.

A single picture is a window of equal frames. Pictures get the mirrored pixels that the network
wants around them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.call import Call, Pictures, run_grey
from waifu2x.backends.tta import run_chain

if TYPE_CHECKING:
    from waifu2x.backends import Network, Progress
    from waifu2x.lowering.plan.support import Support
    from waifu2x.networks.model import Model, Surround


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
        first; or single frames, each of them a window of equal ones. Tiles, stacks and cores change
        no bit. Raises BackendError, and ValueError for planes of films."""
        source = call.source
        if not isinstance(source, np.ndarray):
            raise ValueError("Expected pixels of windows of frames, but got planes of films")
        model = self._model
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
        surround = model.surround
        stack = call.stacked()

        def execute(pictures: NDArray[Any], out: NDArray[Any], on_progress: Progress) -> None:
            wide = replace(
                stack, source=mirrored(pictures, surround), out_dtype=out.dtype, out=None, tta=1,
                on_progress=on_progress,
            )  # fmt: skip
            top, left = (surround.before(length) * scale for length in pictures.shape[1:3])
            rows, columns = out.shape[1:3]
            out[:] = self._network.run(wide)[:, top : top + rows, left : left + columns]

        run_chain(stack, [(model, execute)], [1.0])
        return call.results

    def close(self) -> None:
        """Closes its network."""
        self._network.close()


def mirrored(pictures: NDArray[Any], surround: Surround) -> NDArray[Any]:
    """Returns pictures (N, H, W, planes) with mirrored pixels around them; the edge pixels are not
    repeated, except of a single row or column."""
    sides = [
        (surround.before(length), surround.added(length) - surround.before(length))
        for length in pictures.shape[1:3]
    ]
    return np.pad(pictures, [(0, 0), *sides, (0, 0)], "reflect")
