"""Measures the start of the program on a GPU, beside what nobody can avoid.

    python benchmarks/start_device.py [CHECKOUT ...] [--rounds 15] [--size 240x160] [--trace]
        [UPSCALE OPTIONS]

Whole processes take turns, in another order each round: `import numpy`; a bare context of the
driver, made by ctypes; `upscale` of a PNG to a PNG by each checkout (this one if none is given).
Where several GPUs are present, contexts and checkouts run twice: with all of them, and with only
the first one visible (CUDA_VISIBLE_DEVICES=0). Caches are warm. Prints medians in seconds, and the
median of what each takes above the context of the same round and the same number of GPUs.

`--trace` also prints one timeline for each checkout: calls of the driver, and the functions in
which the main thread was found every millisecond.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_start import (
    CONTEXT,
    HERE,
    Contender,
    environment,
    picture,
    plain_environment,
    run,
)

_COUNT = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
driver.cuInit(0)
driver.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
"""
_CALLS = """
import ctypes, os, sys, time
os.environ.update(word.split("=") for word in sys.argv[1:])
begun = time.perf_counter()
def tell(name):
    global begun
    now = time.perf_counter()
    print(f"{name} {1e3 * (now - begun):.0f}", end="  ", file=sys.stderr)
    begun = now
driver = ctypes.CDLL("libcuda.so.1")
tell("load")
driver.cuInit(0)
tell("cuInit")
device, context = ctypes.c_int(), ctypes.c_void_p()
driver.cuDeviceGet(ctypes.byref(device), 0)
tell("cuDeviceGet")
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
tell("retain")
driver.cuDevicePrimaryCtxRelease_v2(device)
tell("release")
print(file=sys.stderr, flush=True)
"""
_TRACE = """
import os, sys, threading, time
begun = float(os.environ["BEGUN"])
from waifu2x.backends.cuda.driver import library as module
lines, real = [], module.library
def clock():
    return 1e3 * (time.monotonic() - begun)
class Timed:
    def __getattr__(self, name):
        function = getattr(real(), name)
        def called(*arguments):
            start = clock()
            try:
                return function(*arguments)
            finally:
                if clock() - start > 0.3:
                    thread = threading.current_thread().name
                    lines.append((start, f"{clock() - start:7.1f} {name} [{thread}]"))
        return called
timed = Timed()
module.library = lambda: timed
def sample():
    main, last = threading.main_thread().ident, ["", 0.0]
    while True:
        frame, found, now = sys._current_frames().get(main), [], clock()
        while frame and len(found) < 4:
            code = frame.f_code
            if "waifu2x" in code.co_filename or not found:
                place = "/".join(code.co_filename.split("/")[-2:])
                found.append(f"{place}:{code.co_name}")
            frame = frame.f_back
        text = " < ".join(found)
        if text != last[0]:
            if now - last[1] > 3:
                lines.append((last[1], f"{now - last[1]:7.1f}     {last[0]}"))
            last[:] = text, now
        time.sleep(0.001)
threading.Thread(target=sample, daemon=True).start()
lines.append((clock(), "        python is there"))
from waifu2x import __main__
try:
    __main__.main()
finally:
    lines.append((clock(), "        main returned"))
    for at, text in sorted(lines):
        print(f"{at:7.1f} {text}", file=sys.stderr)
"""


def devices() -> int:
    """Returns the number of GPUs that the driver sees."""
    found = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, check=True)
    return int(found.stdout)


def contenders(checkouts: list[Path], folder: Path, options: list[str]) -> list[Contender]:
    """Returns all processes; the folder holds `in.png` and gets results and caches."""
    made = [Contender("numpy", ["-c", "import numpy"], plain_environment())]
    kinds = (
        {"": {}} if devices() == 1 else {", all GPUs": {}, ", one": {"CUDA_VISIBLE_DEVICES": "0"}}
    )
    for kind, variables in kinds.items():
        made.append(Contender(f"context{kind}", ["-c", CONTEXT], plain_environment() | variables))
        for number, checkout in enumerate(checkouts):
            words = ["-m", "waifu2x", "upscale", "--backend", "cuda", "--overwrite", *options]
            words += [str(folder / "in.png"), str(folder / f"{number}.png")]
            used = environment(checkout, folder / f"cache{number}") | variables
            made.append(Contender(f"{checkout.name}{kind}", words, used, checkout))
    return made


def trace(contender: Contender) -> None:
    """Prints the timeline of a warm run."""
    begun = {"BEGUN": str(time.monotonic())}
    words = ["-c", _TRACE, *contender.arguments[2:]]
    print(f"\n{contender.name}: start in ms, length in ms", flush=True)
    subprocess.run(
        [sys.executable, *words],
        env=contender.environment | begun,
        cwd=contender.folder,
        check=True,
    )


def calls(variables: list[str]) -> None:
    """Prints the milliseconds of each call that makes a bare context, three times, with variables
    that the process sets before it loads the driver."""
    for _ in range(3):
        print(f"calls in ms {' '.join(variables)}: ", end="", flush=True)
        subprocess.run([sys.executable, "-c", _CALLS, *variables], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkouts", type=Path, nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", default="240x160")
    parser.add_argument("--trace", action="store_true")
    arguments, options = parser.parse_known_args()
    checkouts = [folder.resolve() for folder in arguments.checkouts or [HERE]]
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        picture(width, height).save(folder / "in.png")
        all_ = contenders(checkouts, folder, options or ["-m", "vgg_7"])
        print(f"{devices()} GPUs, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
        for one in all_:
            print(f"first run of {one.name}: {run(one).wall:.2f} s", flush=True)
            run(one)
        walls: dict[str, list[float]] = {one.name: [] for one in all_}
        for turn in range(arguments.rounds):
            shift = turn % len(all_)
            for one in all_[shift:] + all_[:shift]:
                walls[one.name].append(run(one).wall)
        for name, own in walls.items():
            base = walls["context" + "".join(name.partition(", ")[1:])] if name != "numpy" else own
            above = statistics.median(a - b for a, b in zip(own, base, strict=True))
            least, middle = min(own), statistics.median(own)
            print(f"{name:32} {middle:.3f} s, least {least:.3f}, above the context {above:+.3f}")
        for variables in ([], ["CUDA_VISIBLE_DEVICES=0"]) if arguments.trace else ():
            calls(variables)
        for one in all_ if arguments.trace else []:
            if "upscale" in one.arguments:
                trace(one)


if __name__ == "__main__":
    main()
