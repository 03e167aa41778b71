"""The Runtime on a driver that computes nothing: what goes wrong, and what then."""

from __future__ import annotations

import gc
import os
import re
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.helpers import obvious
from tests.helpers.fake_cuda import FakeDriver, fetched
from waifu2x.backends import argv_peek, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cuda import backend as cuda
from waifu2x.backends.cuda import runtime
from waifu2x.backends.cuda.compilers import CompileError, cached
from waifu2x.backends.cuda.compilers.nvcc import Nvcc
from waifu2x.backends.cuda.driver import by_ctypes, memory
from waifu2x.backends.cuda.driver import library as driver_library
from waifu2x.backends.cuda.tensor import choosing
from waifu2x.backends.cuda.tensor.step import LARGEST
from waifu2x.backends.gpu.device.runtime import OutOfMemoryError, ReadyLaunch
from waifu2x.errors import BackendError, DeviceError, DeviceMemoryError, NotInstalledError
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat
from waifu2x.networks import model_set
from waifu2x.system import cache

PIXELS = np.zeros((20, 30, 3), np.uint8)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A compiler whose code is the name of the file, and the names of what it has compiled; an
    empty cache."""
    names: list[str] = []

    def compile_(name: str, *arguments: Any) -> bytes:
        names.append(name)
        return f"{name} {len(names)}".encode()

    monkeypatch.setattr(cached, "_compile", compile_)
    monkeypatch.setattr(cached, "find", lambda version: Nvcc("nvcc"))
    monkeypatch.setattr(choosing, "trusted", lambda model, kind, trial: LARGEST)
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    return names


@pytest.fixture
def backend(driver: FakeDriver, compiled: list[str]) -> Iterator[Any]:
    """The backend on a device without matrix units."""
    opened: Any = cuda.create(0)
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
        network.run(Call(PIXELS, np.uint8))
        network.run(Call(PIXELS, np.uint8))

    for _ in range(3):
        with pytest.raises(DeviceError) as caught:
            twice()
        assert re.fullmatch(
            r"Fake: its driver stopped the work \(\w+ failed: an illegal memory access was"
            r" encountered\); start the program again, or use another backend",
            str(caught.value).replace("call failed", "cuCall failed"),
        )
    backend.close()


def test_a_device_that_cannot_be_opened_is_passed_over_by_auto(
    driver: FakeDriver,
    compiled: list[str],
) -> None:
    driver.broken = 101
    reason = r"^Fake: cannot be opened \(.* failed: invalid device ordinal\); close other programs"
    with pytest.raises(DeviceError, match=reason):
        cuda.create(0)


def test_pages_that_cannot_be_locked_are_ordinary_ones(
    driver: FakeDriver,
    network: Any,
) -> None:
    driver.locked_out = True
    assert network.run(Call(PIXELS, np.uint8)).shape == (40, 60, 3)


def test_large_arrays_are_not_locked(driver: FakeDriver, backend: Any) -> None:
    assert backend.runtime.host_array((1 << 15, 1 << 16), np.uint8).nbytes == 1 << 31
    assert not driver.ever_locked
    backend.runtime.host_array((1 << 10, 1 << 10), np.uint8)
    assert driver.ever_locked == 1 << 20


def test_large_results_come_in_bands(
    driver: FakeDriver, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (memory, runtime):
        monkeypatch.setattr(module, "LOCKED_BYTES", 1000)
    monkeypatch.setattr(runtime, "_BAND_BYTES", 300)
    cuda_runtime = backend.runtime
    buffer = cuda_runtime.allocate(4000)
    result = np.zeros((2, 5, 333), np.uint8)
    cuda_runtime.download(buffer, result)
    np.testing.assert_array_equal(result.ravel(), fetched(buffer.address, 3330))
    whole = np.zeros(1000, np.uint8)
    cuda_runtime.download(buffer, whole)
    np.testing.assert_array_equal(whole, fetched(buffer.address, 1000))
    before = driver.ever_locked
    sent = np.zeros(4000, np.uint8)
    sent.flags.writeable = False
    cuda_runtime.upload(buffer, sent)
    assert driver.ever_locked == before


def place(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Address and bytes."""
    return array.ctypes.data, array.nbytes


