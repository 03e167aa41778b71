"""Measures the memory of a network on an NVIDIA GPU, and the maps alive at its peak.

    python benchmarks/device_memory.py [--size 960x540] [--terms 1|2] [--device] [NETWORK ...]

Networks are those of `attention_units.py`. Without a device: bytes of all maps of a picture that is
computed undivided as sm_90 would, as they are planned; the step at which most are there; each map
that is there then, with its size, and the steps that make and read it. With `--device` pictures are
computed as well: memory of the process on the device after a call, what the plan says, milliseconds
of a call, and whether a call in less memory, in tiles, gives the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.attention_units import NETWORKS
from benchmarks.bench_attention import picture
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.tensor.executor import TensorExecutor, arranged
from waifu2x.backends.gpu.backend import lowered
from waifu2x.backends.gpu.plan import tile_plan
from waifu2x.backends.gpu.plan.lifetimes import Lifetimes
from waifu2x.networks.model import Model, Size

MIB = 1 << 20
ROUNDS = 5
PRECISIONS: dict[int, Precision] = {1: "fp16", 2: "fp32"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=["dat-light"])
    parser.add_argument("--size", default="960x540", help="columns x rows of the picture")
    parser.add_argument("--terms", type=int, choices=(1, 2), help="1 is fp16, 2 is fp32")
    parser.add_argument("--device", action="store_true", help="compute pictures, too")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    for name in options.networks:
        model = NETWORKS[name]()
        for terms in (options.terms,) if options.terms else (1, 2):
            print(f"== {name}, {columns}x{rows}, {PRECISIONS[terms]}", flush=True)
            show(model, (rows, columns), terms)
            if options.device:
                measure(model, (rows, columns), PRECISIONS[terms])


def show(model: Model, size: Size, terms: int) -> None:
    """The plan for pictures of a size."""
    program = arranged(lowered(model), "wgmma", terms)
    executor = TensorExecutor(_no_runtime(), program, "wgmma", terms, lambda _, all, __: all[0])
    found = tile_plan.whole(executor, size, 1)
    assert found is not None
    passes = [row[0] for rows in found.passes for row in rows]
    lives = Lifetimes(executor, passes)
    sizes = {name: executor.map_bytes(name[0], box, 1) for name, box in lives.boxes.items()}

    def alive(time: int) -> list[Any]:
        return [name for name in sizes if lives.first[name] <= time <= lives.last[name]]

    places = {name: passes[lives.index[name]].places[name[0]].offset for name in sizes}

    def taken(time: int) -> int:
        # Maps that lie in the place of others count once.
        return sum({places[name]: sizes[name] for name in alive(time)}.values())

    peak = max(lives.numbers, key=taken)
    print(f"{found.scratch / MIB:.1f} MiB planned; at most {taken(peak) / MIB:.1f} MiB are there")
    print(f"when step {lives.numbers[peak]} runs, {program.steps[lives.numbers[peak]].label}:")
    for name in sorted(alive(peak), key=lives.first.__getitem__):
        made = [n for n, step in enumerate(program.steps) if step.writes == name[0]]
        used = [
            n
            for n, step in enumerate(program.steps)
            if any(view.value == name[0] for view in step.reads)
        ]
        kinds = ", ".join(f"{n} {program.steps[n].label}" for n in made)
        print(
            f"    {sizes[name] / MIB:7.1f} MiB at {places[name] / MIB:7.1f}, planes"
            f" {program.values[name[0]].parts}: made by {kinds}; read by {used}"
        )


def measure(model: Model, size: Size, precision: Precision) -> None:
    """A picture on the device."""
    backend: Any = open_backend("cuda")
    network = backend.compile([model], precision)
    weights = backend.bytes
    pixels = picture(size)
    expected = network.run(Call(pixels, np.uint8))
    memory = backend.bytes
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        network.run(Call(pixels, np.uint8))
        seconds.append(time.perf_counter() - start)
    print(
        f"{network.arithmetic}: {memory / MIB:.0f} MiB on the device, {weights / MIB:.0f} of them"
        f" before the first picture; {statistics.median(seconds) * 1e3:.2f} ms a call",
        flush=True,
    )
    tiled = network.run(Call(pixels, np.uint8, tile=max(size) * model.scale // 2))
    print(f"in tiles: {'the same bits' if np.array_equal(tiled, expected) else 'OTHER BITS'}")
    network.close()
    backend.close()


def _no_runtime() -> Any:
    """Stands in for a device's library: an H200's limits, and no memory."""
    buffer = SimpleNamespace(address=1 << 20, size=0, release=lambda: None)
    return SimpleNamespace(
        capability=(9, 0),
        shared_bytes=227 << 10,
        limits=SimpleNamespace(compute_units=132),
        allocate=lambda size: buffer,
        upload=lambda to, array: None,
        build=lambda stem, macros: SimpleNamespace(kernel=lambda *rest: object()),
    )


if __name__ == "__main__":
    main()
