"""Several devices as one backend."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x import backends
from waifu2x.backends import Device
from waifu2x.backends.spread import Spread, open_devices
from waifu2x.errors import UnavailableError
from waifu2x.tiling import Box
from waifu2x.upscaler import Upscaler

BOX = Box(0, 0, 1, 1)


class FakeBackend:
    """Answers with its number; calls of different devices meet at a barrier."""

    name = "fake"

    def __init__(self, number: int, meeting: threading.Barrier) -> None:
        self.device = Device(f"Fake {number}", "1 GiB", is_gpu=True)
        self.number = number
        self.meeting = meeting
        self.closed = False

    def compile(self, models: Any, precision: Any) -> Any:
        def network(pixels: Any, box: Any, dtype: Any, on_progress: Any) -> NDArray[Any]:
            self.meeting.wait(10)
            if pixels.max() > 9:
                raise RuntimeError("too bright")
            return np.full((1, 1, 1), self.number, dtype)

        return network

    def close(self) -> None:
        self.closed = True


def spread(count: int) -> tuple[Spread, list[FakeBackend]]:
    meeting = threading.Barrier(count)
    fakes = [FakeBackend(number, meeting) for number in range(count)]
    return Spread(fakes), fakes


def test_simultaneous_calls_use_different_devices() -> None:
    backend, fakes = spread(3)
    network = backend.compile([], "auto")
    pixels = np.zeros((1, 1, 1), np.uint8)
    with ThreadPoolExecutor(3) as pool:
        # The barrier opens only if three devices are at work at once.
        calls = [pool.submit(network, pixels, BOX, np.uint8, print) for _ in range(12)]
    results = [int(call.result()[0, 0, 0]) for call in calls]
    assert sorted(results) == sorted([0, 1, 2] * 4)
    backend.close()
    assert all(fake.closed for fake in fakes)


def test_a_device_is_free_again_after_an_error() -> None:
    backend, _ = spread(1)
    network = backend.compile([], "auto")
    with pytest.raises(RuntimeError, match="too bright"):
        network(np.full((1, 1, 1), 200, np.uint8), BOX, np.uint8, print)
    assert network(np.zeros((1, 1, 1), np.uint8), BOX, np.uint8, print)[0, 0, 0] == 0


def test_a_missing_second_device_closes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first = FakeBackend(0, threading.Barrier(1))

    def fake_open(name: str, device: int, on_skip: Any) -> Any:
        if device:
            raise UnavailableError(f"backend {name} has no device {device}")
        return first

    monkeypatch.setattr("waifu2x.backends.spread.open_backend", fake_open)
    with pytest.raises(UnavailableError, match="backend fake has no device 7"):
        open_devices("auto", [0, 7], print)
    assert first.closed


@pytest.mark.parametrize("device", [(), (0, 0), (-1,), 1.5])
def test_device_numbers_that_make_no_sense(device: Any) -> None:
    with pytest.raises(ValueError, match="device number"):
        Upscaler(backend="numpy", device=device)


def test_one_device_is_no_spread() -> None:
    backend = open_devices("numpy", [0], print)
    assert isinstance(backend, type(backends.open_backend("numpy")))
