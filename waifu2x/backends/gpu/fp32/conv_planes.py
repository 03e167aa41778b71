"""Lays out the planes of fp32 convolutions as their kernels read and write them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.fp32.maps import places_of
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.system.lazy_dataclass import dataclass

NARROW = 4
"""A value of one part and at most this number of planes is stored in vectors of this width."""


@dataclass(frozen=True)
class Planes:
    """The layout of a convolution's planes in memory."""

    taps: int
    inputs: tuple[int, ...]
    """The index of each input plane among the planes read, with padding."""
    outputs: tuple[int, ...]
    """The index of each output plane among the planes made: those of a target pixel are padded."""
    sub_planes: int
    """The planes of a target pixel, after depth-to-space, with padding."""
    block: int
    from_pixels: bool
    to_pixels: bool
    is_narrow: bool
    """Whether its vectors have NARROW planes, independent of the blocks of maps."""

    @property
    def in_count(self) -> int:
        """The number of planes read, with the padding between them."""
        return self.inputs[-1] + 1

    @property
    def out_count(self) -> int:
        """The number of planes made, with the padding between them."""
        return self.outputs[-1] + 1


def planes_of(program: Program, step: Conv, block: int) -> Planes:
    """Returns the layout of a step's planes."""
    view = step.source
    source = program.values[view.value]
    to_pixels = step.target.value == program.result
    own = step.out_planes // step.depth_to_space**2
    narrow = _is_narrow(program, step.target.value)
    width = NARROW if narrow and block > NARROW else block
    sub = own if to_pixels or step.depth_to_space == 1 else round_up(own, width)
    from_pixels = view.value == 0
    inputs = range(step.in_planes)
    return Planes(
        taps=step.taps,
        inputs=tuple(inputs if from_pixels else places_of(source, view.first, view.parts, block)),
        outputs=tuple(p // own * sub + p % own for p in range(step.out_planes)),
        sub_planes=sub,
        block=block,
        from_pixels=from_pixels,
        to_pixels=to_pixels,
        is_narrow=narrow,
    )


def _is_narrow(program: Program, value: int) -> bool:
    """Returns whether only the first NARROW planes of each block of a map are written and read.

    A step that adds such a map to its result reads as many planes as it writes. So its result must
    be narrow as well, or it would read uninitialised memory.
    """
    stored = program.values[value]
    return (
        stored.planes <= NARROW
        and len(stored.parts) == 1
        and stored.space_to_depth == 1
        and all(
            _is_narrow(program, step.target.value)
            for step in program.steps
            if isinstance(step, Conv) and step.residual and step.residual.value == value
        )
    )


def padded_weight(
    planes: Planes, weight: NDArray[np.float32], inputs: int, outputs: int
) -> NDArray[np.float32]:
    """Returns a weight as (outputs, inputs, taps, taps), with zeros for padding planes."""
    result = np.zeros((outputs, inputs, planes.taps, planes.taps), np.float32)
    result[np.ix_(planes.outputs, planes.inputs)] = weight
    return result
