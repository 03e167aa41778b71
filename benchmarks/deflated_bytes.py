"""Counts how often ISA-L makes other bytes from the same data, by processor core and by memory.

    python benchmarks/deflated_bytes.py [--band FILE] [--seconds 60] [--level 1]

A process for each core, kept on that core, deflates one band of a PNG as `write.py` does, over and
over. Between two deflations it frees blocks of memory that it has filled with random bytes, of
random sizes, so that ISA-L's tables lie elsewhere, and on other bytes, each time. A half of the
processes has MALLOC_PERTURB_, by which malloc fills what it gives and takes.

The results are told apart by core and by the address of a block of malloc's modulo 4096: if other
bytes come from a few cores alone, the core is at fault; if from a few addresses, ISA-L is.
`--band` is a file of the data; without it, the band is made by a formula. Ends with 1 if two
results differ.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import hashlib
import json
import os
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
from isal import isal_zlib


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--band", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.core is not None:
        print(json.dumps(deflations(_band(chosen.band), chosen)))
        return 0
    children = []
    for core in sorted(os.sched_getaffinity(0)):
        environment = dict(os.environ)
        if core % 2:
            environment["MALLOC_PERTURB_"] = str(37 + core)
        command = [sys.executable, *sys.argv, "--core", str(core)]
        children.append(
            (core, subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        )
    every: collections.Counter[str] = collections.Counter()
    for core, child in children:
        answer = json.loads(child.communicate()[0])
        every.update(answer["results"])
        if len(answer["results"]) > 1:
            print("core", core, answer)
    print(f"{sum(every.values())} deflations by level {chosen.level}: {dict(every)}")
    return int(len(every) != 1)


def deflations(band: bytes, chosen: argparse.Namespace) -> dict[str, dict[str, int]]:
    """Returns counts of results, and of the addresses where the rarer ones were made."""
    os.sched_setaffinity(0, {chosen.core})
    draw = random.Random(chosen.core)
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    results: collections.Counter[str] = collections.Counter()
    places: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    end = time.monotonic() + chosen.seconds
    kept: list[int] = []
    while time.monotonic() < end:
        for _ in range(draw.randrange(1, 9)):
            size = draw.randrange(16, 400_000)
            block = malloc(size)
            rubbish = draw.randbytes(64)
            ctypes.memmove(block, (rubbish * (size // 64 + 1))[:size], size)
            kept.append(block)
        draw.shuffle(kept)
        while len(kept) > draw.randrange(40):
            free(kept.pop())
        probe = malloc(70_000)
        free(probe)
        deflate = isal_zlib.compressobj(chosen.level, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = deflate.compress(band) + deflate.flush(zlib.Z_SYNC_FLUSH)
        digest = hashlib.sha256(packed).hexdigest()[:12]
        results[digest] += 1
        places[digest][str((probe or 0) % 4096)] += 1
    rare = {
        name: dict(found.most_common(4))
        for name, found in places.items()
        if results[name] < max(results.values())
    }
    return {"results": dict(results), **rare}


def _band(file: Path | None) -> bytes:
    """Returns filtered rows of a PNG: those of a file, or of a smooth picture with some noise."""
    if file is not None:
        return file.read_bytes()
    y, x = np.mgrid[:240, :1896]
    waves = 90 * np.sin(x / 37) * np.cos(y / 23) + 128
    noise = np.random.default_rng(0).integers(-1, 2, waves.shape)
    rows = (waves + noise * (x % 700 > 500)).astype(np.uint8)
    return np.diff(rows, axis=0, prepend=0).astype(np.uint8).tobytes()


if __name__ == "__main__":
    sys.exit(main())
