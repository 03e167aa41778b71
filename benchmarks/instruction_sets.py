"""Products in 16-bit integers on every instruction set that this processor has: the same bits?

python benchmarks/instruction_sets.py [-m vgg_7/art] [--size 480x270] [--rounds 5]

Each set runs in its process, since the engine's code is made for one. There fp32, int16 and ncnn in
single precision, if it is installed, go in turn; medians are shown. The last column is a digest of
int16's results on pictures of odd sizes, in floats: it must not depend on the set.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.peers import PEERS, padded
from benchmarks.program import make_picture
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.compile import isa
from waifu2x.networks import model_set
from waifu2x.system.machine import core_count

CHECKED = ((65, 41), (37, 90), (150, 70))
NETWORKS = ("vgg_7/art", "upconv_7/art", "cunet/art")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", default="vgg_7/art")
    parser.add_argument("--size", default="480x270")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        measure(arguments.model, arguments.size, arguments.rounds)
        return
    print(f"{isa.processor_name()}, {core_count()} cores, {arguments.model} {arguments.size}")
    print("set          fp32 ms  int16 ms   ncnn ms  ncnn/int16  int16's results")
    digests = set()
    for name in isa.available_isas():
        if not isa._UNITS[name].integers:
            continue
        done = subprocess.run(
            [sys.executable, *sys.argv, "--here"],
            env=os.environ | {isa.ISA_VARIABLE: name},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        print(done.stdout, end="", flush=True)
        digests.add(done.stdout.split()[-1])
    if len(digests) > 1:
        sys.exit("the sets do not agree")


def measure(name: str, size: str, rounds: int) -> None:
    """One set, in this process."""
    backend = open_backend("cpu")
    digest = hashlib.sha256()
    for network in NETWORKS:
        compiled = backend.compile(model_set.find(network).models(2, None), "int16")
        for checked in CHECKED:
            digest.update(
                compiled.run(Call(np.asarray(make_picture(*checked)), np.float32)).tobytes()
            )
    width, height = map(int, size.split("x"))
    pixels = np.asarray(make_picture(width, height))
    (model,) = model_set.find(name).models(2, None)
    call = Call(pixels, np.uint8)
    runs: dict[str, Callable[[], Any]] = {
        "fp32": partial(backend.compile([model], "fp32").run, call),
        "int16": partial(backend.compile([model], "int16").run, call),
    }
    with suppress(ImportError):
        runs["ncnn"] = partial(PEERS["ncnn fp32"](model), padded(model, pixels))
    seconds: dict[str, list[float]] = {which: [] for which in runs}
    for turn in range(rounds + 1):
        for which, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:  # the first round warms up
                seconds[which].append(time.perf_counter() - start)
    medians = {which: 1000 * statistics.median(found) for which, found in seconds.items()}
    ncnn = medians.get("ncnn", float("nan"))
    print(
        f"{isa.VECTOR.name:10} {medians['fp32']:9.0f} {medians['int16']:9.0f} {ncnn:9.0f}"
        f" {ncnn / medians['int16']:11.2f}  {digest.hexdigest()[:16]}"
    )


if __name__ == "__main__":
    main()
