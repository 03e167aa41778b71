"""Our fp32 executor against cuDNN in fp32, or where that is not, against our engine for processors.

python benchmarks/bench_opencl.py [-m vgg_7/art] [--backend opencl] [--device N] [--rounds 7]
    [--size 960x540] [--tune]

--backend cuda measures the same executor through nvcc, with WAIFU2X_CUDA_UNITS=fma. Every
contender's result is compared with a float64 run before it is timed. Ours is the time in its
kernels, from 8-bit pixels to 8-bit pixels, by the device's events; the column "host" is what a
call takes, with both transfers. cuDNN is handed padded tensors and timed by its own events; the
engine for processors is timed by the clock. Rounds go through all contenders in turn, and medians
are shown. --tune first lets the tuner choose and keep the shapes of steps.
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

from benchmarks.device_work import seconds_in_kernels
from benchmarks.program import make_picture
from benchmarks.rounds import measure
from tests.helpers import obvious
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
from waifu2x.networks import model_set

CHECKED = (96, 160)
"""Height and width of the picture that results are compared on."""
PROMISED_DB = 100


def by_the_clock(network: Any, pixels: Any) -> float:
    """Seconds from an array of 8-bit pixels to an array of 8-bit pixels."""
    start = time.perf_counter()
    network.run(Call(pixels, np.uint8))
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
    height, width = (size * model.scale for size in small.shape[:2])
    with torch.inference_mode():
        planes = run(prepare(torch_peers.prepared(small, model)))[0].clamp(0, 1)
    tensor = prepare(torch_peers.prepared(pixels, model))
    return (
        f"cuDNN {torch.backends.cudnn.version()} fp32",
        planes.permute(1, 2, 0).cpu().numpy()[:height, :width],
        lambda: torch_peers.seconds(lambda: run(tensor), 5),
    )


def processor(model: Any, small: Any, pixels: Any) -> tuple[str, Any, Callable[[], float]]:
    """Our engine for processors: its name, its result and what times a call."""
    backend = open_backend("cpu")
    network = backend.compile([model], "fp32")
    return (
        "waifu2x-kernels cpu",
        network.run(Call(small, np.float32)),
        lambda: by_the_clock(network, pixels),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default="vgg_7/art")
    parser.add_argument("--backend", choices=["opencl", "cuda"], default="opencl")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    (model,) = model_set.find(arguments.model).models(2, None)
    small, pixels = (
        np.asarray(make_picture(*CHECKED[::-1])),
        np.asarray(make_picture(width, height)),
    )
    backend: Any = open_backend(arguments.backend, arguments.device)
    ours = f"waifu2x-kernels {backend.name}"
    print(f"{backend.device.name}, {backend.device.detail}; {arguments.model}")
    if arguments.tune:
        for trial in backend.tune(model, "fp32", pixels):
            print(f"{trial.layer:14} {trial.seconds * 1e3:9.3f} ms  {trial.option}", flush=True)

    network = backend.compile([model], "fp32")
    peer, peers_result, peers_timer = cudnn(model, small, pixels) or processor(model, small, pixels)
    exact = obvious.run([model], small)
    results = {ours: network.run(Call(small, np.float32)), peer: peers_result}
    quality = {name: obvious.psnr(result, exact) for name, result in results.items()}
    for name, value in quality.items():
        if value < PROMISED_DB:
            sys.exit(f"{name}: wrong result, {value:.1f} dB")

    timers = {
        ours: lambda: seconds_in_kernels(
            backend.runtime, lambda: network.run(Call(pixels, np.uint8))
        ),
        peer: peers_timer,
    }
    medians = measure(timers, arguments.rounds)
    host = statistics.median(by_the_clock(network, pixels) for _ in range(arguments.rounds))
    flops = 2 * model.multiply_adds * width * height * model.scale**2
    print(f"{arguments.size} -> {width * 2}x{height * 2}, {arguments.rounds} rounds")
    print(f"{'':28} {'ms':>9} {'GFLOP/s':>8} {'dB':>6} {'of peer':>8} {'host':>9}")
    for name, median in medians.items():
        print(
            f"{name:28} {median * 1e3:9.2f} {flops / median / 1e9:8.0f} {quality[name]:6.1f}"
            f" {medians[peer] / median:7.2f}x {f'{host * 1e3:9.2f}' if name == ours else ''}"
        )
    measured = backend.measure(model, "fp32", pixels)
    print(f"\n{'layer':14} {'ms':>9} {'GFLOP/s':>8} {'of peak':>8}")
    for layer in measured.layers:
        rate = layer.multiply_adds / layer.seconds if layer.seconds else 0.0
        print(
            f"{layer.name:14} {layer.seconds * 1e3:9.3f} {2 * rate / 1e9:8.0f}"
            f" {rate / layer.peak:8.0%}"
        )


if __name__ == "__main__":
    main()
