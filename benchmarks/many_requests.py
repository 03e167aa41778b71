"""One engine and many requests: bits, contexts, memory and how long each waits to begin.

python benchmarks/many_requests.py [--backend auto] [--requests 200] [--threads 8] [--seed 0]
    [--largest 640] [--keep] [-m MODEL ...]

From several threads, on one engine: requests of all model sets that are here, the noise levels
None, 0 and 1 (those that a set has) and twenty sizes, each with another picture. Every result is
compared to the bit with that of an upscaler that has its own engine, made one after the other.
Bytes that the engine counts, and those of the device's memory in use where that can be asked, are
shown after the first request is closed and after the last; with --keep all requests stay open until
the last is served, so that nearly all find their networks compiled. The exit code is 1 if a bit
differs, another context was opened, or either has grown by more than 5 %.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from waifu2x.api import Upscaler
from waifu2x.backends.engine import engine as engines
from waifu2x.backends.engine import pool
from waifu2x.backends.engine.engine import Engine
from waifu2x.networks import model_set

_GROWTH = 1.05
_SIZES = 20


class Request(NamedTuple):
    """The settings and the picture of a request."""

    model: str
    scale: int
    noise: int | None
    size: tuple[int, int]
    """Width and height of its picture."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=640)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("-m", "--model", action="append", help="default: all that are here")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    names = arguments.model or [found.name for found in model_set.available()]
    requests = drawn(rng, names, arguments.requests, arguments.largest)
    opened = count_contexts()
    with Engine(arguments.backend) as engine:
        print(f"{engine.backend.name}: {engine.backend.device.name}, {len(names)} model sets")
        served(engine, requests[0])
        first = engine.bytes, device_bytes(engine)
        latencies: list[tuple[bool, float]] = []
        start = time.perf_counter()
        with ExitStack() as held, ThreadPoolExecutor(arguments.threads) as threads:
            work = partial(served, engine, found=latencies, held=held if arguments.keep else None)
            results = list(threads.map(work, requests))
        seconds = time.perf_counter() - start
        last = engine.bytes, device_bytes(engine)
        assert engine.open_networks == {}
        contexts = len(opened)
    print(f"{len(requests)} requests by {arguments.threads} threads: {seconds:.1f} s")
    for label, was_there in (("network compiled already", True), ("compiled for it", False)):
        found = sorted(wait * 1e3 for known, wait in latencies if known is was_there)
        if found:
            slow = found[int(0.95 * (len(found) - 1))]
            median = statistics.median(found)
            print(f"made, {label}: {len(found)}, median {median:.2f} ms, 95 % in {slow:.2f} ms")
    names_of = ("bytes of the engine", "bytes of the device in use")
    grown = False
    for label, before, after in zip(names_of, first, last, strict=True):
        if before is not None and after is not None:
            print(f"{label}: {before:,} after the first request, {after:,} after the last")
            grown = grown or after > before * _GROWTH
    print(f"contexts: {contexts}")
    wrong = [
        request
        for request, made in zip(requests, results, strict=True)
        if not same(request, made, arguments.backend)
    ]
    print(f"results that differ from those of fresh upscalers: {len(wrong)}")
    for request, count in Counter(wrong).items():
        print(f"  {request} {count}")
    sys.exit(bool(wrong) or grown or contexts != 1)


def drawn(rng: random.Random, names: list[str], count: int, largest: int) -> list[Request]:
    """Requests that their sets can serve."""
    sizes = [(rng.randint(16, largest), rng.randint(16, largest)) for _ in range(_SIZES)]
    found: list[Request] = []
    while len(found) < count:
        models = model_set.find(rng.choice(names))
        noise = rng.choice([None, 0, 1])
        scale = min((scale for scale in models.scales if scale > 1), default=1)
        if noise is None or (noise, 1) in models.files or (noise, scale) in models.files:
            found.append(Request(models.name, scale, noise, rng.choice(sizes)))
    return found


def served(
    engine: Engine,
    request: Request,
    found: list[tuple[bool, float]] | None = None,
    held: ExitStack | None = None,
) -> NDArray[Any]:
    """The result of a request on an engine; `found` gets how long it took to be made, and `held`
    closes it, if that is given."""
    models = model_set.find(request.model).models(request.scale, request.noise)
    names = tuple(model.name for model in models)
    known = names in engine.open_networks
    start = time.perf_counter()
    upscaler = Upscaler(request.scale, request.noise, model=request.model, engine=engine)
    if found is not None:
        found.append((known, time.perf_counter() - start))
    with ExitStack() as own:
        (held or own).enter_context(upscaler)
        result: NDArray[Any] = upscaler(np.asarray(make_picture(*request.size)))
    return result


def same(request: Request, result: NDArray[Any], backend: str) -> bool:
    """Returns whether an upscaler with its own engine makes the same of the picture."""
    model, scale, noise, size = request
    with Upscaler(scale, noise, model=model, backend=backend) as upscaler:
        return bool(np.array_equal(upscaler(np.asarray(make_picture(*size))), result))


def count_contexts() -> list[str]:
    """Names of the backends that are opened from now on."""
    opened: list[str] = []

    def open_devices(name: str, *rest: Any) -> Any:
        opened.append(name)
        return pool.open_devices(name, *rest)

    vars(engines)["open_devices"] = open_devices
    return opened


def device_bytes(engine: Engine) -> int | None:
    """Bytes of the device's memory in use by anybody, where its library tells."""
    if engine.backend.name != "cuda":
        return None
    import ctypes

    library = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    library.cuCtxPushCurrent_v2(context)
    library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    library.cuCtxPopCurrent_v2(ctypes.byref(context))
    library.cuDevicePrimaryCtxRelease_v2(0)
    return total.value - free.value


if __name__ == "__main__":
    main()
