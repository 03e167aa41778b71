"""Checks and times products of matrices through Vulkan on this machine's GPU, beside CUDA.

    python -m benchmarks.vulkan_matrix [right] [sets] [times]

`right` compares networks with the reference, tiled and repeated; `sets` compares fp16 with fp32 for
every shipped set; `times` prints the milliseconds of networks for a picture of 960x540 by the
device's clock. Without words: all.
"""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from waifu2x.backends import accuracy, open_backend
from waifu2x.backends.call import Call
from waifu2x.errors import Waifu2xError
from waifu2x.networks import model_set
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.networks.model_set import ModelSet

NETWORKS = ("vgg_7/art", "upconv_7/art", "cunet/art", "realesrgan/animevideo")
START = time.time()


def say(*words: object) -> None:
    print(f"[{time.time() - START:5.1f}]", *words, flush=True)


def models_of(name: str) -> Sequence[Model]:
    return model_set.find(name).models(2, None)


def right() -> None:
    backend, reference = open_backend("vulkan"), open_backend("numpy")
    say(backend.device)
    pixels = np.random.default_rng(0).integers(0, 256, (97, 75, 3), np.uint8)
    for name in NETWORKS:
        models = models_of(name)
        expected = reference.compile(models, "fp32").run(Call(pixels, np.float32))
        network = backend.compile(models, "fp16")
        made = network.run(Call(pixels, np.float32))
        tiled = network.run(Call(pixels, np.float32, tile=40))
        stack = network.run(Call(np.stack([pixels, pixels[::-1]]), np.float32))[0]
        say(
            f"{name}: {network.arithmetic}, {accuracy.decibels(made, expected):.1f} dB,"
            f" tiles {np.array_equal(made, tiled)}, stack {np.array_equal(made, stack)},"
            f" again {np.array_equal(made, network.run(Call(pixels, np.float32)))}"
        )
        levels = network.run(Call(pixels, np.uint8)).astype(int)
        exact = reference.compile(models, "fp32").run(Call(pixels, np.uint8)).astype(int)
        off = abs(levels - exact)
        say(f"  8 bits: off by {off.max()} at most, {(off > 0).mean():.4f} of the values")
        network.close()
    backend.close()


def sets() -> None:
    backend = open_backend("vulkan")
    found = []
    for each in model_set.available():
        name = each.name
        if not model_set.is_shipped(name):
            continue
        for models in every(each):
            side = accuracy.side(models[-1])
            exact, fast = backend.compile(models, "fp32"), backend.compile(models, "fp16")
            if "fp16" in fast.arithmetic:
                for draw in (accuracy.smooth_drawing, accuracy.photo):
                    call = Call(draw(models[0].in_planes, side), np.float32)
                    decibels = accuracy.decibels(fast.run(call), exact.run(call))
                    found.append((decibels, name, models[-1].name))
            exact.close()
            fast.close()
    found.sort(key=lambda one: one[0])
    say(len(found), "results; the worst:", *(f"{one[0]:.1f} {one[1]}" for one in found[:12]))
    backend.close()


def every(models: ModelSet) -> list[list[Model]]:
    """Returns the models of a set, each for itself."""
    seen: dict[str, list[Model]] = {}
    for noise, scale in itertools.product((None, *models.noise_levels), (1, *models.scales)):
        try:
            for model in models.models(scale, noise):
                seen[model_digest(model)] = [model]
        except Waifu2xError:
            continue
    return list(seen.values())


def times() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (540, 960, 3), np.uint8)
    rows = []
    for library, precision in (("vulkan", "fp16"), ("cuda", "fp16"), ("vulkan", "fp32")):
        try:
            backend: Any = open_backend(library)
        except Exception as error:
            say(library, error)
            continue
        for name in NETWORKS:
            try:
                models = models_of(name)
                network = backend.compile(models, precision)
                until, calls = time.time() + 0.5, list[float]()
                while time.time() < until:
                    start = time.perf_counter()
                    network.run(Call(pixels))
                    calls.append(time.perf_counter() - start)
                found = [backend.measure(model, precision, pixels) for model in models]
                if (library, precision) == ("vulkan", "fp16"):
                    layers = [layer for one in found for layer in one.layers]
                    say(name, *(f"{x.name} {x.seconds * 1e3:.3f};" for x in layers))
                device = 1e3 * sum(one.seconds for one in found)
                rows.append(
                    f"{library:7}{precision} {name:24} device {device:7.2f} ms, call"
                    f" {1e3 * min(calls):7.2f} ms ({network.arithmetic})"
                )
                network.close()
            except Exception:
                traceback.print_exc()
        backend.close()
    for row in rows:
        say(row)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("right", "sets", "times"):
        try:
            globals()[name]()
        except Exception:
            traceback.print_exc()
