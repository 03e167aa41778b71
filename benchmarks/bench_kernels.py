"""Milliseconds of networks' kernels on a CUDA device, by layer, and against torch.compile's best.

python benchmarks/bench_kernels.py [NETWORK@SCALE ...] [--size 1920x1080] [--precision fp16]
    [--layers] [--compiled] [--compiled-size 960x540] [--tuning SECONDS]

First each network's kernels alone, by the device's clock, the median of rounds: ms, TFLOP/s and,
with --layers, every layer with its share of the peak. With --compiled the same networks against
PyTorch's, compiled in half precision, from a picture on the device to a picture on the device, in
turn in one process, which needs PyTorch with CUDA.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from benchmarks.rounds import measure
from waifu2x.backends import Precision, open_backend
from waifu2x.errors import Waifu2xError
from waifu2x.networks import model_set
from waifu2x.networks.model import Model

NETWORKS = [
    "vgg_7/art@2",
    "upconv_7/art@2",
    "cunet/art@2",
    "cugan/se@2",
    "cugan/pro@2",
    "realesrgan/animevideo@2",
    "span/photo@2",
    "realesrgan/anime@4",
]
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK@SCALE")
    parser.add_argument("--size", default="1920x1080", help="of the picture that is enlarged")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--compiled-size", default="960x540")
    parser.add_argument("--tuning", type=float, default=60, metavar="SECONDS")
    arguments = parser.parse_args()
    models = {}
    for name in arguments.networks or NETWORKS:
        found, _, scale = name.partition("@")
        try:
            (models[name],) = model_set.find(found).models(int(scale), None)
        except Waifu2xError as error:
            print(f"{name}: {error}")
    backend: Any = open_backend("cuda")
    print(f"{backend.device.name}, {arguments.size}, {arguments.precision}: kernels alone")
    print(f"{'':26} {'ms':>7} {'TFLOP/s':>8} {'of peak':>8}")
    pixels = picture(arguments.size)
    for name, model in models.items():
        layers(backend, name, model, arguments.precision, pixels, arguments.layers)
    if arguments.compiled:
        print(f"\n{arguments.compiled_size}, on the device, against torch.compile in fp16")
        print(f"{'':26} {'ms':>7} {'compiled':>9} {'ratio':>7}")
        pixels = picture(arguments.compiled_size)
        for name, model in models.items():
            against_compiled(backend, name, model, arguments, pixels)


def picture(size: str) -> NDArray[np.uint8]:
    """Pixels of a size such as 960x540."""
    width, height = map(int, size.split("x"))
    return np.asarray(make_picture(width, height))


def layers(
    backend: Any, name: str, model: Model, precision: Precision, pixels: Any, is_full: bool
) -> None:
    """Prints what a network's kernels take, and each layer if asked for."""
    found = sorted(
        (backend.measure(model, precision, pixels) for _ in range(ROUNDS)),
        key=lambda each: each.seconds,
    )[ROUNDS // 2]
    work = sum(layer.multiply_adds for layer in found.layers)
    lines = [(name, found.seconds, work, found.layers[0].peak)]
    if is_full:
        lines += [
            (f"  {each.name}", each.seconds, each.multiply_adds, each.peak) for each in found.layers
        ]
    for line, seconds, products, peak in lines:
        rate = products / max(seconds, 1e-9)
        print(
            f"{line:26} {seconds * 1e3:7.3f} {2 * rate / 1e12:8.0f} {rate / peak:8.0%}", flush=True
        )


def against_compiled(
    backend: Any, name: str, model: Model, arguments: argparse.Namespace, pixels: Any
) -> None:
    """Prints a network's time and that of torch.compile's best."""
    from benchmarks import torch_peers
    from benchmarks.device_work import on_device, seconds_between

    run, prepare = compiled = torch_peers.compiled_fp16(model, arguments.tuning)
    del compiled
    tensor = prepare(torch_peers.prepared(pixels, model))
    network = backend.compile([model], arguments.precision)
    with on_device(network, pixels, np.uint8) as work:

        def ours() -> float:
            def repeated() -> None:
                for _ in range(10):
                    work()

            return seconds_between(backend.runtime, repeated) / 10

        medians = measure(
            {"ours": ours, "compiled": lambda: torch_peers.seconds(lambda: run(tensor), 10)}, 7
        )
    network.close()
    mine, other = medians["ours"], medians["compiled"]
    print(f"{name:26} {mine * 1e3:7.3f} {other * 1e3:9.3f} {mine / other:7.3f}", flush=True)


if __name__ == "__main__":
    main()
