"""The Vulkan library's part: its compiler, devices, what goes wrong, and what is left behind."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import need
from tests.helpers import obvious
from waifu2x import backends
from waifu2x.backends import device_numbers, open_backend, vulkan
from waifu2x.backends.call import Call
from waifu2x.backends.gpu.device import source
from waifu2x.backends.vulkan import library, physical
from waifu2x.backends.vulkan.compiler import preprocessor
from waifu2x.backends.vulkan.compiler.generator import compile_kernels
from waifu2x.backends.vulkan.compiler.syntax import KernelSyntaxError
from waifu2x.backends.vulkan.library import VulkanError
from waifu2x.backends.vulkan.physical import PhysicalDevice
from waifu2x.backends.vulkan.runtime import VulkanRuntime
from waifu2x.errors import BackendError, DeviceError, UnavailableError
from waifu2x.system import cache

MODEL = obvious.random_model([3, 12, 3], seed=1)
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, for kernels."""
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path / "vulkan"


@pytest.fixture
def runtime() -> Iterator[VulkanRuntime]:
    """A runtime of its own on the default device."""
    need("vulkan")
    opened = VulkanRuntime(physical.pick(0))
    yield opened
    opened.close()


# Its compiler

DIALECT = """
__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void
work(__global {type} *made, const __global {type} *read, const int count) {{
    const int id = (int)get_local_id(0);
    {body}
}}
"""


@pytest.fixture
def worked(
    runtime: VulkanRuntime, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[float]]:
    """Returns a function that runs a body of code in 8 work-items, and returns 8 numbers that it
    wrote."""

    def work(body: str, read: Any, dtype: Any = np.int32, functions: str = "") -> list[float]:
        kind = {"int32": "int", "float32": "float", "uint8": "uchar"}[np.dtype(dtype).name]
        text = functions + DIALECT.format(type=kind, body=body)
        monkeypatch.setattr(source, "of", lambda stem: text)
        kernel = runtime.build(f"work {body}", {}).kernel("work", 8)
        given, made = np.asarray(read, dtype), np.zeros(8, dtype)
        buffers = [runtime.allocate(made.nbytes), runtime.allocate(given.nbytes)]
        runtime.upload(buffers[0], made)
        runtime.upload(buffers[1], given)
        runtime.launch(kernel, (1, 1, 1), *buffers, 8)
        runtime.synchronize()
        runtime.download(buffers[0], made)
        return [float(number) for number in made]

    return work


NUMBERS = [-7, -4, -1, 0, 1, 4, 7, 100]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("made[id] = read[id] / 4 * 10 + read[id] % 4;", [-13, -10, -1, 0, 1, 10, 13, 250]),
        ("made[id] = read[id] > 0 ? 100 / read[id] : -1;", [-1, -1, -1, -1, 100, 25, 14, 1]),
        ("made[id] = id < 3 && read[id + 1] < 0 || id > 6;", [1, 1, 0, 0, 0, 0, 0, 1]),
        ("if (id % 2) return; made[id] = id;", [0, 0, 2, 0, 4, 0, 6, 0]),
        ("made[id] = (int)(((long)read[id] * 1000000000) / 1000000);", [n * 1000 for n in NUMBERS]),
        (
            "int sum = 0; for (int i = 0; i < 8; i++) { if (i == id) continue; sum += read[i]; }"
            " made[id] = sum;",
            [100 - n for n in NUMBERS],
        ),
        (
            'int held[4]; _Pragma("unroll") for (int i = 0; i < 4; i++) held[i] = read[id] * i;'
            " int *second = held + 1; made[id] = second[id % 2] - !held[0];",
            [-8, -9, -2, -1, 0, 7, 6, 199],
        ),
        (
            "__local int all[8]; all[id] = read[id]; barrier(0); made[id] = all[7 - id];",
            NUMBERS[::-1],
        ),
        ("const __global int *p = read + id; made[id] = *p++ + *p;", None),
        ("made[id] = twice(clipped(read[id]));", [0, 0, 0, 0, 2, 8, 10, 10]),
    ],
)
def test_c_means_what_it_says(
    worked: Callable[..., list[float]], body: str, expected: list[int] | None
) -> None:
    functions = (
        "inline int clipped(int x) { if (x < 0) return 0; if (x > 5) return 5; return x; }"
        "inline int twice(int x) { return x * 2; }"
    )
    if expected is None:
        expected = [NUMBERS[n] + [*NUMBERS, 0][n + 1] for n in range(8)]
    assert worked(body, [*NUMBERS, 0], functions=functions) == expected


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "tanh": math.tanh,
    "erf": math.erf,
    "sqrt": math.sqrt,
    "rint": round,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers(worked: Callable[..., list[float]], name: str) -> None:
    values = np.array([-80, -2.5, -0.3, 0, 0.5, 1.5, 3, 80], np.float32)
    if name == "sqrt":
        values = abs(values)
    found = worked(f"made[id] = {name}(read[id]);", values, np.float32)
    expected = [FUNCTIONS[name](float(value)) for value in values]
    np.testing.assert_allclose(np.array(found), np.array(expected), 2e-5, 3e-7)


