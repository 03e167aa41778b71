"""Large folders and kills: a script, not a test of the quick suite.

    python -m tests.by_hand.folders kills [--count 30] [--seed 0]
    python -m tests.by_hand.folders devices [--count 30] [--seed 0]
    python -m tests.by_hand.folders bad [--files 20000]
    python -m tests.by_hand.folders resume [--files 100000]

`kills` runs `waifu2x batch` on a folder of pictures, an archive and films, kills it or a process of
it at random moments, and resumes it with --skip-existing; in the end every output must be there and
the same as an undisturbed run's, and nothing temporary. `devices` runs it on two devices of PoCL,
each with a process of its own, and kills some of those at random moments, or ends the program by a
signal: kills lose nothing and change no byte, and no run leaves a process or a temporary file
behind. `bad` runs a folder of tiny
pictures, one in a hundred of them no picture: exactly those must be listed, in the summary and by
--json, and all others be done; prints the memory of the program on the way. `resume` runs a folder
whose outputs are all there. Ends with 1, and says why, if something is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers import films
from tests.helpers.contents import identity_models

LIMIT = 10.0
"""Seconds that a resume over what is finished may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("check", choices=["kills", "devices", "bad", "resume"])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--files", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "in").mkdir()
        identity_models(root / "identity")
        if arguments.check == "kills":
            faults = kills(root, arguments.count, random.Random(arguments.seed))
        elif arguments.check == "devices":
            faults = devices(root, arguments.count, random.Random(arguments.seed))
        elif arguments.check == "bad":
            faults = bad(root, arguments.files or 20_000, random.Random(arguments.seed))
        else:
            faults = resume(root, arguments.files or 100_000)
    for fault in faults:
        print(f"FAULT: {fault}")
    sys.exit(bool(faults))


def waifu2x(root: Path, *options: str, target: str = "out") -> list[str]:
    """The command line of a batch."""
    program = [sys.executable, "-m", "waifu2x", "batch", "-r", *options]
    return [*program, str(root / "in"), str(root / target)]


