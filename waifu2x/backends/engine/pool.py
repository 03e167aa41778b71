"""Joins several devices in one backend: a picture goes to a free device, a stack to all."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from waifu2x.backends import (
    Backend,
    Device,
    Measurement,
    Network,
    Pin,
    Precision,
    Trial,
    device_numbers,
    open_backend,
)
from waifu2x.backends.call import Call, Pictures, with_out
from waifu2x.backends.engine.fallback import FallbackBackend
from waifu2x.errors import DeviceError
from waifu2x.networks.model import Model

if TYPE_CHECKING:
    from waifu2x.lowering.plan.support import Support

_LOG = logging.getLogger(__name__)


def open_devices(
    name: str,
    devices: Sequence[int] | Literal["all"],
    on_skip: Callable[[str], None],
    fallback: bool = True,
) -> Backend:
    """Opens the named backend on several devices, as `open_backend` does on one.

    "all" means all devices of the first one's kind: GPUs, or processors. With `fallback`, "auto"
    continues on the first device of the next backend when all of these stop working.
    """
    if name == "auto" and fallback:

        def open_next(failed: str) -> Backend:
            return open_backend("auto", 0, on_skip, after=failed)

        return FallbackBackend(_open(name, devices, on_skip), open_next)
    return _open(name, devices, on_skip)


def _open(
    name: str, devices: Sequence[int] | Literal["all"], on_skip: Callable[[str], None]
) -> Backend:
    opened: list[Backend] = []
    try:
        if devices == "all":
            opened.append(open_backend(name, 0, on_skip))
            devices = device_numbers(opened[0].name)[1:]
        for device in devices:
            # The first device decides which backend `auto` is.
            chosen = opened[0].name if opened else name
            opened.append(open_backend(chosen, device, on_skip))
    except BaseException:
        for backend in opened:
            backend.close()
        raise
    return opened[0] if len(opened) == 1 else DevicePool(opened)


class DevicePool:
    """A backend of several devices, which run calls from several threads at the same time."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.name = backends[0].name
        first = backends[0].device
        names = ", ".join(backend.device.name for backend in backends)
        self.device = Device(names, f"{len(backends)} devices, {first.detail}", first.is_gpu)
        self.calls_at_once = sum(backend.calls_at_once for backend in backends)
        self._backends = tuple(backends)

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        networks: list[Network] = []
        try:
            for backend in self._backends:
                networks.append(backend.compile(models, precision))
        except BaseException:
            for network in networks:
                network.close()
            raise
        calls_at_once = [backend.calls_at_once for backend in self._backends]
        return PooledNetwork(models, networks, calls_at_once)

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory for all devices."""
        with ExitStack() as held:
            for backend in self._backends:
                held.enter_context(backend.pin(memory))
            return Pin(held.pop_all().close)

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """Measures the first device, since each picture is computed by one."""
        return self._backends[0].measure(model, precision, pixels)

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """Tunes each kind of device once."""
        unlike = {backend.device: backend for backend in self._backends}
        for backend in unlike.values():
            yield from backend.tune(model, precision, pixels)

    @property
    def bytes(self) -> int:
        """Bytes that all devices hold."""
        return sum(backend.bytes for backend in self._backends)

    def close(self) -> None:
        """Closes all devices, even if one fails."""
        with ExitStack() as held:
            for backend in self._backends:
                held.callback(backend.close)


class PooledNetwork:
    """A network compiled on each device. A call takes the device idle for longest, or waits for
    one.

    A device that stops working gets no more calls; the others compute its pictures.
    """

    def __init__(
        self, models: Sequence[Model], networks: Sequence[Network], calls_at_once: Sequence[int]
    ) -> None:
        """Takes, for each device, its network of the same models and its `calls_at_once`."""
        self._models = tuple(models)
        self._lock = threading.Lock()
        self._working = set(range(len(networks)))
        """The networks whose devices have not stopped working."""
        self._networks = tuple(networks)
        self._idle: queue.SimpleQueue[int | DeviceError] = queue.SimpleQueue()
        """The numbers of networks that may be called, each once for every call that its device
        takes at once; or the error of the last device, once all have stopped."""
        for turn in range(max(calls_at_once)):
            for number, calls in enumerate(calls_at_once):
                if turn < calls:
                    self._idle.put(number)

    @property
    def arithmetic(self) -> str:
        """The arithmetic of its networks, without repetitions."""
        return ", ".join(dict.fromkeys(network.arithmetic for network in self._networks))

    @property
    def support(self) -> Support | None:
        """The support of its networks; None unless all have the same."""
        first, *others = [network.support for network in self._networks]
        return first if all(other == first for other in others) else None

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs a call on one device, or a stack on all; one thread at a time reports progress."""
        parts = min(len(self._networks), call.count)
        if parts <= 1:
            return self._on_one(call)
        call = with_out(call, self._models)
        lock, on_progress = threading.Lock(), call.on_progress

        def report(part: float) -> None:
            with lock:
                on_progress(part)

        told = replace(call, on_progress=report)
        ends = [call.count * number // parts for number in range(parts + 1)]
        with ThreadPoolExecutor(parts, thread_name_prefix="waifu2x-device") as pool:
            list(pool.map(self._on_one, starmap(told.part, pairwise(ends))))
        return call.results

    def close(self) -> None:
        """Closes the networks of all devices, even if one fails."""
        with ExitStack() as held:
            for network in self._networks:
                held.callback(network.close)

    def _on_one(self, call: Call[Pictures]) -> Pictures:
        """Runs a call on one device, and on another if that stops working."""
        attempt = call.attempts()
        while True:
            idle = self._idle.get()
            if isinstance(idle, DeviceError):
                self._idle.put(idle)
                raise DeviceError(idle.problem, idle.remedy) from idle
            if idle not in self._working:
                continue
            try:
                result = self._networks[idle].run(attempt())
            except DeviceError as error:
                self._drop(idle, error)
            except BaseException:
                self._idle.put(idle)
                raise
            else:
                self._idle.put(idle)
                return result

    def _drop(self, number: int, error: DeviceError) -> None:
        """Takes a stopped device out of use; the error of the last one ends all waiting calls."""
        with self._lock:
            if number not in self._working:
                return  # another of its calls has dropped it
            self._working.remove(number)
            if self._working:
                _LOG.warning("%s: going on with the other devices", error.problem)
            else:
                self._idle.put(error)
