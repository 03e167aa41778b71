"""The calls of networks of many files: so many at a time, small pictures of one size together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Network, Progress, ignore
from waifu2x.networks.chains import Chains

_STACKED = 1 << 16
"""Pixels of a picture up to which several are computed as one stack: beyond that, one by itself
keeps a device busy."""
_LARGEST_STACK = 1 << 22
"""Pixels of a stack."""


class _Kind(NamedTuple):
    """What calls must have in common to be one."""

    network: Network
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    tile: int | None
    tta: int


@dataclass(eq=False)
class _Call:
    kind: _Kind
    pixels: NDArray[Any]
    on_progress: Progress
    moved_on: threading.Event = field(default_factory=threading.Event)
    """It has got its turn, or another one has taken it along."""
    together: Sequence[_Call] = ()
    """What runs in its turn, itself among it; nothing if another one takes it along."""
    result: NDArray[Any] | None = None
    error: BaseException | None = None


class Queue:
    """Turns at networks, in the order in which they were asked for."""

    def __init__(self, at_once: int) -> None:
        """`at_once` calls run at a time."""
        self._at_once = at_once
        self._enough = max(1, 2 * at_once // 3)
        """Calls that keep devices busy if nothing holds them up: the rest of `at_once` is for what
        is sent and fetched meanwhile."""
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[_Call] = deque()
        self._idle_seconds = 0.0
        self._idle_since: float | None = None
        self._waited = threading.local()

    def run(self, kind: _Kind, pixels: NDArray[Any], on_progress: Progress) -> NDArray[Any]:
        """One call, in its turn. Raises what the network does."""
        call = _Call(kind, pixels, on_progress)
        start = time.monotonic()
        with self._lock:
            if self._running < self._at_once and not self._waiting:
                self._count(1)
                call.together = (call,)
            else:
                self._waiting.append(call)
        if not call.together:
            call.moved_on.wait()
        self._waited.seconds = self.waited() + time.monotonic() - start
        if call.together:
            try:
                _compute(call.together)
            finally:
                call.together = ()  # it is among them: its pictures would wait for a collection
                self._pass_on()
        if call.error is not None:
            raise call.error
        assert call.result is not None
        return call.result

    def waited(self) -> float:
        """Seconds that calls of this thread have waited since this was last asked."""
        seconds: float = getattr(self._waited, "seconds", 0.0)
        self._waited.seconds = 0.0
        return seconds

    def idle_seconds(self) -> float:
        """How long fewer calls were running than keep the devices busy, since the first one."""
        with self._lock:
            self._count(0)
            return self._idle_seconds

    def _count(self, more: int) -> None:
        """So many more calls are running."""
        now = time.monotonic()
        if self._idle_since is not None:
            self._idle_seconds += now - self._idle_since
        self._running += more
        is_idle = self._running < self._enough and (more or self._idle_since is not None)
        self._idle_since = now if is_idle else None

    def _pass_on(self) -> None:
        """Gives a turn to the next, with all that can run together with it."""
        with self._lock:
            if not self._waiting:
                self._count(-1)
                return
            first = self._waiting.popleft()
            together = [first]
            height, width = first.kind.shape[:2]
            if len(first.kind.shape) == 3 and height * width <= _STACKED:
                alike = [call for call in self._waiting if call.kind == first.kind]
                together += alike[: _LARGEST_STACK // (height * width) - 1]
            for call in together[1:]:
                self._waiting.remove(call)
            first.together = together
            first.moved_on.set()


def _compute(calls: Sequence[_Call]) -> None:
    """Runs calls of one kind as one; tells all but the first that it is done."""
    first, kind = calls[0], calls[0].kind

    def report(part: float) -> None:
        for call in calls:
            call.on_progress(part)

    try:
        pixels = first.pixels
        if len(calls) > 1:
            pixels = np.stack([call.pixels for call in calls])
        results = kind.network(
            pixels, kind.out_dtype, tile=kind.tile, tta=kind.tta, on_progress=report
        )
        for call, result in zip(calls, results if len(calls) > 1 else [results], strict=True):
            call.result = result
    except BaseException as error:
        for call in calls:
            call.error = error
    finally:
        for call in calls[1:]:
            call.moved_on.set()


class QueuedNetwork:
    """See Network: one whose calls wait for their turn."""

    def __init__(self, network: Network, queue: Queue) -> None:
        self._network = network
        self._queue = queue

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> NDArray[Any]:
        """Runs pictures when it is their turn."""
        dtype = np.dtype(out_dtype)
        kind = _Kind(self._network, pixels.shape, pixels.dtype, dtype, tile, tta)
        result = self._queue.run(kind, pixels, on_progress)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    def close(self) -> None:
        """Does nothing: its network belongs to whoever made the queue."""


class QueuedChains:
    """Those of others, whose networks wait for their turn."""

    def __init__(self, chains: Chains, queue: Queue) -> None:
        self.name = chains.name
        self.factors = chains.factors
        self.facts = chains.facts
        self._chains = chains
        self._queue = queue

    def network(self, factor: int, noise: int | None) -> Network:
        """One whose calls wait for their turn. Raises ModelError, BackendError."""
        return QueuedNetwork(self._chains.network(factor, noise), self._queue)
