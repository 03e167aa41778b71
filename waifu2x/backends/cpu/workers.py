"""The threads, which take strips from a board that all of them see.

Who asks for strips runs them as well, so that a picture begins at once, and ends with its last
strip. The others, once awake, find work without Python: to wake them costs a tenth of a millisecond
each, one after the other, since each needs the interpreter's lock. So they look for more for a
while before they sleep.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu import layout
from waifu2x.backends.cpu.compiled import Compiled
from waifu2x.backends.cpu.forms import round_up
from waifu2x.backends.cpu.free_memory import FreeMemory
from waifu2x.backends.cpu.layout import (
    CONSTANTS,
    COUNT,
    DONE,
    FLOATS,
    SCRATCH,
    SLOT,
    STOP,
    STRIPS,
    TAKEN,
    WEIGHTS,
)
from waifu2x.errors import BackendError

SPARE_BYTES = 768 << 20
"""The most memory for maps that are kept that waits for the next call: its pages are there."""
_SLOTS = 8
_CLOSED = 1 << 62
"""How many strips of a slot are taken when there are none."""
_LOOKS = 8000
"""At the board without finding anything, before a thread sleeps: about half a millisecond."""
_NAP = 5e-4
"""Seconds between further looks of the one who called."""
run_strips = Compiled("strip", "run_strips")


class Workers:
    """The threads, started when they are first needed, and their scratch memory."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._changed = threading.Condition()
        self._calls = 0
        self._is_closed = False
        self._spare = FreeMemory()
        self._spare_maps = FreeMemory()
        self._team = _Team(cores)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A call of a network, for whose end `close` waits. Raises BackendError after that."""
        with self._changed:
            if self._is_closed:
                raise BackendError("backend cpu: this backend is closed: open a new one")
            if self._team.process != os.getpid():
                self._team = _Team(self.cores)  # a forked process inherits no threads
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
    ) -> Flight | None:
        """Begins to run strips (layout.STRIP), each of which needs so many floats of memory.

        Where the board is full, waits, or gives None: who has strips there already must not wait
        for others, who may wait for those.
        """
        floats = round_up(2 * layout.PLACES + floats, layout.LINE_FLOATS)
        scratch = self._spare.take(self.cores * floats)
        try:
            slot = self._team.free.get(waits)
        except queue.Empty:
            self._spare.give_back(scratch)
            return None
        flight = Flight(self._team, slot, strips, (weights, constants, scratch))
        row = flight.row
        row[DONE], row[STOP], row[COUNT] = 0, 0, strips.size
        row[STRIPS], row[SCRATCH], row[FLOATS] = strips.ctypes.data, scratch.ctypes.data, floats
        row[WEIGHTS], row[CONSTANTS] = weights.ctypes.data, constants.ctypes.data
        flight.memory = scratch
        self._team.open(flight.slot, strips.size - 1)
        return flight

    def finish(self, flight: Flight, report: Callable[[int], None]) -> None:
        """Runs what is left of them, and waits for the others; reports how many have been done.

        Whatever is raised meanwhile, none runs any more afterwards.
        """
        try:
            done = 0
            while done < flight.count:
                flight.run()
                now = int(flight.row[DONE])
                if now > done:
                    report(now - done)
                else:
                    time.sleep(_NAP)
                done = now
        finally:
            flight.row[STOP] = 1  # which makes those that are left end at once
            while flight.row[DONE] < flight.count:
                flight.run()
            flight.land()
            self._spare.give_back(flight.memory)

    def borrow_maps(self, floats: int) -> NDArray[np.float32]:
        """At least that many floats of uninitialised memory, on a cache line, for maps that are
        kept between phases."""
        return self._spare_maps.take(floats)

    def give_back_maps(self, memory: NDArray[np.float32]) -> None:
        """For the next call, if it is not too much to hold on to."""
        if memory.nbytes <= SPARE_BYTES:
            self._spare_maps.give_back(memory)

    @property
    def bytes(self) -> int:
        """Bytes of memory that is kept for further calls."""
        return self._spare.bytes + self._spare_maps.bytes

    def release(self) -> None:
        """Frees the memory that is kept for further calls."""
        self._spare.release()
        self._spare_maps.release()

    def close(self) -> None:
        """Ends the threads, after the calls that are under way."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._calls)
        self._team.end()


class Flight:
    """Strips under way."""

    memory: NDArray[np.float32]

    def __init__(
        self, team: _Team, slot: int, strips: NDArray[Any], arrays: tuple[NDArray[Any], ...]
    ) -> None:
        """`arrays` are what compiled code only knows the address of."""
        self._team, self._arrays = team, (strips, *arrays)
        self.slot, self.row = slot, team.board[slot]
        self.count = strips.size

    def run(self) -> None:
        """Runs one strip; if there are none left, waits for the others, but not for long."""
        run_strips(self._team.board, self.slot, self.slot + 1, 0, _LOOKS, 1, -1)

    def land(self) -> None:
        """Makes room on the board."""
        self.row[TAKEN] = _CLOSED
        self._team.free.put(self.slot)


class _Team:
    """The threads of a process, less those that call."""

    def __init__(self, cores: int) -> None:
        self.process = os.getpid()
        self.board = np.zeros((_SLOTS, SLOT), np.int64)
        self.board[:, TAKEN] = _CLOSED
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(_SLOTS):
            self.free.put(slot)
        self._cores = cores
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._bells: list[queue.SimpleQueue[bool]] = []
        self._asleep: list[queue.SimpleQueue[bool]] = []
        self._opened = [0]
        weakref.finalize(self, _ring, self._bells, False)

    def open(self, slot: int, wanted: int) -> None:
        """Lets all take strips from a slot, and wakes as many as are wanted."""
        with self._lock:
            while len(self._threads) < min(wanted, self._cores - 1):
                bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
                thread = threading.Thread(
                    target=_help,
                    args=(len(self._threads) + 1, self.board, bell, self._asleep, self._opened),
                    name=f"waifu2x-cpu-{len(self._threads) + 1}",
                    daemon=True,
                )
                self._bells.append(bell)
                self._threads.append(thread)
                thread.start()
            self._opened[0] += 1
            woken = [self._asleep.pop() for _ in range(min(wanted, len(self._asleep)))]
        run_strips(self.board, 0, 0, 0, 0, 0, slot)
        _ring(woken, True)

    def end(self) -> None:
        """Ends the threads."""
        _ring(self._bells, False)
        for thread in self._threads:
            thread.join()


def _ring(bells: list[queue.SimpleQueue[bool]], goes_on: bool) -> None:
    for bell in bells:
        bell.put(goes_on)


def _help(
    number: int,
    board: NDArray[np.int64],
    bell: queue.SimpleQueue[bool],
    asleep: list[queue.SimpleQueue[bool]],
    opened: list[int],
) -> None:
    """What a thread does until it is told to end.

    If it misses a bell between a look and its sleep, strips are run by fewer, that is all.
    """
    goes_on = True
    while goes_on:
        seen = opened[0]
        run_strips(board, 0, len(board), number, _LOOKS, -1, -1)
        if opened[0] == seen:
            asleep.append(bell)
            goes_on = bell.get()
