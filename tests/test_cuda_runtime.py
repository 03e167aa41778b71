"""The Runtime on pycuda, with a driver that computes nothing: what goes wrong, and what then."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import obvious
from tests.fake_cuda import FakeDriver
from waifu2x import cache
from waifu2x.backends.cuda import compiler
from waifu2x.backends.gpu.runtime import OutOfMemoryError
from waifu2x.errors import BackendError, DeviceError

PIXELS = np.zeros((20, 30, 3), np.uint8)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An nvcc whose code is the name of the file, and the names of what it has compiled; an empty
    cache."""
    names: list[str] = []

    def compile_(name: str, *arguments: Any) -> bytes:
        names.append(name)
        return f"{name} {len(names)}".encode()

    monkeypatch.setattr(compiler, "_compile", compile_)
    monkeypatch.setattr(compiler, "find_nvcc", lambda: "nvcc")
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return names


@pytest.fixture
def backend(driver: FakeDriver, compiled: list[str]) -> Iterator[Any]:
    """The backend on a device without matrix units."""
    module = importlib.import_module("waifu2x.backends.cuda.backend")
    opened = module.create(0)
    yield opened
    opened.close()


@pytest.fixture
def network(backend: Any) -> Any:
    """A small network that doubles."""
    return backend.compile([obvious.random_model([3, 16, 3], seed=1, scale=2)], "auto")


@pytest.mark.parametrize("launch", [1, 2, 3])
def test_an_illegal_access_is_one_line_and_closing_still_works(
    driver: FakeDriver,
    backend: Any,
    network: Any,
    launch: int,
) -> None:
    driver.failing_launch = launch

    def twice() -> None:
        network(PIXELS, np.uint8)
        network(PIXELS, np.uint8)

    for _ in range(3):
        with pytest.raises(DeviceError) as caught:
            twice()
        assert str(caught.value) == (
            "Fake: its driver stopped the work (an illegal memory access was encountered):"
            " start the program again, or use another backend"
        )
    backend.close()


def test_a_device_that_cannot_be_opened_is_passed_over_by_auto(
    driver: FakeDriver,
    compiled: list[str],
) -> None:
    driver.broken = "exclusive"
    module = importlib.import_module("waifu2x.backends.cuda.backend")
    with pytest.raises(DeviceError, match=r"^Fake: cannot be opened \(exclusive\): close other"):
        module.create(0)


def test_pages_that_cannot_be_locked_are_ordinary_ones(
    driver: FakeDriver,
    network: Any,
) -> None:
    driver.locked_out = True
    assert network(PIXELS, np.uint8).shape == (40, 60, 3)


def test_large_arrays_are_not_locked(driver: FakeDriver, backend: Any) -> None:
    assert backend._runtime.host_array((1 << 15, 1 << 16), np.uint8).nbytes == 1 << 31
    assert not driver.locked
    backend._runtime.host_array((1 << 10, 1 << 10), np.uint8)
    assert driver.locked == 1 << 20


def test_all_that_a_context_has_is_freed_in_it(
    driver: FakeDriver, compiled: list[str], network: Any, backend: Any
) -> None:
    """Pages of results that outlive their backend too: by the next one."""
    result = network(PIXELS, np.uint8)
    before = driver.locked
    assert before
    backend.close()
    backend.close()
    del result
    assert driver.freed_outside == 0
    module = importlib.import_module("waifu2x.backends.cuda.backend")
    memory = importlib.import_module("waifu2x.backends.cuda.memory")
    assert len(memory._ORPHANS) == 1
    other = module.create(0)
    other._runtime.host_array((5, 5), np.uint8)
    assert not memory._ORPHANS
    other.close()
    del network, other
    gc.collect()
    assert driver.freed_outside == 0


def test_pages_of_a_broken_context_are_not_freed(driver: FakeDriver, backend: Any) -> None:
    """pycuda says on the terminal, of each, that it cannot."""
    runtime = backend._runtime
    arrays = [runtime.host_array((size, 1 << 10), np.uint8) for size in range(10, 200, 20)]
    del arrays
    driver.broken = "an illegal memory access was encountered"
    with pytest.raises(DeviceError):
        runtime.host_array((1 << 14, 1 << 10), np.uint8)
    backend.close()
    assert driver.freed_outside == 0


