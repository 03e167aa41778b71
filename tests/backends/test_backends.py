"""The contract: what every backend must compute, against the definition in `obvious`."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from tests.conftest import EXAMPLES, IN_MATRIX, PRESENT, need
from tests.helpers import obvious
from tests.helpers.cases import thinned
from tests.helpers.graphs import (
    every_operation,
    grouped_convolutions,
    halving_model,
    kernels_of_many_taps,
    multiplied_maps,
    norms,
    norms_of_groups,
    random_graphs,
    reduced_maps,
    residual_in_residual,
    sliced_maps,
)
from tests.helpers.operations import OPERATIONS
from waifu2x.backends import BACKEND_NAMES, Backend, Network, Precision, open_backend
from waifu2x.backends.accuracy import drawing
from waifu2x.backends.call import Call, result_shape
from waifu2x.errors import BackendError, UnavailableError
from waifu2x.imaging.dtypes import from_unit
from waifu2x.lowering.plan.box import Box
from waifu2x.networks import catalogue, model_set
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import ACTIVATIONS, LEAKY, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution, GroupNorm, PixelShuffle, PixelUnshuffle

PROMISED_DB = {"fp32": 100.0, "fp16": 65.0, "bf16": 60.0, "int16": 60.0, "auto": 60.0}
"""On the shipped models, and as it turns out on random ones too."""
FP32_DB = PROMISED_DB["fp32"]
RANDOM_GRAPH_DB = {"fp32": 100.0, "fp16": 50.0, "bf16": 50.0, "int16": 50.0}
"""Least PSNR of random graphs: slopes above 1 amplify errors of rounding to 16 bits, and a picture
of one pixel has no mean over many errors. A wrong tap, plane or place leaves less than 30 dB."""

NETWORKS = {
    "vgg_7": [3, 32, 32, 64, 64, 128, 128, 3],
    "one plane": [1, 32, 64, 1],
    "one layer": [3, 3],
    "two layers": [3, 16, 3],
    "odd planes": [3, 5, 7, 20, 9, 3],
    "many planes at the ends": [24, 40, 24],
    "wide": [3, 200, 144, 3],
}

TWO_LAYERS = obvious.random_model([3, 16, 3], seed=2)
THREE_LAYERS = {
    scale: obvious.random_model([3, 16, 32, 3], seed=1, scale=scale) for scale in (1, 2)
}

NETWORKS_OF_THE_FIELD = [
    ("upconv_7/art", 2, None),
    ("upconv_7/photo", 2, 1),
    ("cunet/art", 2, None),
    ("cunet/art", 1, 3),
    # With the extras that bring them.
    ("cugan/se", 3, None),
    ("realesrgan/animevideo", 2, None),
]


def processor_modes() -> list[Precision]:
    """`fp32`, and what `auto` begins with."""
    if "cpu" not in PRESENT:
        return []
    from waifu2x.backends.cpu.arithmetic import arithmetics

    return list(dict.fromkeys(("fp32", arithmetics()[0])))


ALWAYS = [name for name in PRESENT if name not in IN_MATRIX]
MODES: list[tuple[str, Precision]] = [
    ("cuda", "fp32"),
    ("cuda", "fp16"),
    ("opencl", "fp32"),
    ("vulkan", "fp32"),
    *(("cpu", mode) for mode in processor_modes()),
    ("numpy", "fp32"),
]


def in_modes(
    modes: Iterable[tuple[str, Precision]], in_matrix: Collection[str] = IN_MATRIX
) -> pytest.MarkDecorator:
    """Runs a test in those of some modes that this machine has, in the matrix those of some
    backends."""
    here = [
        pytest.param(*mode, marks=pytest.mark.matrix if mode[0] in in_matrix else ())
        for mode in modes
        if mode[0] in PRESENT
    ]
    return pytest.mark.parametrize(("backend", "precision"), here, indirect=["backend"])


in_every_mode = in_modes(MODES)
"""Runs a test in all modes that differ: elsewhere `auto` is a name of one of these."""

in_every_mode_always = in_modes(MODES, in_matrix=())
"""The same, outside of the matrix too: the tests that tell most."""

in_every_kind = in_modes(MODES, in_matrix={"opencl", *IN_MATRIX})
"""The same, where a network has programs of its own for most steps: OpenCL, whose driver takes a
sixth of a second for each, in the matrix."""

slow_fixture = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def picture(height: int, width: int, planes: int, dtype: type = np.uint8) -> NDArray[Any]:
    """Random pixels, the same for the same arguments."""
    rng = np.random.default_rng(height * 1000 + width)
    if dtype is np.float32:
        return rng.random((height, width, planes), np.float32)
    return rng.integers(0, np.iinfo(dtype).max, (height, width, planes), dtype, endpoint=True)


@functools.cache
def crop(name: str, box: Box) -> NDArray[np.uint8]:
    """Part of an example, RGB."""
    pixels = np.asarray(Image.open(EXAMPLES / name).convert("RGB"))
    return np.ascontiguousarray(pixels[box.top : box.bottom, box.left : box.right])


@functools.cache
def definition(
    name: str, scale: int, noise: int | None, example: str, box: Box
) -> NDArray[np.float64]:
    """The result of a model set for part of an example by definition, the same for all backends."""
    return obvious.run(shipped(name, scale, noise), crop(example, box))


@functools.lru_cache(16)
def compiled(backend: Backend, models: tuple[Model, ...], precision: Precision) -> Network:
    """A network, compiled once for tests that run it on several pictures or in several tiles."""
    return backend.compile(models, precision)


@functools.cache
def shipped(name: str, scale: int, noise: int | None) -> list[Model]:
    """Models of a set, read once."""
    return model_set.find(name).models(scale, noise)


def run(
    backend: Backend,
    models: list[Model],
    pixels: NDArray[Any],
    out_dtype: type = np.float32,
    tile: int | None = None,
    precision: Precision = "fp32",
    tta: int = 1,
) -> NDArray[Any]:
    """Whole pictures. A precision that the backend lacks skips the test."""
    hashed: Any = backend
    try:
        network = compiled(hashed, tuple(models), precision)
    except BackendError as error:
        assert precision == "fp16"
        pytest.skip(str(error))
    scale = int(np.prod([model.scale for model in models]))
    result = network.run(Call(pixels, out_dtype, tile=tile, tta=tta))
    height, width = (size * scale for size in pixels.shape[-3:-1])
    planes = 1 if pixels.shape[-1] < models[0].in_planes else models[-1].out_planes
    assert result.shape == (*pixels.shape[:-3], height, width, planes)
    assert result.dtype == out_dtype
    return result


@pytest.mark.parametrize("name", BACKEND_NAMES)
def test_backend_is_here(name: str) -> None:
    """One that this machine lacks is skipped in all tests, unless it is required."""
    need(name)


@in_every_mode
@pytest.mark.parametrize(("name", "scale"), thinned(tuple(NETWORKS), (1, 2, 3)))
def test_network_equals_its_definition(
    backend: Backend, name: str, scale: int, precision: Precision
) -> None:
    planes = NETWORKS[name]
    model = obvious.random_model(planes, seed=len(planes), scale=scale)
    pixels = picture(19, 23, planes[0])
    result = run(backend, [model], pixels, precision=precision)
    assert obvious.psnr(result, obvious.run([model], pixels)) >= PROMISED_DB[precision]


@in_every_mode
@slow_fixture
@given(height=st.integers(1, 200), width=st.integers(1, 200), scale=st.sampled_from([1, 2]))
def test_any_size(
    backend: Backend, height: int, width: int, scale: int, precision: Precision
) -> None:
    model = THREE_LAYERS[scale]
    pixels = picture(height, width, 3)
    result = run(backend, [model], pixels, precision=precision)
    assert obvious.psnr(result, obvious.run([model], pixels)) >= PROMISED_DB[precision]


@in_every_mode_always
@slow_fixture
@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    tile=st.integers(1, 80),
    doublings=st.integers(0, 2),
)
def test_tiles_equal_the_whole_to_the_bit(
    backend: Backend, height: int, width: int, tile: int, doublings: int, precision: Precision
) -> None:
    models = [TWO_LAYERS] + [THREE_LAYERS[2]] * doublings
    pixels = picture(height, width, 3)
    tile = max(tile, 8)  # smaller ones say no more and take long
    whole = run(backend, models, pixels, precision=precision)
    tiled = run(backend, models, pixels, tile=tile, precision=precision)
    np.testing.assert_array_equal(tiled, whole)


def graphs(
    examples: int, modes: Iterable[tuple[str, Precision]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of `examples` random graphs on pictures and tiles of any size."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(
            model=random_graphs(),
            height=st.integers(1, 40),
            width=st.integers(1, 40),
            tile=st.integers(8, 60),
        )(test)
        chosen = settings(
            deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck)
        )
        made: Callable[..., None] = in_modes(modes)(chosen(drawn))
        return made

    return decorate


def check_graph(
    backend: Backend, model: Model, height: int, width: int, tile: int, precision: Precision
) -> None:
    """Against its definition, and in tiles."""
    pixels = picture(height, width, model.in_planes)
    expected = obvious.run([model], pixels)
    whole = run(backend, [model], pixels, precision=precision)
    assert obvious.psnr(whole, expected) >= RANDOM_GRAPH_DB[precision]
    tiled = run(backend, [model], pixels, tile=tile, precision=precision)
    np.testing.assert_array_equal(tiled, whole)


@graphs(8, [mode for mode in MODES if mode[0] != "opencl"])
def test_any_graph_in_any_tiles(
    backend: Backend, model: Model, height: int, width: int, tile: int, precision: Precision
) -> None:
    check_graph(backend, model, height, width, tile, precision)


@graphs(2, [("opencl", "fp32")])
def test_some_graphs_in_any_tiles(
    backend: Backend, model: Model, height: int, width: int, tile: int, precision: Precision
) -> None:
    """Two, for a driver that compiles a dozen programs for each, a sixth of a second long."""
    check_graph(backend, model, height, width, tile, precision)


def test_a_result_that_is_unshuffled(backend: Backend) -> None:
    rng = np.random.default_rng(5)

    def convolution(source: int, planes: tuple[int, int]) -> Convolution:
        weight = rng.normal(0, 0.4, (*planes, 3, 3)).astype(np.float32)
        bias = rng.normal(0, 0.1, planes[0]).astype(np.float32)
        slopes = np.full(planes[0], 0.5, np.float32)
        return Convolution(source, weight, bias, Activation(LEAKY, slopes))

    nodes = (
        convolution(0, (4, 1)),
        PixelShuffle(1, 2),
        convolution(2, (1, 1)),
        convolution(3, (1, 1)),
        PixelUnshuffle(4, 2),
    )
    model = Model("unshuffled", 1, nodes, padding=2)
    check_graph(backend, model, 13, 21, 8, "fp32")


def activated(function: Expression) -> Model:
    """A network with a function behind convolutions of each kind, and of a vector."""
    rng = np.random.default_rng(8)
    net = GraphBuilder("activated", 3)

    def arrays(*shape: int, spread: float = 1.5) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        weight = rng.normal(size=shape) * np.sqrt(spread / np.prod(shape[1:]))
        return weight.astype(np.float32), (rng.normal(size=shape[0]) * 0.1).astype(np.float32)

    def activation(planes: int) -> Activation:
        return Activation(function, rng.uniform(-1.3, 1.6, planes).astype(np.float32))

    # Sums far from 0 on both sides.
    value = net.convolution(0, *arrays(32, 3, 3, 3, spread=90), activation(32))
    value = net.convolution(value, *arrays(32, 32, 3, 3, spread=2), activation(32))
    factors = net.dense(net.mean(value), *arrays(32, 32), activation(32))
    value = net.multiply(value, factors)
    value = net.add(net.convolution(value, *arrays(32, 32, 1, 1), activation(32)), value)
    value = net.transposed(value, *arrays(5, 32, 2, 2), activation(5), stride=2)
    weight, bias = arrays(3, 5, 3, 3, spread=0.005)
    net.convolution(value, weight, bias + np.float32(0.5), leaky(1.0, 3), padding=1)
    return net.model()


@in_every_kind
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_activation(backend: Backend, name: str, precision: Precision) -> None:
    check_graph(backend, activated(ACTIVATIONS[name]), 21, 34, 16, precision)


COMBINED = [
    norms_of_groups,
    norms,
    multiplied_maps,
    sliced_maps,
    kernels_of_many_taps,
    grouped_convolutions,
    reduced_maps,
]


@in_every_mode
@pytest.mark.parametrize("size", [0.003, 250.0, 3000.0])
def test_means_of_values_of_any_size(backend: Backend, size: float, precision: Precision) -> None:
    """Some networks take pictures from 0 to 255; a norm divides by means of squares of anything."""
    net = GraphBuilder("values of any size", 3)
    rng = np.random.default_rng(5)

    def kernel(made: int, read: int, taps: int, gain: float) -> NDArray[np.float32]:
        return (rng.standard_normal((made, read, taps, taps)) * gain).astype(np.float32)

    zeros, ones = np.zeros(20, np.float32), np.ones(20, np.float32)
    value = net.convolution(0, kernel(20, 3, 3, size / 3), zeros, padding=1)
    factors = net.dense(net.mean(value), np.eye(20, dtype=np.float32) / np.float32(size), ones)
    value = net.append(GroupNorm(net.multiply(value, factors), ones, zeros, 5, 1e-8))
    net.convolution(value, kernel(3, 20, 3, 0.02), np.full(3, 0.5, np.float32), padding=1)
    model, pixels = net.model(), picture(21, 34, 3)
    result = run(backend, [model], pixels, precision=precision)
    assert obvious.psnr(result, obvious.run([model], pixels)) >= RANDOM_GRAPH_DB.get(precision, 50)


@pytest.mark.parametrize(
    ("name", "backend", "precision"),
    [
        pytest.param(*param.values[:1], *param.values[1], marks=param.marks)
        for param in thinned(tuple(OPERATIONS), tuple(m for m in MODES if m[0] in ALWAYS))
    ]
    + [
        pytest.param(name, backend, "fp32", marks=pytest.mark.matrix)
        for name in OPERATIONS
        for backend in IN_MATRIX.intersection(PRESENT)
    ],
    indirect=["backend"],
)
def test_each_operation(backend: Backend, name: str, precision: Precision) -> None:
    """Alone, so that a failure names it; `benchmarks/operations.py` makes a table of these."""
    check_graph(backend, OPERATIONS[name](), 37, 42, 16, precision)


@in_every_kind
@pytest.mark.parametrize("make", COMBINED)
def test_operations_together(
    backend: Backend, make: Callable[[], Model], precision: Precision
) -> None:
    model = make()
    for height, width, tile in ((37, 42, 16), (2, 3, 8)):
        check_graph(backend, model, height, width, tile, precision)


@in_every_kind
def test_maps_of_several_parts_of_few_planes(backend: Backend, precision: Precision) -> None:
    """Four planes fill a vector of four lanes: nothing pads the parts then."""
    check_graph(backend, residual_in_residual(1), 21, 34, 16, precision)


@in_every_mode_always
def test_every_operation_and_activation(backend: Backend, precision: Precision) -> None:
    model = every_operation()
    for height, width, tile in ((37, 42, 16), (2, 3, 8)):
        check_graph(backend, model, height, width, tile, precision)


@pytest.mark.matrix
@graphs(40, [mode for mode in MODES if mode[0] not in IN_MATRIX])
def test_many_graphs_in_any_tiles(
    backend: Backend, model: Model, height: int, width: int, tile: int, precision: Precision
) -> None:
    check_graph(backend, model, height, width, tile, precision)


@in_every_mode
@pytest.mark.parametrize(
    ("entry", "shape"), thinned(NETWORKS_OF_THE_FIELD, ((70, 33), (1, 1), (41, 47)))
)
def test_networks_of_the_field(
    backend: Backend,
    entry: tuple[str, int, int | None],
    shape: tuple[int, int],
    precision: Precision,
) -> None:
    name, scale, noise = entry
    known = catalogue.entry(name)
    if known is None or known.folder is None:
        pytest.skip(f"not installed: {name}")
    models = shipped(name, scale, noise)
    box = Box(30, 40, *shape)
    pixels = crop("photo.jpg", box)
    whole = run(backend, models, pixels, precision=precision)
    expected = definition(name, scale, noise, "photo.jpg", box)
    assert obvious.psnr(whole, expected) >= PROMISED_DB[precision]
    stacked = run(backend, models, np.stack([pixels, pixels[::-1]]), tile=40, precision=precision)
    np.testing.assert_array_equal(stacked[0], whole)


@pytest.mark.parametrize(
    ("name", "tile"), thinned(("vgg_7/art", "cunet/art", "upconv_7/art"), (16, 37, 128))
)
def test_shipped_model_in_tiles_equals_the_whole_to_the_bit(
    backend: Backend, drawn: NDArray[np.uint8], name: str, tile: int
) -> None:
    models = shipped(name, 2, 1)
    pixels = np.ascontiguousarray(drawn[30:81, 40:107])
    whole = run(backend, models, pixels, np.uint8, precision="auto")
    tiled = run(backend, models, pixels, np.uint8, tile, "auto")
    np.testing.assert_array_equal(tiled, whole)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 50), (50, 1), (2, 3)])
def test_tiny_pictures(backend: Backend, height: int, width: int) -> None:
    models = shipped("vgg_7/art", 2, 0)
    pixels = picture(height, width, 3)
    result = run(backend, models, pixels)
    assert obvious.psnr(result, obvious.run(models, pixels)) >= FP32_DB


@pytest.mark.parametrize("in_dtype", [np.uint8, np.uint16, np.float32])
def test_pixels_of_every_dtype_mean_the_same(backend: Backend, in_dtype: type) -> None:
    model = obvious.random_model([3, 16, 3], seed=4, scale=2)
    pixels = picture(21, 17, 3, in_dtype)
    expected = obvious.run([model], pixels)
    assert obvious.psnr(run(backend, [model], pixels), expected) >= FP32_DB
    for out_dtype in (np.uint8, np.uint16):
        levels = obvious.to_levels(expected, out_dtype).astype(int)
        result = run(backend, [model], pixels, out_dtype).astype(int)
        # One level where float32 falls on the other side of a half.
        assert abs(result - levels).max() <= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("shape", [(19, 23), (3, 30, 17)])
def test_grey_is_read_three_times_and_becomes_luma(
    backend: Backend, shape: tuple[int, ...], dtype: type
) -> None:
    models = [TWO_LAYERS, obvious.random_model([3, 16, 3], 3, scale=2)]
    levels = np.random.default_rng(1).integers(0, 256, (*shape, 1), np.uint8)
    peak = 1.0 if dtype is np.float32 else float(np.iinfo(dtype).max)
    values = levels / 255 * peak
    pixels: NDArray[Any] = (np.round(values) if peak > 1 else values).astype(dtype)
    result = run(backend, models, pixels, dtype)
    height, width = shape[-2:]
    assert result.shape == (*shape[:-2], height * 2, width * 2, 1)
    assert result.dtype == dtype
    stack, results = pixels.reshape(-1, height, width, 1), result.reshape(-1, height * 2, width * 2)
    for one, made in zip(stack, results, strict=True):
        rgb = np.clip(obvious.run(models, np.repeat(one / peak, 3, axis=-1)), 0, 1)
        expected = rgb @ np.array([0.299, 0.587, 0.114])
        assert abs(made / peak - expected).max() < 0.51 / min(peak, 4096)
    np.testing.assert_array_equal(run(backend, models, pixels, dtype, tile=11), result)
    mean = run(backend, models, pixels, np.float32, tta=2)
    assert mean.shape == result.shape


def test_values_are_clipped_between_models_and_at_the_end(backend: Backend) -> None:
    model = obvious.random_model([3, 16, 3], seed=5)
    pixels = picture(16, 16, 3)
    between = obvious.run([model], pixels)
    assert ((between == 0) | (between == 1)).mean() > 0.01  # or the test would show nothing
    expected = obvious.run([model, model], pixels)
    assert obvious.psnr(run(backend, [model, model], pixels), expected) >= FP32_DB


@pytest.mark.parametrize(("name", "noise"), thinned(("drawn.png", "photo.jpg"), (None, 0, 1, 2, 3)))
def test_shipped_models_to_the_level(backend: Backend, name: str, noise: int | None) -> None:
    box = Box(40, 50, 64, 80)
    pixels = crop(name, box)
    scale = 2 if noise is None else 1
    models = shipped("vgg_7/art", scale, noise)
    values = definition("vgg_7/art", scale, noise, name, box)
    quick = run(backend, models, pixels, precision="auto")
    assert obvious.psnr(quick, values) >= PROMISED_DB["auto"]
    exact = obvious.to_levels(values, np.uint8).astype(int)
    difference = abs(run(backend, models, pixels, np.uint8).astype(int) - exact)
    if backend.name == "numpy":
        assert not difference.any()
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 1 / 1000


@in_every_mode
@pytest.mark.parametrize("shape", [(2, 1, 1), (5, 30, 17), (13, 8, 65)])
def test_pictures_together_equal_each_alone(
    backend: Backend, shape: tuple[int, int, int], precision: Precision
) -> None:
    model = obvious.random_model([3, 16, 32, 3], seed=12, scale=2)
    pictures = np.random.default_rng(7).integers(0, 256, (*shape, 3), np.uint8)
    alone = [run(backend, [model], one, precision=precision) for one in pictures]
    together = run(backend, [model], pictures, precision=precision)
    np.testing.assert_array_equal(together, np.stack(alone))


@in_every_mode
@pytest.mark.parametrize("tta", [2, 4, 8])
def test_the_mean_over_transformed_pictures(
    backend: Backend, tta: int, precision: Precision
) -> None:
    double = obvious.random_model([3, 16, 3], seed=13, scale=2)
    models = [obvious.random_model([3, 16, 3], seed=14), double]
    pixels = picture(11, 17, 3)
    result = run(backend, models, pixels, tta=tta, precision=precision)
    expected = obvious.run_turned(models, pixels, tta)
    assert obvious.psnr(result, expected) >= PROMISED_DB[precision]
    assert obvious.psnr(obvious.run(models, pixels), expected) < 40  # or it would show nothing
    stack = np.stack([pixels, pixels[::-1]])
    together = run(backend, models, stack, tile=9, tta=tta, precision=precision)
    np.testing.assert_array_equal(together[0], result)


def test_the_mean_over_transformed_pictures_of_sizes_that_a_network_rounds_up(
    backend: Backend,
) -> None:
    """Maps are halved: a picture of odd size is one pixel more, on another side when turned."""
    model = halving_model(seed=5)
    assert model.multiple == 2
    pixels = picture(7, 5, 3)
    result = run(backend, [model], pixels, tta=8)
    assert obvious.psnr(result, obvious.run_turned([model], pixels, 8)) >= FP32_DB


@pytest.mark.parametrize("out_dtype", [np.uint8, np.uint16])
def test_a_mean_is_rounded_once(backend: Backend, out_dtype: type) -> None:
    model = obvious.random_model([3, 16, 3], seed=14)
    pixels = picture(11, 17, 3)
    result = run(backend, [model], pixels, out_dtype, tta=8)
    mean = run(backend, [model], pixels, np.float32, tta=8)
    np.testing.assert_array_equal(result, from_unit(mean, out_dtype))


@pytest.mark.parametrize("tta", [1, 4])
def test_progress_adds_up_to_one(backend: Backend, tta: int) -> None:
    double = obvious.random_model([3, 16, 3], seed=6, scale=2)
    parts: list[float] = []
    network = backend.compile([double, double], "auto")
    network.run(Call(picture(70, 90, 3), np.uint8, tile=100, tta=tta, on_progress=parts.append))
    assert sum(parts) == pytest.approx(1.0)


def test_an_error_in_the_progress_report_ends_the_work(backend: Backend) -> None:
    class StopError(Exception):
        pass

    def stop(part: float) -> None:
        raise StopError

    model = obvious.random_model([3, 16, 3], seed=7)
    network = backend.compile([model], "fp32")
    pixels = picture(300, 300, 3)
    with pytest.raises(StopError):
        network.run(Call(pixels, np.uint8, on_progress=stop))
    # And the next picture is as good as any.
    result = network.run(Call(pixels, np.float32))
    assert obvious.psnr(result, obvious.run([model], pixels)) >= FP32_DB


def test_closing_waits_for_pictures_and_ends_all_others(backend: Backend) -> None:
    if backend.name == "numpy":
        pytest.skip("it has nothing to close")
    own = open_backend(backend.name)
    network = own.compile([obvious.random_model([3, 8, 3], seed=1)], "auto")
    pixels = picture(9, 9, 3)
    expected = network.run(Call(pixels, np.uint8))
    begun, closing = threading.Event(), threading.Event()

    def report(part: float) -> None:
        begun.set()
        closing.wait(60)

    with ThreadPoolExecutor(2) as pool:
        result = pool.submit(network.run, Call(pixels, np.uint8, on_progress=report))
        assert begun.wait(60)
        closed = pool.submit(own.close)
        assert not wait([closed], 0.1).done
        closing.set()
        np.testing.assert_array_equal(result.result(20), expected)
        closed.result(20)
    for _ in range(2):
        with pytest.raises(BackendError, match="closed; open a new one"):
            network.run(Call(pixels, np.uint8))
        own.close()


@pytest.mark.parametrize("options", [{}, {"tile": 30}, {"tta": 4}], ids=repr)
@pytest.mark.parametrize("count", [None, 3])
def test_a_result_is_written_where_it_is_asked_for(
    backend: Backend, count: int | None, options: dict[str, Any]
) -> None:
    models = [obvious.random_model([3, 16, 3], seed=1, scale=scale) for scale in (1, 2)]
    network = backend.compile(models, "fp32")
    pixels = picture(33, 41, 3)
    if count is not None:
        pixels = np.stack([np.roll(pixels, turn, axis=1) for turn in range(count)])
    for dtype in (np.uint8, np.float32):
        expected = network.run(Call(pixels, dtype, **options))
        room = np.full((expected.shape[0] + 2, *expected.shape[1:]), 0.25, dtype)
        out = room[1:-1]
        assert network.run(Call(pixels, dtype, out=out, **options)) is out
        np.testing.assert_array_equal(out, expected)
        assert (room[[0, -1]] == room.dtype.type(0.25)).all()
    network.close()


def test_pinned_memory_holds_pixels_and_results(backend: Backend) -> None:
    network = backend.compile([obvious.random_model([3, 16, 3], seed=1, scale=2)], "fp32")
    pixels = picture(33, 41, 3)
    expected = network.run(Call(pixels, np.uint8))
    segment = np.zeros(pixels.size + expected.size + 100, np.uint8)
    source = segment[100:][: pixels.size].reshape(pixels.shape)
    out = segment[100 + pixels.size :].reshape(expected.shape)
    source[:] = pixels
    with backend.pin(segment) as pin:
        for options in ({}, {"tile": 20}, {"tta": 2}):
            network.run(Call(source, np.uint8, out=out, **options))  # type: ignore[arg-type]
        np.testing.assert_array_equal(network.run(Call(source, np.uint8, out=out)), expected)
        pin.close()
    out[:] = 0
    np.testing.assert_array_equal(network.run(Call(source, np.uint8, out=out)), expected)
    network.close()


def test_bytes_are_those_of_open_networks(backend: Backend) -> None:
    own = open_backend(backend.name)
    model = obvious.random_model([3, 64, 64, 3], seed=1)
    assert own.bytes == 0
    network = own.compile([model], "fp32")
    weights = sum(node.weight.nbytes for node in model.nodes if isinstance(node, Convolution))
    assert own.bytes >= weights or backend.name == "numpy"
    network.run(Call(picture(20, 30, 3), np.uint8))
    network.close()
    assert own.bytes == 0
    own.close()


def test_an_array_that_cannot_take_a_result_is_refused(backend: Backend) -> None:
    network = backend.compile([obvious.random_model([3, 8, 3], seed=1, scale=2)], "fp32")
    pixels = picture(9, 12, 3)
    fitting = np.zeros((18, 24, 3), np.uint8)
    read_only = np.zeros_like(fitting)
    read_only.flags.writeable = False
    for out, reason in (
        (np.zeros((18, 25, 3), np.uint8), r"Expected out of shape \(18, 24, 3\) and dtype uint8"),
        (np.zeros((1, 18, 24, 3), np.uint8), r"but got \(1, 18, 24, 3\) and uint8"),
        (fitting.astype(np.float32), r"but got \(18, 24, 3\) and float32"),
        (np.zeros((18, 24, 6), np.uint8)[..., ::2], "but it is not C-contiguous"),
        (read_only, "but it is read-only"),
    ):
        with pytest.raises(ValueError, match=reason):
            network.run(Call(pixels, np.uint8, out=out))
    network.close()
    same = backend.compile([obvious.random_model([3, 8, 3], seed=1)], "fp32")
    with pytest.raises(ValueError, match="it shares that of the pixels"):
        same.run(Call(pixels, np.uint8, out=pixels))
    same.close()


def test_a_closed_network_says_so_and_others_go_on(backend: Backend) -> None:
    model = obvious.random_model([3, 8, 3], seed=1)
    pixels = picture(9, 12, 3)
    closed, other = (backend.compile([model], "fp32") for _ in range(2))
    expected = closed.run(Call(pixels, np.uint8))
    for _ in range(2):
        closed.close()
        with pytest.raises(
            BackendError, match=r"^this network is closed: compile its models again$"
        ):
            closed.run(Call(pixels, np.uint8))
    np.testing.assert_array_equal(other.run(Call(pixels, np.uint8)), expected)
    other.close()


def test_closing_a_network_waits_for_its_pictures(backend: Backend) -> None:
    network = backend.compile([obvious.random_model([3, 8, 3], seed=1)], "auto")
    pixels = picture(9, 9, 3)
    expected = network.run(Call(pixels, np.uint8))
    begun, closing = threading.Event(), threading.Event()

    def report(part: float) -> None:
        begun.set()
        closing.wait(60)

    with ThreadPoolExecutor(2) as pool:
        result = pool.submit(network.run, Call(pixels, np.uint8, on_progress=report))
        assert begun.wait(60)
        closed = pool.submit(network.close)
        closing.set()
        np.testing.assert_array_equal(result.result(20), expected)
        closed.result(20)


def test_auto_is_one_of_the_other_precisions(backend: Backend) -> None:
    """To the bit, so that nothing need be tested twice; on processors it is tested by itself."""
    if backend.name == "cpu":
        return
    means: Precision = "fp16" if backend.name == "cuda" else "fp32"
    model = obvious.random_model([3, 16, 3], seed=4, scale=2)
    pixels = picture(21, 17, 3)
    result = run(backend, [model], pixels, precision="auto")
    np.testing.assert_array_equal(result, run(backend, [model], pixels, precision=means))


def test_a_precision_that_is_missing_is_a_sentence(backend: Backend) -> None:
    missing: Precision = "bf16" if backend.name == "cuda" else "fp16"
    with pytest.raises(BackendError, match=f"backend {backend.name} has no precision {missing}"):
        backend.compile([obvious.random_model([3, 3], seed=8)], missing)


@pytest.mark.parametrize("cores", [1, 3, 16])
def test_core_count_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    from waifu2x.backends.cpu import backend

    model = obvious.random_model([3, 16, 32, 3], seed=9, scale=2)
    pixels = picture(150, 200, 3)
    reference = open_backend("cpu")
    expected = run(reference, [model], pixels)
    reference.close()
    monkeypatch.setattr(backend, "core_count", lambda: cores)
    other = open_backend("cpu")
    np.testing.assert_array_equal(run(other, [model], pixels), expected)
    other.close()


def test_auto_of_cpu_takes_finer_bf16_before_other_modes() -> None:
    """It does for the one network that needs it."""
    from waifu2x.backends.cpu.arithmetic import arithmetics

    if arithmetics()[0] != "bf16":
        return  # elsewhere with tiles that are emulated
    known = catalogue.entry("realesrgan/animevideo")
    if known is None or known.folder is None:
        pytest.skip("not installed: realesrgan/animevideo")
    [model] = model_set.find("realesrgan/animevideo").models(2, None)
    pixels = drawing(3)
    expected = run(open_backend("numpy"), [model], pixels)
    backend = open_backend("cpu")
    plain, auto = (
        obvious.psnr(backend.compile([model], precision).run(Call(pixels, np.float32)), expected)
        for precision in ("bf16", "auto")
    )
    assert plain < PROMISED_DB["auto"] <= auto < plain + 2
    backend.close()


@pytest.mark.parametrize("slots", [1, 8])
def test_threads_that_call_at_once_get_what_each_gets_alone(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """However many of them there is room for in the work queue, each with more strips than go there
    together."""
    from waifu2x.backends.cpu import backend as cpu
    from waifu2x.backends.cpu.run import strips, work_queue

    monkeypatch.setattr(cpu, "core_count", lambda: 3)
    monkeypatch.setattr(work_queue, "_SLOTS", slots)
    monkeypatch.setattr(strips, "_TOGETHER", 4)
    backend = open_backend("cpu")
    network = backend.compile([obvious.random_model([3, 16, 32, 3], seed=9, scale=2)], "fp32")
    pictures = [picture(20 + 30 * n, 90 - 20 * n, 3) for n in range(4)]
    alone = [network.run(Call(pixels, np.float32)) for pixels in pictures]
    with ThreadPoolExecutor(12) as pool:
        calls = [
            pool.submit(network.run, Call(pixels, np.float32, tile=32))
            for _ in range(3)
            for pixels in pictures
        ]
        for call, expected in zip(calls, alone * 3, strict=True):
            np.testing.assert_array_equal(call.result(60), expected)
    backend.close()


def test_large_pictures_of_deep_networks_are_cut_into_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from waifu2x.backends.cpu.run import kept_memory

    model = residual_in_residual(4, 32, 16)
    pixels = picture(150, 201, 3)
    backend = open_backend("cpu")
    (stage,) = backend.compile([model], "fp32").models  # type: ignore[attr-defined]
    assert stage.packed.program.cuts
    assert len(stage.blocks(150, 201)) == 1
    expected, result = np.empty((2, 1, *result_shape([model], pixels.shape)), np.float32)
    stage.run(None, pixels[np.newaxis], expected, lambda part: None)
    monkeypatch.setattr(kept_memory, "budget", lambda packed: 2 << 20)
    assert len(stage.blocks(150, 201)) > 2
    parts: list[float] = []
    stage.run(None, pixels[np.newaxis], result, parts.append)
    np.testing.assert_array_equal(result, expected)
    assert sum(parts) == pytest.approx(1.0)
    backend.close()


def test_memory_for_kept_maps_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too little for its first maps, cunet has a phase in which there is nothing to make."""
    from waifu2x.backends.cpu.run import kept_memory

    backend = open_backend("cpu")
    models = model_set.find("cunet").models(2, None)
    (stage,) = backend.compile(models, "fp32").models  # type: ignore[attr-defined]
    pixels = picture(40, 44, 3)[np.newaxis]
    plan = stage.plan(40, 44)
    expected = np.empty((1, 80, 88, 3), np.float32)
    stage.run(None, pixels, expected, lambda part: None)
    for budget in np.linspace(0, 4 * plan.kept.floats, 12).tolist():
        monkeypatch.setattr(kept_memory, "budget_of_means", lambda packed, b=budget: b)
        result = np.empty_like(expected)
        (stage,) = backend.compile(models, "fp32").models  # type: ignore[attr-defined]
        stage.run(None, pixels, result, lambda part: None)
        np.testing.assert_array_equal(result, expected)
    backend.close()


