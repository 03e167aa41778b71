"""Where lanes' time goes in the parent: wraps functions, prints ms a picture."""

import collections
import functools
import sys
import threading
import time
from pathlib import Path

import numpy as np

from waifu2x.backends.cuda import runtime as C
from waifu2x.backends.gpu import network as N
from waifu2x.batch import queue as Q
from waifu2x.batch import run as R
from waifu2x.batch import worker as W

T = collections.defaultdict(float)
K = collections.Counter()
L = threading.Lock()


def wrap(owner, name, label=None):
    f = getattr(owner, name)

    @functools.wraps(f)
    def g(*a, **k):
        t = time.perf_counter()
        try:
            return f(*a, **k)
        finally:
            d = time.perf_counter() - t
            with L:
                T[label or name] += d
                K[label or name] += 1

    setattr(owner, name, g)


for o, n in [
    (N.GpuNetwork, "_shared"),
    (N.GpuNetwork, "_leaves_room"),
    (C.CudaRuntime, "upload"),
    (C.CudaRuntime, "download"),
    (C.CudaRuntime, "wait"),
    (C.CudaRuntime, "mark"),
    (C.CudaRuntime, "replay"),
    (C.CudaRuntime, "free_memory"),
    (C.CudaRuntime, "host_array"),
    (Q.Queue, "run"),
    (Q, "_compute"),
    (W.Worker, "_compute"),
    (W.Attached, "receive"),
    (np, "copyto"),
]:
    wrap(o, n, f"{getattr(o, '__name__', o)}.{n}")
from waifu2x.batch.plan import plan
from waifu2x.pictures.formats import Quality
from waifu2x.pipeline import Output, identities
from waifu2x.upscaler import Upscaler

folder, target, pictures, calls, interval = (
    Path(sys.argv[1]),
    Path(sys.argv[2]),
    int(sys.argv[3]),
    int(sys.argv[4]),
    float(sys.argv[5]),
)
sys.setswitchinterval(interval)
if __name__ == "__main__":
    jobs = plan(folder, target, "png", False).jobs
    with Upscaler(2, model="vgg_7", backend="cuda") as u:
        u(np.zeros((540, 960, 3), np.uint8))
        begin = time.perf_counter()
        c0 = time.process_time()
        marks = []
        for o in R.run(
            jobs,
            u,
            Output("png", Quality(), "overwrite"),
            at_once=R.Jobs(pictures, calls),
            sources=identities(jobs),
        ):
            assert o.status == "done", o.error
            marks.append(time.perf_counter() - begin)
        n = len(marks)
        half = marks[n // 4]
        print(
            f"pictures {pictures} calls {calls} switch {interval}: {n / marks[-1]:.0f}/s in all, {(n - n // 4) / (marks[-1] - half):.0f}/s after the first quarter, first after {marks[0]:.2f} s; parent cpu {(time.process_time() - c0) / n * 1e3:.2f} ms each"
        )
        for k, v in sorted(T.items(), key=lambda x: -x[1]):
            print(f"   {k:40} {v / n * 1e3:7.3f} ms  x{K[k] / n:.1f}")
