"""The fastest arithmetic that keeps what a precision promises, for each model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import ignore
from waifu2x.backends.accuracy import PROMISED
from waifu2x.backends.call import result_shape
from waifu2x.backends.cpu import accuracy
from waifu2x.backends.cpu.arithmetic import Arithmetic, Fineness, degrees
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.packer import pack
from waifu2x.backends.cpu.pack.prepared import PreparedProgram
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.networks.model import Model


def choose(model: Model, offered: Sequence[Arithmetic], workers: Workers) -> PreparedProgram:
    """The model packed in the first of these arithmetics that keeps what `auto` promises, or in the
    last."""
    passed_over: dict[Arithmetic, float] = {}
    for arithmetic in offered[:-1]:
        for fineness in degrees(arithmetic):
            packed = pack(model, arithmetic, fineness)
            if not (packed.in_integers or packed.on_tiles):
                return PreparedProgram(packed, passed_over)
            kept = _decibels(model, packed, fineness, workers)
            if kept >= PROMISED:
                return PreparedProgram(packed, passed_over)
        passed_over[arithmetic] = kept
    return PreparedProgram(pack(model, offered[-1]), passed_over)


def _decibels(model: Model, packed: PackedProgram, fineness: Fineness, workers: Workers) -> float:
    """The accuracy of a packed model against fp32."""

    def run(packed: PackedProgram, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        return _run(CpuModel(model, packed, workers), workers, picture)

    def exact(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        return run(pack(model, "fp32"), picture)

    return accuracy.decibels(model, packed.arithmetic, fineness, partial(run, packed), exact)


def _run(made: CpuModel, workers: Workers, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A picture (H, W, planes) through a packed model."""
    result = np.empty(result_shape([made.model], picture.shape), np.float32)
    with workers.working():
        made.run(None, picture[np.newaxis], result[np.newaxis], ignore)
    return result
