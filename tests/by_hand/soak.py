"""The program under hours of everything at once: a script, not a test of the quick suite.

    python tests/by_hand/soak.py [--minutes 20] [--seed 0] [--backends cpu,numpy,opencl]

Two workers run `waifu2x batch` and `waifu2x upscale` on folders of random pictures (sizes, modes,
formats, some of them damaged, empty or unreadable), models, scales, tiles and backends. Meanwhile
programs are killed and interrupted, disks are full (a limit on file sizes stands for them), OpenCL
devices vanish (a launch raises what the library raises then), and the cache is cleared by others. A
third process upscales in a loop, and its memory is watched.

Ends with 1, and says why, if there is a traceback, an exit code that the README does not promise,
an output that is torn, of a wrong size, or other than what the picture gives alone, a good picture
without output or a temporary file after the run that nothing disturbs, or memory that grows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

FORMATS = ("png", "jpg", "webp", "bmp", "tif")
MODES = ("L", "LA", "RGB", "RGBA", "P", "1", "CMYK")
MODELS = ("vgg_7", "upconv_7", "upconv_7/photo", "cunet")
EXIT_CODES = {0, 1, 130, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT}
GROWTH = 1.03
"""How much the memory of the process in a loop may grow, from its first full minute on."""

VANISHING = """
import importlib.util, os, sys
class Watch:
    # Makes a device of OpenCL vanish after some launches.
    def find_spec(self, name, path=None, target=None):
        if name != "pyopencl":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            launch, left = module.enqueue_nd_range_kernel, [int(os.environ["SOAK_LAUNCHES"])]
            def counted(*arguments, **named):
                left[0] -= 1
                if left[0] < 0:
                    gone = ("clEnqueueNDRangeKernel", -2, "")  # DEVICE_NOT_AVAILABLE
                    raise module.RuntimeError(module._cl._ErrorRecord(*gone))
                return launch(*arguments, **named)
            module.enqueue_nd_range_kernel = counted
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Watch())
"""

LOOP = """
import json, resource, sys, time
import numpy as np
from waifu2x import Upscaler
rng = np.random.default_rng(int(sys.argv[1]))
end = time.monotonic() + float(sys.argv[2])
sizes = rng.integers(1, 160, (40, 2))
with Upscaler(scale=2, noise=1, model="upconv_7", backend="cpu") as upscaler:
    count = 0
    while time.monotonic() < end:
        height, width = sizes[rng.integers(len(sizes))]
        planes = int(rng.choice([1, 3, 4]))
        upscaler(rng.integers(0, 256, (height, width, planes), np.uint8))
        count += 1
        pages = int(open("/proc/self/statm").read().split()[1])
        print(json.dumps([time.monotonic(), pages * resource.getpagesize(), count]), flush=True)
"""


@dataclass
class Findings:
    """The faults found, and how much was done."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fault(self, text: str) -> None:
        """Something that must not be."""
        with self.lock:
            self.faults.append(text)
            print(f"FAULT: {text}", flush=True)

    def count(self, name: str, by: int = 1) -> None:
        """Something that was done."""
        with self.lock:
            self.counts[name] += by


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", default="cpu,numpy,opencl")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    findings = Findings()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ["WAIFU2X_CACHE_DIR"] = str(root / "cache")
        (root / "site").mkdir()
        (root / "site/sitecustomize.py").write_text(VANISHING)
        loop = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(arguments.seed), str(60 * arguments.minutes)],
            stdout=(root / "loop").open("w"),
            stderr=subprocess.PIPE,
            text=True,
        )
        backends = arguments.backends.split(",")
        workers = [
            threading.Thread(
                target=work,
                args=(root, number, random.Random(f"{arguments.seed} {number}"), backends),
                kwargs={"end": end, "findings": findings},
            )
            for number in range(2)
        ]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            time.sleep(min(20, max(1, end - time.monotonic())))
            if time.monotonic() < end:
                waifu2x("cache", "clear").communicate()
                findings.count("caches cleared")
        watch_memory(root / "loop", loop, findings)
    print(json.dumps(findings.counts, indent=2))
    print(f"{len(findings.faults)} faults")
    sys.exit(bool(findings.faults))


