"""Enlarges a picture to more than 2^31 bytes with the program, and computes its far corner alone.

    python tests/by_hand/large_pictures.py cuda [cpu ...]  3000x3000, 16 times as large: 6.9 GB
    python tests/by_hand/large_pictures.py --long cpu      long and narrow, 9 times quicker

For each backend that is named it runs `waifu2x upscale -m vgg_7`, reads the result back, and
compares the last pixels with what the same backend makes of the picture's last pixels alone: they
must be the same to the bit. Needs about 30 GB of memory (--long: 8 GB) and some disk in the
temporary folder; takes minutes with a large GPU, most of them for the PNG, and hours on a few
cores. Other options go to the program, such as `-m upconv_7` and `--precision fp32`; not
`-m cunet`, whose means are over the whole picture.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from waifu2x.backends import BACKEND_NAMES

SCALE = 16
SQUARE, LONG = (3000, 3000), (33, 90_000)
SOURCE_SIDE = 256
"""Pixels a side of the corner that is computed alone; the halo of networks is far less."""
CELLS = 16
"""Where it begins is a multiple of it: cells of Winograd's transforms lie alike in both."""
SIDE = 1024
"""Pixels a side of the part of its result that is compared."""


def main() -> None:
    """Compares the pictures for the backends that the command line names."""
    arguments = sys.argv[1:]
    names = [argument for argument in arguments if argument in BACKEND_NAMES]
    options = [a for a in arguments if a not in BACKEND_NAMES and a != "--long"]
    height, width = LONG if "--long" in arguments else SQUARE
    picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    # Noise over large smooth shapes: neither flat nor beyond what a network expects.
    rows, columns = np.ogrid[:height, :width]
    waves = np.sin(rows / 37) + np.sin(columns / 61)
    picture = (picture // 8 + 100 + 40 * waves[..., np.newaxis]).astype(np.uint8)
    top, left = (max(0, size - SOURCE_SIDE) // CELLS * CELLS for size in (height, width))
    if not names:
        sys.exit(__doc__)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("whole.png", "corner.png")]
        Image.fromarray(picture).save(paths[0])
        Image.fromarray(picture[top:, left:]).save(paths[1])
        for name in names:
            found = []
            for path in paths:
                start = time.monotonic()
                target = path.with_name(f"{name}-{path.name}")
                enlarge(path, target, name, options)
                seconds = time.monotonic() - start
                found.append(last_pixels(target, min(SIDE, (height - top) * SCALE)))
                target.unlink()
                print(f"{name}: {path.stem}, {seconds:.0f} s", flush=True)
            same = np.array_equal(found[0], found[1])
            failed |= not same
            print(f"{name}: far corner {'the same to the bit' if same else 'DIFFERS'}", flush=True)
    sys.exit(failed)


def enlarge(source: Path, target: Path, backend: str, options: list[str]) -> None:
    """Runs the program; ends this one if it fails."""
    command = [sys.executable, "-m", "waifu2x", "upscale", "-v", "-s", str(SCALE), "-m", "vgg_7"]
    subprocess.run([*command, "--backend", backend, *options, str(source), str(target)], check=True)


def last_pixels(path: Path, side: int) -> NDArray[np.uint8]:
    """The last rows and columns of a picture in a file."""
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path) as image:
        width, height = image.size
        return np.asarray(image.crop((width - side, height - side, width, height)))


if __name__ == "__main__":
    main()
