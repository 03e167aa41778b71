"""Turns at the network: how many at a time, in which order, which together."""

from __future__ import annotations

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.contents import noise
from tests.helpers.networks import Doubling
from waifu2x.backends.call import Call
from waifu2x.errors import BackendError, DeviceError
from waifu2x.flows.batch.scheduler import NetworkCall, Scheduler
from waifu2x.flows.flow import StoppedError
from waifu2x.imaging.enlarger import Networks


class SchedulerOf(Scheduler):
    """A scheduler, and the networks that its calls are given."""

    def __init__(self, find: Callable[[int, int | None], Any], at_once: int) -> None:
        super().__init__(at_once)
        chains: Any = SimpleNamespace(network=find)
        self.networks = Networks(chains, 1, None)


def scheduler_of(network: Any, at_once: int) -> SchedulerOf:
    return SchedulerOf(lambda factor, noise: network, at_once)


class Submitted:
    """A call, and what is told of it."""

    def __init__(
        self, scheduler: SchedulerOf, pixels: NDArray[Any], stop: Callable[[], bool] = lambda: False
    ) -> None:
        height, width, planes = pixels.shape
        self.pixels = pixels
        self.out = np.zeros((2 * height, 2 * width, planes), pixels.dtype)
        self.done = threading.Event()
        self.error: Exception | None = None
        self.progress = 0.0
        self.stop = stop
        call = NetworkCall(scheduler.networks, 2, None, pixels, self.out, self.report, self.end)
        scheduler.submit(call)

    def report(self, part: float) -> None:
        self.progress += part
        if self.stop():
            raise StoppedError

    def end(self, error: Exception | None, waited: float, is_recomputed: bool) -> None:
        assert waited >= 0
        self.error = error
        self.is_recomputed = is_recomputed
        self.done.set()

    def check(self) -> None:
        assert self.done.wait(30)
        assert self.error is None
        np.testing.assert_array_equal(self.out, self.pixels.repeat(2, 0).repeat(2, 1))
        assert self.progress == 1.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline


def test_of_a_stack_each_call_is_told_whether_it_was_computed_again() -> None:
    gate = threading.Event()
    network = Doubling(lambda: gate.wait(30), is_again=lambda picture: picture[0, 0, 0] == 7)
    scheduler = scheduler_of(network, 1)
    sources = [noise(4, 6, 3, seed=seed) for seed in range(5)]
    marks = [3, 7, 3, 3, 7]
    for source, mark in zip(sources, marks, strict=True):
        source[0, 0, 0] = mark
    calls = [Submitted(scheduler, sources[0])]
    wait_until(lambda: network.inside == 1)
    calls += [Submitted(scheduler, source) for source in sources[1:]]
    gate.set()
    for call in calls:
        call.check()
    scheduler.close()
    assert len(network.shapes) == 2
    assert [call.is_recomputed for call in calls] == [mark == 7 for mark in marks]


def test_small_pictures_of_one_size_are_one_call() -> None:
    gate = threading.Event()
    network = Doubling(lambda: gate.wait(30))
    scheduler = scheduler_of(network, 1)
    calls = [Submitted(scheduler, noise(4, 6, 3))]
    wait_until(lambda: network.inside == 1)
    for number, height in enumerate((4, 5, 4, 4, 4)):
        calls.append(Submitted(scheduler, noise(height, 6, 3, seed=number)))
    gate.set()
    for call in calls:
        call.check()
    assert network.shapes == [(4, 6, 3), (4, 4, 6, 3), (5, 6, 3)]
    assert network.most == 1
    scheduler.close()


def test_large_pictures_are_calls_of_their_own_and_are_not_copied() -> None:
    gate = threading.Event()
    seen: list[tuple[NDArray[Any], NDArray[Any]]] = []

    class Looking(Doubling):
        def run(self, call: Call[NDArray[Any]]) -> NDArray[Any]:
            assert call.out is not None
            seen.append((call.source, call.out))
            return super().run(call)

    scheduler = scheduler_of(Looking(lambda: gate.wait(30)), 1)
    calls = [Submitted(scheduler, noise(257, 256, 3, seed=number)) for number in range(3)]
    gate.set()
    for call, (pixels, out) in zip(calls, seen, strict=False):
        call.check()
        assert pixels is call.pixels
        assert out is call.out
    scheduler.close()


