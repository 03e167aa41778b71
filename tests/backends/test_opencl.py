"""The OpenCL library's part: devices, and programs in the cache."""

from __future__ import annotations

import functools
import gc
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.helpers import obvious
from waifu2x import backends
from waifu2x.backends import Device, device_numbers, open_backend
from waifu2x.backends.call import Call
from waifu2x.cli import cli
from waifu2x.errors import BackendError, DeviceError, UnavailableError
from waifu2x.system import cache

pytest.importorskip("pyopencl")

import pyopencl as cl

from waifu2x.backends import opencl
from waifu2x.backends.gpu.device import source
from waifu2x.backends.opencl import platforms
from waifu2x.backends.opencl.runtime import OpenClRuntime

MACROS: dict[str, str | int] = {"VECTOR": "float4", "WIDTH": 4, "GROUP": 1, "CHAINS": 2}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, for kernels."""
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path / "opencl"


class Builder:
    """Builds one small program, and says whether it was compiled."""

    def __init__(
        self, device: Any, caplog: pytest.LogCaptureFixture, *, driver_keeps_programs: bool
    ) -> None:
        caplog.set_level(logging.INFO)
        self._driver_keeps_programs = driver_keeps_programs
        self._device = device
        self._log = caplog

    def compiles(self, driver: str = "", repeats: int = 8) -> bool:
        """With a runtime of its own, as another process would."""
        runtime = OpenClRuntime(self._device)
        runtime.driver_keeps_programs = self._driver_keeps_programs
        if driver:
            runtime.identity = (*runtime.identity[:-1], driver)
        self._log.clear()
        source.announce_compiling.cache_clear()
        kernel = runtime.build("peak", {**MACROS, "REPEATS": repeats}).kernel("peak", 1)
        target, result = runtime.allocate(16), np.zeros(4, np.float32)
        runtime.launch(kernel, (1, 1, 1), target, 1.0)
        runtime.synchronize()
        runtime.download(target, result)
        assert (result == 1 + repeats).all()  # chains from 0 and 1, half a one each step
        return any("compiling for" in record.message for record in self._log.records)


@pytest.fixture(params=[False, True], ids=["binaries of ours", "the driver's cache"])
def builder(
    request: pytest.FixtureRequest,
    opencl_device: Any,
    own_cache: Path,
    caplog: pytest.LogCaptureFixture,
) -> Builder:
    """A Builder on a cache of its own."""
    return Builder(opencl_device, caplog, driver_keeps_programs=request.param)


def test_a_second_run_compiles_nothing(builder: Builder) -> None:
    assert builder.compiles()
    assert not builder.compiles()


@pytest.mark.parametrize("change", [{"driver": "2.0"}, {"repeats": 9}], ids=repr)
def test_another_driver_or_macro_is_another_program(
    builder: Builder, change: dict[str, Any]
) -> None:
    assert builder.compiles()
    assert builder.compiles(**change)
    assert not builder.compiles(**change)
    assert not builder.compiles()


def test_a_damaged_entry_is_made_again(builder: Builder, own_cache: Path) -> None:
    assert builder.compiles()
    (entry,) = own_cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-9])
    assert builder.compiles()
    assert not builder.compiles()


def test_an_entry_that_the_driver_refuses_is_made_again(builder: Builder, own_cache: Path) -> None:
    assert builder.compiles()
    (entry,) = own_cache.iterdir()
    cache.store("opencl", entry.name, b"no program of any driver")
    assert builder.compiles()
    assert not builder.compiles()


def test_a_network_from_the_cache_compiles_nothing(
    opencl_device: Any, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = obvious.random_model([3, 16, 16, 3], seed=1)
    pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
    caplog.set_level(logging.INFO)
    results = []
    for _ in range(2):
        caplog.clear()
        source.announce_compiling.cache_clear()
        backend = opencl.create(0)
        network = backend.compile([model], "fp32")
        results.append(network.run(Call(pixels, np.float32)))
        backend.close()
    assert not [record for record in caplog.records if "compiling" in record.message]
    np.testing.assert_array_equal(results[0], results[1])


def test_compiling_builds_all_that_a_picture_of_bytes_takes(
    opencl_device: Any, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    backend = open_backend("opencl")
    models = [obvious.random_model([3, 12, 3], seed=1, scale=scale) for scale in (1, 2)]
    network = backend.compile(models, "auto")
    built = sorted(own_cache.rglob("*"))
    assert built
    network.run(Call(np.zeros((9, 12, 3), np.uint8), np.uint8))
    assert sorted(own_cache.rglob("*")) == built
    backend.close()


def test_a_broken_compiler_is_told_when_a_network_is_compiled(
    opencl_device: Any, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = source.read
    monkeypatch.setattr(source, "read", lambda name: real(name) + "\n#error broken\n")
    backend = open_backend("opencl")
    for _ in range(2):
        with pytest.raises(BackendError, match=r": its driver cannot compile \w+\.cl \("):
            backend.compile([obvious.random_model([3, 12, 3], seed=1)], "auto")
    gc.collect()
    assert backend.bytes == 0
    backend.close()


def test_what_the_driver_refuses_is_an_error_of_the_device(builder: Builder) -> None:
    assert builder.compiles()
    runtime = OpenClRuntime(builder._device)
    kernel = runtime.build("peak", {**MACROS, "REPEATS": 8}).kernel("peak", 1)
    target = runtime.allocate(16)
    kernel.group = 7
    with pytest.raises(
        DeviceError, match=r": its driver stopped the work \(.*\); start the"
    ) as caught:
        runtime.launch(kernel, (1, 1, 1), target, 1.0)
    assert "\n" not in str(caught.value)
    target.release()
    target.release()
    runtime.close()


class FakeDevice:
    """A device as far as choosing among devices goes."""

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


def device(kind: int, name: str, shared: bool = False, available: bool = True) -> Any:
    return FakeDevice(
        type=kind,
        name=name,
        host_unified_memory=shared,
        available=available,
        compiler_available=True,
        max_compute_units=1,
        global_mem_size=1 << 30,
        platform=SimpleNamespace(name="platform", version="1.2"),
        driver_version="1",
    )


class FakeCompiler:
    """Stands for the drivers of devices that are none; some cannot compile."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        """Names of devices for which the driver cannot compile."""
        self.compiled: list[str] = []
        """Names of devices, as they were compiled for."""

    def __call__(self, context: str, source: str) -> FakeCompiler:
        """A program, whose context is the name of its device."""
        self._name = context
        return self

    def _build(self, options: bytes, devices: list[Any]) -> None:
        self.compiled.append(self._name)
        if self._name in self.broken:
            raise cl.RuntimeError("clBuildProgram failed: BUILD_PROGRAM_FAILURE")

    def get_build_info(self, device: Any, what: int) -> str:
        return "error: unknown target CPU 'generic'\nDevice failed to build the program\n"


@pytest.fixture
def compiler(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """A FakeCompiler, in a process that has not asked for devices."""
    fake = FakeCompiler()
    monkeypatch.setattr(cl, "Context", lambda devices: devices[0].name)
    monkeypatch.setattr(cl._cl, "_Program", fake)
    start_anew(monkeypatch)
    return fake


def start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what drivers can, as another process would know nothing of it."""
    for name in ("_fault", "_tell"):
        forgetful = functools.cache(getattr(platforms, name).__wrapped__)
        monkeypatch.setattr(platforms, name, forgetful)


