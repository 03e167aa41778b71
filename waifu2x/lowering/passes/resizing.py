"""Fuses a shuffled convolution and the resize by one half behind it into one convolution.

Both are linear, so a kernel of 5x5 taps with a quarter of the planes replaces them, and the large
map in between is never made. The resize repeats the edge pixels of that map, so the first and last
rows and columns of the result have kernels of their own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import Step, compacted
from waifu2x.lowering.ops.conv import Conv, Resized
from waifu2x.lowering.ops.planewise import Resize
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.activations import Activation
from waifu2x.networks.nodes import cubic_taps

_BLOCK = 4
"""The depth-to-space of the convolution."""
_HALF = _BLOCK // 2
_TAPS = 5
_MOST_PLANES = 4


def with_resizes(program: Program) -> Program:
    """Returns the program with its last convolution and resize fused, if that is possible; else the
    program itself."""
    *others, last = program.steps
    if (
        not others
        or not isinstance(last, Resize)
        or (last.up, last.down, last.taps) != (1, 2, "bicubic")
    ):
        return program
    number, conv = len(others) - 1, others[-1]
    value = last.source.value
    if not isinstance(conv, Conv) or conv.target.value != value:
        return program
    writers = [step for step in others if isinstance(step, Conv) and step.target == conv.target]
    fits = (
        conv.depth_to_space == _BLOCK
        and conv.taps == 3
        and conv.out_planes <= _MOST_PLANES * _BLOCK**2
        and conv.activation.is_linear
        and conv.factor == 1
        and conv.source.value != 0
        and conv.factors is None
        and program.values[conv.source.value].zero_outside
        and (conv.residual is None or conv.residual == View(0, enlarge=_BLOCK))
        and conv.adds
        and (program.model.padding, program.model.multiple) == (0, 1)
        and writers == [conv]
        and read_by(program)[value] == [number + 1]
        and not {number + 1} & set(program.cuts)
    )
    if not fits:
        return program
    steps: list[Step] = [*others[:-1], _resized(conv, last)]
    compact, renumbered = compacted(program.values, steps, program.result)
    return replace(program, values=compact, steps=renumbered)


def _resized(conv: Conv, resize: Resize) -> Conv:
    """Returns the convolution that writes the resize's result."""
    shares = _shares()
    planes = conv.out_planes // _BLOCK**2
    shape = (_BLOCK, _BLOCK, planes, conv.in_planes, 3, 3)
    weight = conv.weight.astype(np.float64).reshape(shape)
    bias = conv.bias.astype(np.float64).reshape(shape[:3])
    made = np.zeros((4, 4, planes, conv.in_planes, _TAPS, _TAPS))
    for y, x in np.ndindex(3, 3):
        # A tap of the result's pixel (y - 1, x - 1), whose own taps follow.
        part = np.einsum("ad,be,deoiyx->aboiyx", shares[:, y], shares[:, x], weight)
        made[..., y : y + 3, x : x + 3] += part
    rows = shares.sum(axis=1)
    biases = np.einsum("ad,be,deo->abo", rows, rows, bias)
    inner = slice(1, 3)
    own = np.ascontiguousarray(made[inner, inner]).reshape(-1, conv.in_planes, _TAPS, _TAPS)
    own_bias = biases[inner, inner].ravel()
    return Conv(
        node=conv.node,
        source=replace(conv.source, offset=conv.source.offset - 1),
        weight=own.astype(np.float32),
        bias=own_bias.astype(np.float32),
        activation=Activation(conv.activation.function, conv.activation.slopes[: len(own_bias)]),
        target=resize.target,
        depth_to_space=_HALF,
        residual=None if conv.residual is None else View(0, enlarge=_HALF),
        resized=Resized(
            made.astype(np.float32), biases.astype(np.float32), float(cubic_taps(1, 2)[0, 0])
        ),
    )


def _shares() -> NDArray[np.float64]:
    """Returns weights of the resize in one direction, (4, 3, 4): for a pixel of the result (the
    first, an even one, an odd one, the last), those of the 4 pixels of the convolution's result
    before, of its own, and of the next."""
    shares = np.zeros((4, 3 * _BLOCK))
    for kind, place in enumerate((0, 0, 1, 1)):
        for tap, share in enumerate(cubic_taps(1, 2)[0]):
            # Counted from the first pixel of that result in the large map.
            at = 2 * place - 1 + tap
            if kind == 0:
                at = max(at, 0)
            elif kind == 3:
                at = min(at, _BLOCK - 1)
            shares[kind, _BLOCK + at] += share
    return shares.reshape(4, 3, _BLOCK)
