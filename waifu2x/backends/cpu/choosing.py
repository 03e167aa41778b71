"""The fastest arithmetic that keeps what a precision promises, for each model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import ignore
from waifu2x.backends.accuracy import PROMISED
from waifu2x.backends.cpu import accuracy
from waifu2x.backends.cpu.arithmetic import Arithmetic, Fineness, degrees
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.workers import Workers
from waifu2x.backends.results import result_shape
from waifu2x.errors import printable
from waifu2x.networks.model import Model

_LOG = logging.getLogger(__name__)


def accurate(model: Model, offered: Sequence[Arithmetic], workers: Workers) -> CpuModel:
    """The model in the first of these arithmetics that keeps what `auto` promises, or in the
    last."""
    for arithmetic in offered[:-1]:
        for fineness in degrees(arithmetic):
            made = CpuModel(model, arithmetic, workers, fineness)
            if not (made.packed.in_integers or made.packed.on_tiles):
                return made
            kept = _decibels(made, arithmetic, fineness, workers)
            if kept >= PROMISED:
                return made
        _LOG.warning(
            "%s: %s would keep %.1f dB of a drawing where %.0f are promised: computed more"
            " exactly, which takes longer",
            printable(model.name),
            arithmetic,
            kept,
            PROMISED,
        )
    return CpuModel(model, offered[-1], workers)


def _decibels(
    made: CpuModel, arithmetic: Arithmetic, fineness: Fineness, workers: Workers
) -> float:
    """The accuracy of a packed model against fp32."""
    model = made.model

    def exact(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        return _run(CpuModel(model, "fp32", workers), workers, picture)

    return accuracy.decibels(model, arithmetic, fineness, partial(_run, made, workers), exact)


def _run(made: CpuModel, workers: Workers, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A picture (H, W, planes) through a packed model."""
    result = np.empty(result_shape([made.model], picture.shape), np.float32)
    with workers.working():
        made.run(None, picture[np.newaxis], result[np.newaxis], ignore)
    return result
