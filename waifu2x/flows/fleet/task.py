"""The tasks of a fleet, and the places where they are done."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from waifu2x.flows.fleet.messages import Opened, Order, Report


class Task(Protocol):
    """A piece of work that any worker of a fleet can do."""

    @property
    def key(self) -> Hashable:
        """Returns the key by which losses on it are counted."""

    @property
    def work(self) -> Any:
        """Returns what a worker is sent."""

    @property
    def weight(self) -> float:
        """Returns its share of the work, in a unit that its workers know."""

    @property
    def folder(self) -> Path | None:
        """Returns the folder in which a lost worker may leave unfinished files."""

    def left(self) -> Left:
        """Returns what a lost worker has left of it."""

    def done(self, outcome: Any) -> Any:
        """Returns its outcome, given the one that a worker has sent."""

    def failed(self, why: str, *, is_blamed: bool) -> Any:
        """Returns its outcome if it cannot be done; raises Waifu2xError if nothing else is of use
        then. With `is_blamed`, `why` is a clause about what the task did to workers; otherwise it
        says why no worker is left."""


class Left(NamedTuple):
    """Tells what remains of a task whose worker was lost."""

    tasks: Sequence[Task]
    has_made: bool = False
    """Whether a part of it was finished."""


class Workplace(Protocol):
    """The place in a worker where tasks are done: an open device, as a rule."""

    opened: Opened

    def begin(self, order: Order) -> None:
        """Begins a task, or does it; Done or Broken ends it. Raises Waifu2xError, which ends the
        worker."""

    def withdraw(self) -> Sequence[int]:
        """Drops the tasks that are not begun; returns their numbers."""


Tell = Callable[[Report], None]


class Opening(Protocol):
    """Opens workplaces. It can be sent to other processes and machines."""

    def opened(self, tell: Tell) -> AbstractContextManager[Workplace]:
        """Opens a workplace while the context lasts. Its reports go to `tell`, from any thread.
        Raises Waifu2xError."""
