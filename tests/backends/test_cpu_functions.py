"""Elementwise functions in the processor's vector code against float64."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.graphs import fit_padding
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.kernels import FLOATS, INTEGER, EntryPoint
from waifu2x.backends.cpu.kernels.activations import activated, emit_activated
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import FUNCTIONS
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import (
    ACTIVATIONS,
    SIGMOID,
    SILU,
    Elementary,
    Expression,
    Function,
    Input,
    evaluate,
)
from waifu2x.networks.nodes import Convolution, PixelShuffle

ELEMENTARY: tuple[Function, ...] = ("exp", "tanh", "erf", "sigmoid")
VECTORS: tuple[Expression, ...] = (
    *(Elementary(name, Input()) for name in ELEMENTARY),
    *FUNCTIONS[1:],
)
"""The functions computed by vectors; then FUNCTIONS[1:] once more, value by value."""
COUNT = len(VECTORS)
POINTS = 1 << 16
PROMISED_DB: tuple[tuple[Precision, float], ...] = (("fp32", 100), ("auto", 60))


def _emit(v: Emitter, count: ir.Value, source: ir.Value, first: ir.Value, target: ir.Value) -> None:
    for number, function in enumerate(VECTORS):
        for _ in v.cases(first, (number,)):
            with v.loop(count, LANES) as x:
                value = v.load(source, x)
                v.store(emit_activated(v, function, value, v.splat(0.5)), target, x)


_vectors = vector_kernel(_emit)


def _compute(count, source, number, target):  # type: ignore[no-untyped-def]
    if number < COUNT:
        _vectors(count, source, number, target)
        return
    for x in range(count):
        target[x] = activated(number - COUNT + 1, source[x], source[x])


@cache
def _compiled() -> Compiled:
    symbol, code = EntryPoint(_compute, (INTEGER, FLOATS, INTEGER, FLOATS)).build()
    made = Compiled("", "compute")
    made._function = made._link(symbol.encode() + b"\0" + code)
    return made


def computed(number: int, values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Results of VECTORS[number], or behind those of FUNCTIONS[1:]."""
    result = np.zeros_like(values)
    assert len(values) % LANES == 0
    _compiled()(len(values), values, number, result)
    return result.astype(np.float64)


def points(most: float) -> NDArray[np.float32]:
    """Values up to that size, of every order of magnitude and evenly spaced."""
    sizes = np.geomspace(1e-30, most, POINTS)
    parts = [sizes, -sizes, *(np.linspace(-end, end, POINTS) for end in (1, 4.5, most))]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize(("name", "bound"), [("exp", 1.2e-7), ("tanh", 1.4e-7), ("erf", 3.8e-7)])
def test_functions_are_within_their_bounds(name: Function, bound: float) -> None:
    """Relative to the result, however small it is."""
    values = points(87.0)
    exact = evaluate(Elementary(name, Input()), values.astype(np.float64), np.zeros(1))
    made = computed(ELEMENTARY.index(name), values)
    assert (abs(made - exact) / np.maximum(abs(exact), 1e-38)).max() <= bound


def test_sigmoid_is_within_its_bound() -> None:
    values = points(87.0)
    exact = evaluate(SIGMOID, values.astype(np.float64), np.zeros(1))
    assert abs(computed(ELEMENTARY.index("sigmoid"), values) - exact).max() <= 1e-7


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid"])
def test_functions_have_no_end(name: Function) -> None:
    values = np.array([1e4, 3e38, np.inf, -1e4, -3e38, -np.inf] * LANES, np.float32)
    made = computed(ELEMENTARY.index(name), values).reshape(-1, 6)
    assert np.isfinite(made).all()
    most, least = {"exp": (2e38, 0.0), "sigmoid": (1.0, 0.0)}.get(name, (1.0, -1.0))
    assert (made[:, :3] >= most * 0.9999999).all()
    np.testing.assert_allclose(made[:, 3:], least, atol=1e-37, rtol=1e-7)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "leaky"])
