"""Models one after the other, for backends that run one model at a time.

To make a box of the last picture, each model is run on just the part of its input that the box
needs: nothing but that part of the pictures in between is ever held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Progress, scaled
from waifu2x.tiling import Box


@dataclass(frozen=True)
class Window:
    """Part of a picture: all that a computation reads of it."""

    pixels: NDArray[Any]
    """(rows, columns, planes), C-contiguous."""
    top: int
    left: int
    height: int
    """Of the whole picture, whose edges are replicated."""
    width: int


class Stage(Protocol):
    """One model, compiled."""

    scale: int
    cost: float
    """Of one output pixel, in any unit that all stages share."""

    def reads(self, box: Box) -> Box:
        """The part of the input behind a box of the output; it may reach beyond the picture."""
        ...

    def __call__(
        self, window: Window, box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """One box of the output, as Network has it."""
        ...


class Chain:
    """A Network of stages."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)

    def __call__(
        self, pixels: NDArray[Any], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        height, width = pixels.shape[:2]
        sizes = [(height, width)]
        for stage in self.stages[:-1]:
            height, width = height * stage.scale, width * stage.scale
            sizes.append((height, width))
        boxes = [box]
        for stage, size in zip(self.stages[:0:-1], sizes[:0:-1], strict=True):
            boxes.insert(0, stage.reads(boxes[0]).clip(*size))
        costs = [s.cost * b.height * b.width for s, b in zip(self.stages, boxes, strict=True)]

        window = Window(pixels, 0, 0, *sizes[0])
        for index, stage in enumerate(self.stages):
            share = costs[index] / sum(costs)
            last = index == len(self.stages) - 1
            result = stage(
                window,
                boxes[index],
                out_dtype if last else np.float32,
                scaled(on_progress, share),
            )
            if last:
                return result
            window = Window(result, boxes[index].top, boxes[index].left, *sizes[index + 1])
        raise ValueError("a chain needs at least one stage")
