"""Networks with attention on matrix units, whose kernels run on emulated warps: against the
definition, and as the same bits by tiles and in stacks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_backends import PROMISED_DB, picture
from tests.helpers import obvious, weight_files
from tests.helpers.attention import WINDOWS, attention_model, channel_attention_model
from tests.helpers.emulated_device import emulated_backend
from tests.helpers.family_weights import Shapes, dat, filled, mosr, swinir
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.tensor.attention import attention_shape
from waifu2x.backends.cuda.tensor.executor import TensorExecutor
from waifu2x.backends.gpu.network import FlaggedError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.networks.model import Model
from waifu2x.networks.readers import read_model
from waifu2x.networks.windows import Windows

FAMILIES: dict[str, Callable[[], Shapes]] = {
    "dat": lambda: dat(32, (3,), (4,), 2, 2),
    "swinir": lambda: swinir(12, (2,)),
    "mosr": lambda: mosr(16, 1),
}
LEAST: dict[Precision, float] = {"fp16": 55, "fp32": 100}


@pytest.fixture(scope="module")
def libraries(cache_folder: Path) -> Path:
    """A folder for kernels that are compiled, once in whichever of the processes that share the
    tests."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not here")
    folder = cache_folder / "libraries"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def on_matrix_units(
    model: Model, pixels: NDArray[Any], precision: Precision, folder: Path, **options: Any
) -> NDArray[np.float32]:
    """Enlarges pictures on the emulated device, by matrix units alone."""
    backend = emulated_backend(folder)
    network = backend.compile([model], precision)
    assert isinstance(network.models[0].executor, TensorExecutor)
    result: NDArray[np.float32] = network.run(Call(pixels, np.float32, **options))
    runtime: Any = backend.runtime
    assert all(name.startswith("tensor_") for name in runtime.launched)
    return result


