"""Counts how often deflating makes other bytes from the same data: ISA-L at once, and our way.

    python benchmarks/deflated_bytes.py [--band FILE] [--seconds 60]

A process for each core deflates one band of a PNG over and over. Between two deflations it takes
and frees blocks of memory of random sizes, full of other bytes, so that ISA-L's state lies at
another address each time. ISA-L 2.32 on x86, given all data at once, files the third byte under a
hash of that address (igzip_icf_body_h1_gr_bt.asm, write_first_byte: tmp2 is not what it was when
compute_hash was called with it), which is one of 8192 places; at three of them the result is
another one. `--band` is a file of the data; without it, the band is made by a formula. Ends with 1
if results of our way differ.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np
from isal import isal_zlib

from waifu2x.formats.png.write import Bytes, quickly_deflated


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--band", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.seed is not None:
        print(json.dumps(deflations(_band(chosen.band), chosen.seconds, chosen.seed)))
        return 0
    children = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--seed", str(seed)], stdout=subprocess.PIPE, text=True
        )
        for seed in range(len(os.sched_getaffinity(0)))
    ]
    totals: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for child in children:
        for name, counts in json.loads(child.communicate()[0]).items():
            totals[name].update(counts)
    for name, counts in totals.items():
        print(f"{name}: {sum(counts.values())} deflations, results {dict(counts.most_common())}")
    return int(len(totals["ours"]) != 1)


def deflations(band: Bytes, seconds: float, seed: int) -> dict[str, dict[str, int]]:
    """Returns how often each way made each result, by the results' digests."""
    draw = random.Random(seed)
    malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.argtypes = [ctypes.c_void_p]
    ways: dict[str, Callable[[Bytes], list[bytes]]] = {
        "at once": _at_once,
        "ours": quickly_deflated,
    }
    results = {name: collections.Counter[str]() for name in ways}
    end, kept = time.monotonic() + seconds, list[int]()
    while time.monotonic() < end:
        for _ in range(draw.randrange(1, 9)):
            size = draw.randrange(16, 400_000)
            kept.append(malloc(size))
            ctypes.memset(kept[-1], draw.randrange(256), size)
        draw.shuffle(kept)
        while len(kept) > draw.randrange(40):
            free(kept.pop())
        for name, way in ways.items():
            results[name][hashlib.sha256(b"".join(way(band))).hexdigest()[:12]] += 1
    return {name: dict(counts) for name, counts in results.items()}


def _at_once(data: Bytes) -> list[bytes]:
    deflate = isal_zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return [deflate.compress(data.data), deflate.flush(zlib.Z_SYNC_FLUSH)]


def _band(file: Path | None) -> Bytes:
    """Returns filtered rows of a PNG: those of a file, or of a smooth picture with some noise."""
    if file is not None:
        return np.frombuffer(file.read_bytes(), np.uint8)
    y, x = np.mgrid[:240, :1896]
    waves = 90 * np.sin(x / 37) * np.cos(y / 23) + 128
    noise = np.random.default_rng(0).integers(-1, 2, waves.shape)
    rows = (waves + noise * (x % 700 > 500)).astype(np.uint8)
    filtered: Bytes = np.diff(rows, axis=0, prepend=0).astype(np.uint8).ravel()
    return filtered


if __name__ == "__main__":
    sys.exit(main())
