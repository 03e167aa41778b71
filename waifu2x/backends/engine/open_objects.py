"""Objects that are looked after for as long as somebody else holds them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import WeakSet

_Object = TypeVar("_Object")


class LiveObjects(Generic[_Object]):
    """Those of some objects that somebody still holds. Threads may add some while others walk
    through them, which a WeakSet alone does not bear."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: WeakSet[_Object] = WeakSet()

    def add(self, one: _Object) -> None:
        """Counts an object in."""
        with self._lock:
            self._objects.add(one)

    def __iter__(self) -> Iterator[_Object]:
        """Those that live now, however many are added meanwhile."""
        with self._lock:
            return iter(list(self._objects))
