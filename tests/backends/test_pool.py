"""Several devices as one backend."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x import backends
from waifu2x.api import Upscaler
from waifu2x.backends import Device, Pin
from waifu2x.backends.call import Call
from waifu2x.backends.engine.pool import DevicePool, open_devices
from waifu2x.errors import BackendError, UnavailableError


class FakeBackend:
    """Answers with its number; calls of different devices meet at a barrier."""

    name = "fake"
    calls_at_once = 1

    def __init__(self, number: int, meeting: threading.Barrier) -> None:
        self.device = Device(f"Fake {number}", "1 GiB", is_gpu=True)
        self.number = number
        self.meeting = meeting
        self.closed = False
        self.pinned = 0
        self.networks: list[FakeNetwork] = []

    def compile(self, models: Any, precision: Any) -> Any:
        network = FakeNetwork(self)
        self.networks.append(network)
        return network

    def pin(self, memory: NDArray[Any]) -> Pin:
        self.pinned += 1

        def release() -> None:
            self.pinned -= 1

        return Pin(release)

    def measure(self, model: Any, precision: Any, pixels: Any) -> Any:
        return self.number

    def tune(self, model: Any, precision: Any, pixels: Any) -> Any:
        yield self.number

    @property
    def bytes(self) -> int:
        return 10 + self.number

    def close(self) -> None:
        self.closed = True


class FakeNetwork:
    """Fills results with the number of its backend."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.closed = False

    def run(self, call: Call[NDArray[Any]]) -> NDArray[Any]:
        self.backend.meeting.wait(60)
        pixels, out = call.source, call.out
        if pixels.max() > 9:
            raise RuntimeError("too bright")
        call.on_progress(1.0)
        result = np.empty((*pixels.shape[:-3], 1, 1, 1), call.dtype) if out is None else out
        result[:] = self.backend.number
        for number, picture in enumerate(pixels if pixels.ndim == 4 else [pixels]):
            if picture.max() == 9:
                call.on_recomputed(number)
        return result

    def close(self) -> None:
        self.closed = True


def pool_of(count: int) -> tuple[DevicePool, list[FakeBackend]]:
    meeting = threading.Barrier(count)
    fakes = [FakeBackend(number, meeting) for number in range(count)]
    return DevicePool(fakes), fakes


def test_simultaneous_calls_use_different_devices() -> None:
    backend, fakes = pool_of(3)
    network = backend.compile([], "auto")
    pixels = np.zeros((1, 1, 1), np.uint8)
    with ThreadPoolExecutor(3) as pool:
        # The barrier opens only if three devices are at work at once.
        calls = [pool.submit(network.run, Call(pixels, np.uint8)) for _ in range(12)]
    results = [int(call.result()[0, 0, 0]) for call in calls]
    assert sorted(results) == sorted([0, 1, 2] * 4)
    backend.close()
    assert all(fake.closed for fake in fakes)


def test_a_stack_is_divided_among_the_devices_in_order() -> None:
    backend, _ = pool_of(3)
    network = backend.compile([], "auto")
    parts: list[float] = []
    result = network.run(Call(np.zeros((7, 1, 1, 1), np.uint8), np.uint8, on_progress=parts.append))
    assert result.shape == (7, 1, 1, 1)
    numbers = result.ravel().tolist()
    # Each picture once, those of a device side by side.
    assert sorted(map(numbers.count, {0, 1, 2})) == [2, 2, 3]
    assert sum(a != b for a, b in pairwise(numbers)) == 2
    assert sum(parts) == pytest.approx(1.0)


def test_what_was_computed_again_is_told_by_its_place_in_the_stack() -> None:
    backend, _ = pool_of(3)
    network = backend.compile([], "auto")
    marks = [0, 9, 0, 0, 9, 9, 0]
    stack = np.array(marks, np.uint8).reshape(-1, 1, 1, 1)
    again: list[int] = []
    network.run(Call(stack, np.uint8, on_progress=list[float]().append, on_recomputed=again.append))
    assert sorted(again) == [1, 4, 5]


