"""Several devices on one film: `waifu2x video` by one device, by two, by four.

    python -m benchmarks.film_devices [--frames 1200] [--size 1920x1080] [--devices 0 0,1]
        [--rounds 1] [--kill] [-- OPTIONS]

The film has 10 frames a second, so that there are many parts of it. The rounds of all devices take
turns; the best of each counts, by the program's own clock and by the one on the wall. Results are
the same bytes, or the script ends. With --kill, a process of a device is killed in the middle of a
run by the last devices. Arguments behind -- go to `waifu2x video` as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RATE = 10
QUICK = ["-c", "x264", "--preset", "ultrafast"]
"""An encoder that devices need not wait for."""


class Ran(NamedTuple):
    """A run of the program."""

    seconds: float
    told: dict[str, Any]
    errors: str


def make_film(path: Path, frames: int, height: int, width: int) -> None:
    """A drawing that moves, of sharp edges and soft areas, in H.264."""
    import av

    rng = np.random.default_rng(7)
    blocks = rng.integers(16, 236, (height // 16 + 40, width // 16 + 40), np.uint8)
    canvas = blocks.repeat(16, 0).repeat(16, 1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=RATE, options={"preset": "ultrafast", "g": "60"})
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        stream.codec_context.thread_type = "AUTO"
        for index in range(frames):
            frame = av.VideoFrame(width, height, "yuv420p")
            top, left = index % 500, (index * 2) % 500
            for plane, step in zip(frame.planes, (1, 2, 2), strict=True):
                rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
                part = canvas[top : top + height : step, left : left + width : step]
                writable = rows if rows.flags.writeable else None
                assert writable is not None
                writable[:, : plane.width] = part
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())


def device_process(parent: int) -> int | None:
    """A process of a device of a running program, as Linux shows; None if there is none."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(state[1])
    # The program > the process that starts others > a device's, which starts one that reads.
    started = [pid for pid, above in parents.items() if parents.get(above) == parent]
    return next((pid for pid in started if pid in parents.values()), None)


def run(source: Path, target: Path, options: list[str], *, kills: bool = False) -> Ran:
    """Runs the program; with `kills`, ends a device's process in the middle."""
    command = [sys.executable, "-m", "waifu2x", "video", "--json", "-v", "--overwrite"]
    begun = time.monotonic()
    program = subprocess.Popen(
        [*command, *options, str(source), str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    told: dict[str, Any] = {}
    for line in program.stdout:
        told = json.loads(line)
        if kills and told.get("of") and told["frames"] > told["of"] // 3:
            victim = device_process(program.pid)
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                kills = False
    errors = program.communicate()[1]
    if program.returncode:
        sys.exit(f"{errors}exit code {program.returncode}")
    if kills:
        sys.exit("nothing was killed: use more --frames")
    return Ran(time.monotonic() - begun, told, errors)


def main() -> None:
    """The script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1200)
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--devices", nargs="+", default=["0", "0,1"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    own = sys.argv[1:]
    options = []
    if "--" in own:
        options = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    arguments = parser.parse_args(own)
    width, height = map(int, arguments.size.split("x"))
    options = [*QUICK, *options]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "film.mkv"
        make_film(source, arguments.frames, height, width)
        warm = Path(folder) / "warm.mkv"
        make_film(warm, 2, height, width)
        run(warm, Path(folder) / "warm-out.mkv", options)
        results: dict[str, list[Ran]] = {devices: [] for devices in arguments.devices}
        whole: bytes | None = None
        for _ in range(arguments.rounds):
            for devices, found in results.items():
                target = Path(folder) / f"out-{devices}.mkv"
                found.append(run(source, target, ["-g", devices, *options]))
                made = target.read_bytes()
                whole = whole or made
                if made != whole:
                    sys.exit(f"-g {devices}: other bytes than -g {arguments.devices[0]}")
        first = min(ran.seconds for ran in results[arguments.devices[0]])
        for devices, found in results.items():
            best = min(found)
            inner = float(best.told["seconds"])
            print(
                f"-g {devices}: {arguments.frames / inner:.1f} frames a second by its own clock"
                f" ({inner:.2f} s), {best.seconds:.2f} s in all, {first / best.seconds:.2f} times"
                f" as fast as -g {arguments.devices[0]}; slowest: {best.told['slowest']},"
                f" {best.told['stages']}",
                flush=True,
            )
        if arguments.kill:
            devices = arguments.devices[-1]
            target = Path(folder) / "killed.mkv"
            ran = run(source, target, ["-g", devices, *options], kills=True)
            same = "the same bytes" if target.read_bytes() == whole else "OTHER BYTES"
            lines = [line for line in ran.errors.splitlines() if "killed" in line]
            print(f"-g {devices}, one process killed: {ran.told['seconds']:.2f} s, {same}; {lines}")


if __name__ == "__main__":
    main()