@pytest.mark.matrix
@pytest.mark.parametrize("precision", ["fp16", pytest.param("fp32", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(libraries: Path, name: str, precision: Precision) -> None:
    model, pixels = attention_model(WINDOWS[name]), picture(19, 23, 3)
    whole = on_matrix_units(model, pixels, precision, libraries)
    assert obvious.psnr(whole, obvious.run([model], pixels)) >= PROMISED_DB[precision]
    np.testing.assert_array_equal(
        on_matrix_units(model, pixels, precision, libraries, tile=8), whole
    )


@pytest.mark.matrix
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_halves_of_heads_in_the_place_of_their_queries(
    libraries: Path, precision: Precision
) -> None:
    model, pixels = attention_model(WINDOWS["dat, shifted"], 4, 8), picture(19, 23, 3)
    whole = on_matrix_units(model, pixels, precision, libraries)
    assert obvious.psnr(whole, obvious.run([model], pixels)) >= PROMISED_DB[precision]
    np.testing.assert_array_equal(
        on_matrix_units(model, pixels, precision, libraries, tile=8), whole
    )


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("windows", "heads", "depth"),
    [
        (Windows(5, 4, 0, 3), 3, 17),
        (Windows(8, 32, 4, 16, filled_to=32), 4, 6),
        (Windows(2, 2), 1, 40),
    ],
    ids=str,
)
def test_heads_of_any_size(libraries: Path, windows: Windows, heads: int, depth: int) -> None:
    model, pixels = attention_model(windows, heads, depth), picture(13, 37, 3)
    expected = obvious.run([model], pixels)
    modes: tuple[Precision, ...] = ("fp16", "fp32")
    for precision in modes:
        made = on_matrix_units(model, pixels, precision, libraries)
        assert obvious.psnr(made, expected) >= PROMISED_DB[precision]


@pytest.mark.matrix
def test_queries_that_do_not_fit_one_block(libraries: Path) -> None:
    windows = Windows(32, 32)
    assert attention_shape(attention_step(windows, 1, 64), 1, 99 << 10).tiles < 64
    model, pixels = attention_model(windows, 1, 64), picture(20, 33, 3)
    made = on_matrix_units(model, pixels, "fp16", libraries)
    assert obvious.psnr(made, obvious.run([model], pixels)) >= PROMISED_DB["fp16"]


@pytest.mark.matrix
def test_large_logits_and_stacks(libraries: Path) -> None:
    model = attention_model(WINDOWS["swin, shifted"], gain=20.0)
    pixels = picture(19, 23, 3)
    stack = np.stack([pixels, pixels[::-1], pixels[:, ::-1]])
    expected = obvious.run([model], pixels)
    promised: dict[Precision, float] = {"fp16": 40, "fp32": 100}
    for precision, least in promised.items():
        made = on_matrix_units(model, stack, precision, libraries)
        assert obvious.psnr(made[0], expected) >= least
        alone = np.ascontiguousarray(stack[1])
        again = on_matrix_units(model, alone, precision, libraries)
        np.testing.assert_array_equal(made[1], again)


@pytest.mark.matrix
@pytest.mark.parametrize(("size", "is_flagged"), [((8, 24), False), ((1, 1), True)])
def test_sums_of_products_that_rounding_shows_in_are_flagged(
    libraries: Path, size: tuple[int, int], is_flagged: bool
) -> None:
    """A single pixel has planes whose squares are small beside what a product is rounded to."""
    backend = emulated_backend(libraries)
    maker, *_ = backend._makers["fp32"]
    with backend._on_trial(channel_attention_model(6, 10), maker) as network:
        expected = pytest.raises(FlaggedError) if is_flagged else nullcontext()
        with expected:
            network.run(Call(picture(*size, 3), np.float32))


@pytest.mark.matrix
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize(("heads", "depth"), [(6, 10), (3, 17), (1, 40)])
def test_attention_between_planes(
    libraries: Path, heads: int, depth: int, precision: Precision
) -> None:
    model, pixels = channel_attention_model(heads, depth), picture(8, 24, 3)
    whole = on_matrix_units(model, pixels, precision, libraries)
    assert obvious.psnr(whole, obvious.run([model], pixels)) >= PROMISED_DB[precision]
    np.testing.assert_array_equal(
        on_matrix_units(model, pixels, precision, libraries, tile=9), whole
    )


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_families(libraries: Path, tmp_path: Path, name: str) -> None:
    """DAT takes a hundred kernels, which take minutes to compile."""
    path = tmp_path / "network.pth"
    path.write_bytes(weight_files.pth({"params": filled(FAMILIES[name]())}))
    model, pixels = read_model(path), picture(21, 26, 3)
    expected = open_backend("numpy").compile([model], "fp32").run(Call(pixels, np.float32))
    for precision, least in LEAST.items():
        whole = on_matrix_units(model, pixels, precision, libraries)
        assert obvious.psnr(whole, expected) >= least
        tiled = on_matrix_units(model, pixels, precision, libraries, tile=16)
        np.testing.assert_array_equal(tiled, whole)


@pytest.mark.parametrize("shared", [64 << 10, 99 << 10, 163 << 10, 227 << 10])
@pytest.mark.parametrize("terms", [1, 2])
def test_shapes_fit(shared: int, terms: int) -> None:
    for windows, heads, depth in (
        (Windows(8, 8), 6, 10),
        (Windows(8, 32), 3, 30),
        (Windows(16, 16, overlap=4), 6, 30),
        (Windows(32, 32), 6, 64),
        (Windows(1, 1), 1, 1),
    ):
        step = attention_step(windows, heads, depth)
        shape = attention_shape(step, terms, shared)
        assert shape.bytes <= shared
        assert heads % shape.heads == shape.chunk % shape.step == shape.step % 16 == 0
        assert 1 <= shape.warps <= 8
        assert shape.chunk > 0
        assert shape.tiles > 0
        assert shape.keys.pitch % 2 == shape.values.pitch % 2 == 1
    assert attention_shape(attention_step(Windows(8, 8), 6, 10), 1, 227 << 10).heads == 6


def attention_step(windows: Windows, heads: int, depth: int) -> AttendWindows:
    """The step of a network that has one."""
    steps = lower(attention_model(windows, heads, depth)).steps
    return next(step for step in steps if isinstance(step, AttendWindows))
