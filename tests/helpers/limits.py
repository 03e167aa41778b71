"""A limit of memory for what a test does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Lets this process take so many bytes more than it has; beyond that, it gets a MemoryError.

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
