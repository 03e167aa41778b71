"""Tests what the backends for GPUs share, on any OpenCL device: PoCL will do."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.helpers import family_weights, obvious, weight_files
from tests.helpers.cases import thinned
from tests.helpers.graphs import RandomGraph, residual_in_residual
from waifu2x.backends import Device, Trial, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.backend import GpuBackend
from waifu2x.backends.gpu.compiled_model import CompiledModel
from waifu2x.backends.gpu.device import memory_pool
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.replay import Records
from waifu2x.backends.gpu.device.runtime import OutOfMemoryError, Runtime
from waifu2x.backends.gpu.executor import Executor, PassWork
from waifu2x.backends.gpu.fp32 import direct, winograd
from waifu2x.backends.gpu.fp32.conv import ConvShape, candidates
from waifu2x.backends.gpu.fp32.conv_planes import Planes, planes_of
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.fp32.maps import format_of
from waifu2x.backends.gpu.plan import cuts, tile_plan, tuning
from waifu2x.backends.gpu.plan.tile_plan import MapMemory, MapMemoryError
from waifu2x.backends.gpu.plan.tuning import Choose, StoredChoices
from waifu2x.errors import BackendError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.passes.segments import segmented
from waifu2x.lowering.plan import liveness
from waifu2x.lowering.plan.liveness import Span
from waifu2x.lowering.program import Program
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution
from waifu2x.networks.readers import parse_named
from waifu2x.system import cache

pytest.importorskip("pyopencl")

from waifu2x.backends.opencl.runtime import OpenClBuffer, OpenClRuntime

MEGABYTE = 1 << 20


def pixels_of(height: int, width: int) -> NDArray[np.uint8]:
    """Random pixels."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def backend_of(runtime: Runtime, choose: Choose | None = None) -> GpuBackend:
    """The fp32 executor on a runtime, its steps cut as one says."""
    make = partial(Fp32Executor, runtime)
    return GpuBackend(
        "opencl", runtime, {"fp32": [lambda program, kept: make(program, choose or kept)]}
    )


def run(
    runtime: Runtime, model: Model, pixels: Any, choose: Choose | None = None, **more: Any
) -> NDArray[Any]:
    """Pictures, float32."""
    return (
        backend_of(runtime, choose).compile([model], "fp32").run(Call(pixels, np.float32, **more))
    )


def planes_in(model: Model, number: int, runtime_limits: Any) -> Planes:
    """The planes of a step that is a convolution."""
    program = lower(model)
    step = program.steps[number]
    assert isinstance(step, Conv)
    return planes_of(program, step, format_of(runtime_limits).block)


class Always:
    """A Choose that takes one shape for one step."""

    def __init__(self, shape: ConvShape, step: int) -> None:
        self._shape = shape
        self._step = step

    def __call__(self, step: int, candidates: Sequence[Any], work: str) -> Any:
        return self._shape if step == self._step else candidates[0]


