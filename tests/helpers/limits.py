"""Limits of memory, and of the size of files, for what a test does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Lets this process take `more` bytes than it has; beyond that, it gets a MemoryError.

    Skips the test where the system cannot tell or limit it.
    """
    resource = pytest.importorskip("resource")
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        pytest.skip("this system does not say how much memory a process has")
    has = int(statistics.read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def limit_files(size: int) -> None:
    """Lets no file grow beyond `size` bytes by this process and those that it starts, as a full
    disk would; for the `preexec_fn` of a process, too.

    They write no bytecode: CPython does not see that a .pyc was cut, and each later start that
    finds it fails.
    """
    import resource

    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
