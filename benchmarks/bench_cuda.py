"""Our CUDA engine against PyTorch: same weights, same picture, one process.

python benchmarks/bench_cuda.py [-m vgg_7/art] [--scale 2] [--rounds 7] [--size 960x540] [--quick]
    [--tuning SECONDS] [--small ...]

Every contender's result is compared with a float64 run before it is timed; that of the compiled
peer, which would be compiled once more for another size, with cuDNN's in fp32. Times are of work on
a picture that is on the device already, by its events around several runs; rounds go through all
contenders in turn, and medians are shown. Ours reads 8-bit pixels, enlarges, pads and writes 8-bit
pixels in that time; the others are handed padded tensors. The column "host" adds both transfers and
all that the program does for a picture in memory. --small compares small pictures, such as 1x64
and 64x64 (their number and side), the peer replayed as a CUDA graph. --quick leaves out the units
that the device would not choose. --tuning limits how long torch.compile tunes for a size of
pictures: what does not end in time is compiled without tuning. Needs PyTorch with CUDA.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import torch_peers
from benchmarks.device_work import on_device, seconds_between
from benchmarks.program import make_picture
from benchmarks.rounds import measure
from tests.helpers import obvious
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.tensor.units import UNITS_VARIABLE
from waifu2x.networks import model_set

CHECKED = ((96, 160), (24, 40))
"""Height and width of the picture that results are compared on, the second for deep networks."""
DEEP = 1e6
"""Multiply-adds for a pixel of the picture from which a network is deep."""
FIRST_PEER = "cuDNN fp32"
BEST_PEER = "torch.compile fp16"
MODES: tuple[tuple[str, Precision], ...] = (
    ("", "fp16"),
    ("", "fp32"),
    ("mma", "fp16"),
    ("mma", "fp32"),
    ("fma", "fp32"),
)
"""Units, or what the device chooses, and precision."""


class Ours:
    """A precision of our engine."""

    def __init__(self, units: str, precision: Precision, model: Any) -> None:
        os.environ.pop(UNITS_VARIABLE, None)
        if units:
            os.environ[UNITS_VARIABLE] = units
        self.backend: Any = open_backend("cuda")
        os.environ.pop(UNITS_VARIABLE, None)
        self.network: Any = self.backend.compile([model], precision)
        self.name = f"waifu2x-kernels {precision}{f' by {units}' if units else ''}"

    def __call__(self, pixels: Any, dtype: Any) -> Any:
        return self.network.run(Call(pixels, dtype))

    def host_to_host(self, pixels: Any) -> float:
        """Seconds from an array of 8-bit pixels to an array of 8-bit pixels."""
        figures = []
        for _ in range(15):
            start = time.perf_counter()
            self(pixels, np.uint8)
            figures.append(time.perf_counter() - start)
        return statistics.median(figures)

    def seconds(self, work: Callable[[], None], repeats: int) -> float:
        """Seconds of one run of `work`, by events."""

        def repeated() -> None:
            for _ in range(repeats):
                work()

        return seconds_between(self.backend.runtime, repeated) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default="vgg_7/art", help="a name, or a folder of models")
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tuning", type=float, default=180, metavar="SECONDS")
    parser.add_argument("--small", nargs="*", metavar="COUNTxSIDE")
    arguments = parser.parse_args()
    torch.zeros(1).cuda()
    (model,) = model_set.find(arguments.model).models(arguments.scale, None)
    modes = [mode for mode in MODES if not (arguments.quick and mode[0])]
    ours = [Ours(units, precision, model) for units, precision in modes]
    peers = {name: build(model) for name, build in torch_peers.PEERS.items()}
    compiled = torch_peers.compiled_fp16(model, arguments.tuning)
    peers[BEST_PEER] = compiled
    print(ours[0].backend.device.name, torch.__version__, f"cuDNN {torch.backends.cudnn.version()}")
    if arguments.small is not None:
        sizes = arguments.small or ["1x64", "1x128", "1x256", "64x64"]
        small_pictures(ours[0], peers[BEST_PEER], model, arguments.rounds, sizes)
        return

    is_deep = model.multiply_adds * model.scale**2 > DEEP
    small = np.asarray(make_picture(*CHECKED[is_deep][::-1]))
    exact = obvious.run([model], small)
    quality = {one.name: obvious.psnr(one(small, np.float32), exact) for one in ours}
    width, height = map(int, arguments.size.split("x"))
    pixels = np.asarray(make_picture(width, height))
    for name, peer in peers.items():
        if name == BEST_PEER:
            exact = torch_peers.result(peers[FIRST_PEER], pixels, model).astype(np.float64)
            quality[name] = obvious.psnr(torch_peers.result(peer, pixels, model), exact)
        else:
            quality[name] = obvious.psnr(torch_peers.result(peer, small, model), exact)
    for name, value in quality.items():
        if value < 50:
            sys.exit(f"{name}: wrong result, {value:.1f} dB")

    padded = torch_peers.prepared(pixels, model)
    with ExitStack() as stack:
        timers: dict[str, Callable[[], float]] = {}
        for one in ours:
            work = stack.enter_context(on_device(one.network, pixels, np.uint8))
            timers[one.name] = lambda one=one, work=work: one.seconds(work, 10)  # type: ignore[misc]
        for name, (run, prepare) in peers.items():
            tensor = prepare(padded)
            timers[name] = lambda run=run, tensor=tensor: torch_peers.seconds(  # type: ignore[misc]
                lambda: run(tensor), 10
            )
        medians = measure(timers, arguments.rounds)
    flops = 2 * model.multiply_adds * width * height * model.scale**2
    large = f"{width * model.scale}x{height * model.scale}"
    print(f"{model.name}, {arguments.size} -> {large}, {arguments.rounds} rounds")
    if not compiled[0].is_tuned:  # type: ignore[attr-defined]
        print(f"{BEST_PEER}: not tuned, which did not end in {arguments.tuning:.0f} s")
    print(
        f"{'':28} {'ms':>8} {'TFLOP/s':>8} {'dB':>6} {'of best':>8} {'cuDNN fp32':>11} {'host':>8}"
    )
    for name, median in medians.items():
        host = next((f"{o.host_to_host(pixels) * 1e3:8.2f}" for o in ours if o.name == name), "")
        print(
            f"{name:28} {median * 1e3:8.3f} {flops / median / 1e12:8.0f} {quality[name]:6.1f}"
            f" {median / medians[BEST_PEER]:8.3f} {medians[FIRST_PEER] / median:10.2f}x {host}"
        )
    for one, precision in zip(ours, (mode[1] for mode in modes), strict=True):
        found = one.backend.measure(model, precision, pixels)
        print(f"\n{one.name}: {found.seconds * 1e3:.3f} ms in its kernels")
        print(f"{'layer':14} {'ms':>7} {'TFLOP/s':>8} {'of peak':>8}")
        for layer in found.layers:
            rate = layer.multiply_adds / max(layer.seconds, 1e-9)
            print(
                f"{layer.name:14} {layer.seconds * 1e3:7.3f} {2 * rate / 1e12:8.0f}"
                f" {rate / layer.peak:8.0%}"
            )


def small_pictures(
    one: Ours, peer: torch_peers.Peer, model: Any, rounds: int, sizes: list[str]
) -> None:
    """Pictures that leave most of a chip idle."""
    run, prepare = peer
    print(f"{'input':>12} {'ours ms':>9} {'peer ms':>9} {'ratio':>6}")
    for count, side in (map(int, size.split("x")) for size in sizes):
        pixels = np.asarray(make_picture(side, side))
        if count > 1:
            pixels = np.stack([pixels] * count)
        replay = torch_peers.graph_of(run, prepare(torch_peers.prepared(pixels, model)))
        with on_device(one.network, pixels, np.uint8) as work:
            medians = measure(
                {
                    "ours": lambda work=work: one.seconds(work, 100),  # type: ignore[misc]
                    "peer": lambda replay=replay: torch_peers.seconds(replay, 100),  # type: ignore[misc]
                },
                rounds,
            )
        mine, other = medians["ours"], medians["peer"]
        size = f"{count} of {side}x{side}"
        print(f"{size:>12} {mine * 1e3:9.4f} {other * 1e3:9.4f} {mine / other:6.2f}")


if __name__ == "__main__":
    main()