ON_GPU = [
    *winograd._SHAPES,
    direct.DirectShape(8, 1, 4, 8, 4, 4),
    direct.DirectShape(8, 2, 4, 8, 4, 8),
]
LAST_ON_GPU = [direct.DirectShape(line, 1, 4, 1, 32, 2, down=True) for line in (2, 4, 8)]
LONG_TO_COMPILE = [shape for number, shape in enumerate(winograd._SHAPES) if number not in (4, 6)]
"""But one of F(4x4) and one of F(2x4): PoCL takes seconds for each."""
ON_CPU = [
    winograd.WinogradVectorShape(width, 2, 6, cells)
    for width, cells in ((8, 6), (8, 12), (4, 6), (4, 12))
]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        pytest.param(1, shape, marks=pytest.mark.matrix if shape in LONG_TO_COMPILE else ())
        for shape in ON_GPU
    ]
    + [(2, shape) for shape in LAST_ON_GPU],
)
def test_every_shape_for_gpus_is_right(opencl_device: Any, layer: int, shape: ConvShape) -> None:
    runtime = OpenClRuntime(opencl_device)
    assert not isinstance(shape, winograd.WinogradVectorShape)
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
    opencl_device: Any, shape: winograd.WinogradVectorShape
) -> None:
    runtime = OpenClRuntime(opencl_device)
    model = obvious.random_model([3, 20, 33, 3], seed=1)
    limits = replace(runtime.limits, is_cpu=True, vector=shape.width)
    if runtime.limits.local_bytes < shape.local_bytes(planes_in(model, 1, limits)):
        pytest.skip("this device's groups have less local memory")
    runtime.limits = limits
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
    for number in range(4):
        planes = planes_in(model, number, limits)
        found = candidates(limits, planes)
        assert found
        for shape in found:
            match shape:
                case winograd.WinogradVectorShape():
                    assert shape.local_bytes(planes) <= local_bytes
                case winograd.WinogradShape():
                    assert shape.local_bytes <= local_bytes
                    assert shape.group <= max_group
                case direct.DirectShape():
                    assert shape.group <= max_group


@pytest.mark.parametrize("max_group", [1, 2, 16, 24, 64, 96])
def test_shapes_for_devices_with_small_groups(opencl_device: Any, max_group: int) -> None:
    runtime = OpenClRuntime(opencl_device)
    limits = replace(runtime.limits, is_cpu=False, vector=32, max_group=max_group)
    planes = planes_in(obvious.random_model([3, 20, 3], seed=1), 1, limits)
    for count in (3, 12, 20, 64):
        for taps in (1, 3):
            made = replace(planes, taps=taps, outputs=(*range(count),))
            found = direct.candidates(limits, made)
            assert all(0 < shape.group <= max_group for shape in found)
            assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("name", "max_group"), [("chain", 24), pytest.param("cunet", 16, marks=pytest.mark.matrix)]
)
def test_devices_with_small_groups(
    opencl_device: Any, cunet: Model, name: str, max_group: int
) -> None:
    """As some have, whose limits are far below those that kernels would like."""
    runtime = OpenClRuntime(opencl_device)
    runtime.limits = replace(runtime.limits, is_cpu=False, vector=32, max_group=max_group)
    launched: list[int] = []
    real = runtime.launch

    def launch(kernel: Any, *rest: Any) -> None:
        launched.append(kernel.group)
        real(kernel, *rest)

    cast(Any, runtime).launch = launch
    model = cunet if name == "cunet" else obvious.random_model([3, 20, 3], seed=1, scale=2)
    pixels = pixels_of(9, 13)
    result = run(runtime, model, pixels, tta=2)
    assert obvious.psnr(result, obvious.run_turned([model], pixels, 2)) >= 100
    assert 1 < max(launched) <= max_group


class TightRuntime(OpenClRuntime):
    """A device with so much memory, which may promise more, and refuse what it once would give."""

    def __init__(self, device: Any, total: int, promised: int | None = None) -> None:
        super().__init__(device)
        self._total = total
        self._promised = promised
        self.refused = 0
        self.most = 0

    def free_memory(self) -> int:
        return self._total - self.allocated if self._promised is None else self._promised

    def allocate(self, size: int, **options: Any) -> OpenClBuffer:
        if self.allocated + size > self._total:
            self.refused += 1
            raise OutOfMemoryError("refused")
        buffer = super().allocate(size, **options)
        self.most = max(self.most, self.allocated)
        return buffer