def make_picture(path: Path, seed: int, width: int, height: int) -> None:
    """A picture of noise."""
    path.parent.mkdir(exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones, too."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def kills(root: Path, count: int, chance: random.Random) -> list[str]:
    """The faults found after `count` kills."""
    for number in range(300):
        width, height = chance.randrange(10, 200), chance.randrange(10, 200)
        make_picture(root / f"in/{number % 7}/{number}.png", number, width, height)
    with zipfile.ZipFile(root / "in/book.cbz", "w") as book:
        for path in sorted((root / "in/0").iterdir()):
            book.write(path, path.name)
    for name in ("one.mkv", "two.mp4"):
        times = range(0, 200_000, 1000)  # a part has ten frames
        films.film(root / "in" / name, rate=Fraction(1), times=times, size=(16, 24))
    options = ["-m", "vgg_7", "--skip-existing"]
    start = time.monotonic()
    subprocess.run(waifu2x(root, *options, target="peace"), capture_output=True, check=True)
    undisturbed = time.monotonic() - start
    killed = swept = left = 0
    while killed < count:
        workers = chance.choice(["auto", "3:1:2"])  # threads, or processes besides
        process = subprocess.Popen(
            waifu2x(root, *options, "-j", workers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            process.wait(chance.uniform(0.1, undisturbed / 5))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.kill(chance.choice([process.pid, *grandchildren(process.pid)]), signal.SIGKILL)
            killed += 1
        swept += "of a killed run removed" in process.communicate()[1]
        if process.returncode == 0:
            # It has come to the end: half of it once more.
            made = [path for path in (root / "out").rglob("*.*") if chance.random() < 0.5]
            for path in made:
                path.unlink()
        elif (root / "out").exists():
            left += any((root / "out").rglob("*.part"))
    last = subprocess.run(waifu2x(root, *options), capture_output=True, text=True, check=False)
    expected, found = contents(root / "peace"), contents(root / "out")
    print(f"{killed} kills, {left} of them left something; {swept} of the next runs swept it")
    faults = [] if last.returncode == 0 else [f"the last run: {last.stderr[-500:]}"]
    faults += [f"missing: {name}" for name in expected.keys() - found.keys()]
    faults += [f"left over: {name}" for name in found.keys() - expected.keys()]
    both = expected.keys() & found.keys()
    faults += [f"differs: {name}" for name in both if expected[name] != found[name]]
    print(f"{len(both)} outputs compared with those of an undisturbed run")
    return faults


def devices(root: Path, count: int, chance: random.Random) -> list[str]:
    """The faults found after `count` runs on two devices that are disturbed."""
    for number in range(200):
        width, height = chance.randrange(10, 120), chance.randrange(10, 120)
        make_picture(root / f"in/{number % 7}/{number}.png", number, width, height)
    os.environ["POCL_DEVICES"] = "pthread pthread"
    options = ["-m", "upconv_7", "--backend", "opencl", "-g"]
    start = time.monotonic()
    subprocess.run(waifu2x(root, *options, "0", target="peace"), capture_output=True, check=True)
    undisturbed = time.monotonic() - start
    expected = contents(root / "peace")
    faults: list[str] = []
    killed = ended = 0
    for turn in range(count):
        shutil.rmtree(root / "out", ignore_errors=True)
        workers = chance.choice(["auto", "1:1:1", "3:1:2"])  # threads, or processes besides
        process = subprocess.Popen(
            waifu2x(root, *options, "0,1", "-j", workers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        signals = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
        sent = chance.choice(signals) if turn % 2 else None
        before = killed
        for _ in range(1 if sent else chance.randrange(1, 4)):
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.1, undisturbed))
            if sent:
                process.send_signal(sent)
            elif victims := grandchildren(process.pid):
                killed += 1
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(victims), signal.SIGKILL)
        errors = process.communicate()[1]
        ended += process.returncode != 0
        name = f"turn {turn} ({sent}, -j {workers}, {process.returncode})"
        # A file may happen to be in two processes that are killed.
        twice = killed - before > 1 and "worker processes in a row" in errors
        if sent is None and process.returncode and not twice:
            faults.append(f"{name}: {errors[-500:]}")
        if "Traceback" in errors:
            faults.append(f"{name}: {errors[-1500:]}")
        end = time.monotonic() + LIMIT
        while (left := of_session(process.pid)) and time.monotonic() < end:
            time.sleep(0.05)
        faults += [f"{name}: process {pid} is left" for pid in left]
        found = contents(root / "out")
        faults += [f"{name}: left over: {each}" for each in found.keys() - expected.keys()]
        same = expected.keys() & found.keys()
        faults += [f"{name}: differs: {each}" for each in same if expected[each] != found[each]]
        if process.returncode == 0:
            faults += [f"{name}: missing: {each}" for each in expected.keys() - found.keys()]
    print(f"{count} runs, {killed} kills of a device's process, {ended} runs ended by a signal")
    return faults


def _stat(field: int) -> Iterator[tuple[int, int]]:
    """Each process of this machine that is no zombie, and a field of its /proc/PID/stat."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    yield int(entry.name), int(fields[field])


def grandchildren(parent: int) -> list[int]:
    """The processes started by the process that starts others for the program."""
    parents = dict(_stat(1))
    return [pid for pid, above in parents.items() if parents.get(above) == parent]


def of_session(leader: int) -> list[int]:
    """The processes of a session."""
    return [pid for pid, session in _stat(3) if session == leader]


def bad(root: Path, files: int, chance: random.Random) -> list[str]:
    """Faults of a run over tiny pictures, one in a hundred of them no picture."""
    wrong = set(chance.sample(range(files), files // 100))
    make_picture(root / "good.png", 0, 12, 9)
    good = (root / "good.png").read_bytes()
    names = [f"{number % 100}/{number}.png" for number in range(files)]
    for number, name in enumerate(names):
        path = root / "in" / name
        path.parent.mkdir(exist_ok=True)
        cut = chance.choice([0, 5, 40, len(good) // 2]) if number in wrong else len(good)
        path.write_bytes(good[:cut])
    start, sizes = time.monotonic(), []
    with (root / "errors").open("w") as errors:
        process = subprocess.Popen(
            waifu2x(root, "-m", str(root / "identity"), "--backend", "numpy", "--json"),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        rows = []
        for line in process.stdout:
            rows.append(json.loads(line))
            if len(rows) % (files // 20) == 0:
                sizes.append(resident(process.pid))
        process.wait()
    print(f"{files} files in {time.monotonic() - start:.0f} s; MiB on the way: {sizes}")
    expected = {str(root / "in" / names[number]) for number in wrong}
    text = (root / "errors").read_text()
    summary = f"{files - len(wrong)} done, 0 skipped, {len(wrong)} failed"
    _, _, after = text.rpartition(summary)
    if after == text:
        return [f"no line {summary!r}: {text[-500:]}"]
    listed = {
        line.removeprefix("failed   ").partition(".png")[0] + ".png"
        for line in after.splitlines()[1:]
    }
    told = {row["input"] for row in rows if row["status"] == "failed"}
    made = {str(root / "in" / path.relative_to(root / "out")) for path in files_of(root / "out")}
    faults = [] if process.returncode == 1 else [f"exit code {process.returncode}"]
    faults += [f"the list at the end: {listed ^ expected}"] if listed != expected else []
    faults += [f"--json: {told ^ expected}"] if told != expected else []
    every = {str(root / "in" / name) for name in names}
    faults += [f"outputs: {made ^ (every - expected)}"] if made != every - expected else []
    return faults


def files_of(folder: Path) -> list[Path]:
    """In it and in the folders in it."""
    return [path for path in folder.rglob("*") if path.is_file()]


def resident(process: int) -> int:
    """MiB of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) >> 10


def resume(root: Path, files: int) -> list[str]:
    """The faults of a resume over that number of files, all of them done."""
    make_picture(root / "good.png", 0, 12, 9)
    for number in range(files):
        name = f"{number % 100}/{number}.png"
        for folder in ("in", "out"):
            (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / "good.png", root / folder / name)
    start = time.monotonic()
    done = subprocess.run(
        waifu2x(root, "--skip-existing", "-v"), capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - start
    print(f"{files} files, all done before: {seconds:.1f} s")
    faults = [] if f"0 done, {files} skipped, 0 failed" in done.stderr else [done.stderr[-500:]]
    return faults + ([f"{seconds:.1f} s"] if seconds > LIMIT else [])


if __name__ == "__main__":
    main()
