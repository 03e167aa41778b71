"""Manages the threads of a backend, their memory, and the calls that use them.

A caller also runs its strips itself, so that a picture begins at once, and ends with its last
strip.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.pack.records import LINE_FLOATS, PLACES, aligned
from waifu2x.backends.cpu.run.work_queue import TaskBatch, WorkQueue
from waifu2x.errors import BackendError
from waifu2x.lowering.plan.box import round_up

MOST_FREE_BYTES = 768 << 20
"""The most memory of each kind kept for the next call, which saves its page faults."""
_BACKOFF = 5e-4
"""The seconds between further polls of the caller."""


class _FreeMemory:
    """Lends blocks of floats, on cache lines. Threads may share it.

    A block holds zeros, or the data that the same user has left: another user's data may be NaN
    when read as another type, and kernels multiply padding by zeros instead of skipping it.
    """

    def __init__(self, most: int) -> None:
        """`most` is the most bytes that are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._blocks: list[tuple[NDArray[np.float32], weakref.ref[NDArray[Any]]]] = []
        """Free blocks, with their last users."""

    @property
    def bytes(self) -> int:
        """The bytes of all free blocks."""
        with self._lock:
            return sum(block.nbytes for block, _ in self._blocks)

    def take(self, floats: int, user: NDArray[Any]) -> NDArray[np.float32]:
        """Lends a block of at least `floats` floats: the one given back first, or a new one.

        `user` is the weights of the network that takes it.
        """
        with self._lock:
            block, last = self._blocks.pop(0) if self._blocks else (None, None)
        if block is None or block.size < floats:
            return aligned(floats, zeros=True)
        if last is None or last() is not user:
            block[:] = 0  # all of it: the next call of this user may need more
        return block

    def give_back(self, block: NDArray[np.float32], user: NDArray[Any]) -> None:
        """Takes a block back for the next caller; those given back first are freed for it."""
        if block.nbytes > self._most:
            return
        with self._lock:
            self._blocks.append((block, weakref.ref(user)))
            while sum(kept.nbytes for kept, _ in self._blocks) > self._most:
                self._blocks.pop(0)

    def release(self) -> None:
        """Frees all free blocks."""
        with self._lock:
            self._blocks.clear()


class Workers:
    """The threads of a backend, started when first needed, and free lists of their memory."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._changed = threading.Condition()
        self._calls = 0
        self._is_closed = False
        self._free_scratch = _FreeMemory(MOST_FREE_BYTES)
        self._free_maps = _FreeMemory(MOST_FREE_BYTES)
        self._free_pixels = _FreeMemory(MOST_FREE_BYTES)
        self._work = WorkQueue(cores)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Registers a call, for whose end `close` waits. Raises BackendError after `close`."""
        with self._changed:
            if self._is_closed:
                raise BackendError("backend cpu: this backend is closed", "open a new one")
            if self._work.process != os.getpid():
                self._work = WorkQueue(self.cores)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def start(
        self,
        strips: NDArray[Any],
        floats: int,
        weights: NDArray[np.float32],
        constants: NDArray[np.float32],
        *,
        waits: bool,
    ) -> TaskBatch | None:
        """Starts strips (records.STRIP); each thread needs `floats` floats of memory.

        If the queue is full, waits if `waits`, else returns None: a caller that already has strips
        there must not wait for others, which may wait for those.
        """
        floats = round_up(2 * PLACES + floats, LINE_FLOATS)
        scratch = self._free_scratch.take(self.cores * floats, weights)
        slot = self._work.take_slot(waits=waits)
        if slot is None:
            self._free_scratch.give_back(scratch, weights)
            return None
        return TaskBatch(self._work, slot, strips, scratch, floats, (weights, constants))

    def finish(self, batch: TaskBatch, report: Callable[[int], None]) -> None:
        """Runs the remaining strips of a batch, and waits for those under way; reports the number
        of strips done.

        Even if errors or interrupts are raised meanwhile, no strip runs afterwards.
        """
        try:
            done = 0
            while done < batch.count:
                batch.run_one()
                now = batch.done
                if now > done:
                    report(now - done)
                else:
                    time.sleep(_BACKOFF)
                done = now
        finally:
            _end(batch)
            self._free_scratch.give_back(batch.scratch, batch.weights)

    @contextmanager
    def kept_maps(
        self, pictures: int, floats: int, user: NDArray[Any]
    ) -> Iterator[NDArray[np.float32]]:
        """Yields memory, (pictures, floats), for maps that are kept between phases; then keeps it
        for the next call unless it is too large."""
        memory = self._free_maps.take(pictures * floats, user)
        yield memory[: pictures * floats].reshape(pictures, floats)
        self._free_maps.give_back(memory, user)

    @contextmanager
    def pixels(
        self, shapes: Sequence[tuple[int, int, int]], user: NDArray[Any]
    ) -> Iterator[list[NDArray[np.float32]]]:
        """Yields memory for pictures (H, W, planes) of floats, and keeps it likewise: page faults
        for one of 4K take as long as the conversion of its colours."""
        sizes = [math.prod(shape) for shape in shapes]
        memory = self._free_pixels.take(sum(sizes), user)
        ends = list(accumulate(sizes))
        yield [
            memory[end - size : end].reshape(shape)
            for shape, size, end in zip(shapes, sizes, ends, strict=True)
        ]
        self._free_pixels.give_back(memory, user)

    @property
    def bytes(self) -> int:
        """The bytes of memory kept for further calls."""
        return self._free_scratch.bytes + self._free_maps.bytes + self._free_pixels.bytes

    def release(self) -> None:
        """Frees the memory kept for further calls."""
        self._free_scratch.release()
        self._free_maps.release()
        self._free_pixels.release()

    def close(self) -> None:
        """Ends the threads, after the calls that are under way."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._calls)
        self._work.end()


def _end(batch: TaskBatch) -> None:
    """Ends a batch once the running strips are done. Further interrupts do not cut this short:
    compiled code would continue in freed memory."""
    batch.stop()
    while batch.done < batch.count:
        with suppress(KeyboardInterrupt):
            batch.run_one()
    batch.release()
