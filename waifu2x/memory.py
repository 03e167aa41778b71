"""How much of the machine's memory a result may take."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_GROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The limit of a container, of the second version and of the first (Linux, "Control Group v2" and
"Memory Resource Controller")."""


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