class NanRuntime(OpenClRuntime):
    """A device whose memory is NaN where nobody has written."""

    def allocate(self, size: int, **options: Any) -> OpenClBuffer:
        buffer = super().allocate(size, **options)
        self.upload(buffer, np.full(size, 0xFF, np.uint8))
        return buffer


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors keep tiles small of themselves."""
    monkeypatch.setattr(memory_pool, "_CPU_SCRATCH_BYTES", 1 << 40)


@pytest.fixture(scope="module")
def cunet() -> Model:
    """A network with means."""
    (model,) = model_set.find("cunet/art").models(2, None)
    return model


@pytest.fixture(scope="module")
def deep() -> Model:
    """A network whose maps are zero outside, and whose results depend on much around them."""
    return residual_in_residual(4)


@pytest.mark.parametrize(("name", "is_honest"), thinned(("chain", "cunet"), (True, False)))
@pytest.mark.usefixtures("large_tiles")
def test_less_memory_gives_the_same_bits(
    opencl_device: Any, cunet: Model, name: str, is_honest: bool
) -> None:
    chain = obvious.random_model([3, 16, 24, 3], seed=2, scale=2)
    model, pixels = (cunet if name == "cunet" else chain), pixels_of(150, 110)
    whole = TightRuntime(opencl_device, 1 << 40)
    expected = run(whole, model, pixels)
    assert not whole.refused
    weights = whole.most // 4 if name == "chain" else 30 * MEGABYTE
    for total in (whole.most * 2 // 3, weights + (whole.most - weights) // 3):
        tight = TightRuntime(opencl_device, total, None if is_honest else 1 << 40)
        np.testing.assert_array_equal(run(tight, model, pixels), expected)
        assert tight.most <= total
        assert is_honest or tight.refused


@pytest.mark.usefixtures("large_tiles")
def test_maps_are_computed_again_where_they_cannot_be_kept(
    opencl_device: Any, cunet: Model
) -> None:
    runtime = TightRuntime(opencl_device, 1 << 40)
    executor = Fp32Executor(runtime, lower(cunet), StoredChoices(runtime.device))
    size, counts, needs = (300, 300), [], []
    for total in (1 << 40, 200 * MEGABYTE, 100 * MEGABYTE, 50 * MEGABYTE):
        found = tile_plan.find(executor, size, 1, MapMemory(total, total, total))
        assert found.scratch + found.kept <= total
        counts.append(sum(len(phase.steps) for phase in found.phases))
        needs.append(found.scratch + found.kept)
    assert counts == sorted(counts)
    assert counts[0] == sum(1 for step in executor.program.steps if isinstance(step, MapStep))
    assert counts[-1] > counts[0]
    with pytest.raises(MapMemoryError):
        tile_plan.find(executor, size, 1, MapMemory(MEGABYTE, MEGABYTE, MEGABYTE))


@pytest.mark.parametrize("name", ["deep", pytest.param("swinir", marks=pytest.mark.matrix)])
@pytest.mark.usefixtures("large_tiles")
def test_a_deep_network_is_cut_where_memory_is_short(
    opencl_device: Any, deep: Model, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "swinir":
        weights = family_weights.filled(family_weights.swinir(12, (2, 3), blocks=4))
        deep = parse_named(weight_files.safetensors(weights), "swinir.safetensors")
    monkeypatch.setattr(cuts, "TILE", (16, 16))
    pixels = pixels_of(130, 150)
    whole = TightRuntime(opencl_device, 1 << 40)
    expected = run(whole, deep, pixels)
    for share, tile in ((0.75, None), (0.6, None), (0.6, 100)):
        tight = TightRuntime(opencl_device, int(whole.most * share))
        made: list[Executor] = []

        def make(
            program: Program,
            choose: Choose,
            tight: Runtime = tight,
            made: list[Executor] = made,
        ) -> Executor:
            made.append(Fp32Executor(tight, program, choose))
            return made[-1]

        backend = GpuBackend("opencl", tight, {"fp32": [make]})
        result = backend.compile([deep], "fp32").run(Call(pixels, np.float32, tile=tile))
        np.testing.assert_array_equal(result, expected)
        assert tight.most <= whole.most * share
        assert len(made) == 2  # one of the program with cuts
        backend.close()
        assert tight.allocated == 0


def test_networks_that_are_closed_or_given_up_leave_no_weights(opencl_device: Any) -> None:
    """Five compiles leave as much as one, whether their networks are closed or only forgotten."""
    runtime = OpenClRuntime(opencl_device)
    backend = backend_of(runtime)
    model = obvious.random_model([3, 48, 32, 3], seed=1)
    first = backend.compile([model], "fp32")
    one = runtime.allocated
    assert one >= sum(node.weight.nbytes for node in model.nodes if isinstance(node, Convolution))
    first.close()
    assert runtime.allocated == 0
    for _ in range(5):
        network = backend.compile([model, model], "fp32")
        assert runtime.allocated == one
        network.close()
        network.close()
        assert runtime.allocated == 0
    del network
    for _ in range(5):
        backend.compile([model], "fp32")
        gc.collect()
        assert runtime.allocated <= one
    backend.close()


@pytest.mark.usefixtures("large_tiles")
def test_a_network_in_segments_computes_little_twice(opencl_device: Any, deep: Model) -> None:
    runtime = OpenClRuntime(opencl_device)
    program, kept = lower(deep), StoredChoices(runtime.device)
    plain = Fp32Executor(runtime, program, kept)
    divided = Fp32Executor(runtime, segmented(program, (16, 16)), kept)
    size = (260, 300)

    def least(total: int, other: Executor | None) -> tile_plan.Schedule:
        memory = MapMemory(total, total, total)
        found = tile_plan.find(plain, size, 1, memory, divided=lambda: other)
        assert found.scratch + found.kept <= total
        return found

    single = least(1 << 40, divided)
    assert single.is_single
    assert single.executor is plain
    for share, most in ((0.9, 1.1), (0.75, 1.2), (0.55, 1.3), (0.445, 1.6)):
        total = int(single.scratch * share)
        found = least(total, divided)
        assert found.executor is divided
        assert found.cost < single.cost * most < least(total, None).cost * 0.95
    with pytest.raises(MapMemoryError):
        least(MEGABYTE, divided)


def test_tiles_are_as_small_as_wished_for_where_that_costs_little(
    opencl_device: Any, deep: Model
) -> None:
    runtime = OpenClRuntime(opencl_device)
    shallow = obvious.random_model([3, 16, 24, 3], seed=2, scale=2)
    for model, keeps in ((shallow, True), (deep, False)):
        executor = Fp32Executor(runtime, lower(model), StoredChoices(runtime.device))
        single = tile_plan.find(executor, (260, 300), 1, MapMemory(1 << 40, 1 << 40, 1 << 40))
        wish = single.scratch // 8
        found = tile_plan.find(executor, (260, 300), 1, MapMemory(1 << 40, wish, 1 << 40))
        assert (found.scratch <= wish) == keeps
        assert found.cost <= single.cost * 1.25


@pytest.mark.matrix
def test_bands_of_enlarged_maps_give_the_same_bits(
    opencl_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = family_weights.filled(family_weights.swinir(12, (2,), head="shuffle", blocks=1))
    model = parse_named(weight_files.safetensors(shapes), "m.safetensors")
    pixels, made, counts = pixels_of(41, 27), [], []
    for least in (1 << 20, 8):
        monkeypatch.setattr(tile_plan, "_LEAST_BAND", least)
        backend = backend_of(OpenClRuntime(opencl_device))
        network = backend.compile([model], "fp32")
        made.append(network.run(Call(pixels, np.float32)))
        found = tile_plan.whole(network.models[0].executor, (41, 27), 1)
        assert found is not None
        counts.append(len(found.passes[-1]))
        backend.close()
    np.testing.assert_array_equal(made[1], made[0])
    assert counts[0] == 1 < counts[1]


@pytest.mark.parametrize("tile", [None, 32])
def test_what_is_read_beyond_a_picture_reaches_no_pixel(
    opencl_device: Any, deep: Model, tile: int | None
) -> None:
    pixels = pixels_of(41, 27)
    result = run(NanRuntime(opencl_device), deep, pixels, tile=tile)
    assert obvious.psnr(result, obvious.run([deep], pixels)) > 110


def test_few_planes_that_are_added_to_one_part_of_several(opencl_device: Any) -> None:
    """Where they have no planes, memory that nobody has written must not reach the sum."""
    graph = RandomGraph(3, 5)
    few = graph.random_convolution(0, 2, 3, 1, 1, "leaky")
    more = graph.random_convolution(few, 24, 3, 1, 1, "leaky")
    part = graph.add(graph.random_convolution(more, 2, 3, 1, 1, "linear"), few)
    other = graph.random_convolution(part, 2, 3, 1, 1, "leaky")
    graph.random_convolution(graph.concatenate(part, other), 3, 3, 1, 1, "linear")
    model, pixels = graph.model(), pixels_of(24, 23)
    result = run(NanRuntime(opencl_device), model, pixels)
    assert obvious.psnr(result, obvious.run([model], pixels)) > 110


@pytest.mark.usefixtures("large_tiles")
def test_a_passing_shortage_leaves_no_trace(opencl_device: Any) -> None:
    model, pixels = obvious.random_model([3, 16, 24, 3], seed=2, scale=2), pixels_of(150, 110)
    runtime = TightRuntime(opencl_device, 1 << 40)
    backend = backend_of(runtime)
    network = backend.compile([model], "fp32")
    expected = network.run(Call(pixels, np.float32))
    most = runtime.most
    backend._pool.release()
    runtime._total, runtime.most = most // 2, 0
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32)), expected)
    assert runtime.most <= most // 2
    backend._pool.release()
    runtime._total = 1 << 40
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32)), expected)
    assert runtime.most == most


@pytest.mark.usefixtures("large_tiles")
def test_a_network_is_cut_once_there_is_memory_for_that() -> None:
    tries: list[str] = []
    with_cuts = cast(Executor, object())

    def divided() -> Executor:
        tries.append("cut")
        if len(tries) == 1:
            raise OutOfMemoryError
        return with_cuts

    pool = cast(Any, SimpleNamespace(runtime=None))
    made = CompiledModel(cast(Any, None), cast(Any, None), pool, divided)
    assert made._with_cuts() is None
    assert made._with_cuts() is with_cuts
    assert made._with_cuts() is with_cuts
    assert len(tries) == 2


def test_results_come_in_bands_where_they_do_not_fit(opencl_device: Any) -> None:
    model, pixels = obvious.random_model([3, 16, 3], seed=2, scale=2), pixels_of(600, 200)
    expected = run(OpenClRuntime(opencl_device), model, pixels)
    size = expected.nbytes
    tight = TightRuntime(opencl_device, pixels.nbytes + size * 3 // 4)
    np.testing.assert_array_equal(run(tight, model, pixels), expected)


@pytest.mark.usefixtures("large_tiles")
def test_means_over_transformed_pictures_are_made_where_they_fit(opencl_device: Any) -> None:
    model, pixels = obvious.random_model([3, 16, 3], seed=2, scale=2), pixels_of(600, 200)
    whole = TightRuntime(opencl_device, 1 << 40)
    expected = run(whole, model, pixels, tta=4)
    for share in (0.75, 2.5):  # no room for a result, and none for three
        tight = TightRuntime(opencl_device, 2 * pixels.nbytes + int(expected.nbytes * share))
        parts: list[float] = []
        result = run(tight, model, pixels, tta=4, on_progress=parts.append)
        np.testing.assert_array_equal(result, expected)
        assert tight.refused
        assert sum(parts) == pytest.approx(1.0)
    stack = np.stack([pixels[:60], pixels[60:120], pixels[120:180]])
    expected = run(whole, model, stack, tta=2)
    tight = TightRuntime(opencl_device, expected.nbytes * 2)
    np.testing.assert_array_equal(run(tight, model, stack, tta=2), expected)


@pytest.mark.usefixtures("large_tiles")
def test_stacks_are_halved_where_they_do_not_fit(opencl_device: Any) -> None:
    model = obvious.random_model([3, 16, 24, 3], seed=2, scale=2)
    stack = np.stack([pixels_of(60, 50), pixels_of(60, 50)[::-1], pixels_of(60, 50)[:, ::-1]])
    whole = TightRuntime(opencl_device, 1 << 40)
    expected = run(whole, model, stack)
    tight = TightRuntime(opencl_device, whole.most * 2 // 3)
    np.testing.assert_array_equal(run(tight, model, stack), expected)


@pytest.mark.parametrize(
    ("planes", "total", "sentence"),
    [
        (128, 900_000, "no memory for even a small tile"),
        (16, 60_000, "no memory for a picture of"),
        (128, 10_000, "no memory for the weights of random"),
    ],
)
def test_no_memory_at_all_is_a_sentence(
    opencl_device: Any, planes: int, total: int, sentence: str
) -> None:
    model = obvious.random_model([3, 16, planes, 3], seed=2, scale=2)
    with pytest.raises(BackendError, match=sentence) as caught:
        run(TightRuntime(opencl_device, total), model, pixels_of(70, 110))
    assert "\n" not in str(caught.value)
    assert "another backend" in str(caught.value)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 1000)), max_size=12))
def test_what_is_needed_at_the_same_time_does_not_overlap(
    ends: list[tuple[int, int, int]],
) -> None:
    spans = {i: Span(min(a, b), max(a, b), size) for i, (a, b, size) in enumerate(ends)}
    offsets, total = liveness.places(spans, 64)
    for a, span in spans.items():
        assert offsets[a] % 64 == 0
        assert offsets[a] + span.size <= total
        for b, other in spans.items():
            if a < b and span.meets(other):
                first, second = sorted((a, b), key=offsets.__getitem__)
                assert offsets[first] + spans[first].size <= offsets[second]


def test_a_chain_takes_its_two_largest_neighbours() -> None:
    sizes = [64, 640, 1280, 1280, 2560, 2560, 64]
    spans = {i: Span(i, i + 1, size) for i, size in enumerate(sizes)}
    assert liveness.places(spans, 64)[1] == 2560 * 2


def test_records_that_were_used_last_are_kept() -> None:
    gone: list[int] = []
    records = Records[int](gone.append)
    for number in range(64):
        records.keep("owner", number, number)
    assert records.find(0) == 0
    records.keep("another", 64, 64)
    assert gone == [1]
    assert records.find(1) is None
    records.drop("another")
    assert gone == [1, 64]
    records.clear()
    assert len(gone) == 65


def test_what_comes_again_is_replayed(opencl_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = obvious.random_model([3, 16, 3], seed=2, scale=2)
    runs: list[int] = []
    plain = Fp32Executor.launches

    def counted(self: Any, one: PassWork) -> Sequence[LaunchMaker]:
        runs.append(1)
        return plain(self, one)

    monkeypatch.setattr(Fp32Executor, "launches", counted)
    network = backend_of(OpenClRuntime(opencl_device)).compile([model], "fp32")
    runs.clear()
    pixels = pixels_of(20, 30)
    first = network.run(Call(pixels, np.float32))
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32)), first)
    assert len(runs) == 1
    # Other pixels of the same shape, another dtype, another shape.
    other = network.run(Call(255 - pixels, np.float32))
    assert len(runs) == 1
    assert obvious.psnr(other, obvious.run([model], 255 - pixels)) >= 100
    network.run(Call(pixels, np.uint8))
    network.run(Call(pixels[1:], np.float32))
    assert len(runs) == 3


def test_many_sizes_are_computed_as_one_is(opencl_device: Any) -> None:
    """The first few are planned with numbers, the others by formulas; sizes that come again are
    replayed."""
    model = obvious.random_model([3, 16, 8, 3], seed=4, scale=2)
    network = backend_of(OpenClRuntime(opencl_device)).compile([model], "fp32")
    sizes = [(20, 30), (9, 70), (33, 8), (1, 1), (21, 31), (50, 17), (2, 90), (64, 64), (20, 30)]
    for size in (*sizes, *sizes[4:6]):
        pixels = pixels_of(*size)
        found = network.run(Call(pixels, np.float32))
        assert obvious.psnr(found, obvious.run([model], pixels)) >= 100, size


def test_tiles_leave_no_records(opencl_device: Any) -> None:
    runtime = OpenClRuntime(opencl_device)
    network = backend_of(runtime).compile([obvious.random_model([3, 16, 3], seed=2)], "fp32")
    pixels = pixels_of(70, 90)
    tiled = network.run(Call(pixels, np.float32, tile=40))
    assert not runtime._records._kept
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32)), tiled)
    assert len(runtime._records._kept) == 1


def test_spare_memory_is_bounded_and_the_oldest_goes_first(opencl_device: Any) -> None:
    runtime = TightRuntime(opencl_device, 64 * MEGABYTE)
    memory = memory_pool.MemoryPool(runtime)
    for size in range(1, 20):
        with memory.taken() as taken:
            taken.buffer(size * MEGABYTE)
        assert runtime.allocated <= 32 * MEGABYTE
        assert memory.free() <= 64 * MEGABYTE
    # The buffer that was taken last is still there, and serves a request for almost as much.
    before = runtime.allocated
    with memory.taken() as taken:
        assert taken.buffer(18 * MEGABYTE).size == 24 * MEGABYTE
    assert runtime.allocated == before
    # Each is a little larger than what is asked for, for others of about the size.
    with memory.taken() as taken:
        assert taken.buffer(30_000).size == 32_768
    with memory.taken() as taken:
        assert taken.buffer(9_000).size == 32_768
        assert taken.buffer(9_000).size == 12_288
    # Buffers that nobody holds make room for one that does not fit beside them.
    with memory.taken() as taken:
        assert taken.buffer(60 * MEGABYTE).size == 60 * MEGABYTE
    assert runtime.allocated == 0


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


class Ways:
    """An executor's question, and its answers."""

    def __init__(self, kept: StoredChoices, names: str) -> None:
        self.kept = kept
        self.candidates = [direct.DirectShape(line, 1, 4, 8, 4, 4) for line in range(len(names))]

    def best(self) -> int:
        return self.kept(0, self.candidates, "work").line


