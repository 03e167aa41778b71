"""How exact each mode of each backend is: all shipped models on the two example pictures.

python benchmarks/precision.py [BACKEND ...]

PSNR (values in [0, 1]) of float results and differences of 8-bit results, against a float64 run by
the definition that the tests use.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import obvious
from waifu2x import model_set
from waifu2x.backends import BACKEND_NAMES, Precision, open_backend
from waifu2x.errors import BackendError
from waifu2x.tiling import Box

EXAMPLES = Path(__file__).parent.parent / "examples"


def main() -> None:
    cases = []
    for name in ("drawn.png", "photo.jpg"):
        pixels = np.asarray(Image.open(EXAMPLES / name).convert("RGB"))
        for noise in (None, 0, 1, 2, 3):
            models = model_set.find("vgg_7/art").models(1 if noise is not None else 2, noise)
            cases.append((name, noise, models, pixels, obvious.run(models, pixels)))
    print(
        "backend  precision  worst PSNR  on                    8-bit: largest, share that differs"
    )
    for backend_name in sys.argv[1:] or BACKEND_NAMES:
        backend = open_backend(backend_name)
        for precision in get_args(Precision):
            rows = []
            for name, noise, models, pixels, exact in cases:
                try:
                    network = backend.compile(models, precision)
                except BackendError:
                    break
                box = Box(0, 0, *exact.shape[:2])
                values = network(pixels, box, np.float32, lambda part: None)
                levels = network(pixels, box, np.uint8, lambda part: None)
                off = abs(levels.astype(int) - obvious.to_levels(exact, np.uint8))
                label = f"{name} {'2x' if noise is None else f'noise {noise}'}"
                rows.append((obvious.psnr(values, exact), label, off.max(), np.mean(off > 0)))
            if rows:
                worst, label, _, _ = min(rows)
                largest, share = max(row[2] for row in rows), max(row[3] for row in rows)
                print(
                    f"{backend_name:8} {precision:10} {worst:7.1f} dB  {label:20}"
                    f"  {largest} level, {share:.1e}"
                )
        backend.close()


if __name__ == "__main__":
    main()
