"""Runs work in a process of its own, and measures what it takes."""

from __future__ import annotations

import subprocess
import sys

_AROUND = """
import resource, sys, time
from waifu2x.errors import Waifu2xError
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
begin = time.process_time()
try:
    print("made", work(*sys.argv[1:]))
except Waifu2xError as error:
    print(f"{type(error).__name__}: {error}")
print(time.process_time() - begin)
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(peak.split()[1]) >> 10)  # ru_maxrss begins at that of the process that forked
"""


def run(work: str, limit: int, *arguments: object) -> tuple[str, float, int]:
    """Runs code that defines a function `work` of texts, and calls it.

    Returns what it made or which Waifu2xError it raised, its seconds of processors, at most
    `limit`, and its peak of memory in MiB.
    """
    command = [sys.executable, "-c", work + _AROUND, str(limit), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 3:
        return f"{done.returncode}: {done.stderr[-300:]}", float(limit), 0
    return lines[0], float(lines[1]), int(lines[2])
