"""Reports progress of tasks, but not each step of it."""

from __future__ import annotations

import threading
import time
from typing import Any

from waifu2x.flows.fleet.messages import Advanced
from waifu2x.flows.fleet.task import Tell

_TOLD_SECONDS = 0.1
"""Seconds between two messages about progress."""


class Advances:
    """Adds up the finished parts of tasks, and reports the sums now and then. Threads share it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._parts: dict[int, Any] = {}
        """Finished parts that were not yet reported."""
        self._told_at = 0.0

    def add(self, number: int, part: Any) -> None:
        """Adds a part to those of a task; parts are values that can be added."""
        with self._lock:
            self._parts[number] = self._parts[number] + part if number in self._parts else part
            is_due = time.monotonic() - self._told_at >= _TOLD_SECONDS
        if is_due:
            self.tell()

    def tell(self) -> None:
        """Reports what was not yet reported."""
        with self._lock:
            self._told_at = time.monotonic()
            parts, self._parts = self._parts, {}
        if parts:
            self._tell(Advanced(parts))

    def drop(self, number: int) -> None:
        """Forgets the unreported parts of a task."""
        with self._lock:
            self._parts.pop(number, None)