def test_activations_are_as_exact_as_floats(name: str) -> None:
    """By vectors and value by value, which are the same but for sigmoids."""
    function = ACTIVATIONS[name]
    values = points(30.0)
    exact = evaluate(function, values.astype(np.float64), np.zeros(1))
    number = FUNCTIONS.index(function) - 1
    vectors = computed(len(ELEMENTARY) + number, values)
    singles = computed(COUNT + number, values)
    for made in (vectors, singles):
        error = abs(made - exact) / np.maximum(1, abs(values))
        assert error.max() <= 3e-7
    if function not in (SIGMOID, SILU):
        np.testing.assert_array_equal(vectors, singles)


ELU = """
import numpy as np
from waifu2x.networks import expressions
from waifu2x.networks.expressions import Elementary, Input, Number, Parameter, Where, minimum

x = Input()
elu = Where(x, x, Parameter() * (Elementary("exp", minimum(x, 0)) - 1))
expressions.ACTIVATIONS = dict(expressions.ACTIVATIONS, elu=elu)

from waifu2x.backends.cpu.compile import builders

builders.core_count = lambda: 1  # other processes would not know it

from tests.helpers import obvious
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
from waifu2x.networks.activations import Activation
from tests.helpers.graphs import fit_padding
from waifu2x.networks.nodes import Convolution, PixelShuffle

rng = np.random.default_rng(1)

def conv(source, read, made, taps):
    weight = (rng.normal(size=(made, read, taps, taps)) / taps / np.sqrt(read)).astype(np.float32)
    slopes = rng.uniform(-1, 1, made).astype(np.float32)
    bias = np.full(made, 0.3, np.float32)
    return Convolution(source, weight, bias, Activation(elu, slopes))

nodes = (conv(0, 3, 32, 3), conv(1, 32, 32, 1), conv(2, 32, 12, 3), PixelShuffle(3, 2),
         conv(4, 3, 8, 3), conv(5, 8, 3, 3))
model = fit_padding("elu", 3, nodes, "replicate")
pixels = rng.integers(0, 256, (17, 23, 3), np.uint8)
expected = open_backend("numpy").compile([model], "fp32").run(Call(pixels, np.float32))
for precision, least in (("fp32", 100), ("auto", 60)):
    result = open_backend("cpu").compile([model], precision).run(Call(pixels, np.float32))
    assert ((result > 0) & (result < 1)).mean() > 0.4
    assert obvious.psnr(result, expected) > least, obvious.psnr(result, expected)
"""


@pytest.mark.matrix
def test_an_activation_with_a_parameter_needs_nothing_but_its_expression(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELU],
        env=os.environ | {"WAIFU2X_CACHE_DIR": str(tmp_path)},  # the code is that of this test
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_networks_of_every_activation_keep_what_is_promised(name: str) -> None:
    """Behind every kind of convolution, inside the network and at its end; in tiles, too."""
    rng = np.random.default_rng(3)

    def conv(source: int, read: int, made: int, taps: int) -> Convolution:
        weight = rng.normal(size=(made, read, taps, taps)) / taps / np.sqrt(read)
        bias, slopes = np.full(made, 0.2), rng.uniform(-0.5, 0.5, made)
        activation = Activation(ACTIVATIONS[name], slopes.astype(np.float32))
        return Convolution(source, weight.astype(np.float32), bias.astype(np.float32), activation)

    nodes = (
        conv(0, 3, 32, 3),
        conv(1, 32, 48, 1),
        conv(2, 48, 32, 3),
        conv(3, 32, 12, 3),
        PixelShuffle(4, 2),
        conv(5, 3, 8, 3),
        conv(6, 8, 3, 3),
    )
    model = fit_padding(name, 3, nodes, "replicate")
    pixels = rng.integers(0, 256, (19, 26, 3), np.uint8)
    expected = obvious.run([model], pixels)
    assert ((expected > 0) & (expected < 1)).mean() > 0.4  # or the test would show little
    with closing(open_backend("cpu")) as backend:
        for precision, least in PROMISED_DB:
            network = backend.compile([model], precision)
            result = network.run(Call(pixels, np.float32))
            assert obvious.psnr(result, expected) >= least
            np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=11)), result)
