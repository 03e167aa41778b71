"""Networks with attention on an NVIDIA GPU beside the same networks in PyTorch.

    python benchmarks/attention_peers.py [--size 960x540] [--tuning 0] [NETWORK ...]

Networks are those of attention_units.py. PyTorch runs our graph, node by node, in fp16: eager with
attention by products of matrices, eager with its kernel for attention, and both compiled (--tuning
60: seconds of tuning); swin_unet also as its own program has it. Milliseconds are the device's, of
the network alone, after results were compared; memory is the most that was taken.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import torch_peers, torch_swin_unet
from benchmarks.attention_units import NETWORKS, quality, swin_unet
from benchmarks.bench_attention import picture
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call

DEFAULT = ("dat-light", "swinir-light", "swin_unet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=DEFAULT)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--tuning", type=float, default=0, help="seconds")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    pixels = picture((rows, columns))
    lines = [
        f"| {torch.cuda.get_device_name()}, {options.size} | ms | dB | MiB |",
        "|---|--:|--:|--:|",
    ]
    for name in options.networks:
        model = NETWORKS[name]()
        backend: Any = open_backend("cuda")
        network = backend.compile([model], "auto")
        ours = network.run(Call(pixels, np.float32))
        seconds = backend.measure(model, network.arithmetic.split()[0], pixels).seconds
        lines.append(line(f"{name}, ours, {network.arithmetic}", seconds, None, backend.bytes))
        backend.close()
        for kind, make in peers(name, options.tuning).items():
            lines.append(timed(f"{name}, PyTorch, {kind}", make, model, pixels, ours))
            print(lines[-1], flush=True)
    print("\n" + "\n".join(lines))


def peers(name: str, tuning: float) -> dict[str, Callable[[Any], torch_peers.Peer]]:
    """All of a network, by name."""
    found: dict[str, Callable[[Any], torch_peers.Peer]] = {
        "eager, products": torch_peers.cudnn_fp16,
        "eager, its attention": lambda model: torch_peers.cudnn_fp16(model, True),
        "compiled, products": lambda model: torch_peers.compiled_fp16(model, tuning),
        "compiled, its attention": lambda model: torch_peers.compiled_fp16(model, tuning, True),
    }
    if name == "swin_unet":
        own, prepare = torch_swin_unet.fp16(swin_unet())
        found["its own program, eager"] = lambda _: (own, prepare)
        found["its own program, compiled"] = lambda _: (
            torch_peers.Compiled(own, tuning),
            prepare,
        )
    return found


def timed(name: str, make: Any, model: Any, pixels: Any, ours: Any) -> str:
    """A peer's line."""
    # Code compiled for one network does not count against the next one's limit.
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        run, prepare = make(model)
        decibels = quality(torch_peers.result((run, prepare), pixels, model), ours)
        tensor = prepare(torch_peers.prepared(pixels, model))
        torch_peers.seconds(lambda: run(tensor), 1)
        took = min(torch_peers.seconds(lambda: run(tensor), 2) for _ in range(3))
    except Exception as error:
        return f"| {name} | {type(error).__name__}: {str(error)[:60]!r} | | |"
    return line(name, took, decibels, torch.cuda.max_memory_allocated())


def line(name: str, seconds: float, decibels: float | None, size: int) -> str:
    """A row of the table."""
    shown = "" if decibels is None else f"{decibels:.1f}"
    return f"| {name} | {seconds * 1e3:.2f} | {shown} | {size >> 20} |"


if __name__ == "__main__":
    main()
