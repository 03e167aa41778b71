"""What the backends for GPUs share, on whichever OpenCL device there is: PoCL will do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import obvious
from waifu2x import cache
from waifu2x.backends.gpu import direct, tuning, winograd, winograd_vector
from waifu2x.backends.gpu.backend import GpuBackend
from waifu2x.backends.gpu.fp32 import Fp32Road, Shape, candidates
from waifu2x.backends.gpu.runtime import OutOfMemoryError, Runtime
from waifu2x.backends.gpu.tuning import Choose
from waifu2x.errors import BackendError
from waifu2x.model import Model
from waifu2x.tiling import Box

pytest.importorskip("pyopencl")

from waifu2x.backends.opencl.runtime import OpenClBuffer, OpenClRuntime

MEGABYTE = 1 << 20


def pixels_of(height: int, width: int) -> NDArray[np.uint8]:
    """Random pixels."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def run(runtime: Runtime, model: Model, pixels: Any, choose: Choose | None = None) -> NDArray[Any]:
    """A whole picture, float32."""
    backend = GpuBackend("opencl", runtime, {"fp32": lambda *of: Fp32Road(of[0], of[1], choose)})
    height, width = pixels.shape[0] * model.scale, pixels.shape[1] * model.scale
    network = backend.compile([model], "fp32")
    return network(pixels, Box(0, 0, height, width), np.float32, lambda part: None)


class Always:
    """See Choose: one shape for one layer."""

    def __init__(self, shape: Shape, layer: int) -> None:
        self._shape = shape
        self._layer = layer

    def __call__(self, layer: int, candidates: Sequence[Any], work: str = "") -> Any:
        return self._shape if layer == self._layer else candidates[0]


ON_GPU = [*winograd._SHAPES, direct.Shape(8, 1, 4, 8, 4, 4), direct.Shape(8, 2, 4, 8, 4, 8)]
LAST_ON_GPU = [direct.Shape(line, 1, 4, 1, 32, 2, down=True) for line in (2, 4, 8)]
ON_CPU = [
    winograd_vector.Shape(width, 2, 6, cells) for width, cells in ((8, 6), (8, 12), (4, 6), (4, 12))
]


@pytest.mark.parametrize(
    ("layer", "shape"), [(1, shape) for shape in ON_GPU] + [(2, shape) for shape in LAST_ON_GPU]
)
def test_every_shape_for_gpus_is_right(opencl_device: Any, layer: int, shape: Shape) -> None:
    runtime = OpenClRuntime(opencl_device)
    assert not isinstance(shape, winograd_vector.Shape)
    if runtime.limits.max_group < shape.group:
        pytest.skip("this device has no groups as large")
    runtime.limits = replace(runtime.limits, is_cpu=False, vector=32)
    # Odd numbers of cells, so that groups reach beyond the region.
    model = obvious.random_model([3, 20, 33, 3], seed=1)
    pixels = pixels_of(7, 19)
    result = run(runtime, model, pixels, Always(shape, layer))
    assert obvious.psnr(result, obvious.run([model], pixels)) >= 100


@pytest.mark.parametrize("shape", ON_CPU, ids=repr)
def test_every_shape_for_processors_is_right(
    opencl_device: Any, shape: winograd_vector.Shape
) -> None:
    runtime = OpenClRuntime(opencl_device)
    model = obvious.random_model([3, 20, 33, 3], seed=1)
    if runtime.limits.local_bytes < shape.local_bytes(model.convolutions[1]):
        pytest.skip("this device's groups have less local memory")
    runtime.limits = replace(runtime.limits, is_cpu=True, vector=shape.width)
    pixels = pixels_of(23, 61)
    result = run(runtime, model, pixels, Always(shape, 1))
    assert obvious.psnr(result, obvious.run([model], pixels)) >= 100


@pytest.mark.parametrize("is_cpu", [True, False])
@pytest.mark.parametrize(("local_bytes", "max_group"), [(1 << 10, 64), (64 << 10, 256)])
def test_candidates_keep_to_the_limits(
    opencl_device: Any, is_cpu: bool, local_bytes: int, max_group: int
) -> None:
    limits = replace(
        OpenClRuntime(opencl_device).limits,
        is_cpu=is_cpu,
        local_bytes=local_bytes,
        max_group=max_group,
        vector=8 if is_cpu else 32,
    )
    model = obvious.random_model([3, 32, 64, 128, 3], seed=1)
    for layer in range(4):
        found = candidates(limits, model, layer)
        assert found
        for shape in found:
            match shape:
                case winograd_vector.Shape():
                    assert shape.local_bytes(model.convolutions[layer]) <= local_bytes
                case winograd.Shape():
                    assert shape.local_bytes <= local_bytes
                    assert shape.group <= max_group
                case direct.Shape():
                    assert shape.group <= max_group


class TightRuntime(OpenClRuntime):
    """A device that promises much memory and refuses large buffers."""

    def __init__(self, device: Any, largest: int) -> None:
        super().__init__(device)
        self._largest = largest
        self.refused = 0
        # Processors keep tiles small of themselves.
        self.limits = replace(self.limits, max_buffer=1 << 40)

    def free_memory(self) -> int:
        return 1 << 40

    def allocate(self, size: int) -> OpenClBuffer:
        if size > self._largest:
            self.refused += 1
            raise OutOfMemoryError("refused")
        return super().allocate(size)