def test_short_integers_wrap_as_in_c(worked: Callable[..., list[float]]) -> None:
    found = worked("made[id] = (uchar)(read[id] * 3 + 1);", range(80, 88), np.uint8)
    assert found == [(n * 3 + 1) % 256 for n in range(80, 88)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nothing(made[id]);", "unknown function nothing"),
        ("made[id] = other;", "unknown name other"),
        ("made[id] = read;", "pointer"),
        ("made[id] = 1", "; is missing"),
        ("const int x = 1; x = 2", "missing"),
        ('_Pragma("unroll") for (int i = 0; i < count; i++) made[i] = 0;', "no known end"),
        ("made[id] = 1 / 0;", "divided by zero"),
    ],
)
def test_what_is_not_of_the_language_is_a_sentence(text: str, fault: str) -> None:
    with pytest.raises(KernelSyntaxError, match=fault):
        compile_kernels(DIALECT.format(type="int", body=text), {}, 128)


def test_macros_are_replaced_as_in_c() -> None:
    text = """
    #define ADD(a, b) a + b  // a comment
    #define NAME(x) x##_end ADD(x, \\
        1)
    #if defined(SIZE) && SIZE * 2 >= 8 && !OTHER
    NAME(one) SIZE ADD(ADD(1, (2, 3)), SIZE)
    #elif 1
    wrong
    #else
    wrong
    #endif
    #ifndef SIZE
    wrong
    #endif
    """
    found = " ".join(preprocessor.tokens_of(text, {"SIZE": 4}))
    assert found == "one_end one + 1 4 1 + ( 2 , 3 ) + 4"


# The cache

Compiles = Callable[[], bool]


@pytest.fixture
def compiles(own_cache: Path, caplog: pytest.LogCaptureFixture) -> Compiles:
    """Returns a function that runs a network as another process would, and says whether it was
    compiled."""
    need("vulkan")
    caplog.set_level(logging.INFO)

    def run() -> bool:
        caplog.clear()
        source.announce_compiling.cache_clear()
        backend = open_backend("vulkan")
        result = backend.compile([MODEL], "fp32").run(Call(PIXELS, np.float32))
        backend.close()
        assert obvious.psnr(result, obvious.run([MODEL], PIXELS)) > 100
        return any("compiling for" in record.message for record in caplog.records)

    return run


def test_a_second_run_compiles_nothing(compiles: Compiles) -> None:
    assert compiles()
    assert not compiles()


def test_a_damaged_entry_is_made_again(compiles: Compiles, own_cache: Path) -> None:
    assert compiles()
    for entry in own_cache.iterdir():
        entry.write_bytes(entry.read_bytes()[:-9])
    assert compiles()
    assert not compiles()


