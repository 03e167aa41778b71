"""Defines a set of the objects that are still referenced elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import WeakSet

_Object = TypeVar("_Object")


class OpenObjects(Generic[_Object]):
    """A weak set to which threads may add objects while others iterate, unlike a WeakSet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: WeakSet[_Object] = WeakSet()

    def add(self, one: _Object) -> None:
        """Adds an object."""
        with self._lock:
            self._objects.add(one)

    def __iter__(self) -> Iterator[_Object]:
        """Iterates over the objects that exist now."""
        with self._lock:
            return iter(list(self._objects))
