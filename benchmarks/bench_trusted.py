"""Measures which models `auto` trusts on a GPU with matrix units, and the cost of its flags.

python benchmarks/bench_trusted.py [NAME ...]
    For every model of the sets: how much fp16 and fp32 keep (dB against fp32 on other units) of the
    probes, the example pictures and patterns, `F` where a picture is flagged; then the row for
    cuda/tensor/choosing.py, and the seconds of the first `compile` and of the next.
python benchmarks/bench_trusted.py --cost [NAME ...]
    Milliseconds of all kernels with what flags pictures, without, and with it once more, in turn;
    medians, and those of the ratios to what is without.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.device_work import on_device, seconds_between
from waifu2x.backends import Precision, accuracy, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.tensor import choosing
from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.network import FlaggedError
from waifu2x.networks import model_set
from waifu2x.networks.catalogue import ENTRIES
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZES = ((540, 960), (1080, 1920))
AT_ONCE, PAIRS = 10, 31


def pictures() -> dict[str, NDArray[np.uint8]]:
    """Probes, examples, and what networks were not made for."""
    rows, columns = np.ogrid[:64, :64]
    noise = np.random.default_rng(0).integers(0, 2, (64, 64, 3)) * 255
    found = {
        "hard": accuracy.drawing(3),
        "smooth": accuracy.smooth_drawing(3),
        "waves": accuracy.photo(3),
        "noise": noise,
        "small noise": noise[:8, :8],
        "checks": np.broadcast_to(((rows + columns) % 2 * 255)[..., None], (64, 64, 3)),
        "coarse checks": np.broadcast_to(
            ((rows // 2 + columns // 2) % 2 * 255)[..., None], (64, 64, 3)
        ),
    }
    for path in (EXAMPLES / "drawn.png", EXAMPLES / "photo.jpg"):
        found[path.stem] = np.asarray(Image.open(path).convert("RGB"))
    return {name: np.ascontiguousarray(each, np.uint8) for name, each in found.items()}


def kept(backend: Any, model: Model, probes: dict[str, NDArray[np.uint8]]) -> str:
    """Returns the accuracy of fp16 and fp32 for each picture."""
    *_, wide = backend._makers["fp32"]
    cells = []
    with ExitStack() as held:
        exact = held.enter_context(backend._on_trial(model, wide))
        modes: tuple[Precision, ...] = ("fp16", "fp32")
        tried = [
            held.enter_context(backend._on_trial(model, backend._makers[mode][0])) for mode in modes
        ]
        for picture in probes.values():
            expected, cell = exact.run(Call(picture, np.float32)), []
            for network in tried:
                try:
                    result = network.run(Call(picture, np.float32))
                except FlaggedError:
                    cell.append("F")
                else:
                    cell.append(f"{accuracy.decibels(result, expected):.1f}")
            cells.append("/".join(cell))
    return " ".join(cells)


def decide(names: list[str]) -> None:
    backend: Any = open_backend("cuda")
    found = list[float]()
    trusted = choosing.trusted

    def noted(*arguments: Any) -> float:
        found.append(trusted(*arguments))
        return found[-1]

    for name, value in (("RECORDED", {}), ("trusted", noted)):
        patch.object(choosing, name, value).start()
    probes = pictures()
    print("fp16/fp32 of:", ", ".join(probes))
    for name in names:
        one = model_set.find(name)
        for noise, scale in one.files:
            model = one.models(scale, noise)[-1]
            seconds = []
            for _ in range(2):
                start = time.perf_counter()
                backend.compile([model], "auto").close()
                seconds.append(time.perf_counter() - start)
            print(f'    "{model_digest(model)[:16]}": {found[-1]},  # {name} {noise} {scale}x')
            print(f"      {kept(backend, model, probes)}; {seconds[0]:.2f}, {seconds[1]:.2f} s")


def cost(names: list[str]) -> None:
    read, is_flagged = source.read, True

    def patched(name: str) -> str:
        text = read(name)
        if not is_flagged:
            text = text.replace("return !(fabsf(sum) <= 3.4028235e38f);", "return false;")
            for function in ("add_sizes", "flag_picture"):
                text = re.sub(
                    rf"(void {function}\([^)]*\) \{{).*?\n\}}", r"\1}", text, count=1, flags=re.S
                )
        return text

    patch.object(source, "read", patched).start()
    for height, width in SIZES:
        picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        for name in names:
            (model,) = model_set.find(name).models(2, None)
            with ExitStack() as held:
                ways = []
                for way in range(3):
                    is_flagged = way != 1
                    backend: Any = open_backend("cuda")
                    held.callback(backend.close)
                    network = held.enter_context(
                        backend._on_trial(model, backend._makers["fp16"][0])
                    )
                    network.run(Call(picture, np.uint8))
                    queue = held.enter_context(on_device(network, picture, np.uint8))
                    ways.append((backend.runtime, queue))
                times: list[list[float]] = [[], [], []]
                for number in range(PAIRS):
                    for way in (0, 1, 2) if number % 2 else (2, 1, 0):
                        runtime, queue = ways[way]

                        def work(queue: Any = queue) -> None:
                            for _ in range(AT_ONCE):
                                queue()

                        times[way].append(seconds_between(runtime, work) / AT_ONCE * 1e3)
                ratios = [
                    statistics.median(a / b for a, b in zip(times[way], times[1], strict=True))
                    for way in (0, 2)
                ]
                said = " ".join(f"{statistics.median(each):.3f}" for each in times)
                print(
                    f"{width}x{height} {name:22} {said} ms {ratios[0]:.4f} {ratios[1]:.4f}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cost", action="store_true", help="what flags cost")
    parser.add_argument("names", nargs="*", help="sets, by default all of the catalogue")
    arguments = parser.parse_args()
    here = {found.name for found in model_set.available()}
    names = arguments.names or [entry.name for entry in ENTRIES if entry.name in here]
    (cost if arguments.cost else decide)(names)


if __name__ == "__main__":
    main()
