"""The threads of a backend, the memory that they work in, and the calls that use them.

A caller that asks for strips runs them as well, so that a picture begins at once, and ends with its
last strip.
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
"""The most memory of each kind that waits for the next call: its pages are there."""
_BACKOFF = 5e-4
"""Seconds between further looks of the caller."""


class _FreeMemory:
    """Blocks of floats, on cache lines. Threads may share it.

    A block holds zeros, or what the same user has left there: what another one has left may be no
    number where it is read as another kind, and padding is multiplied by zeros, not left out.
    """

    def __init__(self, most: int) -> None:
        """`most` is how many bytes are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._blocks: list[tuple[NDArray[np.float32], weakref.ref[NDArray[Any]]]] = []
        """Each with its last user."""

    @property
    def bytes(self) -> int:
        """Bytes of the blocks that are not taken."""
        with self._lock:
            return sum(block.nbytes for block, _ in self._blocks)

    def take(self, floats: int, user: NDArray[Any]) -> NDArray[np.float32]:
        """Returns a block of at least `floats` floats: the one given back first, or a new one.

        `user` stands for the network that takes it: its weights.
        """
        with self._lock:
            block, last = self._blocks.pop(0) if self._blocks else (None, None)
        if block is None or block.size < floats:
            return aligned(floats, zeros=True)
        if last is None or last() is not user:
            block[:] = 0  # all of it: the next call of this user may take more
        return block

    def give_back(self, block: NDArray[np.float32], user: NDArray[Any]) -> None:
        """Keeps a block for the next caller; the ones given back first make room for it."""
        if block.nbytes > self._most:
            return
        with self._lock:
            self._blocks.append((block, weakref.ref(user)))
            while sum(kept.nbytes for kept, _ in self._blocks) > self._most:
                self._blocks.pop(0)

    def release(self) -> None:
        """Frees all blocks that are not taken."""
        with self._lock:
            self._blocks.clear()


class Workers:
    """The threads, started when they are first needed, and free lists of their memory."""

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
        """Holds a call of a network, for whose end `close` waits. Raises BackendError after
        that."""
        with self._changed:
            if self._is_closed:
                raise BackendError("backend cpu: this backend is closed: open a new one")
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
        """Begins to run strips (records.STRIP); each needs `floats` floats of memory.

        Where the queue is full, waits, or returns None: a caller that has strips there already
        must not wait for others, which may wait for those.
        """
        floats = round_up(2 * PLACES + floats, LINE_FLOATS)
        scratch = self._free_scratch.take(self.cores * floats, weights)
        slot = self._work.take_slot(waits=waits)
        if slot is None:
            self._free_scratch.give_back(scratch, weights)
            return None
        return TaskBatch(self._work, slot, strips, scratch, floats, (weights, constants))

    def finish(self, batch: TaskBatch, report: Callable[[int], None]) -> None:
        """Runs what is left of a batch, and waits for the others; reports how many strips have
        been done.

        Whatever is raised meanwhile, and however often, none runs any more afterwards.
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
        """Yields memory, (pictures, floats), for maps that are kept between phases; it waits for
        the next call if it is not too much to hold on to."""
        memory = self._free_maps.take(pictures * floats, user)
        yield memory[: pictures * floats].reshape(pictures, floats)
        self._free_maps.give_back(memory, user)

    @contextmanager
    def pixels(
        self, shapes: Sequence[tuple[int, int, int]], user: NDArray[Any]
    ) -> Iterator[list[NDArray[np.float32]]]:
        """Yields memory for pictures (H, W, planes) of floats, likewise: to touch fresh pages for
        one of 4K takes as long as to convert its colours."""
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
        """Bytes of memory that is kept for further calls."""
        return self._free_scratch.bytes + self._free_maps.bytes + self._free_pixels.bytes

    def release(self) -> None:
        """Frees the memory that is kept for further calls."""
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
    """Ends a batch as soon as the strips that run are done. Further interrupts do not cut that
    short: compiled code would go on in memory that is freed."""
    batch.stop()
    while batch.done < batch.count:
        with suppress(KeyboardInterrupt):
            batch.run_one()
    batch.release()
