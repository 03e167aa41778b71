"""Kills a batch at random moments, and looks at what is lost: pictures and archives by two workers.

    python -m benchmarks.kills [--kills 40] [--pictures 60] [--seed 1]

Two processes share the CPU as if each had a device, with codec processes of their own. Any process
of the program, the program itself among them, is killed at random moments; a program that was
killed is started again and skips what is finished. Files of each complete batch are the bytes of an
unbroken run, no file fails, and neither processes nor unfinished files stay.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from waifu2x.flows.batch.by_fleet import AHEAD, SessionOpening, file_tasks, names_of
from waifu2x.flows.batch.listings import Listings, sweep
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.batch.session import SessionSettings
from waifu2x.flows.fleet.process_worker import ProcessWorker
from waifu2x.flows.fleet.supervisor import Fleet
from waifu2x.flows.jobs import InFlight, Output
from waifu2x.formats.table import Quality

WORKERS = 2
_LONGEST = 60.0
"""Seconds after which a process that stays is one too many."""


class Whole(NamedTuple):
    """An unbroken run."""

    files: dict[str, bytes]
    seconds: float


def make(source: Path, target: Path) -> None:
    """Makes what is missing of the files: this is killed."""
    arguments = {"scale": 2, "noise": None, "model": "vgg_7", "device": (0,)}
    arguments |= {"backend": "cpu", "precision": "auto"}
    output = Output("png", Quality(), "skip")
    settings = SessionSettings(arguments, output, InFlight(4, 2), 10**6, WORKERS)
    workers = [
        ProcessWorker(f"device {number}", SessionOpening(settings), AHEAD)
        for number in range(WORKERS)
    ]
    jobs = plan(source, target, "png", False).jobs
    sweep(jobs)
    with closing(Fleet(workers)) as fleet:
        fleet.open()
        tasks = file_tasks(jobs, Listings((source, target), "skip", frozenset()), names_of)
        failed = [outcome.error for outcome in fleet.run(tasks) if outcome.error]
    if failed:
        sys.exit("\n".join(failed))


def make_sources(folder: Path, count: int, rng: np.random.Generator) -> None:
    """Pictures of noise, and two archives of some."""
    folder.mkdir()
    for number in range(count):
        pixels = rng.integers(0, 256, (60, 50 + number, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.png")
    for name in ("one.cbz", "two.cbz"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            for path in sorted(folder.glob("*.png"))[: count // 4]:
                archive.write(path, path.name)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def family(parent: int) -> list[int]:
    """All processes that a process has started, and what those have."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                if state[0] != "Z":
                    parents[int(entry.name)] = int(state[1])
    found = [parent]
    for one in found:
        found += [pid for pid, above in parents.items() if above == one]
    return found[1:]


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only waits to be noted."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for_end(pids: list[int]) -> None:
    """Waits until processes are gone."""
    deadline = time.monotonic() + _LONGEST
    while left := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > deadline:
            sys.exit(f"processes are left over: {left}")
        time.sleep(0.05)


def trial(command: list[str], target: Path, whole: Whole, kills: int, seed: int) -> str:
    """Kills batches until enough kills are done; returns what was seen."""
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    complete = 0
    while done.total() < kills or not complete:
        seconds = whole.seconds
        program = subprocess.Popen(command, stderr=subprocess.PIPE)
        seen: set[int] = set()
        # More in a row would be a worker that finishes nothing, which is given up.
        for _ in range(2):
            time.sleep(rng.uniform(0.1, 0.5) * seconds)
            started = family(program.pid)
            seen |= set(started)
            # The program itself must not end every batch.
            victim = rng.choice([*started, program.pid]) if started else program.pid
            if program.poll() is None and done.total() < kills:
                done["the program" if victim == program.pid else "others"] += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        errors = program.communicate()[1].decode()
        wait_for_end(sorted(seen))
        if program.returncode == -signal.SIGKILL:
            continue
        if program.returncode:
            sys.exit(f"exit code {program.returncode}: {errors}")
        if contents(target) != whole.files:
            sys.exit("other files than those of an unbroken run")
        complete += 1
        shutil.rmtree(target)
    told = ", ".join(f"{count} of {name}" for name, count in done.items())
    return f"{done.total()} kills ({told}); {complete} batches complete, all of the same bytes"


def main() -> None:
    """The script."""
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--pictures", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "in", Path(name) / "out"
        make_sources(source, arguments.pictures, np.random.default_rng(arguments.seed))
        command = [sys.executable, "-m", "benchmarks.kills", "--make", str(source), str(target)]
        begun = time.monotonic()
        if subprocess.run(command, check=False).returncode:
            sys.exit("cannot make the files")
        whole = Whole(contents(target), time.monotonic() - begun)
        shutil.rmtree(target)
        print(trial(command, target, whole, arguments.kills, arguments.seed))


if __name__ == "__main__":
    main()
