"""Attention in windows, on every backend, against its definition."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_backends import PROMISED_DB, in_every_mode, picture, run
from tests.helpers import obvious
from tests.helpers.attention import WINDOWS, attention_model, channel_attention_model
from tests.helpers.verify import verify
from waifu2x.backends import Backend, Precision, open_backend
from waifu2x.lowering.lower import lower
from waifu2x.networks.model import Model
from waifu2x.networks.windows import Windows

SIZES = [(19, 23), (8, 8), (8, 24), (1, 1)]
"""Odd ones; one window; three of them; less than one."""


@functools.cache
def one_attention(name: str, gain: float) -> Model:
    """The same object for all sizes of pictures, so that it is compiled once."""
    model = attention_model(WINDOWS[name], gain=gain)
    verify(lower(model))
    return model


@functools.cache
def between_planes(heads: int, depth: int) -> Model:
    model = channel_attention_model(heads, depth)
    verify(lower(model))
    return model


@functools.cache
def known(name: str, size: tuple[int, int], gain: float) -> tuple[Model, NDArray[np.float64]]:
    """A network, and what it makes of a picture by definition: the same for all backends."""
    model = one_attention(name, gain)
    return model, obvious.run([model], picture(*size, 3))


@in_every_mode
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(backend: Backend, precision: Precision, name: str, size: tuple[int, int]) -> None:
    model, expected = known(name, size, 1.0)
    whole = run(backend, [model], picture(*size, 3), precision=precision)
    assert obvious.psnr(whole, expected) >= PROMISED_DB[precision]
    tiled = run(backend, [model], picture(*size, 3), tile=8, precision=precision)
    np.testing.assert_array_equal(tiled, whole)


@in_every_mode
@pytest.mark.parametrize("name", ["swin, shifted", "hat"])
def test_large_logits(backend: Backend, precision: Precision, name: str) -> None:
    """Twenty times as large as usual: powers of them overflow unless the highest is taken off."""
    model, expected = known(name, (19, 23), 20.0)
    result = run(backend, [model], picture(19, 23, 3), precision=precision)
    assert obvious.psnr(result, expected) >= {"fp32": 100}.get(precision, 40)


@in_every_mode
@pytest.mark.parametrize(
    ("windows", "heads", "depth"),
    [
        (Windows(3, 11, 1, 0), 1, 1),
        (Windows(5, 4, 0, 3), 3, 17),
        (Windows(8, 32, 4, 16, filled_to=32), 4, 6),
        (Windows(2, 2), 1, 40),
    ],
    ids=str,
)
def test_heads_of_any_size(
    backend: Backend, precision: Precision, windows: Windows, heads: int, depth: int
) -> None:
    model = attention_model(windows, heads, depth)
    pixels = picture(13, 37, 3)
    result = run(backend, [model], pixels, precision=precision)
    assert obvious.psnr(result, obvious.run([model], pixels)) >= PROMISED_DB[precision]


def test_stacks(backend: Backend) -> None:
    model, _ = known("swin, shifted", (19, 23), 1.0)
    pixels = np.stack([picture(19, 23, 3), picture(19, 23, 3)[::-1]])
    stacked = run(backend, [model], pixels)
    np.testing.assert_array_equal(stacked[1], run(backend, [model], np.array(pixels[1])))


@pytest.mark.parametrize("cores", [1, 3])
def test_cores_change_no_bit(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    from waifu2x.backends.cpu import backend

    model = attention_model(WINDOWS["dat, shifted"])
    pixels = picture(90, 70, 3)
    expected = run(open_backend("cpu"), [model], pixels)
    monkeypatch.setattr(backend, "core_count", lambda: cores)
    np.testing.assert_array_equal(run(open_backend("cpu"), [model], pixels), expected)


def test_blocks_of_large_pictures_begin_at_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    from waifu2x.backends.cpu.run import blocks
    from waifu2x.lowering.passes.segments import segmented

    program = segmented(lower(attention_model(Windows(8, 7))))
    monkeypatch.setattr(blocks, "is_segmented", lambda program: True)
    found = blocks.blocks(program, (2000, 3000), 1 << 30, 1 << 28)
    assert len(found) > 1
    assert all(block.halo.top % 8 == block.halo.left % 7 == 0 for block in found)


@functools.cache
def known_planes(
    size: tuple[int, int], heads: int, depth: int, window: int, period: int
) -> tuple[Model, NDArray[np.float64]]:
    """The same of attention between planes."""
    model = channel_attention_model(heads, depth, window=window, period=period)
    verify(lower(model))
    return model, obvious.run([model], picture(*size, 3))


@in_every_mode
@pytest.mark.parametrize("size", [(1, 1), (29, 53)])
@pytest.mark.parametrize(
    ("heads", "depth", "window", "period"),
    [
        *((4, 16, 8, 1), (3, 5, 7, 1), (4, 16, 0, 8)),
        *(
            pytest.param(*each, marks=pytest.mark.matrix)
            for each in ((1, 40, 4, 1), (3, 5, 0, 7), (2, 1, 0, 3))
        ),
    ],
)
def test_attention_between_planes_of_parts(
    backend: Backend,
    precision: Precision,
    heads: int,
    depth: int,
    window: int,
    period: int,
    size: tuple[int, int],
) -> None:
    """In windows, and of pixels a period apart: the bits of tiles are those of the whole."""
    model, expected = known_planes(size, heads, depth, window, period)
    pixels = picture(*size, 3)
    whole = run(backend, [model], pixels, precision=precision)
    assert obvious.psnr(whole, expected) >= PROMISED_DB[precision]
    tiled = run(backend, [model], pixels, tile=9, precision=precision)
    np.testing.assert_array_equal(tiled, whole)


@pytest.mark.parametrize("size", [(1, 1), (8, 24), (50, 61)])
@pytest.mark.parametrize(("heads", "depth"), [(6, 10), (3, 17), (2, 1), (1, 40)])
def test_attention_between_planes(
    backend: Backend, heads: int, depth: int, size: tuple[int, int]
) -> None:
    model = between_planes(heads, depth)
    pixels = picture(*size, 3)
    whole = run(backend, [model], pixels)
    assert obvious.psnr(whole, obvious.run([model], pixels)) >= PROMISED_DB["fp32"]
    np.testing.assert_array_equal(run(backend, [model], pixels, tile=9), whole)