class Platform:
    """A platform, or one whose driver is broken."""

    def __init__(self, *devices: Any) -> None:
        self._devices = devices

    def get_devices(self) -> list[Any]:
        if not self._devices:
            raise cl.RuntimeError("clGetDeviceIDs failed: PLATFORM_NOT_FOUND_KHR\nand more")
        return list(self._devices)


PROCESSOR = device(cl.device_type.CPU, "processor", shared=True)
INTEGRATED = device(cl.device_type.GPU, "integrated", shared=True)
DISCRETE = device(cl.device_type.GPU, "discrete")
OFF = device(cl.device_type.GPU, "off", available=False)


def test_discrete_gpus_come_before_integrated_ones_before_processors(
    monkeypatch: pytest.MonkeyPatch, compiler: FakeCompiler
) -> None:
    found = [Platform(PROCESSOR, OFF), Platform(INTEGRATED, DISCRETE)]
    monkeypatch.setattr(cl, "get_platforms", lambda: found)
    assert [d.name for d in opencl.devices()] == ["discrete", "integrated", "processor"]
    assert [d.is_gpu for d in opencl.devices()] == [True, True, False]
    assert platforms.pick(1) is INTEGRATED
    with pytest.raises(UnavailableError, match="has no device 3; choose from 0 to 2"):
        platforms.pick(3)


def test_a_broken_platform_is_skipped_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: FakeCompiler
) -> None:
    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform(), Platform(DISCRETE)])
    assert [d.name for d in opencl.devices()] == ["discrete"]
    (record,) = caplog.records
    assert "OpenCL platform skipped: clGetDeviceIDs failed" in record.message
    assert "\n" not in record.message


@pytest.mark.parametrize("found", [[], [Platform()], [Platform(OFF)]])
def test_no_device_is_a_sentence(monkeypatch: pytest.MonkeyPatch, found: list[Platform]) -> None:
    monkeypatch.setattr(cl, "get_platforms", lambda: found)
    with pytest.raises(UnavailableError, match="backend opencl found no device; install"):
        opencl.devices()


def test_devices_whose_driver_cannot_compile_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: FakeCompiler
) -> None:
    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform(PROCESSOR, INTEGRATED, DISCRETE)])
    compiler.broken = {"discrete", "processor"}
    caplog.set_level(logging.DEBUG)
    assert [d.name for d in opencl.devices()] == ["integrated"]
    assert platforms.pick(0) is INTEGRATED
    with pytest.raises(UnavailableError, match="has no device 1; use 0"):
        platforms.pick(1)
    told = {record.message: record.levelname for record in caplog.records}
    assert told == {
        "OpenCL device passed over, since its driver cannot compile for it: "
        f"{name} (platform, driver 1: error: unknown target CPU 'generic'); "
        "install another version of the driver": level
        for name, level in (("discrete", "WARNING"), ("processor", "DEBUG"))
    }
    assert len(caplog.records) == 2


