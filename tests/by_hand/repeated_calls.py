"""Whether calls that come again give the same bits, by every way in which a GPU is fed.

python tests/by_hand/repeated_calls.py [MODEL ...]

Needs a device. Pictures of many sizes, four times each and stacks between them: as usual, without
copies in the kernels' order, without CUDA graphs, with plans made of numbers instead of formulas,
and with none of these. One line for each way; 0 and 0 means that all is well. Where a line is not,
the first way whose lines are tells what to look at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from waifu2x import Upscaler
from waifu2x.backends.cuda import runtime
from waifu2x.backends.gpu import network
from waifu2x.backends.gpu.plan import launch_plan

SIZES = [
    *((469, 563), (16, 565), (134, 457), (64, 64), (7, 9), (331, 205), (671, 389)),
    *((100, 101), (64, 64), (134, 457), (258, 91), (540, 960)),
]
IN_ORDER = (network, "_SMALL_BYTES", 0)
GRAPHS = (runtime, "capture", lambda *arguments: None)
FORMULAS = (launch_plan, "_PLAIN_SIZES", 1 << 60)
WAYS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "as usual": (),
    "no copies in order": (IN_ORDER,),
    "no graphs": (GRAPHS,),
    "numbers, no formulas": (FORMULAS,),
    "none of these": (IN_ORDER, GRAPHS, FORMULAS),
}
"""By what is put in the place of what."""


def pictures() -> Iterator[NDArray[np.uint8]]:
    """Blocks of 4x4 pixels of random levels."""
    for rows, columns in SIZES:
        levels = np.random.default_rng(rows).integers(0, 256, (rows, columns, 3), np.uint8)
        yield np.ascontiguousarray(levels[::4, ::4].repeat(4, 0).repeat(4, 1)[:rows, :columns])


def differing(upscaler: Upscaler, first: list[NDArray[np.uint8]]) -> tuple[int, int]:
    """How many repeated calls differ from the first of their picture, and how many first ones from
    those of the way before. `first` gets the latter if it is empty."""
    repeated = other = 0
    made = []
    for number, picture in enumerate(pictures()):
        result = upscaler(picture)
        made.append(result.copy())
        if number % 3 == 0:
            stack = upscaler(np.stack([picture[:90, :90]] * 5))
            repeated += bool((stack != stack[:1]).any())
        repeated += sum(not np.array_equal(upscaler(picture), made[-1]) for _ in range(3))
        other += bool(first) and not np.array_equal(made[-1], first[number])
    first[:] = first or made
    return repeated, other


def main(names: list[str]) -> int:
    """Prints a line for each model and way; how many are not well."""
    wrong = 0
    for name in names or ["cunet", "vgg_7"]:
        for precision in ("fp16", "fp32"):
            first: list[NDArray[np.uint8]] = []
            for way, replaced in WAYS.items():
                with ExitStack() as held:
                    for module, attribute, value in replaced:
                        held.enter_context(mock.patch.object(module, attribute, value))
                    upscaler = Upscaler(2, model=name, backend="cuda", precision=precision)
                    repeated, other = differing(held.enter_context(upscaler), first)
                wrong += bool(repeated or other)
                print(f"{name} {precision} {way}: {repeated} repeated, {other} others differ")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
