"""Physical cores of this machine, for the headings of measurements."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from waifu2x.system.machine import core_count


def physical_core_count(root: Path = Path("/")) -> int:
    """Returns `core_count`, with processors that share a core's units counted once.

    `root` holds the system's files.
    """
    threads = core_count(root)
    if not hasattr(os, "sched_getaffinity"):
        return threads
    cores = set()
    for number in os.sched_getaffinity(0):
        topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
        siblings = str(number)
        # Linux before 5.3 has the second name alone.
        for name in ("core_cpus_list", "thread_siblings_list"):
            with contextlib.suppress(OSError):
                siblings = (topology / name).read_text()
                break
        cores.add(siblings)
    return min(len(cores), threads)
