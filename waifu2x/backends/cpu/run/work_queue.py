"""Defines the work queue of strips, and the threads that take strips from it.

The queue is memory of compiled code (`records`: TAKEN and the rest): slots, each for a batch of
strips. Threads find work there without Python, and where compiled code supports it, they also sleep
there until a signal: Python would wake them one after the other, a tenth of a millisecond each,
since each needs the interpreter's lock. Before they sleep, they poll for more work for a while.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.compile.isa import SLEEPS
from waifu2x.backends.cpu.pack import records

_SLOTS = 8
_EMPTY = 1 << 62
"""The number of strips taken in an unused slot."""
_LOOKS = 8000
"""The polls of an empty queue before a thread sleeps: about half a millisecond."""
run_strips = Compiled("strip", "run_strips")


class WorkQueue:
    """A queue, with the process's threads that work on it, except callers."""

    def __init__(self, cores: int) -> None:
        self.process = os.getpid()
        """The process of the threads: a forked process inherits none."""
        self.slots = np.zeros((_SLOTS, records.SLOT), np.int64)
        self.slots[:, records.TAKEN] = _EMPTY
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(_SLOTS):
            self._free.put(slot)
        self._most_threads = cores - 1
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._wakeups: list[queue.SimpleQueue[bool]] = []
        self._asleep: list[queue.SimpleQueue[bool]] = []
        self._opened = [0]
        self.signal = np.zeros(records.SIGNAL, np.int64)
        weakref.finalize(self, _end, self.slots, self.signal, self._threads, self._wakeups)

    def take_slot(self, *, waits: bool) -> int | None:
        """Returns a free slot; if there is none, waits for one if `waits`, else returns None."""
        try:
            return self._free.get(waits)
        except queue.Empty:
            return None

    def give_back_slot(self, slot: int) -> None:
        """Frees a slot whose strips are all done."""
        self.slots[slot, records.TAKEN] = _EMPTY
        self._free.put(slot)

    def open(self, slot: int, wanted: int) -> None:
        """Opens a slot to all threads, and wakes `wanted` of them."""
        with self._lock:
            while len(self._threads) < min(wanted, self._most_threads):
                self._add_thread()
            self._opened[0] += 1
            woken = [self._asleep.pop() for _ in range(min(wanted, len(self._asleep)))]
        run_strips(self.slots, self.signal, 0, 0, 0, 0, 0, slot, wanted, 0)
        _wake(woken, True)

    def end(self) -> None:
        """Ends the threads."""
        _end(self.slots, self.signal, self._threads, self._wakeups)
        for thread in self._threads:
            thread.join()

    def _add_thread(self) -> None:
        wakeup: queue.SimpleQueue[bool] = queue.SimpleQueue()
        number = len(self._threads) + 1
        thread = threading.Thread(
            target=_work,
            args=(number, self.slots, self.signal, wakeup, self._asleep, self._opened),
            name=f"waifu2x-cpu-{number}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:  # the system allows no more: the caller does the work
            self._most_threads = len(self._threads)
            return
        self._wakeups.append(wakeup)
        self._threads.append(thread)


class TaskBatch:
    """A batch of strips in a slot of the queue."""

    def __init__(
        self,
        work: WorkQueue,
        slot: int,
        strips: NDArray[Any],
        scratch: NDArray[np.float32],
        floats: int,
        arrays: tuple[NDArray[np.float32], NDArray[np.float32]],
    ) -> None:
        """`strips` are of dtype records.STRIP; each thread works in `floats` floats of `scratch`;
        `arrays` are weights and constants."""
        self.scratch = scratch
        self.weights = arrays[0]
        self.count = strips.size
        self._work, self._slot = work, slot
        self._held = (strips, *arrays)  # compiled code has only their addresses
        self._row = row = work.slots[slot]
        weights, constants = arrays
        row[records.DONE], row[records.STOP], row[records.COUNT] = 0, 0, strips.size
        row[records.STRIPS], row[records.SCRATCH], row[records.FLOATS] = (
            strips.ctypes.data,
            scratch.ctypes.data,
            floats,
        )
        row[records.WEIGHTS], row[records.CONSTANTS] = weights.ctypes.data, constants.ctypes.data
        work.open(slot, strips.size - 1)

    @property
    def done(self) -> int:
        """The number of strips that are done."""
        return int(self._row[records.DONE])

    def run_one(self) -> None:
        """Runs one strip; if none is left, waits a little for the others."""
        work = self._work
        run_strips(work.slots, work.signal, self._slot, self._slot + 1, 0, _LOOKS, 1, -1, 0, 0)

    def stop(self) -> None:
        """Makes the remaining strips end at once."""
        self._row[records.STOP] = 1

    def release(self) -> None:
        """Frees the slot once all strips are done."""
        self._work.give_back_slot(self._slot)


def _wake(wakeups: list[queue.SimpleQueue[bool]], goes_on: bool) -> None:
    for wakeup in wakeups:
        wakeup.put(goes_on)


def _end(
    slots: NDArray[np.int64],
    signal: NDArray[np.int64],
    threads: list[threading.Thread],
    wakeups: list[queue.SimpleQueue[bool]],
) -> None:
    """Tells all threads to end."""
    signal[records.ENDED] = 1
    if threads:
        run_strips(slots, signal, 0, 0, 0, 0, 0, -1, len(threads), 0)
    _wake(wakeups, False)


def _work(
    number: int,
    slots: NDArray[np.int64],
    signal: NDArray[np.int64],
    wakeup: queue.SimpleQueue[bool],
    asleep: list[queue.SimpleQueue[bool]],
    opened: list[int],
) -> None:
    """Runs strips in a thread until it is told to end.

    It sleeps in compiled code where possible, else on a Python queue: if it misses a wakeup there,
    between a poll and its sleep, fewer threads run the strips, with no other effect.
    """
    goes_on = True
    while goes_on:
        seen = opened[0]
        run_strips(slots, signal, 0, len(slots), number, _LOOKS, -1, -1, 0, int(SLEEPS))
        if signal[records.ENDED]:
            return
        if opened[0] == seen:
            asleep.append(wakeup)
            goes_on = wakeup.get()
