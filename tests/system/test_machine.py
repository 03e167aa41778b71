"""Limits of the machine and its containers, read from files of made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.cores import physical_core_count
from waifu2x.system import machine

_V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
_V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
_HYBRID = _V1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
_GIB = 1 << 30


def _machine(root: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """Makes a machine of 64 GiB of memory, 50 of them free, and 4 of swap, with these files."""
    sizes = {"MemTotal": 64, "MemFree": 9, "MemAvailable": 50, "SwapTotal": 8, "SwapFree": 4}
    meminfo = "".join(f"{name}: {size << 20:12} kB\n" for name, size in sizes.items())
    made = {"proc/meminfo": meminfo + "HugePages_Total: 0\n"}
    made |= {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts}
    made |= {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    for name, content in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.fixture(autouse=True)
def sixteen_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "expected"),
    [
        ("0::/\n", _V2, {"cpu.max": "150000 100000\n"}, 2),
        ("0::/a/b\n", _V2, {"a/b/cpu.max": "max 100000\n"}, 16),
        ("0::/a/b\n", _V2, {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", _V2, {"a/b/cpu.max": "500000 100000\n", "a/cpu.max": "410000 100000\n"}, 5),
        ("0::/a\n", _V2, {"a/cpu.max": "10000 100000\n"}, 1),
        ("0::/a\n", _V2, {"a/cpu.max": "0 100000\n"}, 1),
        ("0::/a\n", _V2, {"a/cpu.max": "6400000 100000\n"}, 16),
        ("0::/a\n", _V2, {"b/cpu.max": "100000 100000\n"}, 16),
        ("0::/a\n", _V2, {"a/cpu.max": "many 0\n"}, 16),
        ("0::/a\n", _V2, {"a/cpu.max": "200000\n"}, 16),
        ("0::/a\n", _V2, {"a/cpu.max": "200000 0\n"}, 16),
        ("0::/a\n", _V2, {"a/cpu.max": ""}, 16),
        (
            "4:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n0::/y\n",
            _HYBRID,
            {
                "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/docker/cpu.cfs_quota_us": "70000\n",
                "cpu,cpuacct/docker/cpu.cfs_period_us": "20000\n",
            },
            4,
        ),
        ("4:cpuset:/x\n", _V1, {"cpu,cpuacct/x/cpu.cfs_quota_us": "100000\n"}, 16),
        ("4:cpu:/x\n", _V1, {"cpu,cpuacct/x/cpu.cfs_quota_us": "100000\n"}, 16),
        ("", "", {}, 16),
        ("\0\n::\n4\n", "31 23\n - - -\n", {}, 16),
    ],
)
def test_threads_are_as_many_as_the_quota_allows(
    tmp_path: Path, groups: str, mounts: str, files: dict[str, str], expected: int
) -> None:
    assert machine.core_count(_machine(tmp_path, groups, mounts, files)) == expected


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "expected"),
    [
        # Namespaces of their own: the group is mounted, and its path is the root.
        ("0::/\n", _V2, {"cpu.max": "200000 100000\n"}, 2),
        # Without: paths are those of the machine, and one of its groups is mounted.
        (
            "3:cpu:/docker/x\n",
            "9 8 0:1 /docker/x /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n",
            {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        # A group outside what is mounted, told relative to it and absolutely.
        ("0::/../x\n", _V2, {"cpu.max": "200000 100000\n", "x/cpu.max": "1 1\n"}, 2),
        (
            "0::/machine/y\n",
            _V2.replace(" / ", " /machine/x ", 1),
            {"cpu.max": "200000 100000\n", "machine/y/cpu.max": "100000 100000\n"},
            2,
        ),
        # Blanks in the names of folders are written as octal numbers.
        (
            "0::/a b\n",
            _V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/of\\040ours"),
            {"of ours/a b/cpu.max": "200000 100000\n"},
            2,
        ),
    ],
)
def test_groups_are_found_however_they_are_mounted(
    tmp_path: Path, groups: str, mounts: str, files: dict[str, str], expected: int
) -> None:
    assert machine.core_count(_machine(tmp_path, groups, mounts, files)) == expected


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "total", "available"),
    [
        ("", "", {}, 64 * _GIB, 54 * _GIB),
        ("0::/\n", _V2, {"memory.max": "max\n"}, 64 * _GIB, 54 * _GIB),
        ("0::/\n", _V2, {"memory.max": "lots\n"}, 64 * _GIB, 54 * _GIB),
        ("0::/\n", _V2, {"memory.max": f"{_GIB}\n"}, _GIB, _GIB),
        (
            "0::/\n",
            _V2,
            {"memory.max": f"{_GIB}\n", "memory.current": "9000\n", "memory.stat": "anon 4000\n"},
            _GIB,
            _GIB - 9000,
        ),
        # Pages of files and some of the kernel's can be taken back, shared memory cannot.
        (
            "0::/\n",
            _V2,
            {
                "memory.max": f"{_GIB}\n",
                "memory.current": "9000\n",
                "memory.stat": "anon 4000\nfile 3000\nshmem 1000\nslab_reclaimable 500\n",
            },
            _GIB,
            _GIB - 6500,
        ),
        ("0::/\n", _V2, {"memory.max": "9000\n", "memory.current": "9500\n"}, 9000, 0),
        ("0::/\n", _V2, {"memory.max": "9000\n", "memory.high": "7000\n"}, 7000, 7000),
        ("0::/a/b\n", _V2, {"a/b/memory.max": "max\n", "a/memory.max": "8000\n"}, 8000, 8000),
        # The group with the least left is not always the one with the least limit.
        (
            "0::/a/b\n",
            _V2,
            {
                "a/b/memory.max": "6000\n",
                "a/b/memory.current": "1000\n",
                "a/memory.max": "8000\n",
                "a/memory.current": "7000\n",
            },
            6000,
            1000,
        ),
        (
            "4:memory:/x\n0::/y\n",
            _HYBRID,
            {
                "memory/x/memory.limit_in_bytes": "8000\n",
                "memory/x/memory.usage_in_bytes": "7000\n",
                "memory/x/memory.stat": "cache 9\ntotal_cache 5000\ntotal_shmem 1000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            8000,
            5000,
        ),
    ],
)
def test_memory_is_what_machine_and_containers_leave(
    tmp_path: Path,
    groups: str,
    mounts: str,
    files: dict[str, str],
    total: int,
    available: int,
) -> None:
    root = _machine(tmp_path, groups, mounts, files)
    assert machine.total_memory(root) == total
    assert machine.available_memory(root) == available


def test_a_system_without_such_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 5, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert machine.core_count(tmp_path) == physical_core_count(tmp_path) == 6
    assert machine.total_memory(tmp_path) == 20480
    assert machine.available_memory(tmp_path) is None
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    monkeypatch.delattr(os, "sysconf")
    assert machine.core_count(tmp_path) == 1
    assert machine.total_memory(tmp_path) is None


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_processors_that_share_a_core_count_once(tmp_path: Path, name: str) -> None:
    root = _machine(tmp_path, "0::/\n", _V2, {"cpu.max": "max 100000\n"})
    for number in range(16):  # as most machines count them: 0 and 8 share a core
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / name).write_text(f"{number % 8},{number % 8 + 8}\n")
    assert physical_core_count(root) == 8
    (root / "sys/fs/cgroup/cpu.max").write_text("250000 100000\n")
    assert physical_core_count(root) == 3


def test_this_machine() -> None:
    cores = machine.core_count()
    assert 1 <= physical_core_count() <= cores <= 16
    total, available = machine.total_memory(), machine.available_memory()
    assert total is None or total > 1 << 26
    assert available is None or available >= 0
