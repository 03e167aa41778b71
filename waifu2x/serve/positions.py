"""Turns of jobs that wait, in memory, eight bytes each: nobody has to count them in a file."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable


class Positions:
    """Whole numbers in ascending order, each of them once."""

    def __init__(self, ascending: Iterable[int] = ()) -> None:
        self._ascending = array("q", ascending)

    def add(self, turn: int) -> None:
        """Adds one, mostly the largest of all."""
        self._ascending.insert(bisect_left(self._ascending, turn), turn)

    def remove(self, turn: int) -> None:
        """Removes one."""
        del self._ascending[bisect_left(self._ascending, turn)]

    def place(self, turn: int) -> int:
        """How many there are up to this one, which is one of them: 1 for the smallest."""
        return bisect_left(self._ascending, turn) + 1
