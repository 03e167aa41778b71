"""Divides runs of parts among those that make them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from waifu2x.flows.film.parts.part_run import PartRun

_SHARES = 2
"""Everybody gets a share of what is left that is so many times smaller than an equal one: all end
at about the same time, and few places have to be sought."""
_BEYOND = 2
"""Parts of a run after the end that the film claims to have."""


class RunQueue:
    """Runs that are to be made. Threads share it."""

    def __init__(
        self, runs: Sequence[PartRun], expected: int, makers: int, most: int | None = None
    ) -> None:
        """`expected` is the number of the part after the last, as far as is known; `makers` is how
        many there are; no run has more than `most` parts, unless it cannot be divided."""
        self._changed = threading.Condition()
        self._waiting = deque(runs)
        self._expected = expected
        self._makers = makers
        self._most = most
        self._under_way = 0
        self._has_ended = False
        self._is_stopped = False

    def take(self) -> PartRun | None:
        """A run to make, as soon as there is one; None when nothing is left.

        Whoever takes one has to tell how it ended.
        """
        with self._changed:
            while not self._is_stopped:
                run = self._taken()
                if run is not None or not self._under_way:
                    return run
                self._changed.wait()
            return None

    def take_now(self) -> PartRun | None:
        """A run to make, if there is one now."""
        with self._changed:
            return self._taken()

    def _taken(self) -> PartRun | None:
        run = self._cut()
        if run is not None:
            self._under_way += 1
        return run

    def done(self, *, has_ended: bool) -> None:
        """A run was made; whether the end of the film was found with it."""
        with self._changed:
            self._under_way -= 1
            self._has_ended |= has_ended
            self._changed.notify_all()

    def give_back(self, left: Sequence[PartRun]) -> None:
        """A run was not made, or not all of it: others make what is left."""
        with self._changed:
            self._under_way -= 1
            self._waiting.extendleft(reversed(left))
            self._changed.notify_all()

    def stop(self) -> None:
        """Hands out nothing more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _cut(self) -> PartRun | None:
        """The next run, of a size that is fair."""
        while self._waiting:
            run = self._waiting.popleft()
            if run.until is None and self._has_ended:
                continue
            if not run.is_sought:
                return run  # all of it costs as much as its last part
            left = self._length(run) + sum(map(self._length, self._waiting))
            length = max(1, -(-left // (_SHARES * self._makers)))
            if run.until is None and run.first >= self._expected:
                length = _BEYOND
            length = min(length, self._most or length)
            end = run.first + length
            if run.until is not None and end >= run.until:
                return run
            self._waiting.appendleft(replace(run, first=end, before=None))
            return replace(run, until=end)
        return None

    def _length(self, run: PartRun) -> int:
        return max(0, (self._expected if run.until is None else run.until) - run.first)