def work(
    root: Path,
    number: int,
    chance: random.Random,
    backends: list[str],
    end: float,
    findings: Findings,
) -> None:
    """Folder after folder, each through several disturbed runs and a last one in peace."""
    for turn in range(1 << 30):
        if time.monotonic() > end:
            return
        folder = root / f"{number}-{turn}"
        good = make_folder(folder / "in", chance)
        options = ["-m", chance.choice(MODELS), "-s", str(chance.choice((1, 2, 2, 4)))]
        options += ["-n", str(chance.randrange(4))]
        options += ["-t", str(chance.choice((32, 77, 200)))] if chance.random() < 0.5 else []
        options += ["-j", chance.choice(("1:1:1", "2:1:3", "3:2:1"))]
        scale = int(options[3])
        for _ in range(chance.randrange(3)):
            disturbed(folder, options, chance, backends, root, findings)
            check_outputs(folder, good, scale, findings)
        before = {path.name: path.read_bytes() for path in outputs(folder)}
        process = waifu2x("batch", "in", "out", "--skip-existing", *options, cwd=folder)
        check_run(process, folder, {0, 1}, findings)
        check_outputs(folder, good, scale, findings, complete=True)
        for path in outputs(folder):
            if before.get(path.name, path.read_bytes()) != path.read_bytes():
                findings.fault(f"{path}: replaced by --skip-existing")
        for path in (folder / "out").glob(".*.part"):
            findings.fault(f"{path}: left over")
        fresh = sorted(name for name in good if f"{Path(name).stem}.png" not in before)
        if fresh:
            check_alone(folder, chance.choice(fresh), options, findings)
        findings.count("folders")
        shutil.rmtree(folder)


def make_folder(folder: Path, chance: random.Random) -> dict[str, tuple[int, int]]:
    """Random pictures, and files that are none: the sizes of the good ones."""
    folder.mkdir(parents=True)
    good: dict[str, tuple[int, int]] = {}
    for number in range(chance.randrange(3, 10)):
        form, mode = chance.choice(FORMATS), chance.choice(MODES)
        width, height = chance.randrange(1, 120), chance.randrange(1, 120)
        noise = np.random.default_rng(chance.randrange(1 << 30)).integers(
            0, 256, (height, width, 4)
        )
        picture = Image.fromarray(noise.astype(np.uint8)).convert("RGB" if mode == "CMYK" else mode)
        path = folder / f"{number}.{form}"
        try:
            picture.save(path)
        except OSError:  # a mode that the format lacks
            picture.convert("RGB").save(path)
        kind = chance.random()
        if kind < 0.1:
            content = path.read_bytes()
            path.write_bytes(content[: chance.randrange(len(content))])
        elif kind < 0.15:
            path.write_bytes(b"")
        elif kind < 0.2 and os.geteuid():
            path.chmod(0)
        else:
            good[path.name] = (width, height)
    (folder / "notes.txt").write_text("no picture")
    (folder / "folder.png").mkdir()
    return good


def disturbed(
    folder: Path,
    options: list[str],
    chance: random.Random,
    backends: list[str],
    root: Path,
    findings: Findings,
) -> None:
    """One run to which something happens."""
    kind = chance.choice(("kill", "interrupt", "disk", "vanish", "backend"))
    findings.count(kind)
    options = [*options, "--overwrite"]
    environment = dict(os.environ)
    prepare: Callable[[], None] | None = None
    if kind == "vanish":
        options += ["--backend", "opencl"]
        old = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join([str(root / "site"), *([old] if old else [])])
        environment["SOAK_LAUNCHES"] = str(chance.randrange(200))
    elif kind == "disk":
        prepare = partial(limit_files, chance.randrange(200, 60_000))
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a .pyc that is cut fails later starts
    else:
        options += ["--backend", chance.choice(backends)]
    process = waifu2x("batch", "in", "out", *options, cwd=folder, env=environment, prepare=prepare)
    if kind in ("kill", "interrupt"):
        try:
            process.wait(chance.uniform(0.1, 12))
        except subprocess.TimeoutExpired:
            number = (
                signal.SIGKILL if kind == "kill" else chance.choice([signal.SIGINT, signal.SIGTERM])
            )
            process.send_signal(number)
    check_run(process, folder, EXIT_CODES, findings)


