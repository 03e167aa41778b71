"""Products in 16-bit integers on the `cpu` backend: what the contract suite does not see."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.graphs import fit_padding
from waifu2x.backends import open_backend
from waifu2x.backends.accuracy import drawing
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.pack import weights
from waifu2x.backends.cpu.pack.packer import with_picture
from waifu2x.backends.cpu.pack.shapes import LANES, MOST_INPUT, PART_PAIRS
from waifu2x.errors import BackendError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.conv import Conv
from waifu2x.networks import model_set
from waifu2x.networks.activations import leaky
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Mean,
    Multiply,
    PixelShuffle,
    TransposedConvolution,
)

integers = pytest.mark.skipif(not isa.VECTOR.integers, reason="this processor has none")


@pytest.mark.parametrize("depth", [16, 64, 80, 272])
def test_no_sum_of_a_part_leaves_32_bits(depth: int) -> None:
    rng = np.random.default_rng(depth)
    exact = rng.normal(size=(depth, 512)) * np.exp(3 * rng.normal(size=(depth, 512)))
    exact[:, 0] = 0.25  # all alike: the sum decides, not the largest
    exact[:, 1] = 0
    rounded, scales = weights.round_integers(exact)
    for first in range(0, depth, 2 * PART_PAIRS):
        part = abs(rounded[first : first + 2 * PART_PAIRS].astype(np.int64))
        assert (part.sum(axis=0) * MOST_INPUT).max() < 2**31
    error = abs(rounded * scales.astype(np.float64) - exact)
    assert (error <= 0.505 * scales).all()
    assert abs(rounded[:, 0]).min() > 1000  # and no bit is given away


@integers
def test_weights_are_packed_as_inputs_are() -> None:
    """Pairs of planes of two vectors; a last vector that is left over makes pairs of its own."""
    weight = np.zeros((LANES, 48, 3, 3), np.float32)
    weight[0, :, 2, 2] = np.arange(48) + 1  # all of it in the last frequency
    packed = weights.pack_integers(weight, LANES)
    pairs = packed[-24 * LANES :].view(np.int16).reshape(24, LANES, 2)[:, 0].ravel()
    order = np.argsort(np.argsort(pairs)).tolist()
    if LANES == 8:
        expected = [
            2 * block + lane + 8 * n for block in (0, 8, 16) for lane in range(8) for n in range(2)
        ]
    else:
        expected = [lane + 16 * n for lane in range(16) for n in range(2)] + list(range(32, 48))
    assert order == expected


@integers
@pytest.mark.parametrize("level", [0, 77, 255])
def test_flat_pictures_are_as_exact_as_in_floats(level: int) -> None:
    """The cells of a flat area lose nothing to rounding, so it stays flat and right."""
    models = model_set.find("vgg_7/art").models(2, None)
    pixels = np.full((13, 17, 3), level, np.uint8)
    backend = open_backend("cpu")
    result = backend.compile(models, "int16").run(Call(pixels, np.float32))
    backend.close()
    assert obvious.psnr(result, obvious.run(models, pixels)) >= 110


@integers
def test_rows_outside_one_part_of_a_map_leave_the_others_alone() -> None:
    """A map of three parts that is zero outside: its writers are up to a ring of rows apart."""
    rng = np.random.default_rng(2)

    def convolution(source: int, read: int, made: int, side: int, **rest: int) -> Convolution:
        weight = rng.normal(size=(made, read, side, side)) / side / np.sqrt(read)
        return Convolution(
            source, weight.astype(np.float32), np.zeros(made, np.float32), leaky(1, made), **rest
        )

    nodes = (
        convolution(0, 1, 1, 3),
        convolution(1, 1, 1, 3, padding=1),
        Concatenate((1, 2)),
        convolution(3, 2, 1, 3, padding=1),
        Concatenate((1, 2, 4)),
        convolution(5, 3, 1, 4, stride=2, padding=1),
        convolution(6, 1, 4, 3),
        PixelShuffle(7, 2),
        convolution(8, 1, 1, 3),
    )
    model = fit_padding("parts", 1, nodes, "replicate")
    pixels = rng.integers(0, 256, (6, 1, 1), np.uint8)
    backend = open_backend("cpu")
    result = backend.compile([model], "int16").run(Call(pixels, np.float32))
    backend.close()
    expected = obvious.run([model], pixels)
    assert ((expected > 0) & (expected < 1)).mean() > 0.4  # or the test would show little
    assert obvious.psnr(result, expected) >= 60


@integers
def test_kept_maps_take_half_the_memory() -> None:
    """Folded, of a last part that is short, and as an addition to what follows a mean."""
    rng = np.random.default_rng(5)

    def weight(made: int, read: int, side: int) -> NDArray[np.float32]:
        values = rng.normal(size=(made, read, side, side)) / side / np.sqrt(read)
        return np.asarray(values, np.float32)

    def nothing(planes: int) -> NDArray[np.float32]:
        return np.zeros(planes, np.float32)

    nodes = (
        Convolution(0, weight(80, 3, 1), nothing(80), leaky(0.1, 80)),
        Convolution(1, weight(80, 80, 2), nothing(80), leaky(0.1, 80), stride=2),
        Mean(2),
        Dense(3, weight(80, 80, 1)[:, :, 0, 0], nothing(80) + 1, leaky(1, 80)),
        Multiply(2, 4),
        TransposedConvolution(5, weight(80, 80, 2), nothing(80), leaky(0.1, 80), 2, 0),
        Add(6, 1),
        Convolution(7, weight(3, 80, 1) / np.float32(4), np.full(3, 0.5, np.float32), leaky(1, 3)),
    )
    model = fit_padding("kept", 3, nodes, "replicate")
    pixels = rng.uniform(0, 1, (26, 44, 3)).astype(np.float32)
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([model], "int16")
        (stage,) = network.models  # type: ignore[attr-defined]
        kept = [value for strips in stage.plan(26, 44).phases for value in strips.phase.kept]
        assert len(kept) == 2
        maps = stage.packed.maps
        for value in kept:
            floats = maps.layouts[value].pixel_floats
            assert floats / 2 < maps.kept_floats(value) <= floats / 2 + floats / 40
        result = network.run(Call(pixels, np.float32))
        np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=13)), result)
    expected = obvious.run([model], pixels)
    assert ((expected > 0) & (expected < 1)).mean() > 0.4  # or the test would show little
    assert obvious.psnr(result, expected) >= 60


@pytest.mark.parametrize("border", ["replicate", "zero"])
def test_the_picture_is_added_without_a_copy(border: Literal["replicate", "zero"]) -> None:
    """Enlarged, and cropped on both sides of the enlargement."""
    rng = np.random.default_rng(6)

    def convolution(source: int, read: int, made: int) -> Convolution:
        weight = rng.normal(size=(made, read, 3, 3)) / 9
        bias = np.zeros(made, np.float32)
        return Convolution(source, weight.astype(np.float32), bias, leaky(0.1, made))

    nodes = (
        convolution(0, 3, 16),
        convolution(1, 16, 12),
        PixelShuffle(2, 2),
        Crop(3, 2),
        Crop(0, 1),
        Enlarge(5, 2),
        Crop(6, 4),
        Add(4, 7),
    )
    model = fit_padding("added", 3, nodes, border)
    pixels = rng.integers(0, 200, (9, 14, 3), np.uint8)
    lowered, changed = lower(model), with_picture(lower(model))
    assert len(changed.steps) == len(lowered.steps) - 1
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([model], "fp32")
        result = network.run(Call(pixels, np.float32))
        np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=7)), result)
    assert obvious.psnr(result, obvious.run([model], pixels)) >= 100


@integers
def test_1x1_products_of_every_form() -> None:
    """Plain, at a stride, and transposed with an addition; one part, several, and a short last
    one; rows that no tile divides. Any tile gives the same bits."""
    rng = np.random.default_rng(4)

    def weight(made: int, read: int, side: int) -> NDArray[np.float32]:
        values = rng.normal(size=(made, read, side, side)) / side / np.sqrt(read)
        return np.asarray(values, np.float32)

    def bias(planes: int, level: float = 0) -> NDArray[np.float32]:
        return np.asarray(rng.normal(size=planes) / 10 + level, np.float32)

    nodes = (
        Convolution(0, weight(48, 3, 3), bias(48), leaky(0.1, 48)),
        Convolution(1, weight(80, 48, 1), bias(80), leaky(0.1, 80)),
        Convolution(2, weight(144, 80, 2), bias(144), leaky(0.1, 144), stride=2),
        TransposedConvolution(3, weight(80, 144, 2), bias(80), leaky(0.1, 80), 2, 0),
        Add(4, 2),
        Convolution(5, weight(3, 80, 3), bias(3, 0.5), leaky(1, 3)),
    )
    model = fit_padding("points", 3, nodes, "replicate")
    pixels = rng.integers(0, 256, (27, 45, 3), np.uint8)
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([model], "int16")
        (packed,) = (stage.packed for stage in network.models)  # type: ignore[attr-defined]
        steps = enumerate(packed.program.steps)
        points = {n for n, step in steps if isinstance(step, Conv) and step.taps == 1}
        assert len(points) == 3
        assert points <= packed.in_integers
        result = network.run(Call(pixels, np.float32))
        np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=13)), result)
    expected = obvious.run([model], pixels)
    assert ((expected > 0) & (expected < 1)).mean() > 0.4  # or the test would show little
    assert obvious.psnr(result, expected) >= 60


def test_a_processor_without_them_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "VECTOR", isa._UNITS["portable"])
    backend = open_backend("cpu")
    with pytest.raises(BackendError, match="no precision int16 on this processor; use auto or fp"):
        backend.compile(model_set.find("vgg_7/art").models(2, None), "int16")
    backend.close()


_RUN = """
import sys
sys.path.insert(0, {root!r})
import {first}
import numpy as np
from tests.backends.test_integers import sample
np.save({path!r}, sample())
"""


def sample() -> NDArray[Any]:
    """Results that show any difference: all kinds of products, edges, several rows of cells."""
    backend = open_backend("cpu")
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (23, 37, 3), np.uint8)
    model = obvious.random_model([3, 32, 80, 24, 3], seed=3, scale=2)
    results = [backend.compile([model], "int16").run(Call(pixels, np.float32))]
    for name in ("upconv_7/art", "cunet/art"):
        found = model_set.find(name).models(2, None)
        results.append(backend.compile(found, "int16").run(Call(pixels, np.float32)))
    backend.close()
    return np.stack(results)


@integers
@pytest.mark.matrix
def test_the_same_bits_on_every_instruction_set(tmp_path: Path) -> None:
    """This processor's against those of vectors of 16 lanes, emulated where there are none."""
    path = tmp_path / "other.npy"
    first = "tests.helpers.emulated_tiles"
    if "avx512" in isa.available_isas():
        first = "os; os.environ['WAIFU2X_CPU_ISA'] = 'avx2' if {} == 16 else 'avx512'"
        first = first.format(LANES)
    code = _RUN.format(root=str(Path(__file__).parents[2]), first=first, path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    np.testing.assert_array_equal(np.load(path), sample())


@integers
def test_auto_leaves_integers_where_a_network_multiplies_what_rounding_leaves(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    model = obvious.random_model([3, 32, 32, 3], seed=20)
    first, middle, last = model.nodes
    assert isinstance(middle, Convolution)
    assert isinstance(last, Convolution)
    # The small difference of two halves of the planes, times twenty.
    rng = np.random.default_rng(20)
    alike = middle.weight[:16] + 0.05 * middle.weight[:16] * rng.normal(size=(16, 32, 3, 3))
    halves = np.concatenate([middle.weight[:16], alike.astype(np.float32)])
    bias = np.concatenate([middle.bias[:16], middle.bias[:16]])
    apart = 20 * np.concatenate([last.weight[:, :16], -last.weight[:, :16]], axis=1)
    nodes = (first, replace(middle, weight=halves, bias=bias), replace(last, weight=apart))
    steep = replace(model, name="steep\x1b[2J", nodes=nodes)
    pixels = drawing(3)[:41, :57].copy()
    expected = obvious.run([steep], pixels)
    with closing(open_backend("cpu")) as backend:
        assert (
            obvious.psnr(backend.compile([steep], "int16").run(Call(pixels, np.float32)), expected)
            < 60
        )
        for _ in range(2):  # found, then kept
            result = backend.compile([steep], "auto").run(Call(pixels, np.float32))
            assert obvious.psnr(result, expected) > 100
        found = backend.compile([model], "auto").run(Call(pixels, np.float32))
        in_integers = backend.compile([model], "int16").run(Call(pixels, np.float32))
        if isa.VECTOR.tiles:  # in a degree of bf16 that has no name
            assert 60 < obvious.psnr(found, obvious.run([model], pixels)) < 80
            assert not np.array_equal(found, in_integers)
        else:
            np.testing.assert_array_equal(found, in_integers)
    said = [record.getMessage() for record in caplog.records]
    modes = "bf16 and int16 are" if isa.VECTOR.tiles else "int16 is"
    assert said == [rf"steep\x1b[2J: {modes} too coarse, using fp32 (slower)"] * 2
