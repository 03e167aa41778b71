"""Decides which programs run with maps of 16-bit floats; others run in fp32."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x import __version__
from waifu2x.backends import accuracy
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.backend import Decide, Maker, OnTrial, lowered
from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.device.runtime import Runtime
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.fp32.matrix import MatrixUnit
from waifu2x.backends.gpu.network import FlaggedError, GpuNetwork
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.errors import BackendError, DeviceError, DeviceMemoryError, printable
from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import PlanewiseStep, PoolMaxima, SampleGrid
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.program import Program
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache, sources

Draw = Callable[[int, int], NDArray[np.uint8]]
"""Draws a probe picture, from its planes and its pixels a side."""
_LOG = logging.getLogger(__name__)
_KIND = "accuracy"
_STEMS = ("matrix", "direct", "planewise", "avg_pool", "linear")
_SOURCES = (
    "backends/accuracy.py",
    "backends/gpu/**/*.py",
    "backends/vulkan/**/*.py",
    "lowering/**/*.py",
    "networks/**/*.py",
)
"""The files on which results depend."""


def maker(runtime: Runtime, unit: MatrixUnit) -> Maker:
    """Returns the maker of executors with maps of 16-bit floats, or in fp32 for programs that
    cannot run so."""

    def make(program: Program, choose: Choose) -> Executor:
        return Fp32Executor(runtime, program, choose, unit if runs(program) else None)

    return make


def runs(program: Program) -> bool:
    """Returns whether a program can run with maps of 16-bit floats: whether all its steps hand on
    values that are too large, so that a convolution or the result finds them."""
    return all(map(_hands_on, program.steps))


def _hands_on(step: Step) -> bool:
    if isinstance(step, GlobalAvgPool):
        return not step.squared
    if isinstance(step, PlanewiseStep):
        return not isinstance(step, PoolMaxima | SampleGrid)
    return isinstance(step, Conv | Linear)


def decides(runtime: Runtime, unit: MatrixUnit) -> Decide:
    """Returns the function that chooses a model's maker for `auto`: maps of 16 bits if they keep
    the promised PSNR, which is measured once for a network and a device."""
    fp16, fp32 = maker(runtime, unit), partial(Fp32Executor, runtime)

    def decide(model: Model, on_trial: OnTrial) -> Maker:
        if not runs(lowered(model)):
            return fp32
        code = sources.digest(_SOURCES), *map(source.digest, _STEMS)
        device = runtime.device
        key = cache.digest(__version__, *code, device.name, device.detail, model_digest(model))
        if cache.number(_KIND, key, lambda: float(_suffices(model, on_trial, fp16, fp32))):
            return fp16
        _LOG.warning("%s: fp16 is too coarse or fails, using fp32 (slower)", printable(model.name))
        return fp32

    return decide


def _suffices(model: Model, on_trial: OnTrial, fast: Maker, exact: Maker) -> bool:
    """Returns whether a maker's results of all probe pictures are exact enough; not if the driver
    refuses its kernels. A flagged picture is computed exactly anyway, but usual ones may not be
    flagged."""
    form = model.in_planes, accuracy.side(model)
    draws = accuracy.smooth_drawing, accuracy.photo, accuracy.drawing
    calls = [Call(draw(*form), np.float32) for draw in draws]
    with on_trial(exact) as network:
        expected = [network.run(call) for call in calls]
    try:
        with on_trial(fast) as network:
            return all(map(partial(_is_exact, network), draws, calls, expected))
    except (DeviceError, DeviceMemoryError):
        raise
    except BackendError as error:
        _LOG.info("%s", error)
        return False


def _is_exact(network: GpuNetwork, draw: Draw, call: Call[Any], exactly: NDArray[Any]) -> bool:
    """Returns whether the result of a probe picture is exact enough."""
    try:
        decibels = accuracy.decibels(network.run(call), exactly)
    except FlaggedError:
        return draw is accuracy.drawing
    return decibels >= accuracy.PROMISED
