"""Messages between a fleet and its workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Order:
    """Asks a worker to do a task."""

    number: int
    work: Any
    """The task, as its workplace takes it."""
    repeated: bool = False
    """Whether a worker was lost on it before, which may have finished it."""
    weight: float = 1.0
    """As that of the task."""


@dataclass(frozen=True)
class Withdraw:
    """Asks a worker to drop the tasks that it has not begun."""


@dataclass(frozen=True)
class Opened:
    """The worker is ready."""

    described: str
    """Its device, for people."""
    arithmetic: str = ""
    """The arithmetic that all workers of a fleet must share; empty: they may differ."""
    is_gpu: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Begun:
    """A task waits no more."""

    number: int


@dataclass(frozen=True)
class Withdrawn:
    """Tasks that will not be done."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Advanced:
    """Further finished parts of tasks, by their numbers."""

    parts: Mapping[int, Any]


@dataclass(frozen=True)
class Noticed:
    """A notice about a task, for people."""

    number: int
    text: str


@dataclass(frozen=True)
class Done:
    """The outcome of a task."""

    number: int
    outcome: Any


@dataclass(frozen=True)
class Logged:
    """A message of the program's log."""

    text: str


@dataclass(frozen=True)
class Broken:
    """The device of the worker has failed: it can do nothing more."""

    fault: str


@dataclass(frozen=True)
class Failed:
    """An error that is no task's: it ends the worker, and the work of all."""

    error: BaseException


@dataclass(frozen=True)
class Lost:
    """The worker has ended, and all that it has started. The last report of its life."""

    why: str


Report = Opened | Begun | Withdrawn | Advanced | Noticed | Done | Logged | Broken | Failed | Lost
