"""Networks of several frames on windows of a film: their accuracy, their bits, and their speed.

    python benchmarks/film_windows.py [--backend cuda] [--size 1280x720] [--seconds 4]

Weights are random. First, on windows of an odd size: PSNR in fp32 and auto against the reference in
float64 (TSCUNet: against the processor's fp32, which a test holds to that), and whether tiles and
stacks give the same bits. Then frames a second of networks as large as people train them, in 4:2:0
of 8 bits: as planes, and as float pixels that the host has converted and joined.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.helpers import family_weights, obvious
from tests.helpers.family_weights import Shapes, filled
from tests.networks.test_families import CHECKS, loaded, picture
from waifu2x.backends import Backend, open_backend
from waifu2x.backends.call import Call
from waifu2x.imaging import planar_rgb
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.frame_windows import WindowNetwork
from waifu2x.networks.model import Model

SMALL = ("tspan", "tspan_v2", "tscunet")
LARGE: dict[str, Shapes] = {
    "tspan": family_weights.tspan(48, 12),
    "tspan_v2": family_weights.tspan_v2(32),
    "tscunet": family_weights.tscunet(frames=5),
}
SIZE = (21, 18)
SPREAD = 12
"""Deviations of a result that fit between 0 and 1."""
KIND = PlaneFormat(8, "420", "bt709")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    backend = open_backend(arguments.backend)
    print(f"{backend.name}: {backend.device.name}, {arguments.size}")
    print("network    fp32 dB  auto dB  auto            same bits  planes fps  pixels fps  again")
    for name in SMALL:
        exact, fast, arithmetic, same = accuracy(backend, name)
        rates = speed(backend, LARGE[name], height, width, arguments.seconds)
        planes, pixels, again = rates
        print(
            f"{name:9}  {exact:7.1f}  {fast:7.1f}  {arithmetic:14}  {same!s:9}"
            f"  {planes:10.2f}  {pixels:10.2f}  {again:5}",
            flush=True,
        )
    backend.close()


def within_zero_and_one(name: str) -> Model:
    """The network of a test, its results scaled so that none of them is clipped."""
    check = CHECKS[name]
    model = loaded(check.tensors())
    net = GraphBuilder(model.name, model.in_planes)
    factor = 1 / (SPREAD * check.deviation)
    shift = 0.5 - check.mean * factor
    planes = model.out_planes
    factors, shifts = (np.full(planes, each, np.float32) for each in (factor, shift))
    net.affine(net.extend(model.nodes), factors, shifts)
    return net.model(
        model.border, multiple=model.multiple, frames=model.frames, surround=model.surround
    )


def accuracy(backend: Backend, name: str) -> tuple[float, float, str, bool]:
    """PSNR in fp32 and auto, auto's arithmetic, and whether tiles and stacks change no bit."""
    model = within_zero_and_one(name)
    pixels = np.ascontiguousarray(picture(*SIZE, model.in_planes), np.float32)
    reference = open_backend("cpu" if name == "tscunet" else "numpy")
    expected = compiled(reference, model, "fp32").run(Call(pixels)).astype(np.float64)
    reference.close()
    found = []
    for precision in ("fp32", "auto"):
        network = compiled(backend, model, precision)
        made = network.run(Call(pixels))
        stack = np.stack([pixels[::-1], pixels])
        others = [network.run(Call(pixels, tile=24)), network.run(Call(stack))[1]]
        same = all(np.array_equal(made, other) for other in others)
        found.append((obvious.psnr(made, expected), network.arithmetic, same))
        network.close()
    (exact, _, one), (fast, arithmetic, other) = found
    return exact, fast, arithmetic, one and other


def compiled(backend: Backend, model: Model, precision: Any) -> WindowNetwork:
    return WindowNetwork(backend.compile([model], precision), model)


def speed(
    backend: Backend, shapes: Shapes, height: int, width: int, seconds: float
) -> tuple[float, float, int]:
    """Frames a second as planes and as joined pixels; how many were computed again."""
    model = loaded(filled(shapes, factor=0.5))
    network = compiled(backend, model, "auto")
    frames = [drawn(height, width, number) for number in range(model.frames)]
    made = KIND.empty(height * model.scale, width * model.scale)
    again: list[int] = []
    by_planes = rate(
        lambda: network.run(Call(frames, out=[made], on_recomputed=again.append)), seconds
    )

    def through_pixels() -> None:
        window = np.concatenate([planar_rgb.to_rgb(frame) for frame in frames], axis=-1)
        network.run(Call(window))

    by_pixels = rate(through_pixels, seconds)
    network.close()
    return by_planes, by_pixels, len(again)


def drawn(height: int, width: int, number: int) -> PlanarPicture:
    """Soft shades that move, and noise."""
    made = KIND.empty(height, width)
    rng = np.random.default_rng(number)
    for plane in made.planes:
        y, x = np.mgrid[: plane.shape[0], : plane.shape[1]]
        shades: NDArray[Any] = 128 + 60 * np.sin((x + 3 * number) / 40) * np.cos(y / 30)
        plane[:] = (shades + rng.normal(0, 2, plane.shape)).clip(0, 255)
    return made


def rate(work: Callable[[], Any], seconds: float) -> float:
    """Calls a second, after one that compiles."""
    work()
    begun, count = time.monotonic(), 0
    while count < 2 or time.monotonic() - begun < seconds:
        work()
        count += 1
    return count / (time.monotonic() - begun)


if __name__ == "__main__":
    main()