def test_a_stack_is_written_where_it_is_asked_for() -> None:
    backend, fakes = pool_of(3)
    network = backend.compile([], "auto")
    pixels, room = np.zeros((7, 1, 1, 1), np.uint8), np.full((9, 1, 1, 1), 99, np.uint8)
    result = network.run(Call(pixels, np.uint8, out=room[1:8]))
    assert np.shares_memory(result, room)
    assert room[[0, 8]].ravel().tolist() == [99, 99]
    assert sorted(map(room[1:8].ravel().tolist().count, range(3))) == [2, 2, 3]
    with pytest.raises(ValueError, match="Expected out of shape"):
        network.run(Call(pixels, np.uint8, out=room))
    network.close()
    assert all(fake.networks[0].closed for fake in fakes)


def test_memory_is_pinned_for_all_devices() -> None:
    backend, fakes = pool_of(3)
    with backend.pin(np.zeros(9, np.uint8)):
        assert [fake.pinned for fake in fakes] == [1, 1, 1]
    assert backend.bytes == 10 + 11 + 12
    assert [fake.pinned for fake in fakes] == [0, 0, 0]


def test_what_cannot_be_compiled_for_all_devices_is_closed_on_the_others() -> None:
    backend, fakes = pool_of(2)

    def fail(models: Any, precision: Any) -> Any:
        raise BackendError("no kernels")

    fakes[1].compile = fail  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="no kernels"):
        backend.compile([], "auto")
    assert fakes[0].networks[0].closed


def test_measuring_and_tuning_reach_the_devices() -> None:
    backend, _ = pool_of(3)
    pixels = np.zeros((1, 1, 1), np.uint8)
    model: Any = None
    measured: Any = backend.measure(model, "auto", pixels)
    trials: Any = list(backend.tune(model, "auto", pixels))
    assert (measured, trials) == (0, [0, 1, 2])


def test_a_device_is_free_again_after_an_error() -> None:
    backend, _ = pool_of(1)
    network = backend.compile([], "auto")
    with pytest.raises(RuntimeError, match="too bright"):
        network.run(Call(np.full((1, 1, 1), 200, np.uint8), np.uint8))
    assert network.run(Call(np.zeros((1, 1, 1), np.uint8), np.uint8))[0, 0, 0] == 0


def test_a_missing_second_device_closes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first = FakeBackend(0, threading.Barrier(1))

    def fake_open(name: str, device: int, on_skip: Any) -> Any:
        if device:
            raise UnavailableError(f"backend {name} has no device {device}")
        return first

    monkeypatch.setattr("waifu2x.backends.engine.pool.open_backend", fake_open)
    with pytest.raises(UnavailableError, match="backend fake has no device 7"):
        open_devices("auto", [0, 7], print)
    assert first.closed


def test_all_are_the_devices_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(1)
    fakes = [FakeBackend(number, meeting) for number in range(4)]
    fakes[0].name = "opencl"
    fakes[2].device = Device("Fake processor", "")
    monkeypatch.setattr(
        "waifu2x.backends.engine.pool.open_backend", lambda name, device, on_skip: fakes[device]
    )

    def devices_of(name: str, *, gpus_only: bool) -> list[Device]:
        if name == "cuda":
            raise UnavailableError("no driver")
        return [fake.device for fake in fakes] if name == "opencl" else [fakes[2].device]

    monkeypatch.setattr("waifu2x.backends.devices_of", devices_of)
    assert backends.device_numbers("auto") == [0, 1, 3]
    assert backends.device_numbers("cpu") == [0]
    backend = open_devices("opencl", "all", print)
    assert backend.device.name == "Fake 0, Fake 1, Fake 3"
    assert backend.calls_at_once == 3


@pytest.mark.parametrize("device", [(), (0, 0), (-1,), 1.5])
def test_device_numbers_that_make_no_sense(device: Any) -> None:
    with pytest.raises(ValueError, match="device number"):
        Upscaler(backend="numpy", device=device)


def test_one_device_is_no_pool() -> None:
    backend = open_devices("numpy", [0], print)
    assert isinstance(backend, type(backends.open_backend("numpy")))


def test_every_device_is_closed_though_one_cannot_be() -> None:
    backend, fakes = pool_of(3)

    def fail() -> None:
        raise RuntimeError("gone")

    fakes[1].close = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="gone"):
        backend.close()
    assert [fake.closed for fake in fakes] == [True, False, True]
