"""Our OpenCL engine against cuDNN in fp32, or where that is not, against our engine for processors.

python benchmarks/bench_opencl.py [--device N] [--rounds 7] [--size 960x540] [--tune]

Every contender's result is compared with a float64 run before it is timed. Ours is the time in its
kernels, from 8-bit pixels to 8-bit pixels, by profiling events; the column "host" is what a call
takes, with both transfers. cuDNN is handed padded tensors and timed by its own events; the engine
for processors is timed by the clock. Rounds go through all contenders in turn, and medians are
shown. --tune first lets the tuner choose and keep the shapes of layers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from benchmarks.rounds import measure
from tests import obvious
from waifu2x import model_set
from waifu2x.backends import open_backend
from waifu2x.tiling import Box

OURS = "waifu2x-kernels opencl"
CHECKED = (96, 160)
"""Height and width of the picture that results are compared on."""
PROMISED_DB = 100


def call(network: Any, pixels: Any, dtype: Any) -> Any:
    """A whole picture, doubled."""
    height, width = pixels.shape[:2]
    return network(pixels, Box(0, 0, 2 * height, 2 * width), dtype, lambda part: None)


def in_kernels(runtime: Any, work: Callable[[], None]) -> float:
    """Seconds of a run on the device, by its profiling events."""
    with runtime.timed() as launches:
        work()
    return float(sum(seconds for _, seconds in launches))


def by_the_clock(network: Any, pixels: Any) -> float:
    """Seconds from an array of 8-bit pixels to an array of 8-bit pixels."""
    start = time.perf_counter()
    call(network, pixels, np.uint8)
    return time.perf_counter() - start


def cudnn(model: Any, small: Any, pixels: Any) -> tuple[str, Any, Callable[[], float]] | None:
    """cuDNN's name, its result on the small picture and its timer, if PyTorch with CUDA is here."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    from benchmarks import torch_peers

    run, prepare = torch_peers.cudnn_fp32(model)
    with torch.inference_mode():
        planes = run(prepare(torch_peers.prepared(small, model)))[0].clamp(0, 1)
    tensor = prepare(torch_peers.prepared(pixels, model))
    return (
        f"cuDNN {torch.backends.cudnn.version()} fp32",
        planes.permute(1, 2, 0).cpu().numpy(),
        lambda: torch_peers.seconds(lambda: run(tensor), 5),
    )


def processor(model: Any, small: Any, pixels: Any) -> tuple[str, Any, Callable[[], float]]:
    """The same of our engine for processors."""
    backend = open_backend("cpu")
    network = backend.compile([model], "fp32")
    return (
        "waifu2x-kernels cpu",
        call(network, small, np.float32),
        lambda: by_the_clock(network, pixels),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    (model,) = model_set.find("vgg_7/art").models(2, None)
    small, pixels = (
        np.asarray(make_picture(*CHECKED[::-1])),
        np.asarray(make_picture(width, height)),
    )
    backend: Any = open_backend("opencl", arguments.device)
    print(f"{backend.device.name}, {backend.device.detail}")
    if arguments.tune:
        for trial in backend.tune(model, "fp32", pixels):
            print(f"{trial.layer:12} {trial.seconds * 1e3:9.3f} ms  {trial.way}", flush=True)

    network = backend.compile([model], "fp32")
    peer, peers_result, peers_timer = cudnn(model, small, pixels) or processor(model, small, pixels)
    exact = obvious.run([model], small)
    results = {OURS: call(network, small, np.float32), peer: peers_result}
    quality = {name: obvious.psnr(result, exact) for name, result in results.items()}
    for name, value in quality.items():
        if value < PROMISED_DB:
            sys.exit(f"{name}: wrong result, {value:.1f} dB")

    ours = lambda: in_kernels(backend._runtime, lambda: call(network, pixels, np.uint8))  # noqa: E731
    medians = measure({OURS: ours, peer: peers_timer}, arguments.rounds)
    host = statistics.median(by_the_clock(network, pixels) for _ in range(arguments.rounds))
    flops = 2 * model.multiply_adds * width * height * model.scale**2
    print(f"{arguments.size} -> {width * 2}x{height * 2}, {arguments.rounds} rounds")
    print(f"{'':28} {'ms':>9} {'GFLOP/s':>8} {'dB':>6} {'of peer':>8} {'host':>9}")
    for name, median in medians.items():
        print(
            f"{name:28} {median * 1e3:9.2f} {flops / median / 1e9:8.0f} {quality[name]:6.1f}"
            f" {medians[peer] / median:7.2f}x {f'{host * 1e3:9.2f}' if name == OURS else ''}"
        )
    _, layers = backend.bench(model, "fp32", pixels)
    print(f"\n{'layer':12} {'ms':>9} {'GFLOP/s':>8} {'of peak':>8}")
    for layer in layers:
        rate = layer.multiply_adds / layer.seconds
        print(
            f"{layer.name:12} {layer.seconds * 1e3:9.3f} {2 * rate / 1e9:8.0f}"
            f" {rate / layer.peak:8.0%}"
        )


if __name__ == "__main__":
    main()
