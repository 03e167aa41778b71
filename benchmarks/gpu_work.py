"""How much a GPU of little memory computes for a large picture: from schedules, without a GPU.

python benchmarks/gpu_work.py [-m realesrgan/anime ...] [--size 1920x1080] [--gigabytes 4,8,24]

For each network, memory of a card and way to compute: tiles of each phase (down x across), and the
multiply-adds of all of them for each that the picture needs, with the network cut in segments and
without. Maps may take 0.9 of the card less the picture and a result of 8 bits.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from waifu2x.backends.cuda.tensor.layout import batch_grid, layouts
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.fp32.maps import ALIGNMENT, MapFormat, Margin, layout_of
from waifu2x.backends.gpu.plan import cuts, tile_plan
from waifu2x.backends.gpu.plan.tile_plan import MapMemory, MapMemoryError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.passes.segments import segmented
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.networks import model_set
from waifu2x.networks.model import Size

NETWORKS = ["realesrgan/anime", "realesrgan/photo", "realesrgan/animevideo"]
WAYS = ["fp16", "fp32", "fp32 on any GPU"]
_FP32 = MapFormat(4)


class Maps:
    """Stands in for executors: the two over matrix units, and the one for any device."""

    def __init__(self, program: Program, way: str) -> None:
        self.program = program
        self.unit = (1, 1)
        self.alignment = ALIGNMENT
        self.map_limit = 1 << 34
        self._layouts = layouts(program, 1 if way == "fp16" else 2)
        self._is_plain = way == WAYS[-1]
        if self._is_plain:
            self.unit = (_FP32.cell, _FP32.cell)
            self.map_limit = _FP32.limit

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        if self._is_plain:
            return layout_of(self.program.values[value], box, Margin(), _FP32).step * ALIGNMENT
        return self._layouts[value].bytes(box, batch_grid(pictures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", action="append", help="default: three deep ones")
    parser.add_argument("--scale", type=int, default=4)
    parser.add_argument("--size", default="1920x1080", metavar="WxH")
    parser.add_argument("--gigabytes", default="4,8,24")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    print("| network | memory | way | tiles | work | in one piece: tiles | work |")
    print("|---|--:|---|---|--:|---|--:|")
    for name in arguments.model or NETWORKS:
        [model] = model_set.find(name).models(arguments.scale, None)
        program = lower(model)
        divided = segmented(program, cuts.TILE)
        for gigabytes in map(float, arguments.gigabytes.split(",")):
            total = int(gigabytes * 2**30 * 0.9) - height * width * 3 * (1 + model.scale**2)
            memory = MapMemory(total, total, total)
            for way in WAYS:
                own: Any = Maps(program, way)
                cut: Any = Maps(divided, way)
                cells = [made(own, (height, width), memory, other) for other in (cut, None)]
                print(f"| {name} | {gigabytes:g} GB | {way} | {' | '.join(cells)} |", flush=True)


def made(executor: Executor, size: Size, memory: MapMemory, divided: Executor | None) -> str:
    """Tiles of each phase, and how much work they are."""
    try:
        found = tile_plan.find(executor, size, 1, memory, divided=lambda: divided)
    except MapMemoryError:
        return "no room | -"
    tiles = [f"{len(rows)}x{max(map(len, rows))}" for rows in found.passes]
    runs = [f"{len(list(run))} of {each}" for each, run in groupby(tiles)]
    return f"{', '.join(runs)} | {found.cost / least(executor.program, size):.2f}"


def least(program: Program, size: Size) -> float:
    """The work on a picture as one tile."""
    sizes = geometry.sizes(program, *size)
    root = {program.result: Box(0, 0, *sizes[program.result])}
    work = geometry.work(program, range(len(program.steps)), root, (1, 1), sizes)
    return sum(cuts.step_cost(program, number, box) for number, box in work.steps.items())


if __name__ == "__main__":
    main()