def test_unknown_backend_is_a_sentence() -> None:
    with pytest.raises(
        BackendError,
        match="unknown backend 'metal'; choose one of cuda, opencl, vulkan, cpu, numpy",
    ):
        open_backend("metal")


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_a_missing_library_names_the_remedy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def without_numba(module: str) -> Any:
        if module == "waifu2x.backends.cpu.backend":
            raise ModuleNotFoundError("No module named 'numba'", name="numba.core")
        return real_import(module)

    real_import = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", without_numba)
    if name == "auto":
        reasons: list[str] = []
        assert open_backend("auto", on_skip=reasons.append).name == "numpy"
        assert [reason.partition(";")[0] for reason in reasons] == [
            "backend cpu needs the package numba.core"
        ]
        return
    with pytest.raises(UnavailableError, match=r"needs the package numba.core; run `pip install"):
        open_backend("cpu")


@pytest.mark.matrix
@pytest.mark.parametrize("isa", ["amx", "avx512", "avx2", "portable"])
def test_contract_on_every_instruction_set(isa: str) -> None:
    """The suite once more on `cpu`, with narrower vectors than this processor has."""
    from waifu2x.backends.cpu.compile.isa import VECTOR, available_isas

    if os.environ.get("WAIFU2X_CPU_ISA"):
        pytest.skip("this is such a run")
    if isa == VECTOR.name or isa not in available_isas():
        pytest.skip(f"this run is on {VECTOR.name}; this processor has {available_isas()}")
    # Not those that are about this machinery, and not the other backends.
    selection = "not numpy and not opencl and not vulkan and not instruction_set"
    selection += " and not shipped_model_in_tiles and not many_graphs and not tiles_where"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long", __file__, "-k", selection],
        env=os.environ | {"WAIFU2X_CPU_ISA": isa},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.matrix
def test_tiles_where_there_are_none() -> None:
    """`auto` computes as on AMX, with its instructions emulated."""
    from waifu2x.backends.cpu.compile.isa import available_isas

    if os.environ.get("WAIFU2X_CPU_ISA") or "amx" in available_isas():
        pytest.skip("the real ones are tested")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "tests.helpers.emulated_tiles",
        __file__,
    ]
    selection = "cpu and (bf16 or to_the_level) and not in_tiles and not any_graph"
    selection += " and not many_graphs"
    done = subprocess.run(
        [*command, "-m", "not long", "-k", selection],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_an_instruction_set_that_is_missing_is_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "waifu2x", "devices"],
        env=os.environ | {"WAIFU2X_CPU_ISA": "mmx"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "WAIFU2X_CPU_ISA=mmx: this processor has" in done.stdout
    # And no reason for `auto` to compute slowly on another backend.
    done = subprocess.run(
        [sys.executable, "-c", "from waifu2x.backends import open_backend as o; print(o().name)"],
        env=os.environ | {"WAIFU2X_CPU_ISA": "mmx"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    assert "BackendError: WAIFU2X_CPU_ISA=mmx: this processor has" in done.stderr
