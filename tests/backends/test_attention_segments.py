"""Deep networks with attention on the processor: how they are cut, and that no cut changes a
result."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_backends import PROMISED_DB, picture
from tests.helpers import family_weights, obvious, weight_files
from tests.helpers.family_weights import Shapes, filled
from tests.helpers.strips_work import strips_work
from tests.networks.test_families import within_zero_and_one
from waifu2x.backends import ignore
from waifu2x.backends.call import result_shape
from waifu2x.backends.cpu.arithmetic import Arithmetic, arithmetics
from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.pack import packer
from waifu2x.backends.cpu.pack.packer import pack
from waifu2x.backends.cpu.run import kept_memory
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.networks.model import Model
from waifu2x.networks.readers import parse_named

CUT: dict[str, tuple[Shapes, float]] = {
    "swinir": (family_weights.swinir(12, (2, 3), blocks=4), 1.0),
    "srformer": (family_weights.swinir(16, (2, 2), blocks=3, cells=True), 1.0),
    "drct": (family_weights.drct(), 1.0),
    "swin_unet": (family_weights.swin_unet(), 0.4),
}
"""Networks that are cut into segments, with a factor of their weights,"""
WITH_MEANS: dict[str, tuple[Shapes, float]] = {
    "hat": (family_weights.hat(), 1.0),
    "dat": (family_weights.dat(32, (4, 3), (4, 2), 2, 2), 1.0),
}
"""and those that means cut."""
SIZE = (50, 61)
QUICK = ("swinir", "dat")
"""Networks that are run whenever tests are."""


def each(names: Iterable[str]) -> list[Any]:
    return [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.matrix) for name in names
    ]


@functools.cache
def network(name: str) -> Model:
    shapes, factor = (CUT | WITH_MEANS)[name]
    tensors = filled(shapes, factor=factor, prefix="unet." if name == "swin_unet" else "")
    return parse_named(weight_files.safetensors(tensors), f"{name}.safetensors")


@functools.cache
def defined(name: str) -> tuple[Model, NDArray[np.uint8], NDArray[np.float64]]:
    """A network, a picture, and what it makes of it by definition."""
    model, pixels = within_zero_and_one(network(name)), picture(11, 18, 3)
    return model, pixels, obvious.run([model], pixels)


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    made.close()


def packed(model: Model, workers: Workers, arithmetic: Arithmetic = "fp32") -> CpuModel:
    return CpuModel(model, pack(model, arithmetic), workers)


def run(made: CpuModel, pixels: NDArray[Any], workers: Workers, tile: int | None = None) -> Any:
    stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
    result = np.empty(result_shape([made.model], stack.shape), np.float32)
    with workers.working():
        made.run(tile, stack, result, ignore)
    return result.reshape(*pixels.shape[:-3], *result.shape[1:])


@pytest.mark.parametrize("size", [SIZE, (8, 40), (33, 5)])
@pytest.mark.parametrize("name", each(CUT))
def test_cuts_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, workers: Workers, name: str, size: tuple[int, int]
) -> None:
    model, pixels = network(name), picture(*size, 3)
    cut = packed(model, workers)
    assert cut.packed.program.cuts
    result = run(cut, pixels, workers)
    monkeypatch.setattr(packer, "segmented", lambda program: program)
    whole = packed(model, workers)
    assert not whole.packed.program.cuts
    np.testing.assert_array_equal(result, run(whole, pixels, workers))


@pytest.mark.parametrize("arithmetic", arithmetics())
@pytest.mark.parametrize("name", each(CUT | WITH_MEANS))
def test_tiles_and_stacks_change_no_bit(
    workers: Workers, name: str, arithmetic: Arithmetic
) -> None:
    made, pixels = packed(network(name), workers, arithmetic), picture(*SIZE, 3)
    expected = run(made, pixels, workers)
    for tile in (43,) if arithmetic == "fp32" else (16,):
        np.testing.assert_array_equal(run(made, pixels, workers, tile), expected)
    stack = run(made, np.stack([pixels[::-1], pixels]), workers)
    np.testing.assert_array_equal(stack[1], expected)


@pytest.mark.parametrize("name", each(CUT))
def test_blocks_change_no_bit(monkeypatch: pytest.MonkeyPatch, workers: Workers, name: str) -> None:
    made, pixels = packed(network(name), workers), picture(40, 250, 3)
    expected = run(made, pixels, workers)
    assert len(made.blocks(40, 250)) == 1
    monkeypatch.setattr(kept_memory, "budget", lambda packed: 100 << 10)
    assert len(made.blocks(40, 250)) > 1
    np.testing.assert_array_equal(run(made, pixels, workers), expected)


@pytest.mark.parametrize("name", each(WITH_MEANS))
def test_memory_for_kept_maps_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, workers: Workers, name: str
) -> None:
    model, pixels = network(name), picture(30, 41, 3)
    made = packed(model, workers)
    expected = run(made, pixels, workers)
    most = 4 * made.plan(30, 41).kept.floats
    plans = set()
    for share in (0.9, 0.6, 0.3, 0.0):
        monkeypatch.setattr(kept_memory, "budget", lambda packed, share=share: most * share)
        made = packed(model, workers)
        plans.add(tuple(strips.phase.kept for strips in made.plan(30, 41).phases))
        np.testing.assert_array_equal(run(made, pixels, workers), expected)
    assert len(plans) > 1


@pytest.mark.parametrize("arithmetic", arithmetics())
@pytest.mark.parametrize("name", each(CUT | WITH_MEANS))
def test_result_is_the_definition(workers: Workers, name: str, arithmetic: Arithmetic) -> None:
    model, pixels, expected = defined(name)
    result = run(packed(model, workers, arithmetic), pixels, workers)
    # Noise through random weights, where `auto` would choose by pictures.
    least = PROMISED_DB["fp32"] if arithmetic == "fp32" else 40
    assert obvious.psnr(result, expected) >= least


@pytest.mark.parametrize(
    ("shapes", "size", "most"),
    [
        (family_weights.swinir(60, (6, 6), blocks=4), (540, 960), 1.15),
        (family_weights.swinir(60, (6, 6), blocks=4), (1080, 1920), 1.15),
        (family_weights.swin_unet(2, 96), (540, 960), 1.15),
        (family_weights.dat(60, (8,), (6,), 2, 2), (540, 960), 1.35),
        (family_weights.dat(60, (8,), (6,), 2, 2), (1080, 1920), 1.35),
    ],
    ids=["swinir", "swinir 1080p", "swin_unet", "dat", "dat 1080p"],
)
def test_little_is_computed_twice(
    monkeypatch: pytest.MonkeyPatch,
    workers: Workers,
    shapes: Shapes,
    size: tuple[int, int],
    most: float,
) -> None:
    monkeypatch.setattr(isa, "l3_bytes", lambda: 16 << 20)
    monkeypatch.setattr(kept_memory, "machine_share", lambda: 6 << 30)
    prefix = "unet." if "unet.patch.0.weight" in shapes else ""
    model = parse_named(weight_files.safetensors(filled(shapes, prefix=prefix)), "m.safetensors")
    work = strips_work(packed(model, workers), *size, cores=2)
    assert work.blocks == 1
    assert 1 < work.share <= most
    assert work.kept_bytes <= kept_memory.MOST_BYTES_OF_ATTENTION