def test_an_entry_of_another_driver_is_made_again(
    compiles: Compiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiles()
    device = physical.pick(0)
    other = replace(device, identity=(*device.identity, "other"))
    monkeypatch.setattr(physical, "_described", lambda: [other])
    assert compiles()
    assert not compiles()


def test_what_the_driver_refuses_is_compiled_again(
    compiles: Compiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiles()
    real, refused = library.library().CreateComputePipelines, list[int]()

    def refuse_once(*arguments: Any) -> int:
        if not refused:
            refused.append(1)
            raise VulkanError(-13)
        return int(real(*arguments))

    monkeypatch.setattr(library.library(), "CreateComputePipelines", refuse_once)
    assert compiles()
    assert refused


# Faults


def failing(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """Has a function of the loader fail."""

    def fail(*arguments: Any) -> None:
        raise VulkanError(code)

    monkeypatch.setattr(library.library(), name, fail)


def test_a_lost_device_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan")
    backend = open_backend("vulkan")
    network = backend.compile([MODEL], "fp32")
    with monkeypatch.context() as patch:
        failing(patch, "QueueSubmit", library.DEVICE_LOST)
        with pytest.raises(
            DeviceError, match=r": its driver stopped the work \(the device is lost\); start the"
        ):
            network.run(Call(PIXELS, np.uint8))
        failing(patch, "DeviceWaitIdle", library.DEVICE_LOST)
        backend.close()


def test_no_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan")
    backend = open_backend("vulkan")
    with monkeypatch.context() as patch:
        failing(patch, "AllocateMemory", -2)
        with pytest.raises(BackendError, match=r"no memory for the weights of .*; close other"):
            backend.compile([MODEL], "fp32")
    assert backend.bytes == 0
    network = backend.compile([MODEL], "fp32")
    network.run(Call(PIXELS, np.uint8))
    backend.close()


def test_a_driver_that_refuses_a_kernel_is_a_sentence(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vulkan")
    backend = open_backend("vulkan")
    failing(monkeypatch, "CreateComputePipelines", -13)
    with pytest.raises(
        BackendError, match=r": its driver does not take the code of direct \(error -13\); update"
    ):
        backend.compile([MODEL], "fp32")
    backend.close()


def test_a_device_that_cannot_be_opened_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan")
    failing(monkeypatch, "CreateDevice", -3)
    with pytest.raises(DeviceError, match=r": cannot be opened \(it cannot be started\); close"):
        open_backend("vulkan")


def test_no_loader_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", none)
    with pytest.raises(UnavailableError, match="backend vulkan found no loader of Vulkan; install"):
        library.library.__wrapped__()


def test_an_old_loader_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    with pytest.raises(UnavailableError, match=r"needs a loader of Vulkan 1\.2 or newer; update"):
        library.library.__wrapped__()


def test_no_driver_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan")
    failing(monkeypatch, "CreateInstance", -9)
    with pytest.raises(
        UnavailableError,
        match=r"found no driver \(no driver that fits\); install your GPU's driver",
    ):
        physical.instance.__wrapped__()


def device(name: str, kind: int, missing: str = "") -> PhysicalDevice:
    """A device as far as choosing among devices goes."""
    memory = library.MemoryProperties(heap_count=1)
    memory.heaps[0].size, memory.heaps[0].flags = 1 << 30, 1
    return PhysicalDevice(
        handle=0,
        name=name,
        type=kind,
        api=0,
        driver="driver 1",
        identity=(name,),
        memory=memory,
        limits=library.Limits(),
        subgroup=32,
        units=0,
        most_allocated=0,
        extensions=frozenset(),
        missing=missing,
        families=((2, 1, 64),),
        matrices=(),
    )


DISCRETE, INTEGRATED = device("discrete", 2), device("integrated", 1)
PROCESSOR, OLD = device("processor", 4), device("old", 2, missing="Vulkan 1.2")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([], "backend vulkan found no device; install your GPU's driver"),
        ([OLD], "backend vulkan needs Vulkan 1.2, which old has not with driver 1; update"),
    ],
)
def test_no_device_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, found: list[PhysicalDevice], sentence: str
) -> None:
    monkeypatch.setattr(physical, "_described", lambda: found)
    with pytest.raises(UnavailableError, match=sentence):
        vulkan.devices()


def test_a_device_that_lacks_something_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(physical, "_described", lambda: [OLD, INTEGRATED])
    assert [found.name for found in vulkan.devices()] == ["integrated"]
    assert "old lacks Vulkan 1.2" in caplog.text


@pytest.mark.parametrize(
    ("found", "chosen"), [([DISCRETE, PROCESSOR], "vulkan"), ([INTEGRATED, PROCESSOR], "cpu")]
)
def test_auto_takes_a_gpu_with_memory_of_its_own(
    monkeypatch: pytest.MonkeyPatch, found: list[PhysicalDevice], chosen: str
) -> None:
    others = tuple(each for each in backends._BACKENDS if each.name not in ("cuda", "opencl"))
    monkeypatch.setattr(backends, "_BACKENDS", others)
    monkeypatch.setattr(physical, "_described", lambda: found)
    monkeypatch.setattr(vulkan, "_NODES", ("null",))  # there is one
    opened = SimpleNamespace(name="vulkan", close=lambda: None)
    monkeypatch.setattr(vulkan, "create", lambda number: opened)
    backend = open_backend("auto")
    assert (backend.name, device_numbers("auto")) == (chosen, [0])
    backend.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only drivers know their GPUs")
def test_auto_loads_no_driver_where_no_gpu_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PhysicalDevice] = []

    def described() -> list[PhysicalDevice]:
        asked.append(DISCRETE)
        return asked

    monkeypatch.setattr(physical, "_described", described)
    monkeypatch.setattr(vulkan, "_NODES", ("no such file*",))
    assert (vulkan.devices(gpus_only=True), asked) == ([], [])
    assert [found.name for found in vulkan.devices()] == ["discrete"]


