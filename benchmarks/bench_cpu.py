"""Our CPU engine against other libraries: same weights, same picture, one process.

python benchmarks/bench_cpu.py [-m cunet/art] [-n 1] [--rounds 5] [--size 480x270] ...

`-m` also takes networks of random weights: `spanf3-balanced` and others of `attention_units.py`.

Every contender's result is compared with a float64 run before it is timed. Rounds go through all
contenders in turn, so that drift of the machine's speed meets them alike; medians are shown. Ours
reads 8-bit pixels, pads and writes 8-bit pixels in the time; the others are handed padded floats.
Needs the extra `bench`. WAIFU2X_CPU_ISA=avx512 and ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI keep AMX
away from ours and from OpenVINO. Two precisions of ours in turn take each other's memory for maps
that are kept, which costs cunet a tenth: `--precision auto` measures what a folder meets.
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
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.attention_units import NETWORKS
from benchmarks.cores import physical_core_count
from benchmarks.peers import PEERS, padded
from benchmarks.program import make_picture
from tests.helpers import obvious
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.compile.isa import VECTOR, processor_name
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.system.machine import core_count

_REST = 0.3
"""Seconds before each run: threads of other libraries look for more work for 0.2 s after theirs, on
the cores that the next one needs."""
CHECKED = (96, 160)
"""Height and width of the picture that results are compared on."""

Contender = Callable[[NDArray[np.uint8], type], NDArray[Any]]


def ours(model: Model, chosen: list[Precision] | None) -> dict[str, Contender]:
    """The precisions of the `cpu` backend."""
    backend = open_backend("cpu")
    contenders: dict[str, Contender] = {}
    # On portable vectors `auto` is fp32.
    precisions: tuple[Precision, ...] = ("auto", "fp32") if VECTOR.integers else ("fp32",)
    for precision in chosen or precisions:
        network = backend.compile([model], precision)

        def run(pixels: NDArray[np.uint8], dtype: type, network: Any = network) -> NDArray[Any]:
            result: NDArray[Any] = network.run(Call(pixels, dtype))
            return result

        contenders[f"waifu2x-kernels {precision}"] = run
    return contenders


def others(model: Model, chosen: list[str] | None) -> dict[str, Contender]:
    """The peers that are installed; padding and conversion are cached, not timed."""
    contenders: dict[str, Contender] = {}
    prepared: dict[int, NDArray[np.float32]] = {}
    for name, build in PEERS.items():
        if chosen and not any(part in name for part in chosen):
            continue
        try:
            peer = build(model)
        except ImportError as error:
            print(f"without {name}: {error}", file=sys.stderr)
            continue

        def run(pixels: NDArray[np.uint8], dtype: type, peer: Any = peer) -> NDArray[Any]:
            if id(pixels) not in prepared:
                prepared[id(pixels)] = padded(model, pixels)
            result: NDArray[Any] = peer(prepared[id(pixels)])[0].transpose(1, 2, 0)
            return result[: pixels.shape[0] * model.scale, : pixels.shape[1] * model.scale]

        contenders[name] = run
    return contenders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", action="append", help="of the input, like 480x270")
    parser.add_argument("-m", "--model", default="vgg_7/art")
    parser.add_argument("-n", "--noise", type=int, help="level; none without")
    parser.add_argument("-s", "--scale", type=int, default=2)
    parser.add_argument(
        "--precision", action="append", choices=("auto", "fp32"), help="ours; both without"
    )
    parser.add_argument("--peer", action="append", help="only peers with this in their names")
    arguments = parser.parse_args()
    if arguments.model in NETWORKS:
        model = NETWORKS[arguments.model]()
    else:
        (model,) = model_set.find(arguments.model).models(arguments.scale, arguments.noise)
    contenders = ours(model, arguments.precision) | others(model, arguments.peer)

    small = np.asarray(make_picture(*CHECKED[::-1]))
    exact = obvious.run([model], small)
    quality = {}
    for name, run in contenders.items():
        quality[name] = obvious.psnr(run(small, np.float32).clip(0, 1), exact)
        if quality[name] < 40:
            sys.exit(f"{name}: wrong result, {quality[name]:.1f} dB")

    threads, cores = core_count(), physical_core_count()
    print(f"{processor_name()}, {threads} threads on {cores} cores, {VECTOR.name}")
    for size in arguments.size or ["480x270", "960x540"]:
        width, height = map(int, size.split("x"))
        pixels = np.asarray(make_picture(width, height))
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(arguments.rounds + 1):
            for name, run in contenders.items():
                time.sleep(_REST)
                start = time.perf_counter()
                run(pixels, np.uint8)
                if turn:  # the first round warms up
                    seconds[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        peers = [median for name, median in medians.items() if name in PEERS and "bf16" not in name]
        fastest = min(peers, default=float("nan"))
        flops = 2 * model.multiply_adds * width * height * model.scale**2
        result = f"{width * model.scale}x{height * model.scale}"
        print(f"\n{arguments.model}, {size} -> {result}, {arguments.rounds} rounds")
        print(f"{'':24} {'ms':>8} {'GFLOP/s':>8} {'dB':>7}  speed against the fastest fp32 peer")
        for name, median in medians.items():
            print(
                f"{name:24} {median * 1000:8.0f} {flops / median / 1e9:8.0f} {quality[name]:7.1f}"
                f"  {fastest / median:.2f}x"
            )


if __name__ == "__main__":
    main()
