"""How this process shares the machine's processors with others."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def usual_scheduling() -> Iterator[None]:
    """A block after which the calling thread, and each thread that began meanwhile, is scheduled as
    the calling one was before.

    Where root runs it, as in most containers, SVT-AV1 takes the highest priority of real time for
    its threads and for the one that opens it, and whatever these start inherits that: on a machine
    whose processors are all busy so, nothing else gets any. Only Linux lets it.
    """
    if sys.platform != "linux":
        yield
        return
    policy, parameter, before = os.sched_getscheduler(0), os.sched_getparam(0), _threads()
    try:
        yield
    finally:
        for thread in (threading.get_native_id(), *(_threads() - before)):
            with suppress(OSError):  # it may have ended
                os.sched_setscheduler(thread, policy, parameter)


def _threads() -> set[int]:
    """The numbers of this process's threads."""
    with suppress(OSError):  # without /proc they are not known
        return {int(one.name) for one in Path("/proc/self/task").iterdir()}
    return set()
