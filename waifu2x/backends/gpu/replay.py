"""What a runtime keeps of work that comes again, whatever its library can do with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Record = TypeVar("_Record")

_KEPT = 64
"""Pictures of a folder have few sizes, and a large one few tiles."""


class Records(Generic[_Record]):
    """Records by their keys, those that were used last."""

    def __init__(self, forget: Callable[[_Record], None] = lambda record: None) -> None:
        """`forget` frees a record that is dropped."""
        self._forget = forget
        self._kept: OrderedDict[Hashable, _Record] = OrderedDict()

    def find(self, key: Hashable) -> _Record | None:
        """What was kept for a key."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def keep(self, key: Hashable, record: _Record) -> None:
        """Keeps a record in the place of any other of its key."""
        if key in self._kept:
            self._forget(self._kept.pop(key))
        while len(self._kept) >= _KEPT:
            self._forget(self._kept.popitem(last=False)[1])
        self._kept[key] = record

    def clear(self) -> None:
        """Drops them all."""
        while self._kept:
            self._forget(self._kept.popitem()[1])