def test_tiles_are_halved_until_they_fit_and_nothing_changes(opencl_device: Any) -> None:
    model = obvious.random_model([3, 16, 24, 3], seed=2, scale=2)
    pixels = pixels_of(70, 110)
    whole = TightRuntime(opencl_device, 1 << 40)
    expected = run(whole, model, pixels)
    assert not whole.refused
    tight = TightRuntime(opencl_device, 3 * MEGABYTE // 2)
    np.testing.assert_array_equal(run(tight, model, pixels), expected)
    assert tight.refused > 1


@pytest.mark.parametrize(
    ("planes", "largest", "sentence"),
    [
        (128, 600_000, "no memory for a tile of"),
        (16, 300_000, "no memory for a picture of 220x140 pixels"),
        (128, 100_000, "no memory for the weights of random"),
    ],
)
def test_no_memory_at_all_is_a_sentence(
    opencl_device: Any, planes: int, largest: int, sentence: str
) -> None:
    model = obvious.random_model([3, 16, planes, 3], seed=2, scale=2)
    with pytest.raises(BackendError, match=sentence) as caught:
        run(TightRuntime(opencl_device, largest), model, pixels_of(70, 110))
    assert "\n" not in str(caught.value)
    assert "another backend" in str(caught.value)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


class Ways:
    """A road's question, and its answers."""

    def __init__(self, kept: tuning.Kept, names: str) -> None:
        self.kept = kept
        self.candidates = [direct.Shape(line, 1, 4, 8, 4, 4) for line in range(len(names))]

    def best(self) -> int:
        return self.kept(0, self.candidates).line


@pytest.fixture
def ways(own_cache: Path, opencl_device: Any) -> Ways:
    """Four candidates for one layer."""
    model = obvious.random_model([3, 16, 3], seed=3)
    return Ways(tuning.Kept(OpenClRuntime(opencl_device).device, model), "abcd")


class FakeRoad:
    """A road whose layer takes as long as its candidate says."""

    def __init__(self, choose: Choose, ways: Ways, slow: Callable[[int], float]) -> None:
        self.seconds = [slow(choose(0, ways.candidates).line), 1.0]

    def close(self) -> None:
        pass


def tune(ways: Ways, slow: Callable[[int], float]) -> Iterator[tuning.Trial]:
    """All trials of such a road."""
    make: Any = lambda choose: FakeRoad(choose, ways, slow)  # noqa: E731
    measure: Any = lambda road: road.seconds  # noqa: E731
    model = obvious.random_model([3, 16, 3], seed=3)
    yield from tuning.tune(ways.kept, make, measure, model)


def test_the_best_way_is_kept(ways: Ways) -> None:
    assert ways.best() == 0
    trials = list(tune(ways, lambda line: abs(line - 2) + 1.0))
    assert [trial.seconds for trial in trials] == [3, 2, 1, 2]
    assert trials[0].layer == "3 > 16"
    assert trials[0].way.startswith("direct: line=0, ")
    assert ways.best() == 2


def test_a_way_that_the_device_refuses_is_passed_over(ways: Ways) -> None:
    def slow(line: int) -> float:
        if line == 1:
            raise BackendError("cannot compile")
        if line == 2:
            raise OutOfMemoryError("no registers")
        return 10.0 - line

    assert len(list(tune(ways, slow))) == 2
    assert ways.best() == 3


def test_what_is_kept_is_of_one_device_and_its_driver(ways: Ways) -> None:
    list(tune(ways, lambda line: abs(line - 2) + 1.0))
    other = replace(ways.kept._device, detail="driver 2")
    model = obvious.random_model([3, 16, 3], seed=3)
    assert tuning.Kept(other, model)(0, ways.candidates).line == 0
    assert tuning.Kept(ways.kept._device, model)(0, ways.candidates, "other work").line == 0


def test_a_damaged_or_foreign_entry_means_the_usual_way(ways: Ways, own_cache: Path) -> None:
    list(tune(ways, lambda line: abs(line - 2) + 1.0))
    (entry,) = (own_cache / "tuning").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert ways.best() == 0
    cache.store("tuning", entry.name, b"Shape(of another version)")
    assert ways.best() == 0


def test_a_network_is_tuned_as_a_whole(own_cache: Path, opencl_device: Any) -> None:
    from waifu2x.backends import opencl

    backend = opencl.create(0)
    model = obvious.random_model([3, 16, 16, 3], seed=4)
    pixels = pixels_of(24, 24)
    choices = [len(candidates(backend._runtime.limits, model, layer)) for layer in range(3)]
    trials = list(backend.tune(model, "fp32", pixels))
    assert len(trials) == sum(count for count in choices if count > 1)
    network = backend.compile([model], "fp32")
    result = network(pixels, Box(0, 0, 24, 24), np.float32, lambda part: None)
    assert obvious.psnr(result, obvious.run([model], pixels)) >= 100
    backend.close()