@pytest.fixture
def ways(own_cache: Path) -> Ways:
    """Four candidates for one step."""
    return Ways(StoredChoices(Device("device", "driver 1")), "abcd")


class FakeExecutor:
    """An executor whose step takes as long as its candidate says."""

    def __init__(self, choose: Choose, ways: Ways, slow: Callable[[int], float]) -> None:
        self.seconds = [slow(choose(0, ways.candidates, "work").line), 1.0]

    def close(self) -> None:
        pass


def tune(ways: Ways, slow: Callable[[int], float]) -> Iterator[Trial]:
    """All trials of such an executor."""
    make: Any = lambda choose: FakeExecutor(choose, ways, slow)  # noqa: E731
    measure: Any = lambda executor: executor.seconds  # noqa: E731
    yield from tuning.tune(ways.kept, make, measure, ["3 > 16", "16 > 3"])


def test_the_best_way_is_kept(ways: Ways) -> None:
    assert ways.best() == 0
    trials = list(tune(ways, lambda line: abs(line - 2) + 1.0))
    assert [trial.seconds for trial in trials] == [3, 2, 1, 2]
    assert trials[0].layer == "3 > 16"
    assert trials[0].option.startswith("direct: line=0, ")
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
    assert StoredChoices(Device("device", "driver 2"))(0, ways.candidates, "work").line == 0
    assert StoredChoices(Device("device", "driver 1"))(0, ways.candidates, "other work").line == 0
    assert StoredChoices(Device("device", "driver 1"))(7, ways.candidates, "work").line == 2


