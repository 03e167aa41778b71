"""Every network of the catalogue against ncnn's own run of it, in single precision.

python benchmarks/against_ncnn.py [--size 47x41] [-m NAME ...] [BACKEND[:PRECISION] ...]

ncnn runs the very files that waifu2x reads, or files of the same nodes made here, without its
16-bit options; a picture of odd size is one tile, padded as the Model says. Prints PSNR (values in
[0, 1]) of the float64 definition that the tests use and of each backend. Exit code 1 if the
definition or fp32 stays below 100 dB, or any other precision below 60. Needs the `bench` extra.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ncnn
import numpy as np
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.ncnn_files import ncnn_files
from tests.helpers import obvious
from waifu2x.backends import BACKEND_NAMES, Backend, Network, open_backend
from waifu2x.backends.call import Call
from waifu2x.errors import BackendError
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers.ncnn.reader import weights_path

DRAWN = Path(__file__).parent.parent / "examples" / "drawn.png"
LEAST = {"fp32": 100.0}
LEAST_OF_OTHERS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="47x41", metavar="WxH")
    parser.add_argument("-m", "--model", action="append", default=[], help="part of a set's name")
    parser.add_argument("ways", nargs="*", metavar="BACKEND[:PRECISION]")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    drawn = np.asarray(Image.open(DRAWN).convert("RGB"))[60 : 60 + height, 70 : 70 + width]
    pixels = np.ascontiguousarray(drawn, np.float32) / np.float32(255)
    ways = list(open_ways(arguments.ways))
    titles = ["definition", *(f"{backend.name} {precision}" for backend, precision in ways)]
    print(f"| network ({width}x{height}) | {' | '.join(titles)} |")
    print(f"|---|{'--:|' * len(titles)}")
    worst = [float("inf")] * len(titles)
    for name, model, files in networks(arguments.model):
        exact = run_ncnn(model, pixels, *files)
        results = [obvious.run([model], pixels)]
        results += [compiled(*way, model).run(Call(pixels, np.float32)) for way in ways]
        decibels = [obvious.psnr(result, exact) for result in results]
        worst = list(map(min, worst, decibels))
        print(f"| {name} | {' | '.join(f'{each:.1f}' for each in decibels)} |", flush=True)
    print(f"| worst | {' | '.join(f'{each:.1f}' for each in worst)} |")
    least = [LEAST["fp32"], *(LEAST.get(each, LEAST_OF_OTHERS) for _, each in ways)]
    if any(found < needed for found, needed in zip(worst, least, strict=True)):
        raise SystemExit("below what is promised: 100 dB for fp32, 60 dB for the rest")


def open_ways(wanted: list[str]) -> Iterator[tuple[Backend, Any]]:
    """Backends and precisions: those asked for, else fp32 and auto of each backend that works."""
    names = [each.partition(":")[::2] for each in wanted]
    for name, precision in names or [(name, "") for name in BACKEND_NAMES]:
        try:
            backend = open_backend(name)
        except BackendError as error:
            if wanted:
                raise
            print(error, file=sys.stderr)
            continue
        for each in [precision] if precision else ["fp32", "auto"]:
            yield backend, each


def compiled(backend: Backend, precision: Any, model: Model) -> Network:
    return backend.compile([model], precision)


def networks(wanted: Sequence[str]) -> Iterator[tuple[str, Model, tuple[bytes, bytes]]]:
    """Name, network and the files that ncnn is given, of sets with one of these in their names."""
    for found in model_set.available():
        if wanted and not any(part in found.name for part in wanted):
            continue
        for (noise, scale), path in found.files.items():
            words = [found.name, *([f"{scale}x"] if scale > 1 else [])]
            words += [] if noise is None else [f"noise {noise}"]
            [model] = found.models(scale, noise)
            if path.suffix == ".param":
                files = (path.read_bytes(), weights_path(path).read_bytes())
            else:
                text, weights = ncnn_files(model)
                files = (text.encode(), weights)
            yield " ".join(words), model, files


def run_ncnn(
    model: Model, pixels: NDArray[np.float32], text: bytes, weights: bytes
) -> NDArray[np.float64]:
    """The picture as one tile, clipped to [0, 1].

    Real-CUGAN's 4x networks add the picture, enlarged, behind the network.
    """
    height, width = pixels.shape[:2]
    pads = [(model.padding, model.padding + -size % model.multiple) for size in (height, width)]
    modes: dict[str, Any] = {"replicate": "edge", "reflect": "reflect", "zero": "constant"}
    mode = modes[model.border]
    tile = np.pad(pixels, [*pads, (0, 0)], mode=mode).transpose(2, 0, 1).copy()
    net = ncnn.Net()
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.param"
        path.write_bytes(text)
        weights_path(path).write_bytes(weights)
        net.load_param(str(path))
        net.load_model(str(weights_path(path)))
        run = net.create_extractor()
        run.input(net.input_names()[0], ncnn.Mat(tile))
        _, result = run.extract(net.output_names()[-1])
    picture = np.array(result).transpose(1, 2, 0).astype(np.float64)
    picture = picture[: height * model.scale, : width * model.scale]
    if model.border == "reflect" and model.scale == 4:
        picture += pixels.repeat(4, 0).repeat(4, 1)
    return picture.clip(0, 1)


if __name__ == "__main__":
    main()
