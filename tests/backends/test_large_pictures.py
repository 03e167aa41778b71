"""More than 2^31 pixels or bytes: what is out of a small integer's range, on whatever is here.

Nothing is computed in full: kernels run where such a picture ends, and all other work is cut,
placed and counted without a device. `large_pictures.py` computes one in earnest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_cuda import Recorded, usual
from tests.helpers import obvious
from tests.helpers.graphs import fit_padding
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.tensor.executor import TensorExecutor
from waifu2x.backends.gpu.compiled_model import CompiledModel
from waifu2x.backends.gpu.device import launch
from waifu2x.backends.gpu.device.memory_pool import MemoryPool
from waifu2x.backends.gpu.device.runtime import ReadyLaunch
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels, Executor, PassWork
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.network import GpuNetwork
from waifu2x.backends.gpu.plan.tuning import StoredChoices
from waifu2x.errors import BackendError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Enlarge

SQUARE, LONG = (24_000, 24_000), (264, 1_040_000)
"""Sources of a last pass, which doubles them: 2.3 * 10^9 and 1.1 * 10^9 pixels come out."""
MOST_GROUPS = (2**31 - 1, 65_535, 65_535)
"""The most groups of a CUDA launch (CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability")."""
MEMORY = 1 << 37


class Corner:
    """The end of a picture of one plane, which takes more than 2^31 bytes, on an OpenCL device."""

    def __init__(self, device: Any, size: tuple[int, int], model: Model) -> None:
        from waifu2x.backends.opencl.runtime import OpenClRuntime

        self.runtime = OpenClRuntime(device)
        self._size = size
        self._model = model
        self._executor = Fp32Executor(
            self.runtime, lower(model), StoredChoices(self.runtime.device)
        )

    def computed(self, end: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
        """The last `side` rows and columns of the result, where the picture's last pixels are
        `end`; its others are whatever fresh memory holds."""
        import pyopencl as cl

        runtime, executor, scale = self.runtime, self._executor, self._model.scale
        height, width = self._size
        queue = runtime._queue
        source, target = (
            DevicePixels(
                runtime.allocate(rows * columns), np.dtype(np.uint8), (1, rows, columns, 1)
            )
            for rows, columns in (self._size, (height * scale, width * scale))
        )
        rows = np.zeros((len(end), width), np.uint8)
        rows[:, -end.shape[1] :] = end
        start = (height - len(end)) * width
        cl.enqueue_copy(queue, source.buffer.handle, rows, dst_offset=start)  # type: ignore[attr-defined]
        height, width = height * scale, width * scale
        tile = Box(height - side, width - side, side, side)
        program = executor.program
        steps = range(len(program.steps))
        work = geometry.work(program, steps, {program.result: tile}, executor.unit)
        places = {
            value: BufferPlace(runtime.allocate(executor.map_bytes(value, box, 1)), 0, box)
            for value, box in work.values.items()
            if value not in (0, program.result)
        }
        sizes = geometry.sizes(program, *self._size)
        batch = Batch(source, target, Box(0, 0, height, width), tile, sizes)
        one = PassWork(batch, work, places, {}, runtime.allocate(256), None)
        runtime.queue(launch.ready(runtime, executor.launches(one)))
        found = np.empty((side, width), np.uint8)
        start = (height - side) * width
        cl.enqueue_copy(queue, found, target.buffer.handle, src_offset=start)  # type: ignore[attr-defined]
        return found[:, -side:]

    def alone(self, end: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The result of the picture's last pixels."""
        workspace = MemoryPool(self.runtime)
        stage = CompiledModel(self._model, self._executor, workspace)
        return GpuNetwork([stage], workspace).run(Call(end[..., np.newaxis], np.uint8))[..., 0]


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (obvious.random_model([1, 8, 1], seed=7), (46_400, 46_404)),
        (fit_padding("planewise", 1, (Enlarge(0, 2),)), (23_200, 23_202)),
    ],
    ids=["conv", "planewise"],
)
def test_the_far_corner_is_what_it_is_alone(
    opencl_device: Any, model: Model, size: tuple[int, int]
) -> None:
    corner = Corner(opencl_device, size, model)
    if corner.runtime.limits.max_buffer < size[0] * size[1] * model.scale**2:
        pytest.skip("this device has no buffer as large")
    end = np.random.default_rng(8).integers(0, 256, (60, 70), np.uint8)
    found = corner.computed(end, 40)
    np.testing.assert_array_equal(found, corner.alone(end)[-40:, -40:])


class Counted(Recorded):
    """A runtime that launches nothing, and checks what it is asked for."""

    def __init__(self, total: int = MEMORY) -> None:
        super().__init__((9, 0))
        self.limits = replace(self.limits, max_buffer=total)
        self.total = total

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def free_memory(self) -> int:
        return self.total

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        for one in launches:
            assert all(
                0 < count <= most for count, most in zip(one.groups, MOST_GROUPS, strict=True)
            )
            self.launch(one.kernel, one.groups)

    def replay(self, owner: Any, key: Any, make: Callable[[], Sequence[ReadyLaunch]]) -> None:
        self.queue(make())

    def synchronize(self) -> None: ...

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        small = np.zeros(1 if len(shape) > 1 else shape, dtype)
        return np.broadcast_to(small, shape) if small.shape != shape else small

    def is_locked(self, array: NDArray[Any]) -> bool:
        return False

    def download(self, buffer: Any, array: NDArray[Any]) -> None:
        assert array.nbytes <= buffer.size


def executors(runtime: Any, model: Model) -> list[Executor]:
    """One for each kind of unit."""
    program = lower(model)
    return [
        Fp32Executor(runtime, program, usual),
        TensorExecutor(runtime, program, "mma", 1, usual),
        TensorExecutor(runtime, program, "wgmma", 2, usual),
    ]


@pytest.fixture(scope="module")
def model() -> Model:
    """A small network that doubles, on units of any kind."""
    return obvious.random_model([3, 32, 32, 3], seed=1, scale=2)


@pytest.mark.parametrize("size", [SQUARE, LONG])
@pytest.mark.parametrize("number", range(3), ids=["fma", "mma", "wgmma"])
def test_all_passes_of_a_large_picture_can_be_asked_for(
    model: Model, number: int, size: tuple[int, int]
) -> None:
    runtime: Any = Counted()
    workspace = MemoryPool(runtime)
    stage = CompiledModel(model, executors(runtime, model)[number], workspace)
    pixels = np.broadcast_to(np.zeros(1, np.float32), (*size, 3))
    result = GpuNetwork([stage], workspace).run(Call(pixels, np.uint8))
    assert result.shape == (2 * size[0], 2 * size[1], 3)
    assert runtime.launched


@pytest.mark.parametrize(
    ("total", "sentence"),
    [(90 << 30, ""), (30 << 30, "no memory for a picture of 48000x48000 pixels")],
)
def test_what_does_not_fit_is_refused_before_the_work(
    model: Model, total: int, sentence: str
) -> None:
    runtime: Any = Counted(total)
    workspace = MemoryPool(runtime)
    stage = CompiledModel(model, executors(runtime, model)[0], workspace)
    network = GpuNetwork([stage] * 5, workspace)
    pixels = np.broadcast_to(np.zeros(1, np.uint8), (3000, 3000, 3))
    if not sentence:
        assert network.run(Call(pixels, np.uint8)).shape == (96_000, 96_000, 3)
        return
    with pytest.raises(BackendError, match=sentence):
        network.run(Call(pixels, np.uint8))
    assert not runtime.launched


def test_stacks_of_long_pictures_are_computed_one_by_one(model: Model) -> None:
    runtime: Any = Counted()
    workspace = MemoryPool(runtime)
    stage = CompiledModel(model, executors(runtime, model)[0], workspace)
    stack = np.broadcast_to(np.zeros(1, np.uint8), (2, 5, 600_000, 3))
    assert GpuNetwork([stage], workspace).run(Call(stack, np.uint8)).shape == (2, 10, 1_200_000, 3)