def test_a_damaged_or_foreign_entry_means_the_usual_way(ways: Ways, own_cache: Path) -> None:
    list(tune(ways, lambda line: abs(line - 2) + 1.0))
    (entry,) = (own_cache / "tuning").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert ways.best() == 0
    cache.store("tuning", entry.name, b"ConvShape(of another version)")
    assert ways.best() == 0


def test_a_network_is_tuned_as_a_whole(own_cache: Path, opencl_device: Any) -> None:
    from waifu2x.backends import opencl

    backend: Any = opencl.create(0)
    model = obvious.random_model([3, 16, 16, 3], seed=4)
    pixels = pixels_of(24, 24)
    limits = backend.runtime.limits
    choices = [len(candidates(limits, planes_in(model, step, limits))) for step in range(3)]
    trials = list(backend.tune(model, "fp32", pixels))
    assert len(trials) == sum(count for count in choices if count > 1)
    result = backend.compile([model], "fp32").run(Call(pixels, np.float32))
    assert obvious.psnr(result, obvious.run([model], pixels)) >= 100
    backend.close()


def test_every_step_is_measured(opencl_device: Any, cunet: Model) -> None:
    from waifu2x.backends import opencl

    backend = opencl.create(0)
    measured = backend.measure(cunet, "fp32", pixels_of(24, 24))
    names = [layer.name for layer in measured.layers]
    assert names.count("mean") == 4
    assert names.count("dense") == 8
    assert "64 > 3 up" in names
    assert "256 > 128" in names
    assert all(layer.seconds > 0 for layer in measured.layers)
    assert sum(layer.seconds for layer in measured.layers) == pytest.approx(measured.seconds)
    backend.close()