def test_each_of_a_stack_has_an_error_of_its_own() -> None:
    """One exception raised in several threads has all their tracebacks."""
    gate = threading.Event()

    def fail() -> None:
        gate.wait(30)
        raise DeviceError("Fake: fell off the bus")

    network = Doubling(fail)
    scheduler = scheduler_of(network, 1)
    Submitted(scheduler, noise(4, 6, 3))
    wait_until(lambda: network.inside == 1)
    calls = [Submitted(scheduler, noise(4, 6, 3)) for _ in range(3)]
    gate.set()
    errors = []
    for call in calls:
        assert call.done.wait(30)
        assert isinstance(call.error, DeviceError)
        errors.append(call.error)
    assert len(network.shapes) == 2
    assert len({id(error) for error in errors}) == 3
    assert {str(error) for error in errors} == {"Fake: fell off the bus; use another backend"}
    assert len({id(error.__cause__) for error in errors}) == 1
    for error in errors:
        with pytest.raises(DeviceError) as raised:
            raise error
        assert len(traceback.extract_tb(raised.value.__traceback__)) == 1
    network.meanwhile = lambda: None
    Submitted(scheduler, noise(2, 2, 3)).check()
    scheduler.close()


def test_one_that_is_stopped_does_not_stop_a_stack() -> None:
    gate = threading.Event()
    network = Doubling(lambda: gate.wait(30))
    scheduler = scheduler_of(network, 1)
    Submitted(scheduler, noise(4, 6, 3))
    wait_until(lambda: network.inside == 1)
    stopped = Submitted(scheduler, noise(4, 6, 3), lambda: True)
    other = Submitted(scheduler, noise(4, 6, 3, seed=1))
    gate.set()
    other.check()
    assert stopped.done.wait(30)
    alone = Submitted(scheduler, noise(4, 6, 3), lambda: True)
    assert alone.done.wait(30)
    assert isinstance(alone.error, StoppedError)
    scheduler.close()


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_calls_run_at_a_time(at_once: int) -> None:
    meeting = threading.Barrier(at_once)
    network = Doubling(lambda: meeting.wait(30))
    scheduler = scheduler_of(network, at_once)
    calls = [Submitted(scheduler, noise(3 + number, 4, 3)) for number in range(9)]
    for call in calls:
        call.check()
    assert network.most == at_once
    scheduler.close()


def test_closing_drops_what_waits() -> None:
    gate = threading.Event()
    network = Doubling(lambda: gate.wait(30))
    scheduler = scheduler_of(network, 1)
    running = Submitted(scheduler, noise(4, 6, 3))
    wait_until(lambda: network.inside == 1)
    dropped = Submitted(scheduler, noise(5, 6, 3))
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    wait_until(lambda: not scheduler._waiting)
    gate.set()
    closing.join(30)
    running.check()
    assert not dropped.done.is_set()
    assert network.shapes == [(4, 6, 3)]


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    scheduler = scheduler_of(Doubling(), 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            Submitted(scheduler, noise(4, 6, 3))
    Submitted(scheduler, noise(4, 6, 3)).check()
    scheduler.close()


def test_a_defect_of_a_network_is_told() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    scheduler = scheduler_of(Doubling(fail), 2)
    call = Submitted(scheduler, noise(4, 6, 3))
    assert call.done.wait(30)
    assert isinstance(call.error, ZeroDivisionError)
    scheduler.close()


def test_a_network_that_cannot_be_had_fails_its_calls() -> None:
    def missing(factor: int, noise: int | None) -> Any:
        raise BackendError("Fake: no memory for the weights")

    scheduler = SchedulerOf(missing, 1)
    call = Submitted(scheduler, noise(4, 6, 3))
    assert call.done.wait(30)
    assert isinstance(call.error, BackendError)
    scheduler.close()


def test_devices_that_are_half_busy_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six calls keep two devices busy, four almost do; three are too few."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    scheduler = scheduler_of(Doubling(), 6)
    now[0] = 10.0
    assert scheduler.idle_seconds() == 0.0  # before the first call
    for calls in range(1, 7):
        scheduler._count(1)
        now[0] += 1.0
        assert scheduler.idle_seconds() == min(calls, 3)
    for _ in range(3):
        scheduler._count(-1)
    now[0] += 5.0
    assert scheduler.idle_seconds() == 8.0


def test_pictures_are_freed_at_once() -> None:
    """Not when Python happens to look for cycles: they are large, and their pages are locked."""
    scheduler = scheduler_of(Doubling(), 1)
    gc.disable()
    try:
        call = Submitted(scheduler, noise(4, 5, 3))
        call.check()
        seen = [weakref.ref(call.pixels), weakref.ref(call.out)]
        del call
        wait_until(lambda: all(each() is None for each in seen))
    finally:
        gc.enable()
        scheduler.close()
