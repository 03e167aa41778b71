"""Processors and memory that this process may use, as containers limit them.

Linux tells in files, below a root that tests replace by a folder. Limits are those of control
groups: the process's group and every group around it, in the hierarchies of version 1 and in the
one of version 2 (Linux, "Control Group v2", "CFS Bandwidth Control" and "Memory Resource
Controller"). Files that are missing or not understood limit nothing.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_KIB = 1024
_MEMORY_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""Files of version 2, where the second slows down processes that take more, and of version 1, where
no limit is a number far above any memory."""


def core_count(root: Path = _ROOT) -> int:
    """Returns how many threads can compute at the same time: at least 1.

    It is the number of processors that the process may run on, or the time that its container may
    spend on them, rounded up: 2 threads for 1.5 CPUs.
    """
    return _within_quota(len(_processors()), root)


def total_memory(root: Path = _ROOT) -> int | None:
    """Returns the bytes of memory that the process may ever take; None if the system does not
    tell."""
    found = _machine_memory(root).get("MemTotal") or _physical_memory()
    limits = [limit for limit, _ in _memory_limits(root)]
    return min(limits if found is None else [found, *limits], default=None)


def available_memory(root: Path = _ROOT) -> int | None:
    """Returns the bytes of memory that can still be had, the machine's swap included, at least 0.
    None if the system does not tell; only Linux does."""
    found = _machine_memory(root)
    free = [max(0, limit - _taken(group)) for limit, group in _memory_limits(root)]
    if "MemAvailable" in found:
        free.append(found["MemAvailable"] + found.get("SwapFree", 0))
    return min(free, default=None)


@contextlib.contextmanager
def usual_scheduling() -> Iterator[None]:
    """Restores the caller's scheduling for its thread, and for all threads begun in the block.

    If root runs it, as in most containers, SVT-AV1 takes the highest priority of real time for its
    threads and for the one that opens it, and threads that these start inherit it: on a machine
    whose processors are all busy so, nothing else runs. Only Linux allows it.
    """
    if sys.platform != "linux":
        yield
        return
    policy, parameter, before = os.sched_getscheduler(0), os.sched_getparam(0), _threads()
    try:
        yield
    finally:
        for thread in (threading.get_native_id(), *(_threads() - before)):
            with contextlib.suppress(OSError):  # it may have ended
                os.sched_setscheduler(thread, policy, parameter)


def _processors() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _within_quota(count: int, root: Path) -> int:
    """Returns a number of threads, reduced where control groups allow less processor time."""
    for group in _groups(root, "cpu"):
        # Version 2 has both in one file, version 1 in two.
        quota, _, period = _text(group / "cpu.max").partition(" ")
        quota = quota or _text(group / "cpu.cfs_quota_us")
        period = period or _text(group / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):  # not "max", not -1
            count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


def _machine_memory(root: Path) -> dict[str, int]:
    """Returns the numbers of /proc/meminfo in bytes."""
    lines = re.findall(r"^(\w+): +(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    return {name: int(size) * _KIB for name, size in lines}


def _physical_memory() -> int | None:
    """Returns the bytes of memory on systems other than Linux; None if they do not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _memory_limits(root: Path) -> Iterator[tuple[int, Path]]:
    """Yields the least limit in bytes of each control group that has one, and its folder."""
    for group in _groups(root, "memory"):
        texts = [_text(group / name) for name in _MEMORY_LIMITS]
        limits = [int(text) for text in texts if text.isdecimal()]  # not "max"
        if limits:
            yield min(limits), group


def _taken(group: Path) -> int:
    """Returns the bytes that a control group has taken, without what the system can reclaim: pages
    of files and its own caches."""
    taken = _text(group / "memory.current") or _text(group / "memory.usage_in_bytes")
    if not taken.isdecimal():
        return 0
    found = re.findall(r"^(\w+) (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
    stat = {name: int(size) for name, size in found}
    if "total_cache" in stat:  # version 1, with the groups inside
        files = stat["total_cache"] - stat.get("total_shmem", 0)
    else:
        files = stat.get("file", 0) - stat.get("shmem", 0) + stat.get("slab_reclaimable", 0)
    return max(0, int(taken) - max(0, files))


@functools.cache
def _groups(root: Path, controller: str) -> list[Path]:
    """Returns the folders of all control groups that may limit this, innermost first."""
    unified, legacy = "", ""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            unified = path
        elif controller in controllers.split(","):
            legacy = path
    found = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        # 31 23 0:28 ROOT POINT OPTIONS [MORE...] - TYPE SOURCE OPTIONS
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 6 or len(kind) < 3:
            continue
        is_legacy = kind[0] == "cgroup" and controller in kind[2].split(",")
        path = unified if kind[0] == "cgroup2" else legacy if is_legacy else ""
        if path:
            found += _upwards(root, _unescaped(fields[4]), _unescaped(fields[3]), path)
    return found


def _upwards(root: Path, point: str, mounted: str, path: str) -> list[Path]:
    """Returns the folders of a group and of those around it, as far as they are mounted.

    `mounted` is the group that is mounted at `point`. A container often sees its own group there,
    while its processes see their paths from outside: then that folder is all there is.
    """
    top = root / point.lstrip("/")
    parts = Path(path).parts
    inside = Path(mounted).parts
    if ".." in parts or parts[: len(inside)] != inside:
        return [top]
    below = parts[len(inside) :]
    return [top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]


def _unescaped(field: str) -> str:
    """Decodes a field of /proc/self/mountinfo, where blanks are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _text(path: Path) -> str:
    """Returns a small file's text without its last line break; empty if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return path.read_text().strip()
    return ""


def _threads() -> set[int]:
    with contextlib.suppress(OSError):  # there may be no /proc
        return {int(one.name) for one in Path("/proc/self/task").iterdir()}
    return set()
