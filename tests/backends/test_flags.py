"""Pictures that an executor flags are computed again by the next one, on whichever OpenCL device
there is. Its kernels flag none: here the first pixel of a picture says how often it is flagged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.backend import GpuBackend, Maker
from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.network import FlaggedError, GpuNetwork
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.imaging.planar import PlaneFormat
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Model

pytest.importorskip("pyopencl")

from waifu2x.backends.opencl.runtime import OpenClRuntime

STAGES = 3


class MarkedRuntime(OpenClRuntime):
    """Notes the first pixel of each picture that goes to the device, as pixels or planes."""

    marks: tuple[int, ...] = ()

    def send(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        """Uploading does this, too."""
        if arrays[0].ndim == 4 and arrays[0].dtype == np.uint8:
            self.marks = tuple(map(int, arrays[0][:, 0, 0, 0]))
        elif arrays[0].ndim == 1 and arrays[0].dtype == np.uint8:
            self.marks = tuple(int(array[0]) for array in arrays)
        return super().send(buffer, arrays, in_order=in_order)


class MarkFlags:
    """Flags pictures whose first pixel is more than the number of a stage."""

    address = 0

    def __init__(self, runtime: MarkedRuntime, stage: int) -> None:
        self._runtime = runtime
        self._stage = stage

    def take(self, pictures: int) -> list[int]:
        assert len(self._runtime.marks) == pictures
        return [n for n, mark in enumerate(self._runtime.marks) if mark > self._stage]


class Stage(Fp32Executor):
    """An executor of its own results: a little brighter than those of the stage before."""

    def __init__(
        self, runtime: MarkedRuntime, stage: int, program: Program, choose: Choose
    ) -> None:
        super().__init__(runtime, brighter(program, stage), choose)
        self._flags = MarkFlags(runtime, stage)

    def new_flags(self, pictures: int) -> Flags:
        return self._flags


def brighter(program: Program, stage: int) -> Program:
    """The program with more at its last bias."""
    *steps, last = program.steps
    assert isinstance(last, Conv)
    return replace(program, steps=(*steps, replace(last, bias=last.bias + np.float32(stage / 50))))


@pytest.fixture(scope="module")
def runtime(opencl_device: Any) -> MarkedRuntime:
    return MarkedRuntime(opencl_device)


def maker(runtime: MarkedRuntime, stage: int) -> Maker:
    def make(program: Program, choose: Choose) -> Executor:
        return Stage(runtime, stage, program, choose)

    return make


@pytest.fixture
def backend(runtime: MarkedRuntime) -> GpuBackend:
    makers = [maker(runtime, stage) for stage in range(STAGES)]
    return GpuBackend("opencl", runtime, {"auto": makers, "fp16": makers, "fp32": makers[:1]})


@pytest.fixture
def chain() -> list[Model]:
    """Two models one after the other."""
    return [obvious.random_model([3, 8, 3], 1), obvious.random_model([3, 8, 3], 2, scale=2)]


def picture(mark: int, height: int = 20, width: int = 31) -> NDArray[np.uint8]:
    """A picture that is flagged so often."""
    pixels = np.random.default_rng(mark).integers(60, 180, (height, width, 3), np.uint8)
    pixels[0, 0] = mark
    return pixels


@pytest.fixture
def stages(runtime: MarkedRuntime, chain: list[Model]) -> Iterator[list[GpuNetwork]]:
    """Yields the networks of each stage, for pictures of any size."""
    networks = []
    for stage in range(STAGES):
        plain = partial(Fp32Executor, runtime)

        def make(
            program: Program, choose: Choose, stage: int = stage, plain: Any = plain
        ) -> Executor:
            made: Executor = plain(brighter(program, stage), choose)
            return made

        backend = GpuBackend("opencl", runtime, {"fp32": [make]})
        networks.append(backend.compile(chain, "fp32"))
    yield networks
    for network in networks:
        network.close()


@pytest.mark.parametrize("options", [{}, {"tile": 16}, {"tta": 8}, {"tile": 24, "tta": 2}])
def test_only_flagged_pictures_are_computed_again(
    backend: GpuBackend, stages: list[GpuNetwork], chain: list[Model], options: dict[str, Any]
) -> None:
    """All of them, with all models and all passes, whatever the tile, and as often as they are
    flagged."""
    network = backend.compile(chain, "auto")
    marks = [0, 1, 0, 2, 1]
    stack = np.stack([picture(mark) for mark in marks])
    out = np.empty((len(marks), 40, 62, 3), np.uint8)
    again: list[int] = []
    made = network.run(Call(stack, np.uint8, out=out, on_recomputed=again.append, **options))
    assert made is out
    assert again == [1, 3, 4]
    for mark, pixels, result in zip(marks, stack, made, strict=True):
        np.testing.assert_array_equal(result, stages[mark].run(Call(pixels, np.uint8, **options)))
        np.testing.assert_array_equal(network.run(Call(pixels, np.uint8, **options)), result)
    assert not np.array_equal(
        stages[0].run(Call(stack[1], np.uint8)), stages[1].run(Call(stack[1], np.uint8))
    )
    network.close()


def test_only_flagged_pictures_of_planes_are_computed_again(
    backend: GpuBackend, stages: list[GpuNetwork], chain: list[Model]
) -> None:
    kind = PlaneFormat(8, "420", "bt709")
    marks = [0, 1, 0, 2, 1]
    pictures = [kind.empty(20, 31) for _ in marks]
    for mark, one in zip(marks, pictures, strict=True):
        for plane in one.planes:
            plane[:] = np.random.default_rng(mark).integers(90, 160, plane.shape)
        one.planes[0][0, 0] = mark
    network = backend.compile(chain, "auto")
    out = [kind.empty(40, 62) for _ in marks]
    network.run(Call(pictures, out=out))
    for mark, one, made in zip(marks, pictures, out, strict=True):
        wanted = kind.empty(40, 62)
        stages[mark].run(Call([one], out=[wanted]))
        for plane, other in zip(made.planes, wanted.planes, strict=True):
            np.testing.assert_array_equal(plane, other)
    assert not np.array_equal(out[0].planes[0], out[1].planes[0])
    network.close()


def test_progress_is_told_once_and_may_stop_the_work(
    backend: GpuBackend, chain: list[Model]
) -> None:
    network = backend.compile(chain, "auto")
    parts: list[float] = []
    network.run(Call(picture(2), np.uint8, on_progress=parts.append))
    assert sum(parts) == pytest.approx(1)

    def stop(part: float) -> None:
        parts.append(part)
        if sum(parts) >= 1:
            raise KeyboardInterrupt

    parts.clear()
    with pytest.raises(KeyboardInterrupt):
        network.run(Call(picture(2), np.uint8, on_progress=stop))
    network.close()


def test_it_is_said_once_for_each_network(
    backend: GpuBackend,
    chain: list[Model],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    names = [f"{number}.json" for number in range(2)]
    chain = [replace(model, name=name) for model, name in zip(chain, names, strict=True)]
    for _ in range(2):
        network = backend.compile(chain, "fp16")
        for mark in (0, 1, 2, 1):
            network.run(Call(picture(mark), np.uint8))
        network.close()
    first = backend.compile(chain[:1], "fp16")
    first.run(Call(picture(1), np.uint8))
    first.close()
    said = "a picture's values exceed 16 bits: such pictures are computed again, in 32 bits"
    assert [record.message for record in caplog.records] == [
        f"0.json, 1.json: {said}",
        f"0.json: {said}",
    ]


def test_a_closed_network_keeps_nothing_for_flagged_pictures(
    backend: GpuBackend, runtime: MarkedRuntime, chain: list[Model]
) -> None:
    before = runtime.allocated
    network = backend.compile(chain, "auto")
    network.run(Call(picture(2), np.uint8))
    assert runtime.allocated > before
    network.close()
    assert runtime.allocated == before


def test_what_is_measured_is_a_network_that_refuses_flagged_pictures(
    runtime: MarkedRuntime, chain: list[Model]
) -> None:
    """And `auto` takes what was decided, other modes do not."""
    makers = [maker(runtime, stage) for stage in range(STAGES)]
    asked = []

    def decide(model: Model, on_trial: Any) -> Maker:
        with on_trial(makers[0]) as network:
            network.run(Call(picture(0), np.uint8))
            with pytest.raises(FlaggedError):
                network.run(Call(picture(1), np.uint8))
        asked.append(model)
        return makers[2]

    modes: Any = {"auto": makers, "fp16": makers}
    backend = GpuBackend("opencl", runtime, modes, decide)
    fixed = GpuBackend("opencl", runtime, {"fp32": makers[2:]}).compile(chain, "fp32")
    pixels = picture(0)
    decided = backend.compile(chain, "auto")
    np.testing.assert_array_equal(
        decided.run(Call(pixels, np.uint8)), fixed.run(Call(pixels, np.uint8))
    )
    assert asked == chain
    other = backend.compile(chain, "fp16")
    assert not np.array_equal(other.run(Call(pixels, np.uint8)), fixed.run(Call(pixels, np.uint8)))
    assert asked == chain
    for network in (decided, fixed, other):
        network.close()
