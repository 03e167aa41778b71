"""Keeps a runtime's records of repeated launches, each in the runtime's own form."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Record = TypeVar("_Record")

_KEPT = 64
"""Records that are kept: pictures of a folder have few sizes, and a large one few tiles."""


class Records(Generic[_Record]):
    """A cache of the most recently used records by key. Threads may share it."""

    def __init__(self, forget: Callable[[_Record], None] = lambda record: None) -> None:
        """`forget` frees a dropped record."""
        self._forget = forget
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[object, _Record]] = OrderedDict()
        """Owner and record of each key."""

    def find(self, key: Hashable) -> _Record | None:
        """Returns the record of a key; None if there is none."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][1]

    def keep(self, owner: object, key: Hashable, record: _Record) -> None:
        """Keeps a record, and drops an earlier one of its key."""
        gone = []
        with self._lock:
            if key in self._kept:
                gone.append(self._kept.pop(key)[1])
            while len(self._kept) >= _KEPT:
                gone.append(self._kept.popitem(last=False)[1][1])
            self._kept[key] = owner, record
        for record in gone:
            self._forget(record)

    def drop(self, owner: object) -> None:
        """Drops the records of an owner."""
        with self._lock:
            gone = [key for key, (owned_by, _) in self._kept.items() if owned_by is owner]
            records = [self._kept.pop(key)[1] for key in gone]
        for record in records:
            self._forget(record)

    def clear(self) -> None:
        """Drops all records."""
        with self._lock:
            records = [record for _, record in self._kept.values()]
            self._kept.clear()
        for record in records:
            self._forget(record)
