"""Memory that others allocated, page-locked so that GPUs copy from and to it without staging.

pycuda's interface makes a new owner of the array, hence the driver's own (CUDA Driver API, "Memory
Management"). A range is registered once for all contexts of the process, and counted.
"""

from __future__ import annotations

import threading

from waifu2x.backends.cuda.driver.library import library

_PORTABLE = 1
"""CU_MEMHOSTREGISTER_PORTABLE: for all contexts."""
_lock = threading.Lock()
_users: dict[tuple[int, int], int] = {}
"""How often each range, (address, bytes), is registered now."""


def register(address: int, size: int) -> bool:
    """Page-locks a range of memory; False if the driver refuses. A context must be current."""
    with _lock:
        users = _users.get((address, size), 0)
        if not users:
            try:
                refused = library().cuMemHostRegister_v2(address, size, _PORTABLE)
            except OSError:  # an old driver: pycuda still works
                return False
            if refused:
                return False
        _users[address, size] = users + 1
        return True


def unregister(address: int, size: int) -> None:
    """Undoes one `register`; the last one unlocks the pages. A context must be current."""
    with _lock:
        users = _users.pop((address, size)) - 1
        if users:
            _users[address, size] = users
        else:
            # A broken context refuses, and ends with the process.
            library().cuMemHostUnregister(address)
