"""The program inside a small container, whose limits are files of a made-up machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.contents import noise

_LIMIT = 1 << 30
_CHILD = """
import json, os, resource, sys, threading
from pathlib import Path

from waifu2x.system import machine

root = Path(sys.argv.pop(1))
for probe in (machine.core_count, machine.total_memory, machine.available_memory):
    probe.__defaults__ = (root,)
os.sched_getaffinity = lambda pid: set(range(16))
names, start = [], threading.Thread.start
threading.Thread.start = lambda thread: names.append(thread.name) or start(thread)
from waifu2x.cli import main

try:
    main()
except SystemExit as end:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"code": end.code, "threads": names, "peak": peak}))
"""


@pytest.mark.matrix
@pytest.mark.skipif(sys.platform != "linux", reason="containers of Linux")
def test_cunet_at_1080p_in_one_gib_and_one_and_a_half_processors(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, content in {
        "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\nSwapFree: 0 kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": f"{_LIMIT}\n",
        "sys/fs/cgroup/memory.current": "200000000\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    source, target = tmp_path / "in.png", tmp_path / "out.png"
    Image.fromarray(noise(1080, 1920, 3)).save(source)
    request = ["upscale", str(source), str(target), "-m", "cunet/art", "--backend", "cpu"]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(root), *request],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert not told["code"], done.stderr
    with Image.open(target) as made:
        assert made.size == (3840, 2160)
    assert told["peak"] < _LIMIT
    # The one that asks computes, too.
    assert [name for name in told["threads"] if "cpu" in name] == ["waifu2x-cpu-1"]