# Remains

LAYER = "VK_LAYER_KHRONOS_validation"
WORK = """
import numpy as np
from tests.helpers import obvious
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
models = [obvious.random_model([3, 12, 3], 1), obvious.random_model([3, 12, 3], 1, scale=2)]
pixels = np.random.default_rng(0).integers(0, 256, (2, 21, 30, 3), np.uint8)
backend = open_backend("vulkan")
network = backend.compile(models, "fp32")
for options in ({}, {"tile": 9}, {"tta": 2}, {}):
    result = network.run(Call(pixels, np.float32, **options))
with backend.runtime.timed() as times:
    network.run(Call(pixels, np.float32))
assert all(seconds > 0 for _, seconds in times)
backend.close()
del result
print("done")
"""


@functools.cache
def has_layer() -> bool:
    """Whether the layer is here that checks calls."""
    loader = ctypes.CDLL("libvulkan.so.1")
    found: list[Any] = library.listed(loader.vkEnumerateInstanceLayerProperties, Layer)
    return any(each.name == LAYER.encode() for each in found)


class Layer(ctypes.Structure):
    """A layer, as the loader lists it."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("version", ctypes.c_uint32 * 2),
        ("about", ctypes.c_char * 256),
    )


def test_every_call_is_valid_and_nothing_is_left(tmp_path: Path) -> None:
    need("vulkan")
    if not has_layer():
        pytest.skip("the package vulkan-validationlayers is not here")
    environment = {
        **os.environ,
        "VK_INSTANCE_LAYERS": LAYER,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", WORK], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("done", "", 0)


def test_results_outlive_their_backend() -> None:
    need("vulkan")
    backend = open_backend("vulkan")
    network = backend.compile([MODEL], "fp32")
    result: NDArray[np.float32] = network.run(Call(PIXELS, np.float32))
    kept = result.copy()
    backend.close()
    backend.close()
    np.testing.assert_array_equal(result, kept)


@pytest.mark.matrix
def test_kernels_of_large_groups() -> None:
    """Winograd's, which a processor's driver compiles for many seconds."""
    need("vulkan")
    backend: Any = open_backend("vulkan")
    backend.runtime.limits = replace(backend.runtime.limits, max_group=1024)
    model = obvious.random_model([3, 32, 64, 3], seed=1)
    network = backend.compile([model], "fp32")
    result = network.run(Call(PIXELS, np.float32))
    assert any("winograd" in key for key in backend.runtime._modules)
    assert obvious.psnr(result, obvious.run([model], PIXELS)) > 100
    backend.close()