def test_an_interrupt_while_waiting_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(
        limits=SimpleNamespace(is_cpu=False, max_buffer=1 << 20), free_memory=lambda: 1 << 20
    )
    memory = memory_pool.MemoryPool(cast(Any, runtime))

    def interrupted(condition: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(memory._turn, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), memory.working():
            pass
    entered = threading.Event()

    def share() -> None:
        with memory.sharing():
            entered.set()

    threading.Thread(target=share, daemon=True).start()
    assert entered.wait(30)


def test_what_was_interrupted_while_it_closed_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []
    runtime = SimpleNamespace(
        limits=SimpleNamespace(is_cpu=False, max_buffer=1 << 20),
        free_memory=lambda: 1 << 20,
        close=lambda: closed.append(True),
    )
    memory = memory_pool.MemoryPool(cast(Any, runtime))

    def interrupted(condition: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(memory._turn, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.close()
    assert not closed
    memory.close()
    memory.close()
    assert closed == [True]


@pytest.mark.parametrize(("waiting", "tile"), [("wait", None), ("synchronize", 64)])
def test_an_interrupted_wait_leaves_no_kernel_at_work(
    opencl_device: Any, monkeypatch: pytest.MonkeyPatch, waiting: str, tile: int | None
) -> None:
    """Its buffers go to the next picture, and its result may be given back. The device is waited
    for though interrupts go on, and while nobody else queues kernels: they may be recorded."""
    backend = open_backend("opencl")
    try:
        network = backend.compile([obvious.random_model([3, 8, 3], seed=1)], "auto")
        runtime, pool = cast(Any, backend).runtime, cast(Any, network).pool
        waited: list[bool] = []
        interrupts = iter([KeyboardInterrupt] * 3)

        def interrupted(wait: Callable[..., None], *arguments: Any) -> None:
            for interrupt in interrupts:
                raise interrupt
            wait(*arguments)
            waited.append(pool._queueing.locked())

        with monkeypatch.context() as patch:
            for name in {waiting, "synchronize"}:
                patch.setattr(runtime, name, partial(interrupted, getattr(runtime, name)))
            with pytest.raises(KeyboardInterrupt):
                network.run(Call(np.zeros((9, 9, 3), np.uint8), np.uint8, tile=tile))
        assert waited == [True]
        assert network.run(Call(np.zeros((9, 9, 3), np.uint8), np.uint8)).shape == (9, 9, 3)
    finally:
        backend.close()
