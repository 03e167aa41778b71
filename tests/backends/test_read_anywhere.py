"""Steps that may read a map anywhere, pixels interleaved and samples at computed places, on every
backend, against the definition."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_backends import PROMISED_DB, in_every_mode, picture, run
from tests.helpers import obvious
from tests.helpers.graphs import RandomGraph, sampled_head
from tests.helpers.verify import verify, verify_phases
from tests.networks.test_families import CHECKS, loaded, within_zero_and_one
from waifu2x.backends import Backend, Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.lowering.lower import lower
from waifu2x.lowering.passes.segments import segmented
from waifu2x.lowering.plan import phases
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import GridSample, Interleave
from waifu2x.networks.windows import Windows


def grid_attention(parts: int) -> Model:
    """Attention in windows of pixels that are spread over the whole picture, as OmniSR has it,
    between means."""
    net = RandomGraph(3, parts)
    value = first = net.random_convolution(0, 20, 3, 1, 1, "leaky")
    for _ in range(2):
        inner = net.append(Interleave(net.random_norm(value), parts))
        inner = net.random_attention(inner, Windows(parts, parts), 2, 5)
        inner = net.random_convolution(inner, 20, 1, 1, 0, "linear")
        value = net.add(net.append(Interleave(inner, parts, inverse=True)), value)
        value = net.squeeze(net.random_convolution(value, 20, 3, 1, 1, "gelu"))
    net.random_convolution(net.add(value, first), 3, 3, 1, 1, "linear")
    return net.model(multiple=parts)


def places_of_all_kinds() -> Model:
    """Places of the picture; of parts of concatenations, some finished in a later
    phase; of maps of few planes; one behind the other; at half the resolution; the last node."""
    net = RandomGraph(3, 9)
    first = net.random_convolution(net.append(Interleave(0, 2)), 16, 3, 1, 1, "relu")
    turned = net.append(Interleave(first, 3, inverse=True))
    both = net.concatenate(turned, first, net.append(Interleave(turned, 3)))
    halved = net.random_convolution(both, 8, 2, 2, 0, "linear")
    halved = net.squeeze(
        net.append(Interleave(net.concatenate(halved, net.append(Interleave(halved, 3))), 3))
    )
    value = net.random_transposed(halved, 16, 2, 2, 0, "linear")
    late = net.concatenate(turned, net.append(Interleave(net.add(value, turned), 2)))
    value = net.random_convolution(late, 3, 3, 1, 1, "linear")
    net.append(Interleave(value, 2, inverse=True))
    return net.model(multiple=6)


def samples_of_all_kinds() -> Model:
    """The picture sampled, and a map by itself; from and into concatenations, behind valid
    convolutions, before strided ones, at half the resolution, between means, one behind the other,
    the last node."""
    net = RandomGraph(3, 7)
    first = net.random_samples(net.random_convolution(0, 20, 3, 1, 0, "relu"), 1, 5, 3.0)
    moves = net.concatenate(first, net.random_convolution(first, 12, 1, 1, 0, "tanh"))
    again = net.append(GridSample(net.slice(moves, 16, 16), net.slice(moves, 0, 4), 1, 2))
    both = net.concatenate(
        first, again, net.append(GridSample(again, net.slice(again, 4, 8), 2, 1))
    )
    halved = net.random_convolution(both, 8, 2, 2, 0, "linear")
    halved = net.squeeze(net.append(GridSample(halved, halved, 2, 1)))
    value = net.random_transposed(halved, 16, 2, 2, 0, "linear")
    value = net.squeeze(net.random_samples(net.concatenate(value, again), 2, 4))
    value = net.random_convolution(value, 6, 3, 1, 1, "linear")
    few = net.append(GridSample(net.crop(0, 1), net.slice(value, 0, 2), 1, 1))
    net.append(GridSample(net.add(few, net.slice(value, 3, 3)), net.slice(value, 1, 2), 1, 1))
    return net.model()


MODELS = {
    "grid 4": lambda: grid_attention(4),
    "grid 7": lambda: grid_attention(7),
    "places of all kinds": places_of_all_kinds,
    "samples, 2x": lambda: sampled_head(2, 4),
    "samples, 3x": lambda: sampled_head(3, 3, planes=27),
    "samples, 4x": lambda: sampled_head(4, 4),
    "samples, 1x, far": lambda: sampled_head(1, 4, far=1e6, planes=20),
    "samples, 2x, far": lambda: sampled_head(2, 4, far=1e6, planes=20),
    "samples of all kinds": samples_of_all_kinds,
}
ONE_OF_EACH = ["grid 4", "samples, 2x"]
SIZES = [pytest.param((29, 53), marks=pytest.mark.matrix), (8, 24), (1, 1)]


@functools.cache
def known(name: str, size: tuple[int, int]) -> tuple[Model, NDArray[np.float64]]:
    """A network, and what it makes of a picture by definition: the same for all backends."""
    model = MODELS[name]()
    return model, obvious.run([model], picture(*size, 3))


@in_every_mode
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_whole_pictures_and_tiles(
    backend: Backend, precision: Precision, name: str, size: tuple[int, int]
) -> None:
    model, expected = known(name, size)
    whole = run(backend, [model], picture(*size, 3), precision=precision)
    assert obvious.psnr(whole, expected) >= PROMISED_DB[precision]
    tiled = run(backend, [model], picture(*size, 3), tile=9, precision=precision)
    np.testing.assert_array_equal(tiled, whole)


@pytest.mark.matrix
def test_omnisr(backend: Backend) -> None:
    """A network of the field, at an odd size."""
    model = within_zero_and_one(loaded(CHECKS["omnisr"].tensors()))
    pixels = picture(19, 29, 3)
    expected = obvious.run([model], pixels)
    precisions: tuple[Precision, ...] = "fp32", "auto"
    for precision in precisions:
        whole = run(backend, [model], pixels, precision=precision)
        assert obvious.psnr(whole, expected) >= PROMISED_DB[precision]
        tiled = run(backend, [model], pixels, tile=16, precision=precision)
        np.testing.assert_array_equal(tiled, whole)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_stacks(backend: Backend, name: str) -> None:
    model, _ = known(name, (29, 53))
    pixels = np.stack([picture(29, 53, 3), picture(29, 53, 3)[::-1]])
    stacked = run(backend, [model], pixels)
    np.testing.assert_array_equal(stacked[1], run(backend, [model], np.array(pixels[1])))


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_cores_change_no_bit(monkeypatch: pytest.MonkeyPatch, name: str, cores: int) -> None:
    from waifu2x.backends.cpu import backend

    model, _ = known(name, (29, 53))
    pixels = picture(90, 70, 3)
    expected = run(open_backend("cpu"), [model], pixels)
    monkeypatch.setattr(backend, "core_count", lambda: cores)
    np.testing.assert_array_equal(run(open_backend("cpu"), [model], pixels), expected)


@pytest.mark.parametrize("budget", [0.0, 30.0, 60.0, float("inf")])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_whole_is_kept_however_little_memory_there_is(
    name: str, budget: float
) -> None:
    """Sizes are planes here."""
    program = segmented(lower(MODELS[name]()))
    verify(program)
    for keeping in (None, lambda value: 100.0):
        plan = phases.plan(
            program, lambda step: 1.0, lambda value: program.values[value].planes, budget, keeping
        )
        verify_phases(program, plan)


@pytest.mark.parametrize("name", ["places of all kinds", "samples of all kinds"])
def test_numpy_with_little_memory_makes_the_same(name: str) -> None:
    model, expected = known(name, (29, 53))
    network = open_backend("numpy").compile([model], "fp32")
    network.kept_bytes = 0  # type: ignore[attr-defined]
    made = network.run(Call(picture(29, 53, 3), np.float32))
    assert obvious.psnr(made, expected) >= PROMISED_DB["fp32"]
