"""Runs the network calls of many files, a few at a time, and small pictures of one size
together.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import OnRecomputed, Progress
from waifu2x.backends.call import Call
from waifu2x.flows.flow import StoppedError
from waifu2x.imaging.enlarger import Networks
from waifu2x.system.lazy_dataclass import dataclass

_STACKED = 1 << 16
"""The most pixels of a picture that is computed in a stack; a larger one keeps a device busy."""
_LARGEST_STACK = 1 << 22


class _Kind(NamedTuple):
    """Common properties of calls that can run as one."""

    networks: Networks
    factor: int
    noise: int | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]


@dataclass(eq=False)
class NetworkCall:
    """A network call that waits for its turn."""

    networks: Networks
    factor: int
    noise: int | None
    """With `factor`, names the chain of `networks`."""
    pixels: NDArray[Any]
    out: NDArray[Any]
    on_progress: Progress
    """Gets parts that add up to 1; may raise to stop the call."""
    on_done: Callable[[Exception | None, float, bool], None]
    """Gets the error or None, the seconds of waiting, and whether the picture was computed again in
    wider numbers."""
    kind: _Kind = field(init=False)
    since: float = field(init=False)

    def __post_init__(self) -> None:
        shape, dtype = self.pixels.shape, self.pixels.dtype
        self.kind = _Kind(self.networks, self.factor, self.noise, shape, dtype, self.out.dtype)
        self.since = time.monotonic()


class Scheduler:
    """Threads that run calls in order."""

    def __init__(self, at_once: int) -> None:
        """Runs at most `at_once` calls together."""
        self._at_once = at_once
        self._enough = max(1, 2 * at_once // 3)
        """Calls that keep devices busy; the rest of `at_once` covers transfers."""
        self._changed = threading.Condition()
        self._waiting: deque[NetworkCall] = deque()
        self._running = 0
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._is_closed = False
        self._idle_seconds = 0.0
        self._idle_since: float | None = None

    def submit(self, call: NetworkCall) -> None:
        """Adds a call. Raises RuntimeError if no thread can be started for it."""
        with self._changed:
            self._waiting.append(call)
            if len(self._waiting) > self._free and len(self._threads) < self._at_once:
                thread = threading.Thread(
                    target=self._work, name=f"waifu2x-device-{len(self._threads)}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no more
                    if not self._threads:
                        self._waiting.remove(call)
                        raise
                else:
                    self._threads.append(thread)
            self._changed.notify()

    def idle_seconds(self) -> float:
        """Returns the seconds since the first call during which too few calls ran to keep devices
        busy."""
        with self._changed:
            self._count(0)
            return self._idle_seconds

    def close(self) -> None:
        """Drops waiting calls, and waits for running ones, which `on_progress` may stop."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        buffers = _Buffers()
        while calls := self._next():
            self._run(calls, buffers)
            with self._changed:
                # If calls wait, the device stays busy without a pause.
                if not self._waiting:
                    self._count(-1)
                else:
                    self._running -= 1
            del calls  # its arrays would live until the next ones come

    def _next(self) -> list[NetworkCall]:
        """Returns the next call with all that can run together with it; empty at the end."""
        with self._changed:
            self._free += 1
            while not (self._waiting or self._is_closed):
                self._changed.wait()
            self._free -= 1
            if self._is_closed:
                return []
            self._count(1)
            first = self._waiting.popleft()
            together = [first]
            height, width = first.kind.shape[:2]
            if height * width <= _STACKED:
                alike = [call for call in self._waiting if call.kind == first.kind]
                together += alike[: _LARGEST_STACK // (height * width) - 1]
                for call in together[1:]:
                    self._waiting.remove(call)
            return together

    def _count(self, more: int) -> None:
        now = time.monotonic()
        if self._idle_since is not None:
            self._idle_seconds += now - self._idle_since
        self._running += more
        is_idle = self._running < self._enough and (more or self._idle_since is not None)
        self._idle_since = now if is_idle else None

    def _run(self, calls: Sequence[NetworkCall], buffers: _Buffers) -> None:
        """Runs calls of one kind as one, and ends each."""
        start = time.monotonic()
        error: Exception | None = None
        again = set[int]()
        try:
            self._compute(calls, buffers, again.add)
        except Exception as raised:
            error = raised
        for number, call in enumerate(calls):
            # Each is raised by another thread, which adds its traceback.
            own = error if len(calls) == 1 else _own(error)
            call.on_done(own, start - call.since, number in again)

    def _compute(
        self, calls: Sequence[NetworkCall], buffers: _Buffers, on_recomputed: OnRecomputed
    ) -> None:
        first, kind = calls[0], calls[0].kind
        networks = kind.networks
        network = networks.chains.network(kind.factor, kind.noise)
        pixels, out = first.pixels, first.out
        if len(calls) > 1:
            pixels = buffers.array(0, (len(calls), *pixels.shape), pixels.dtype)
            out = buffers.array(1, (len(calls), *out.shape), out.dtype)
            for place, call in zip(pixels, calls, strict=True):
                place[...] = call.pixels

        def report(part: float) -> None:
            stopped = 0
            for call in calls:
                try:
                    call.on_progress(part)
                except StoppedError:
                    stopped += 1
            if stopped == len(calls):
                raise StoppedError

        network.run(
            Call(
                pixels,
                kind.out_dtype,
                out,
                tile=networks.tile,
                tta=networks.tta,
                on_progress=report,
                on_recomputed=on_recomputed,
            )
        )
        if len(calls) > 1:
            for made, call in zip(out, calls, strict=True):
                call.out[...] = made


class _Buffers:
    """Reused memory of a thread for stacks."""

    def __init__(self) -> None:
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def array(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns an uninitialised array in buffer 0 or 1, which ends that buffer's last one."""
        size = int(np.prod(shape)) * dtype.itemsize
        if self._buffers[number].size < size:
            self._buffers[number] = np.empty(size, np.uint8)
        return self._buffers[number][:size].view(dtype).reshape(shape)


def _own(error: Exception | None) -> Exception | None:
    """Returns an equal exception, whose cause is the first."""
    if error is None:
        return None
    # `distributed` makes copies of exceptions keep their tracebacks.
    own = copy.copy(error).with_traceback(None)
    own.__cause__ = error
    return own