def test_what_a_driver_can_is_found_out_once(
    monkeypatch: pytest.MonkeyPatch, compiler: FakeCompiler
) -> None:
    """A driver that cannot is asked again: it may be mended under the same version."""
    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform(PROCESSOR, DISCRETE)])
    compiler.broken = {"processor"}
    for expected in (["discrete", "processor"], ["processor"]):
        compiler.compiled.clear()
        start_anew(monkeypatch)
        for _ in range(2):
            assert [d.name for d in opencl.devices()] == ["discrete"]
        assert compiler.compiled == expected
    compiler.broken.clear()
    for expected in (["processor"], []):
        compiler.compiled.clear()
        start_anew(monkeypatch)
        assert [d.name for d in opencl.devices()] == ["discrete", "processor"]
        assert compiler.compiled == expected
    monkeypatch.setattr(DISCRETE, "driver_version", "2")
    start_anew(monkeypatch)
    opencl.devices()
    assert compiler.compiled == ["discrete"]


def test_no_device_that_can_be_compiled_for_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, compiler: FakeCompiler
) -> None:
    without_cuda = tuple(entry for entry in backends._BACKENDS if entry.name != "cuda")
    monkeypatch.setattr(backends, "_BACKENDS", without_cuda)
    sentence = (
        "backend opencl found no device whose driver can compile for it: {}; install another "
        "version of the driver, or use another backend"
    )
    gpu, processor = (
        f"{name} (platform, driver 1: error: unknown target CPU 'generic')"
        for name in ("discrete", "processor")
    )
    compiler.broken = {"processor", "discrete"}
    for found, kind, expected, notices in (
        ([PROCESSOR], UnavailableError, sentence.format(processor), []),
        (
            [PROCESSOR, DISCRETE],
            DeviceError,
            sentence.format(f"{gpu}; {processor}"),
            [sentence.format(gpu)],
        ),
    ):
        monkeypatch.setattr(cl, "get_platforms", lambda found=found: [Platform(*found)])
        with pytest.raises(kind) as raised:
            open_backend("opencl")
        assert str(raised.value) == expected
        rows = json.loads(CliRunner().invoke(cli, ["devices", "--json"]).stdout)
        reasons = [row["reason"] for row in rows if row["backend"] == "opencl"]
        assert reasons == [expected]
        skipped: list[str] = []
        backend = open_backend("auto", on_skip=skipped.append)
        assert (backend.name, skipped) == ("cpu", notices)
        backend.close()
        assert device_numbers("auto") == [0]


def test_auto_compiles_nothing_for_processors(
    monkeypatch: pytest.MonkeyPatch, compiler: FakeCompiler
) -> None:
    """A compiler may end the process: that of LLVM does on a full disk."""
    without_cuda = tuple(entry for entry in backends._BACKENDS if entry.name != "cuda")
    monkeypatch.setattr(backends, "_BACKENDS", without_cuda)
    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform(PROCESSOR)])
    backend = open_backend("auto")
    assert (backend.name, device_numbers("auto"), compiler.compiled) == ("cpu", [0], [])
    backend.close()


def test_a_device_that_cannot_be_opened_says_so_when_it_is(
    monkeypatch: pytest.MonkeyPatch, compiler: FakeCompiler
) -> None:
    def refuse(devices: list[Any]) -> None:
        raise cl.RuntimeError("clCreateContext failed: OUT_OF_RESOURCES")

    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform(DISCRETE)])
    monkeypatch.setattr(cl, "Context", refuse)
    with pytest.raises(DeviceError, match=r"^discrete: cannot be opened \(clCreateContext f"):
        open_backend("opencl")


@pytest.mark.parametrize(("is_gpu", "chosen"), [(True, "opencl"), (False, "cpu")])
def test_auto_takes_opencl_for_a_gpu_only(
    monkeypatch: pytest.MonkeyPatch, opencl_device: Any, is_gpu: bool, chosen: str
) -> None:
    without_cuda = tuple(entry for entry in backends._BACKENDS if entry.name != "cuda")
    monkeypatch.setattr(backends, "_BACKENDS", without_cuda)
    gpus = [Device("device", "", is_gpu)] if is_gpu else []
    monkeypatch.setattr(opencl, "devices", lambda *, gpus_only: gpus)
    backend = open_backend("auto")
    assert backend.name == chosen
    backend.close()


@pytest.mark.matrix
def test_bench_tunes_and_measures(opencl_device: Any, own_cache: Path) -> None:
    result = CliRunner().invoke(
        cli,
        ["bench", "-m", "vgg_7", "--tune", "--json", "--backend", "opencl", "--size", "9x9"],
    )
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["layers"]) == 7
    assert "128 > 128" in result.stderr
    assert "tuning" in [each.kind for each in cache.usage()]
