"""Maps of 16-bit floats, and products of matrices of them, without a unit for such products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import need
from tests.helpers import obvious
from tests.helpers.operations import OPERATIONS
from waifu2x.backends import accuracy
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.backend import GpuBackend
from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.fp32 import halves, matrix
from waifu2x.backends.gpu.fp32.conv_planes import Planes
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.fp32.matrix import MatrixShape, MatrixUnit, candidates
from waifu2x.backends.vulkan import physical
from waifu2x.backends.vulkan.compiler.generator import compile_kernels
from waifu2x.backends.vulkan.runtime import VulkanRuntime
from waifu2x.errors import BackendError
from waifu2x.networks.model import Model
from waifu2x.system import cache

UNIT = MatrixUnit(2, 8, 8, 1)
"""No unit: small matrices, which work-items multiply."""


@pytest.fixture(scope="module")
def runtime() -> Iterator[VulkanRuntime]:
    """A runtime on the default device."""
    need("vulkan")
    opened = VulkanRuntime(physical.pick(0))
    yield opened
    opened.close()


def backend_of(runtime: VulkanRuntime, *form: int) -> GpuBackend:
    """A backend whose convolutions are products of matrices, divided as one says."""
    shape = MatrixShape(UNIT, *(form or (2, 1, 2, 2, 1)))
    fp32 = partial(Fp32Executor, runtime)

    def choose(step: int, candidates: Sequence[Any], work: str) -> Any:
        return shape if isinstance(candidates[0], MatrixShape) else candidates[0]

    fp16 = halves.maker(runtime, UNIT)
    makers: Any = {
        "fp16": [lambda program, kept: fp16(program, choose), fp32],
        "fp32": [fp32],
        "auto": [lambda program, kept: fp16(program, choose), fp32],
    }
    return GpuBackend("vulkan", runtime, makers, halves.decides(runtime, UNIT))


def pixels_of(*shape: int) -> NDArray[np.uint8]:
    """Random pixels."""
    return np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)


@pytest.mark.parametrize(
    ("model", "form"),
    [
        (obvious.random_model([3, 20, 24, 3], seed=1), (2, 2, 2, 2, 1)),
        (obvious.random_model([3, 40, 16, 3], seed=2, scale=2), (2, 1, 2, 1, 2)),
    ],
)
def test_products_of_matrices_are_convolutions(
    runtime: VulkanRuntime, model: Model, form: tuple[int, ...]
) -> None:
    pixels = pixels_of(2, 11, 14)
    network = backend_of(runtime, *form).compile([model], "fp16")
    assert network.arithmetic == "fp16 by matrices"
    made = network.run(Call(pixels, np.float32))
    assert obvious.psnr(made[0], obvious.run([model], pixels[0])) > 70
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32)), made)
    np.testing.assert_array_equal(network.run(Call(pixels[1], np.float32, tile=9)), made[1])
    network.close()


USUAL = ("concatenation and slice", "convolution, stride 2", "gate", "squeeze and excite")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in USUAL else pytest.mark.matrix) for name in OPERATIONS],
)
def test_every_operation_keeps_what_16_bits_hold(runtime: VulkanRuntime, name: str) -> None:
    model = OPERATIONS[name]()
    pixels = np.random.default_rng(0).integers(0, 256, (15, 18, model.in_planes), np.uint8)
    network = backend_of(runtime).compile([model], "fp16")
    if network.arithmetic == "fp32":
        pytest.skip("runs in fp32")
    made = network.run(Call(pixels, np.float32))
    assert obvious.psnr(made, obvious.run([model], pixels)) > 55
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=8)), made)
    network.close()


def test_a_picture_beyond_16_bits_is_computed_in_fp32(runtime: VulkanRuntime) -> None:
    model = obvious.random_model([3, 16, 16, 3], seed=1)
    first, *_ = [node for node in model.nodes if hasattr(node, "weight")]
    first.weight[:] *= 300_000 / abs(first.weight).max()
    backend = backend_of(runtime)
    pixels = np.zeros((2, 9, 12, 3), np.uint8)
    pixels[1] = pixels_of(9, 12)
    made = backend.compile([model], "fp16").run(Call(pixels, np.float32))
    exact = backend.compile([model], "fp32").run(Call(pixels, np.float32))
    np.testing.assert_array_equal(made[1], exact[1])


@pytest.mark.parametrize(("promised", "arithmetic"), [(60.0, "fp16 by matrices"), (90.0, "fp32")])
def test_auto_takes_16_bits_where_they_are_exact_enough(
    runtime: VulkanRuntime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    promised: float,
    arithmetic: str,
) -> None:
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setattr(accuracy, "PROMISED", promised)
    monkeypatch.setattr(accuracy, "_SIDE", 24)
    backend = backend_of(runtime)
    network = backend.compile([obvious.random_model([3, 16, 3], seed=1)], "auto")
    assert network.arithmetic == arithmetic
    assert ("fp16 is too coarse or fails, using fp32" in caplog.text) == (arithmetic == "fp32")
    network.close()


def test_auto_takes_fp32_where_a_driver_refuses_the_kernel(
    runtime: VulkanRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setattr(accuracy, "_SIDE", 24)
    build = runtime.build

    def refuse(stem: str, macros: Any) -> Any:
        if stem == "matrix":
            raise BackendError("its driver does not take the code", "update the driver")
        return build(stem, macros)

    monkeypatch.setattr(runtime, "build", refuse)
    network = backend_of(runtime).compile([obvious.random_model([3, 16, 3], seed=1)], "auto")
    assert network.arithmetic == "fp32"
    network.close()


def test_steps_that_could_hide_large_values_run_in_fp32(runtime: VulkanRuntime) -> None:
    backend = backend_of(runtime)
    network = backend.compile([OPERATIONS["norm of a pixel's planes"]()], "fp16")
    assert network.arithmetic == "fp32"
    network.close()


def test_the_largest_product_of_16_bit_floats_summed_in_fp32_is_taken() -> None:
    def product(m: int, n: int, k: int, of: int, into: int) -> Any:
        return SimpleNamespace(m=m, n=n, k=k, a=of, b=of, c=into, result=into)

    half, single, integer, whole = 0, 1, 3, 5
    found = [product(16, 8, 8, half, single), product(16, 16, 16, half, single)]
    others = [product(32, 32, 32, half, half), product(16, 16, 32, integer, whole)]
    assert physical._of_halves([*found, *others]) == (16, 16, 16)
    assert physical._of_halves(others) is None


def test_the_rate_of_products_is_measured(
    runtime: VulkanRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "_PEAK_REPEATS", 2)
    assert matrix.matrix_peak(runtime, UNIT) > 0


def test_a_unit_is_given_one_product_for_each_tap_and_vector() -> None:
    unit = MatrixUnit(16, 16, 16, 32)
    planes = Planes(3, tuple(range(32)), tuple(range(64)), 64, 8, False, False, False)
    limits: Any = SimpleNamespace(local_bytes=48 << 10, max_group=1024)
    found = candidates(limits, planes, unit)
    assert found
    for shape in found[:2]:
        macros = {
            **shape.macros(planes),
            "UNIT": 256,
            "BLOCK": 8,
            "HALF_MAPS": 1,
            "CHECKED": 1,
            "SLOPE": "0.1f",
            "SUB_PLANES": 64,
            "SUB_BLOCKS": 8,
            "STORED": 64,
            "D2S": 1,
            "S2D": 1,
            "ACTIVATE(type, x, slope)": "MAX(x, (x) * (slope))",
        }
        words = np.frombuffer(compile_kernels(source.of("matrix"), macros, 256).words, np.uint32)
        opcodes, place = list[int](), 5
        while place < len(words):
            opcodes.append(int(words[place] & 0xFFFF))
            place += int(words[place] >> 16)
        multiply, load = 4459, 4457
        assert opcodes.count(multiply) == 9 * shape.sub_m * shape.sub_n
        # A row of pixels is loaded once for the taps of a column.
        assert opcodes.count(load) == 3 * (shape.sub_m + 2) + 9 * shape.sub_n
