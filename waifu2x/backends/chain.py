"""Models one after the other, for backends that run one model at a time.

To make a box of the last picture, each model is run on just the part of its input that the box
needs: nothing but that part of the pictures in between is ever held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from waifu2x.backends import Progress, scaled
from waifu2x.tiling import Box


class Pixels(Protocol):
    """(rows, columns, planes), C-contiguous: an array, or its like in the memory of a device."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """As NumPy has it."""
        ...


_Pixels = TypeVar("_Pixels", bound=Pixels)


@dataclass(frozen=True)
class Window(Generic[_Pixels]):
    """Part of a picture: all that a computation reads of it."""

    pixels: _Pixels
    top: int
    left: int
    height: int
    """Of the whole picture, whose edges are replicated."""
    width: int


class Stage(Protocol[_Pixels]):
    """One model, compiled."""

    scale: int
    cost: float
    """Of one output pixel, in any unit that all stages share."""

    def reads(self, box: Box) -> Box:
        """The part of the input behind a box of the output; it may reach beyond the picture."""
        ...

    def __call__(
        self, window: Window[_Pixels], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> _Pixels:
        """One box of the output, as Network has it."""
        ...


class Chain(Generic[_Pixels]):
    """Stages as a Network has it; a Network itself where its pixels are arrays."""

    def __init__(self, stages: Sequence[Stage[_Pixels]]) -> None:
        self.stages = tuple(stages)

    def __call__(
        self, pixels: _Pixels, box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> _Pixels:
        """See Network."""
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
