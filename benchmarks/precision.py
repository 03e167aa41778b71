"""How exact each mode of each backend is: all models of the catalogue on parts of two pictures.

python benchmarks/precision.py [--set NAME ...] [BACKEND ...]

PSNR (values in [0, 1]) of float results and differences of 8-bit results, against a float64 run by
the definition that the tests use; for each model set, the worst of its models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.helpers import obvious
from waifu2x.backends import BACKEND_NAMES, Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.errors import BackendError
from waifu2x.networks import model_set
from waifu2x.networks.catalogue import ENTRIES
from waifu2x.networks.model import Model

EXAMPLES = Path(__file__).parent.parent / "examples"
PARTS = {"drawn.png": (20, 40), "photo.jpg": (10, 60)}
"""Top and left of what is taken of each picture."""
HEIGHT, WIDTH = 110, 150

Case = tuple[str, list[Model], NDArray[np.uint8], NDArray[np.float64]]
"""A case: its name, the models, the picture and the exact result."""


def cases(name: str) -> Iterator[Case]:
    """Every model of a set on every picture."""
    for example, (top, left) in PARTS.items():
        pixels = np.asarray(Image.open(EXAMPLES / example).convert("RGB"))
        pixels = np.ascontiguousarray(pixels[top : top + HEIGHT, left : left + WIDTH])
        found = model_set.find(name)
        for noise, scale in found.files:
            models = found.models(scale, noise)
            label = f"{example} {scale}x noise {noise}"
            yield label, models, pixels, obvious.run(models, pixels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", action="append", help="all sets of the catalogue without it")
    parser.add_argument("backends", nargs="*")
    arguments = parser.parse_args()
    names = arguments.set or [entry.name for entry in ENTRIES]
    opened = [open_backend(name) for name in arguments.backends or BACKEND_NAMES]
    print("set             backend precision    worst  on                     8-bit: off by, share")
    for name in names:
        wanted = list(cases(name))
        for backend in opened:
            for precision in get_args(Precision):
                rows = []
                for label, models, pixels, exact in wanted:
                    try:
                        network = backend.compile(models, precision)
                    except BackendError:
                        break
                    values, levels = (
                        network.run(Call(pixels, np.float32)),
                        network.run(Call(pixels, np.uint8)),
                    )
                    off = abs(levels.astype(int) - obvious.to_levels(exact, np.uint8))
                    rows.append((obvious.psnr(values, exact), label, off.max(), np.mean(off > 0)))
                if rows:
                    worst, label, _, _ = min(rows)
                    largest, share = max(row[2] for row in rows), max(row[3] for row in rows)
                    print(
                        f"{name:15} {backend.name:7} {precision:9} {worst:6.1f} dB  {label:22}"
                        f" {largest}, {share:.1e}",
                        flush=True,
                    )
    for backend in opened:
        backend.close()


if __name__ == "__main__":
    main()
