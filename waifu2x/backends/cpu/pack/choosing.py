"""Chooses the fastest arithmetic that keeps the promise of a precision, measured for each model.

It measures on a drawing of the worst kind, flat fills with hard edges and lines: with 16-bit
integers, SPAN, whose maps are gates of each other, keeps 29 dB of it, and vgg_7 70. On
examples/drawn.png, 22 of 24 networks were within 3 dB of that figure, and on its photo all were
better. Unlike on GPUs (`cuda/tensor/choosing.py`), no picture is flagged as worse:
integers have a scale for every cell, from its own values, and bf16 has the exponents of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache as once

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import accuracy, ignore
from waifu2x.backends.call import result_shape
from waifu2x.backends.cpu.arithmetic import Arithmetic, Fineness, degrees
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.pack import kept_programs
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.packer import pack
from waifu2x.backends.cpu.run import kernels
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache

Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Runs a picture (rows, columns, planes) through a network."""
_KIND = "accuracy"


def choose(model: Model, offered: Sequence[Arithmetic], workers: Workers) -> PackedProgram:
    """Packs a model in the first of these arithmetics that keeps the promise of `auto`, or in the
    last one."""
    passed_over: dict[Arithmetic, float] = {}
    for arithmetic in offered[:-1]:
        for fineness in degrees(arithmetic):
            packed = pack(model, arithmetic, fineness)
            is_exact = not (packed.in_integers or packed.on_tiles)
            kept = accuracy.PROMISED if is_exact else _kept(model, packed, fineness, workers)
            if kept >= accuracy.PROMISED:
                return replace(packed, passed_over=passed_over)
        passed_over[arithmetic] = kept
    return replace(pack(model, offered[-1]), passed_over=passed_over)


def decibels(
    model: Model, arithmetic: Arithmetic, fineness: Fineness, fast: Run, exact: Run
) -> float:
    """Returns the PSNR in dB of a fast arithmetic against the exact one: measured, or cached for
    this code, this processor and the model."""

    def found() -> float:
        picture = accuracy.drawing(model.in_planes, accuracy.side(model))
        return accuracy.decibels(fast(picture), exact(picture))

    key = cache.digest(kept_programs.code(), model_digest(model), arithmetic, str(fineness))
    return cache.number(_KIND, key, found)


def _kept(model: Model, packed: PackedProgram, fineness: Fineness, workers: Workers) -> float:
    """Measures the PSNR in dB of a packed model against fp32."""

    @once
    def exact_program() -> PackedProgram:
        return pack(model, "fp32")

    def run(packed: PackedProgram, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        result = np.empty(result_shape([model], picture.shape), np.float32)
        with workers.working():
            made = CpuModel(model, packed, workers)
            made.run(None, picture[np.newaxis], result[np.newaxis], ignore)
        return result

    def fast(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        kernels.begin_for(exact_program())  # compiled together with the fast one's
        return run(packed, picture)

    def exact(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        return run(exact_program(), picture)

    return decibels(model, packed.arithmetic, fineness, fast, exact)
