"""Several devices of one machine: `waifu2x batch` on a folder by one device, by two, by four.

    python -m benchmarks.bench_devices [--pictures 4000] [--size 960x540] [--models vgg_7,cunet]
        [--devices 0 0,1 0,1,2,3] [--rounds 2] [--kill] [-- OPTIONS]

The rounds of all devices take turns; of each the best counts, by the program's own clock, which
begins when its devices are there, and by the clock on the wall. Results are compared with those of
the first. With --kill, a process of a device is killed in the middle of a run by the last devices:
nothing may be lost. Arguments behind -- go to `waifu2x batch` as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_folder import Ran, make_folder, run_program
from waifu2x.system.machine import core_count


def check(first: Path, other: Path) -> None:
    """Ends the script where one folder is not what another is, to the byte."""
    names = sorted(path.name for path in first.iterdir())
    if names != sorted(path.name for path in other.iterdir()):
        sys.exit(f"{other} has other files than {first}")
    _, differing, lacking = filecmp.cmpfiles(first, other, names[::7], shallow=False)
    if differing or lacking:
        sys.exit(f"{other}: {len(differing)} files differ, {len(lacking)} cannot be read")


def process_of_a_device(parent: int) -> int | None:
    """One of a running program, as Linux shows; None if there is none."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(state[1])
    # The program > the process that starts others > a device's.
    return next((pid for pid, above in parents.items() if parents.get(above) == parent), None)


def killed(folder: Path, target: Path, options: list[str], count: int) -> None:
    """Runs the program, kills the process of a device in the middle, and prints what came of it."""
    command = [sys.executable, "-m", "waifu2x", "batch", "-v", str(folder), str(target), *options]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    lines: list[str] = []
    victim = None
    while line := program.stderr.readline():
        lines.append(line)
        if victim is None and line.startswith("[") and len(lines) > count // 2:
            victim = process_of_a_device(program.pid)
            assert victim is not None, "no process of a device was found"
            os.kill(victim, signal.SIGKILL)
    told = [each.strip() for each in lines if not each.startswith("[")]
    print(f"killed {victim} in the middle: exit code {program.wait()}", *told, sep="\n    ")


def main() -> None:
    """Prints seconds and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pictures", type=int, default=4000)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--models", default="vgg_7,cunet")
    parser.add_argument("--devices", nargs="+", default=["0", "0,1"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    print(f"{core_count()} cores, {arguments.pictures} PNG of {arguments.size}")
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "in", Path(name) / "out"
        make_folder(folder, arguments.pictures, (width, height))
        for model in arguments.models.split(","):
            best: dict[str, Ran] = {}
            for turn in range(arguments.rounds):
                for devices in arguments.devices:
                    target = out / devices
                    shutil.rmtree(target, ignore_errors=True)
                    options = ["-m", model, "-g", devices, *arguments.options]
                    ran = run_program(folder, target, options)
                    best[devices] = min(best.get(devices, ran), ran, key=lambda ran: ran.clock)
                    if turn == 0 and devices != arguments.devices[0]:
                        check(out / arguments.devices[0], target)
            first = best[arguments.devices[0]]
            for devices, ran in best.items():
                print(
                    f"{model:10} -g {devices:8} {arguments.pictures / ran.clock:7.1f} pictures/s"
                    f" {ran.rate:7.1f} Mpixel/s {ran.rate / first.rate:6.3f} times the first;"
                    f" whole process {ran.seconds:6.2f} s,"
                    f" {first.seconds / ran.seconds:6.3f} times",
                    flush=True,
                )
            if arguments.kill:
                target = out / "killed"
                shutil.rmtree(target, ignore_errors=True)
                options = ["-m", model, "-g", arguments.devices[-1], *arguments.options]
                killed(folder, target, options, arguments.pictures)
                check(out / arguments.devices[0], target)
                print("    as many results as without, to the byte")
            shutil.rmtree(out)


if __name__ == "__main__":
    main()