def test_memory_that_runs_out_while_copying_is_a_sentence(
    driver: FakeDriver,
    network: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = importlib.import_module("waifu2x.backends.cuda.runtime")

    def refuse(*arguments: Any) -> None:
        raise runtime.cuda.MemoryError("out of memory")

    for name in ("memcpy_htod_async", "memcpy_dtoh_async"):
        with monkeypatch.context() as patch:
            patch.setattr(runtime.cuda, name, refuse)
            with pytest.raises(BackendError, match=r"^Fake: no memory for a picture of ") as caught:
                network(PIXELS, np.uint8)
            assert not isinstance(caught.value, DeviceError)
        assert network(PIXELS, np.uint8).shape == (40, 60, 3)


def test_buffers_come_back_to_the_driver(driver: FakeDriver, backend: Any, network: Any) -> None:
    network(PIXELS, np.uint8)
    assert driver.used
    backend.close()
    assert not driver.used


def test_memory_is_written_before_anybody_reads_it(driver: FakeDriver, backend: Any) -> None:
    driver.total = 1 << 40
    for size in (1, 4097, (1 << 31) + 5, 5 << 31):
        driver.cleared.clear()
        address = backend._runtime.allocate(size).address
        for start, length in sorted(driver.cleared.items()):
            assert start == address
            address += length
        assert sum(driver.cleared.values()) == size


# Code in the cache.


def test_code_that_the_driver_refuses_is_compiled_again(
    driver: FakeDriver,
    backend: Any,
    compiled: list[str],
) -> None:
    model = obvious.random_model([3, 16, 3], seed=1)
    backend.compile([model], "auto")
    first = list(compiled)
    driver.refused = {f"{name} {number}".encode() for number, name in enumerate(first, 1)}
    module = importlib.import_module("waifu2x.backends.cuda.backend")
    another = module.create(0)
    another.compile([model], "auto")
    assert compiled == first * 2
    another.close()
    module.create(0).compile([model], "auto")
    assert compiled == first * 2


def test_code_that_the_driver_refuses_even_fresh_is_a_sentence(
    driver: FakeDriver,
    backend: Any,
    compiled: list[str],
) -> None:
    driver.refused = {f"direct.cl {number}".encode() for number in range(9)}
    with pytest.raises(BackendError, match="its driver does not take the code of direct") as caught:
        backend.compile([obvious.random_model([3, 16, 3], seed=1)], "auto")
    assert not isinstance(caught.value, DeviceError)


# Graphs.


def test_the_third_picture_is_one_launch_of_a_graph(
    driver: FakeDriver,
    backend: Any,
    network: Any,
) -> None:
    counts = []
    for _ in range(4):
        network(PIXELS, np.uint8)
        counts.append(driver.launched)
    # Launched, captured, replayed.
    assert counts == [2, 4, 4, 4]
    assert (driver.graphs, driver.executables) == (0, 1)
    backend.close()
    assert not driver.executables


@pytest.mark.parametrize("call", ["launch", "end", "instantiate"])
def test_a_capture_that_fails_leaks_nothing_and_the_work_goes_on(
    driver: FakeDriver,
    network: Any,
    call: str,
) -> None:
    driver.failing_capture = call
    for _ in range(4):
        launched = driver.launched
        assert network(PIXELS, np.uint8).shape == (40, 60, 3)
        assert driver.launched >= launched + 2
    assert (driver.graphs, driver.executables, driver.capturing) == (0, 0, False)


def test_a_device_that_breaks_while_it_is_captured_says_so(
    driver: FakeDriver,
    network: Any,
) -> None:
    network(PIXELS, np.uint8)
    driver.failing_launch = driver.launched + 1
    with pytest.raises(DeviceError, match="an illegal memory access"):
        network(PIXELS, np.uint8)
    assert (driver.graphs, driver.capturing) == (0, False)


def test_out_of_memory_is_no_fault_of_the_device(driver: FakeDriver, backend: Any) -> None:
    with pytest.raises(OutOfMemoryError):
        backend._runtime.allocate(1 << 40)
    assert backend._runtime.allocate(1 << 20).size == 1 << 20