def limit_files(size: int) -> None:
    """In the process that is about to be a program: lets no file grow beyond `size`."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def waifu2x(
    *arguments: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
) -> subprocess.Popen[str]:
    """The program."""
    return subprocess.Popen(
        [sys.executable, "-m", "waifu2x", *arguments],
        cwd=cwd,
        env=env,
        preexec_fn=prepare,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_run(
    process: subprocess.Popen[str], folder: Path, codes: set[int], findings: Findings
) -> None:
    """Waits for a run, which must end as promised and without a traceback."""
    try:
        out, errors = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        findings.fault(f"{folder}: hangs: {process.args!r}")
    findings.count("runs")
    if "Traceback" in out + errors:
        findings.fault(f"{folder}: {process.args!r}: {errors[-1500:]}")
    if process.returncode not in codes:
        findings.fault(f"{folder}: exit code {process.returncode}: {errors[-500:]}")


def outputs(folder: Path) -> Iterator[Path]:
    """That are there under their names."""
    yield from sorted((folder / "out").glob("[!.]*.png"))


def check_outputs(
    folder: Path,
    good: dict[str, tuple[int, int]],
    scale: int,
    findings: Findings,
    complete: bool = False,
) -> None:
    """Each output is whole and of its picture's size; `complete`: each good picture has one."""
    sources = {Path(name).stem: size for name, size in good.items()}
    for path in outputs(folder):
        findings.count("outputs looked at")
        try:
            with Image.open(path) as image:
                image.load()
                width, height = sources.get(path.stem, (image.width / scale, image.height / scale))
                if image.size != (width * scale, height * scale):
                    findings.fault(f"{path}: is {image.size}, expected {width, height} x {scale}")
        except OSError as error:
            findings.fault(f"{path}: torn: {error}")
    missing = sources.keys() - {path.stem for path in outputs(folder)}
    if complete and missing:
        findings.fault(f"{folder}: nothing was made of {missing}")


def check_alone(folder: Path, name: str, options: list[str], findings: Findings) -> None:
    """An output is to the bit what `upscale` makes of its picture."""
    jobs = options.index("-j")
    kept = [*options[:jobs], *options[jobs + 2 :]]
    process = waifu2x("upscale", *kept, f"in/{name}", "alone.png", cwd=folder)
    check_run(process, folder, {0}, findings)
    made = folder / "out" / f"{Path(name).stem}.png"
    if not (folder / "alone.png").exists() or not made.exists():
        findings.fault(f"{made}: not made, or not alone")
    elif made.read_bytes() != (folder / "alone.png").read_bytes():
        with Image.open(made) as one, Image.open(folder / "alone.png") as other:
            if one.tobytes() != other.tobytes():
                findings.fault(f"{made}: not what {kept} makes of it alone")
    findings.count("compared with one alone")


def watch_memory(records: Path, loop: subprocess.Popen[str], findings: Findings) -> None:
    """The loop's memory over its last tenth is what it was after its first tenth."""
    errors = loop.communicate(timeout=600)[1]
    if loop.returncode:
        findings.fault(f"the loop: {errors[-1500:]}")
    sizes = [json.loads(line)[1] for line in records.read_text().splitlines()]
    tenth = max(1, len(sizes) // 10)
    first, last = (float(np.median(part)) for part in (sizes[tenth : 2 * tenth], sizes[-tenth:]))
    print(f"memory of {len(sizes)} pictures in a loop: {first / 2**20:.0f}, {last / 2**20:.0f} MiB")
    if not sizes or last > GROWTH * first:
        findings.fault(f"memory grows from {first:.0f} to {last:.0f} bytes")


if __name__ == "__main__":
    main()
