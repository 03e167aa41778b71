"""Arrays that two processes see, and memory that is used again."""

from __future__ import annotations

import gc
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.contents import noise
from waifu2x.backends import Pin
from waifu2x.flows.fleet import shared_memory
from waifu2x.flows.fleet.shared_memory import AttachedPool, SharedArray, SharedPool


class Pinned:
    """A device that knows which memory it has registered."""

    def __init__(self) -> None:
        self.now: list[int] = []
        self.ever = 0

    def pin(self, memory: NDArray[Any]) -> Pin:
        address = memory.__array_interface__["data"][0]
        self.now.append(address)
        self.ever += 1
        return Pin(lambda: self.now.remove(address))


class Both:
    """The two ends of a connection, and what passes between them."""

    def __init__(self) -> None:
        self.one, self.other = multiprocessing.Pipe()
        self.device = Pinned()
        self.mine = SharedPool()
        self.theirs = AttachedPool(self.other, self.device.pin)

    def pass_on(self, *arrays: NDArray[Any]) -> tuple[list[SharedArray], list[NDArray[Any]]]:
        """Passes arrays to the other end: their descriptors, and the arrays as it sees them."""
        self.mine.send(self.one, arrays, lambda told, gone: (told, gone))
        told, gone = self.other.recv()
        self.theirs.drop(gone)
        return told, self.theirs.receive(told)


@pytest.mark.parametrize("named", [False, True])
def test_two_processes_see_the_same_arrays(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named memory is what other systems than Linux have."""
    if named:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    both = Both()
    numbers = []
    for size in (3, 5000, 5000, 4000, 7, 5000):
        array = both.mine.array((size, 3), np.uint16)
        (told,), (seen,) = both.pass_on(array)
        array[:] = noise(size, 3)
        np.testing.assert_array_equal(seen, array)
        seen[-1] = 65535
        assert (array[-1] == 65535).all()
        numbers.append(told.segment)
        del array, seen
    # Memory that nobody holds any more is used again, where it is not far too large.
    assert numbers == [1, 2, 2, 2, 1, 2]
    # Memory that is used again and again is page-locked.
    assert both.device.ever == len(both.device.now) == 1
    held, another = both.mine.array((5000, 3), np.uint16), both.mine.array((5000, 3), np.uint16)
    (told, other_told), seen_both = both.pass_on(held, another)
    assert told.segment != other_told.segment
    monkeypatch.setattr(shared_memory, "_KEPT_BYTES", 0)
    del held, another, seen_both
    gc.collect()
    both.pass_on()
    assert not both.device.now
    fresh = both.mine.array((2, 2), np.uint8)
    (told,), (seen,) = both.pass_on(fresh)
    assert told.is_new
    for _ in range(2):
        both.pass_on(fresh)
    assert both.device.ever == 1
    both.pass_on(fresh)
    assert (both.device.ever, len(both.device.now)) == (2, 1)
    del fresh, seen
    both.theirs.close()
    assert not both.device.now


def test_a_part_of_an_array_is_found() -> None:
    both = Both()
    array = both.mine.array((8, 5, 3), np.uint8)
    array[...] = noise(8, 5, 3)
    part = array[2:6]
    assert both.mine.holds(part)
    assert not both.mine.holds(array[:, 1:])  # which has gaps
    assert not both.mine.holds(noise(8, 5, 3))
    _, (seen,) = both.pass_on(part)
    np.testing.assert_array_equal(seen, part)
    seen[0] = 0
    assert not array[2].any()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory has a name here")
def test_memory_that_cannot_be_had_leaves_no_file_open() -> None:
    pool, opened = SharedPool(), Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    for _ in range(3):
        with pytest.raises(OSError, match=r"memory|too large"):
            pool.array((1 << 60,), np.uint8)
    assert len(list(opened.iterdir())) == before
