"""How much of the machine's memory a result may take, and what is kept of it."""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_GROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The limit of a container, of the second version and of the first (Linux, "Control Group v2" and
"Memory Resource Controller")."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""
_KEPT_BYTES = 1 << 25
_LARGEST_KEPT = 1 << 23
"""Of a block: larger ones are few, and always go back."""


def keep_freed() -> None:
    """Lets this process keep what it has freed, some tens of MiB, where its library is glibc.

    Otherwise that goes back to the system with every picture, and to get it again takes a twentieth
    of the time of codecs: 740 page faults for 1080p.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def available() -> int | None:
    """Bytes that can still be had, swap among them; None where the system does not tell (only Linux
    does)."""
    free: list[int] = []
    with contextlib.suppress(OSError):
        found = dict(re.findall(r"^(\w+): +(\d+) kB$", _MACHINE.read_text(), re.MULTILINE))
        if "MemAvailable" in found:
            free.append((int(found["MemAvailable"]) + int(found.get("SwapFree", 0))) * 1024)
    for path in _GROUPS:
        # No limit is the word "max", or, in the first version, far more than there is.
        with contextlib.suppress(OSError, ValueError):
            free.append(int(path.read_text()) - _taken(path.parent))
    return min(free, default=None)


def _taken(group: Path) -> int:
    """Bytes of a group that cannot be given back: caches of files can."""
    text = (group / "memory.stat").read_text()
    return sum(int(size) for size in re.findall(r"^(?:anon|total_rss) (\d+)$", text, re.MULTILINE))