@pytest.mark.parametrize("limit", [memory.LOCKED_BYTES, 100])
def test_pinned_pixels_and_results_are_copied_by_the_device_alone(
    driver: FakeDriver, backend: Any, network: Any, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Not once on the host, however large they are."""
    for module in (memory, runtime):
        monkeypatch.setattr(module, "LOCKED_BYTES", limit)
    locked = driver.ever_locked  # for weights
    segment = np.zeros(1 << 16, np.uint8)
    pixels = segment[: PIXELS.size].reshape(PIXELS.shape)
    out = segment[4096 : 4096 + 4 * PIXELS.size].reshape(40, 60, 3)
    with backend.pin(segment):
        assert driver.registered == dict([place(segment)])
        for tile in (None, 16):
            driver.sent.clear()
            driver.fetched.clear()
            assert network.run(Call(pixels, np.uint8, out=out, tile=tile)) is out
            assert driver.sent == [place(pixels)]
            assert sum(size for _, size in driver.fetched) == out.nbytes
            assert all(place(out)[0] <= start < sum(place(out)) for start, _ in driver.fetched)
        assert driver.ever_locked == locked
    assert not driver.registered
    # The same arrays are staged now.
    network.run(Call(pixels, np.uint8, out=out))
    assert driver.sent[-1] != place(pixels) or limit == 100


@pytest.mark.parametrize(("size", "stack"), [((20, 30), 1), ((400, 600), 1), ((20, 30), 3)])
def test_planes_cross_in_one_copy_each_way(
    driver: FakeDriver, backend: Any, network: Any, size: tuple[int, int], stack: int
) -> None:
    """From page-locked memory, and into it, without a copy on the host: those of a stack, too."""
    kind = PlaneFormat(10, "420", "bt709")
    rows, columns = size
    segment = np.zeros(1 << 23, np.uint8)
    ends = (segment, rows, columns), (segment[1 << 22 :], 2 * rows, 2 * columns)
    places = []
    for whole, height, width in ends:
        each = kind.nbytes(height, width)
        some = [kind.within(whole[each * n :], height, width) for n in range(stack)]
        places.append((some, [(whole.ctypes.data, stack * each)]))
    (pictures, sent), (made, fetched) = places
    with backend.pin(segment):
        driver.sent.clear()
        driver.fetched.clear()
        network.run(Call(pictures, out=made))
        assert driver.sent == sent
        assert driver.fetched == fetched


def test_planes_that_lie_apart_cross_one_by_one(
    driver: FakeDriver, backend: Any, network: Any
) -> None:
    """As an encoder wants them, say: nothing is copied on the host, nor written between them."""
    kind = PlaneFormat(8, "420", "bt709")
    segment = np.full(1 << 14, 99, np.uint8)
    pictures = []
    begin = 0
    for height, width in (20, 30), (40, 60):
        planes = []
        for rows, columns in kind.shapes(height, width):
            part = segment[begin : begin + rows * columns]
            planes.append(part.reshape(rows, columns))
            begin += rows * columns + 64
        pictures.append(PlanarPicture(kind, *planes))
    one, made = pictures
    with backend.pin(segment):
        driver.sent.clear()
        driver.fetched.clear()
        network.run(Call([one], out=[made]))
        assert driver.sent == [place(plane) for plane in one.planes]
        assert driver.fetched == [place(plane) for plane in made.planes]


def test_planes_in_ordinary_pages_come_through_locked_ones(
    driver: FakeDriver, backend: Any, network: Any
) -> None:
    kind = PlaneFormat(8, "420", "bt709")
    one, made = kind.empty(20, 30), kind.empty(40, 60)
    driver.sent.clear()
    driver.fetched.clear()
    network.run(Call([one], out=[made]))
    for ((address, size),), picture in zip((driver.sent, driver.fetched), (one, made), strict=True):
        assert address in driver.locked
        assert size == kind.nbytes(*picture.size)


def test_a_result_in_ordinary_pages_comes_through_locked_ones(
    driver: FakeDriver, network: Any, backend: Any
) -> None:
    """Else the thread that queues it would wait for it, and keep others from the device."""
    copied, out = network.run(Call(PIXELS, np.uint8)), np.zeros((40, 60, 3), np.uint8)
    assert driver.fetched == [place(copied)]
    network.run(Call(PIXELS, np.uint8, out=out))
    assert driver.fetched[1][0] in driver.locked
    np.testing.assert_array_equal(out, copied)


def test_memory_is_pinned_once_for_all_devices(
    driver: FakeDriver, backend: Any, compiled: list[str]
) -> None:
    other: Any = cuda.create(0)
    segment = np.zeros(4096, np.uint8)
    pins = [one.pin(segment) for one in (backend, backend, other)]
    assert driver.registered == dict([place(segment)])
    pins[0].close()
    pins[0].close()
    backend.close()
    assert driver.registered
    other.close()
    assert not driver.registered
    for pin in pins:
        pin.close()
    assert backend.pin(segment)
    assert not driver.registered


def test_pinned_memory_stays_until_it_is_unpinned(driver: FakeDriver, backend: Any) -> None:
    """Though its owner lets go of it: others' memory at its address is not locked."""
    memory = np.zeros(1 << 16, np.uint8)
    pin, is_there = backend.pin(memory), weakref.ref(memory)
    del memory
    assert is_there() is not None
    assert driver.registered
    pin.close()
    assert is_there() is None
    assert not driver.registered


def test_memory_that_cannot_be_pinned_is_staged(
    driver: FakeDriver, backend: Any, network: Any
) -> None:
    pixels, out = PIXELS.copy(), np.zeros((40, 60, 3), np.uint8)
    expected = network.run(Call(pixels, np.uint8))
    driver.locked_out = True
    with backend.pin(out), backend.pin(pixels):
        driver.locked_out = False
        np.testing.assert_array_equal(network.run(Call(pixels, np.uint8, out=out)), expected)


def test_unpinning_where_the_device_has_broken(driver: FakeDriver, backend: Any) -> None:
    segment = np.zeros(4096, np.uint8)
    first, second = backend.pin(segment[:1000]), backend.pin(segment[2000:])
    driver.broken = 700
    first.close()
    backend.close()
    second.close()
    driver.broken = 0
    driver.registered.clear()


def test_all_that_a_context_has_is_freed_in_it(
    driver: FakeDriver, compiled: list[str], network: Any, backend: Any
) -> None:
    """Pages of results that outlive their backend too: by the next one."""
    result = network.run(Call(PIXELS, np.uint8))
    assert driver.locked
    backend.close()
    backend.close()
    assert (driver.modules, driver.streams) == (0, 0)
    assert len(driver.locked) == 1
    del result
    assert driver.freed_outside == 0
    assert len(memory._ORPHANS) == 1
    other: Any = cuda.create(0)
    other.runtime.host_array((5, 5), np.uint8)
    assert not memory._ORPHANS
    other.close()
    del network, other
    gc.collect()
    assert driver.freed_outside == 0
    assert not driver.locked


def test_a_context_lives_as_long_as_pages_of_it(driver: FakeDriver, compiled: list[str]) -> None:
    opened: Any = cuda.create(0)
    array = opened.runtime.host_array((5, 5), np.uint8)
    opened.close()
    del opened
    gc.collect()
    assert driver.contexts == 1
    array[:] = 1
    del array
    gc.collect()
    assert driver.contexts == 1
    other: Any = cuda.create(0)
    other.runtime.host_array((5, 5), np.uint8)
    other.close()
    del other
    gc.collect()
    assert driver.contexts == 0


def test_events_are_freed(driver: FakeDriver, backend: Any, network: Any) -> None:
    runtime = backend.runtime
    with runtime.timed() as launches:
        network.run(Call(PIXELS, np.uint8))
    assert [seconds for _, seconds in launches] == [0.25] * 2
    del launches
    gc.collect()
    assert driver.events == 1  # for the next call
    backend.close()
    gc.collect()
    assert driver.events == 0


def test_kernels_get_their_arguments(driver: FakeDriver, backend: Any) -> None:
    runtime = backend.runtime
    target = runtime.allocate(16)
    kernel = runtime.build("peak", {}).kernel("peak", 64, 1 << 10)
    runtime.launch(kernel, (3, 2, 1), target, 1.5, -7)
    packed = struct.pack("Pfi", target.address, 1.5, -7)
    assert driver.launched == [((3, 2, 1), 64, packed, 1 << 10)]


def test_pages_of_a_broken_context_are_not_freed(driver: FakeDriver, backend: Any) -> None:
    """pycuda would say on the terminal, of each, that it cannot."""
    runtime = backend.runtime
    # More than are kept: to free one is the first that fails.
    arrays = [runtime.host_array((size, 1 << 10), np.uint8) for size in range(10, 90)]
    del arrays
    driver.broken = 700
    with pytest.raises(DeviceError):
        runtime.host_array((1 << 14, 1 << 10), np.uint8)
    backend.close()
    assert driver.freed_outside == 0


def test_a_device_that_breaks_while_a_call_waits_leaves_nothing_to_free(
    driver: FakeDriver, backend: Any, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the event that was waited for, buffers that nobody holds, or events of a measurement."""
    runtime = backend.runtime
    network.run(Call(PIXELS, np.uint8))
    held = runtime.allocate(16)
    real = runtime.driver.is_over

    def is_over(event: Any) -> bool:
        driver.broken = 700
        del held_too[:]
        return bool(real(event))

    held_too = [held]
    del held
    monkeypatch.setattr(runtime.driver, "is_over", is_over)
    with pytest.raises(DeviceError):
        network.run(Call(PIXELS, np.uint8))
    with pytest.raises(DeviceError), runtime.timed():
        network.run(Call(PIXELS, np.uint8))
    backend.close()
    gc.collect()
    assert driver.freed_outside == 0


def test_a_small_picture_alone_is_copied_in_the_queue_of_kernels(
    driver: FakeDriver, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream waits for another, and nobody sleeps unless it takes long."""
    slept: list[int] = []
    runtime = network._runtime
    monkeypatch.setattr(runtime.driver, "wait_event", lambda event: slept.append(event))
    network.run(Call(PIXELS, np.uint8))
    followed = driver.followed
    driver.busy = 3
    assert np.array_equal(network.run(Call(PIXELS, np.uint8)), network.run(Call(PIXELS, np.uint8)))
    assert (driver.followed, driver.busy, slept) == (followed, 0, [])
    monkeypatch.setattr("waifu2x.backends.cuda.runtime._SPIN_SECONDS", 0.0)
    driver.busy = 1 << 40
    network.run(Call(PIXELS, np.uint8))
    assert len(slept) == 1
    driver.busy = 0
    network.run(Call(np.zeros((500, 600, 3), np.uint8), np.uint8))
    assert len(slept) == 2
    assert driver.followed > followed


def test_a_small_picture_comes_after_its_memory_is_cleared(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are queued, in streams of their own."""
    calls: list[str] = []
    library = network._runtime.driver

    def noted(name: str) -> None:
        real = getattr(library, name)

        def call(*arguments: Any) -> None:
            calls.append(name)
            real(*arguments)

        monkeypatch.setattr(library, name, call)

    for name in ("clear", "follow", "upload", "launch"):
        noted(name)
    network.run(Call(PIXELS, np.uint8))
    sent = calls.index("upload")
    assert "clear" in calls[:sent]
    assert calls[sent - 1] == "follow"
    assert "launch" not in calls[:sent]


def test_memory_that_runs_out_while_copying_is_a_sentence(
    driver: FakeDriver,
    network: Any,
) -> None:
    for copy in (1, 2):  # up, down
        driver.failing_copy = copy
        with pytest.raises(BackendError, match=r"^Fake: no memory for a picture of ") as caught:
            network.run(Call(PIXELS, np.uint8))
        assert not isinstance(caught.value, DeviceError)
        driver.failing_copy = 0
        assert network.run(Call(PIXELS, np.uint8)).shape == (40, 60, 3)


def test_buffers_come_back_to_the_driver(driver: FakeDriver, backend: Any, network: Any) -> None:
    network.run(Call(PIXELS, np.uint8))
    assert driver.used
    backend.close()
    assert not driver.used


def test_buffers_that_nobody_holds_come_back_too(driver: FakeDriver, backend: Any) -> None:
    before = driver.used
    buffer = backend.runtime.allocate(1 << 20)
    assert driver.used == before + (1 << 20)
    buffer.release()
    buffer.release()
    assert driver.used == before
    buffer = backend.runtime.allocate(1 << 20)
    del buffer
    gc.collect()
    assert driver.used == before


def test_memory_is_written_before_anybody_reads_it(driver: FakeDriver, backend: Any) -> None:
    driver.total = 1 << 40
    for size in (1, 4097, (1 << 31) + 5, 5 << 31):
        driver.cleared.clear()
        address = backend.runtime.allocate(size, for_maps=True).address
        for start, length in sorted(driver.cleared.items()):
            assert start == address
            address += length
        assert sum(driver.cleared.values()) == size


def test_clearing_memory_holds_nobody_up_but_the_kernels(driver: FakeDriver, backend: Any) -> None:
    """The device clears memory beside the host's work; nothing waits for it at an allocation."""
    runtime = backend.runtime
    kernel = runtime.build("peak", {}).kernel("peak", 64)
    target = runtime.allocate(64)
    assert not driver.cleared
    waited, followed = driver.waited, driver.followed
    runtime.launch(kernel, (1, 1, 1), target)
    assert driver.followed == followed
    for _ in range(3):
        runtime.allocate(64, for_maps=True)
    assert driver.waited == waited
    assert driver.followed == followed
    for _ in range(2):
        runtime.launch(kernel, (1, 1, 1), target)
        assert driver.followed == followed + 1
    runtime.allocate(64, for_maps=True)
    packed = runtime.packer("P")(target.address)
    for _ in range(3):
        runtime.replay("owner", "key", lambda: [ReadyLaunch(kernel, (1, 1, 1), packed)])
        assert driver.followed == followed + 2
    assert driver.waited == waited


# Compiling.


@pytest.mark.parametrize("driver", ["ctypes"], indirect=True)
@pytest.mark.parametrize("capability", [(6, 1), (8, 0), (9, 0)])
@pytest.mark.parametrize("name", ["vgg_7/art", "cunet/art"])
def test_compiling_builds_and_uploads_all_that_a_usual_picture_takes(
    driver: FakeDriver, compiled: list[str], name: str, capability: tuple[int, int]
) -> None:
    driver.capability = capability
    opened: Any = cuda.create(0)
    network = opened.compile(model_set.find(name).models(2, 1), "auto")
    assert compiled
    assert not driver.launched
    built, weights = list(compiled), len(driver.sent)
    pixels = np.zeros((720, 1280, 3), np.uint8)
    network.run(Call(pixels, np.uint8))
    assert driver.launched
    assert compiled == built
    assert [size for _, size in driver.sent[weights:]] == [pixels.size]
    network.close()
    assert opened.bytes == 0
    opened.close()


@pytest.mark.parametrize("capability", [(6, 1), (9, 0)])
def test_a_broken_compiler_is_told_when_a_network_is_compiled(
    driver: FakeDriver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
) -> None:
    class Broken:
        name = "nvcc"
        remedy = "install another"

        def supported(self) -> list[int]:
            return [61, 90]

        def compile(self, *arguments: Any) -> Any:
            raise CompileError("it is broken")

    monkeypatch.setattr(cached, "find", lambda version: Broken())
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path))
    driver.capability = capability
    opened: Any = cuda.create(0)
    for _ in range(2):
        with pytest.raises(
            BackendError,
            match=r"^nvcc cannot compile .* for sm_\d+ \(it is broken\); ins",
        ):
            opened.compile([obvious.random_model([3, 16, 3], seed=1)], "auto")
    assert opened.bytes == 0
    opened.close()


@pytest.mark.parametrize("capability", [(6, 1), (9, 0)])
def test_weights_that_do_not_fit_are_told_when_a_network_is_compiled(
    driver: FakeDriver, compiled: list[str], capability: tuple[int, int]
) -> None:
    driver.capability = capability
    driver.total = 1 << 20
    opened: Any = cuda.create(0)
    model = obvious.random_model([3, 256, 256, 256, 3], seed=1)
    with pytest.raises(DeviceMemoryError, match=r"^Fake: no memory for the weights of random; "):
        opened.compile([model], "auto")
    gc.collect()
    assert (opened.bytes, driver.used) == (0, 0)
    small = opened.compile([obvious.random_model([3, 8, 3], seed=1)], "auto")
    assert 0 < opened.bytes == driver.used
    small.close()
    opened.close()


def test_compiling_waits_for_no_picture(
    driver: FakeDriver, backend: Any, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for one that has the device to itself."""
    made: list[Any] = []

    def report(part: float) -> None:
        if not made:
            made.append(backend.compile([obvious.random_model([3, 8, 3], seed=2)], "auto"))

    network.run(Call(PIXELS, np.uint8, tile=8, on_progress=report))
    assert made[0].run(Call(PIXELS, np.uint8)).shape == PIXELS.shape


# Code in the cache.


def test_modules_are_unloaded_with_their_last_user(driver: FakeDriver, backend: Any) -> None:
    """Each takes memory of the device: requests of many models must not gather them."""
    small, large = (obvious.random_model([3, n, 3], seed=1, scale=2) for n in (16, 48))
    first = backend.compile([small], "auto")
    alone = driver.modules
    assert alone
    second = backend.compile([large], "auto")
    both = driver.modules
    assert both > alone
    for _ in range(3):  # the third is a graph, which launches kernels of modules too
        second.run(Call(PIXELS, np.uint8))
    second.run(Call(PIXELS, np.uint8, tta=2))
    second.close()
    del second
    assert driver.modules == alone
    assert first.run(Call(PIXELS, np.uint8)).shape == (40, 60, 3)
    assert backend.compile([large], "auto").run(Call(PIXELS, np.uint8)).shape == (40, 60, 3)
    first.close()
    del first
    assert driver.modules < both  # the other network was given up, and is closed when it can be
    backend.compile([small], "auto").close()
    gc.collect()
    assert driver.modules == 0
    assert not driver.freed_outside


def test_code_that_the_driver_refuses_is_compiled_again(
    driver: FakeDriver,
    backend: Any,
    compiled: list[str],
) -> None:
    model = obvious.random_model([3, 16, 3], seed=1)
    backend.compile([model], "auto")
    first = list(compiled)
    driver.refused = {f"{name} {number}".encode() for number, name in enumerate(first, 1)}
    another: Any = cuda.create(0)
    another.compile([model], "auto")
    assert compiled == first * 2
    another.close()
    last: Any = cuda.create(0)
    last.compile([model], "auto")
    last.close()
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
        network.run(Call(PIXELS, np.uint8))
        counts.append(len(driver.launched))
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
        launched = len(driver.launched)
        assert network.run(Call(PIXELS, np.uint8)).shape == (40, 60, 3)
        assert len(driver.launched) >= launched + 2
    assert (driver.graphs, driver.executables, driver.capturing) == (0, 0, False)


def test_a_device_that_breaks_while_it_is_captured_says_so(
    driver: FakeDriver,
    network: Any,
) -> None:
    network.run(Call(PIXELS, np.uint8))
    driver.failing_launch = len(driver.launched) + 1
    with pytest.raises(DeviceError, match="an illegal memory access"):
        network.run(Call(PIXELS, np.uint8))
    assert (driver.graphs, driver.capturing) == (0, False)


def test_out_of_memory_is_no_fault_of_the_device(driver: FakeDriver, backend: Any) -> None:
    with pytest.raises(OutOfMemoryError):
        backend.runtime.allocate(1 << 40)
    assert backend.runtime.allocate(1 << 20).size == 1 << 20


# Devices that are here, and drivers that are not.


def test_devices_say_through_what_they_are_called(
    driver: FakeDriver, compiled: list[str], request: pytest.FixtureRequest
) -> None:
    (device,) = cuda.devices()
    through = "pycuda" if "pycuda" in request.node.name else "NVIDIA's driver alone"
    assert device.detail == (
        "16.0 GiB, 100 multiprocessors, sm_61, driver for CUDA 13.0;"
        f" through {through}, compiled by nvcc"
    )
    assert device.is_gpu


def test_without_compiler_and_kernels_there_is_no_backend(
    driver: FakeDriver, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cuda.create(0)
    monkeypatch.setattr(cached, "find", lambda version: None)
    for call in (cuda.devices, lambda: cuda.create(0)):
        with pytest.raises(
            NotInstalledError, match=r"no kernels yet: .*; run `pip install 'waifu2x"
        ):
            call()
    skipped: list[str] = []
    assert open_backend("auto", on_skip=skipped.append).name != "cuda"
    assert not [reason for reason in skipped if "cuda" in reason]
    opened.compile([obvious.random_model([3, 16, 3], seed=1)], "auto")
    (device,) = cuda.devices()
    assert device.detail.endswith("no compiler is here: only kernels that are kept")
    cuda.create(0).close()
    opened.close()


@pytest.mark.parametrize("driver", ["ctypes"], indirect=True)
def test_a_machine_without_driver_is_a_sentence(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(by_ctypes, "library", missing)
    with pytest.raises(
        NotInstalledError, match=r"needs NVIDIA's driver \(libcuda.so.1: cannot open"
    ):
        cuda.devices()


@pytest.mark.parametrize("driver", ["pycuda"], indirect=True)
def test_a_pycuda_that_does_not_load_is_passed_over(
    driver: FakeDriver, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ModuleType("pycuda")  # without its driver
    monkeypatch.setitem(sys.modules, "pycuda", broken)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    (device,) = cuda.devices()
    assert "through NVIDIA's driver alone" in device.detail


def test_a_context_is_made_in_a_thread_and_stays(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    library = vars(driver_library)["library"]()

    def slow(flags: int) -> int:
        assert may_end.wait(60)
        return 0

    monkeypatch.setattr(library, "cuInit", slow)
    thread = driver_library.retain_context(0)
    before = driver.contexts
    may_end.set()
    thread.join()
    assert (before, driver.contexts) == (0, 1)


@pytest.mark.parametrize("backend", ["cuda", "auto"])
@pytest.mark.parametrize("number", [0, 2])
def test_only_the_gpu_that_is_used_is_opened(
    driver: FakeDriver, compiled: list[str], backend: str, number: int
) -> None:
    """In the process of another program, whose driver shows all."""
    driver.gpus = 4
    with closing(open_backend(backend, number)) as opened:
        assert opened.name == "cuda"
    assert driver.used_gpus == {number}


@pytest.mark.parametrize("number", [0, 3])
def test_a_process_of_our_own_hides_the_other_gpus(
    driver: FakeDriver, compiled: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    driver.gpus = 4
    monkeypatch.setattr(driver_library, "_entries", lambda folder: [f"nvidia{n}" for n in range(4)])
    monkeypatch.setattr(driver_library, "_hidden_before", [0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    driver_library.show_only(number)
    assert driver.visible == [number]
    driver_library.retain_context(number).join()
    assert (driver.contexts, driver.used_gpus) == (1, {number})
    with closing(cuda.create(number)):
        assert driver.used_gpus == {number}


@pytest.mark.parametrize(
    ("listed", "present", "number", "shown"),
    [
        (None, 4, 1, "1"),
        ("3,1", 4, 1, "1"),
        ("GPU-8932f937,GPU-5d1d75f3", 2, 1, "GPU-5d1d75f3"),
        (None, 1, 0, None),  # there is nothing to hide
        (None, 0, 0, None),  # another system, or none that we know
        (None, 2, 2, None),  # opening it says which there are
        ("", 4, 0, ""),
        ("2", 4, 0, "2"),
        ("3,1", 4, 2, "3,1"),
    ],
)
def test_gpus_are_hidden_where_that_is_safe(
    monkeypatch: pytest.MonkeyPatch,
    listed: str | None,
    present: int,
    number: int,
    shown: str | None,
) -> None:
    names = ["null", "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(present))]
    monkeypatch.setattr(driver_library, "_entries", lambda folder: names)
    monkeypatch.setattr(driver_library, "_hidden_before", [0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if listed is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    driver_library.show_only(number)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == shown
    assert driver_library.hidden_before() == (0 if shown == listed else number)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("upscale a.png b.png", [0]),
        ("upscale -g 1 a.png b.png", []),  # OpenCL may take its place
        ("upscale -g 1 --backend cuda a.png b.png", [1]),
        ("upscale -g 1,2 --backend cuda a.png b.png", []),
        ("upscale -g all --backend cuda a.png b.png", []),
        ("batch a b", []),
    ],
)
def test_gpus_are_hidden_from_requests_for_one(
    monkeypatch: pytest.MonkeyPatch, words: str, shown: list[int]
) -> None:
    found: list[int] = []
    monkeypatch.setattr(driver_library, "retain_context", lambda number: None)
    monkeypatch.setattr(driver_library, "show_only", found.append)
    argv_peek.begin(words.split())
    assert found == shown


@pytest.mark.parametrize("fault", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "library"])
def test_what_fails_ahead_is_told_by_who_opens_the_device(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def missing() -> Any:
        raise OSError("libcuda.so.1: no such file")

    library = vars(driver_library)["library"]()
    if fault == "library":
        monkeypatch.setattr(driver_library, "library", missing)
    else:
        monkeypatch.setattr(library, fault, lambda *arguments: 100)
    driver_library.retain_context(0).join()
    assert driver.contexts == 0


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("upscale a.png b.png", [0]),
        ("upscale --backend auto -g 3,1 a.png b.png", [3]),
        ("upscale -g 2 --backend=cuda a.png b.png", [2]),
        ("upscale --device=1 a.png b.png", [1]),
        ("upscale --backend cpu a.png b.png", []),
        ("upscale --backend", [0]),
        ("upscale --help", []),
        ("upscale -h", []),
        ("a.png -g 2", [2]),
        ("-g 1 -i a.png", [1]),
        ("--version", []),
        ("batch a b", []),
        ("--help", []),
        ("", []),
    ],
)
def test_a_driver_begins_for_those_who_will_want_it(
    monkeypatch: pytest.MonkeyPatch, words: str, numbers: list[int]
) -> None:
    begun: list[int] = []
    monkeypatch.setattr(driver_library, "retain_context", begun.append)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    argv_peek.begin(words.split())
    assert begun == numbers
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"  # the user's own


@pytest.mark.parametrize(
    ("backend", "device", "words", "numbers"),
    [
        ("cuda", "2,3", "", [2]),
        ("cuda", "2", "-g 1 ", [1]),
        ("cpu", "2", "", []),
        ("cpu", "2", "--backend cuda ", [2]),
        ("", "", "", [0]),
    ],
)
def test_variables_say_which_driver_begins(
    monkeypatch: pytest.MonkeyPatch, backend: str, device: str, words: str, numbers: list[int]
) -> None:
    begun: list[int] = []
    monkeypatch.setattr(driver_library, "retain_context", begun.append)
    monkeypatch.setenv("WAIFU2X_BACKEND", backend)
    monkeypatch.setenv("WAIFU2X_DEVICE", device)
    argv_peek.begin(f"upscale {words}a.png b.png".split())
    assert begun == numbers


@pytest.mark.parametrize(("words", "threads"), [("", "1"), ("--backend numpy", None)])
def test_threads_for_matrices_are_for_the_backend_that_multiplies_them(
    monkeypatch: pytest.MonkeyPatch, words: str, threads: str | None
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # which is put back afterwards
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    argv_peek.begin(["info", *words.split()])
    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
