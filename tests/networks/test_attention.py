"""Attention in windows: what papers say of it, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.obvious_attention import attention_in_windows, attention_of_planes
from waifu2x.errors import ModelError
from waifu2x.networks.attention import ChannelAttention, PlanesFrom, WindowAttention
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.windows import Windows

Maps = NDArray[np.float64]
RNG = np.random.default_rng(7)
HEADS, DEPTH = 2, 3


def softmax(logits: Maps) -> Maps:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def divided(planes: NDArray[Any], rows: int, columns: int) -> Maps:
    """(windows down, windows across, heads, pixels, DEPTH)."""
    high, wide, count = planes.shape
    cut = planes.reshape(high // rows, rows, wide // columns, columns, HEADS, count // HEADS)
    return cut.transpose(0, 2, 4, 1, 3, 5).reshape(
        high // rows, wide // columns, HEADS, rows * columns, -1
    )


def joined(windows: Maps, rows: int, columns: int) -> Maps:
    down, across = windows.shape[:2]
    cut = windows.reshape(down, across, HEADS, rows, columns, -1).transpose(0, 3, 1, 4, 2, 5)
    return cut.reshape(down * rows, across * columns, -1)


def index(rows: int, columns: int) -> NDArray[np.intp]:
    """Swin's relative_position_index, (pixels, pixels)."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    down, across = y[:, None] - y + rows - 1, x[:, None] - x + columns - 1
    return np.asarray(down * (2 * columns - 1) + across)


def regions(length: int, size: int, shift: int) -> NDArray[np.intp]:
    place = np.arange(length)
    return (place >= length - size).astype(int) + (place >= length - shift)


def rolled(parts: list[Maps], table: Maps, size: tuple[int, int], shift: tuple[int, int]) -> Maps:
    """As Swin and DAT do it: the map rolled, cut into windows, regions hidden from each other by
    logits of -100."""
    rows, columns = size
    back = tuple(-one for one in shift)
    cut = [divided(np.roll(one, back, (0, 1)), rows, columns) for one in parts]
    logits = cut[0] @ cut[1].swapaxes(-1, -2) * DEPTH**-0.5
    logits = logits + table[index(rows, columns)].transpose(2, 0, 1)
    if any(shift):
        down, across = (regions(parts[0].shape[axis], size[axis], shift[axis]) for axis in (0, 1))
        region = (3 * down[:, None] + across)[..., None].repeat(HEADS, -1)
        own = divided(region, rows, columns)
        logits = logits - 100 * (own != own.swapaxes(-1, -2))
    return np.roll(joined(softmax(logits) @ cut[2], rows, columns), shift, (0, 1))


def node(windows: Windows, table: Maps) -> WindowAttention:
    """The node, whose biases are those of a table (rows * columns, heads) of Swin's order: by
    query less key."""
    rows, columns = windows.bias_sides
    turned = table.reshape(rows, columns, HEADS)[::-1, ::-1].transpose(2, 0, 1)
    own = PlanesFrom(0)
    planes = HEADS * DEPTH
    return WindowAttention(own, own, own, planes, windows, DEPTH**-0.5, turned.astype(np.float32))


def maps(*sides: tuple[int, int]) -> list[Maps]:
    return [RNG.normal(size=(*side, HEADS * DEPTH)) for side in sides]


def tables(windows: Windows) -> Maps:
    count = int(np.prod(windows.bias_sides))
    return RNG.normal(size=(count, HEADS)).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("shift", [(0, 0), (4, 4)])
@pytest.mark.parametrize("side", [(8, 8), (8, 24), (24, 16)])
def test_swin(side: tuple[int, int], shift: tuple[int, int]) -> None:
    windows = Windows(8, 8, *shift)
    q, k, v = maps(side, side, side)
    table = tables(windows)
    found = attention_in_windows(node(windows, table), q, k, v)
    np.testing.assert_allclose(found, rolled([q, k, v], table, (8, 8), shift), atol=1e-9)


@pytest.mark.parametrize("shift", [(0, 0), (2, 4)])
@pytest.mark.parametrize("side", [(5, 7), (9, 8), (8, 17)])
def test_dat_fills_up_with_keys_of_zeros(side: tuple[int, int], shift: tuple[int, int]) -> None:
    windows = Windows(4, 8, *shift, filled_to=8)
    parts = maps(side, side, side)
    table = tables(windows)
    filled = [np.pad(one, [(0, -side[0] % 8), (0, -side[1] % 8), (0, 0)]) for one in parts]
    expected = rolled(filled, table, (4, 8), shift)[: side[0], : side[1]]
    found = attention_in_windows(node(windows, table), *parts)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_torchvision_does_not_shift_a_window_that_is_alone() -> None:
    windows = Windows(6, 6, 3, 3, shifts_single=False)
    q, k, v = maps((6, 18), (6, 18), (6, 18))
    table = tables(windows)
    found = attention_in_windows(node(windows, table), q, k, v)
    np.testing.assert_allclose(found, rolled([q, k, v], table, (6, 6), (0, 3)), atol=1e-9)


def test_hat_reads_keys_around_a_window() -> None:
    windows = Windows(4, 4, overlap=1)
    w, e = 4, 6
    q, k, v = maps((8, 12), (8, 12), (8, 12))
    table = tables(windows)
    turned = node(windows, table).bias.astype(np.float64)
    around = [np.pad(one, [(1, 1), (1, 1), (0, 0)]) for one in (k, v)]
    expected = np.zeros_like(q)
    for top in range(0, 8, w):
        for left in range(0, 12, w):
            own = q[top : top + w, left : left + w].reshape(w * w, HEADS, DEPTH)
            near = [
                one[top : top + e, left : left + e].reshape(e * e, HEADS, DEPTH) for one in around
            ]
            logits = np.einsum("qhd,khd->hqk", own, near[0]) * DEPTH**-0.5
            for head, i, j in np.ndindex(*logits.shape):
                place = (j // e - i // w + w - 1, j % e - i % w + w - 1)
                logits[head, i, j] += turned[head][place]
            made = np.einsum("hqk,khd->qhd", softmax(logits), near[1])
            expected[top : top + w, left : left + w] = made.reshape(w, w, -1)
    found = attention_in_windows(node(windows, table), q, k, v)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_srformer_compares_queries_with_cells() -> None:
    windows = Windows(8, 8, 4, 4, cell=2)
    q, k, v = maps((16, 8), (8, 4), (8, 4))
    table = tables(windows)
    # A key for each query of its cell weighs four times as much, all alike: softmax divides it out.
    large = [one.repeat(2, 0).repeat(2, 1) for one in (k, v)]
    y, x = np.mgrid[-7:8, -7:8]
    # The cells between a query and a key, by the pixels between them and the query's own place.
    expected = np.zeros_like(q)
    for py, px in np.ndindex(2, 2):
        cells = ((y - py + 1) // 2 + 3) * 7 + (x - px + 1) // 2 + 3
        known = np.clip(cells, 0, 48)
        own = rolled([q, *large], table[known.ravel()], (8, 8), (4, 4))
        expected[py::2, px::2] = own[py::2, px::2]
    found = attention_in_windows(node(windows, table), q, k, v)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (Windows(0, 8), "windows of 0x8"),
        (Windows(8, 8, 8, 0), "shifted by 8, 0"),
        (Windows(64, 64), "windows of 64x64"),
        (Windows(8, 8, filled_to=4096), "multiple of 4096"),
        (Windows(16, 16, overlap=40), "96x96 keys"),
        (Windows(9, 8, cell=2), "do not divide by cells of 2"),
        (Windows(8, 8, overlap=-1), "overlap -1"),
    ],
)
def test_windows_that_do_not_fit(windows: Windows, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        windows.check(1, (1, 1, 1), 4)


def test_what_attention_reads_has_to_fit() -> None:
    net = GraphBuilder("net", 3)
    own, windows = PlanesFrom(0), Windows(2, 2)
    bias = np.zeros((1, 3, 3), np.float32)
    with pytest.raises(ModelError, match="reads planes 1 to 4 of a map of 3"):
        net.append(WindowAttention(own, PlanesFrom(0, 1), own, 3, windows, 1.0, bias))
    with pytest.raises(ModelError, match="2 heads of 3 planes"):
        net.append(WindowAttention(own, own, own, 3, windows, 1.0, np.zeros((2, 3, 3), np.float32)))
    with pytest.raises(ModelError, match=r"bias has the shape \(1, 3, 2\)"):
        net.append(WindowAttention(own, own, own, 3, windows, 1.0, bias[:, :, :2]))
    small = PlanesFrom(net.pixel_unshuffle(0, 2))
    with pytest.raises(ModelError, match="at different places"):
        net.append(WindowAttention(own, small, small, 3, windows, 1.0, bias))


def test_attention_between_planes_is_of_one_map() -> None:
    net = GraphBuilder("net", 3)
    other = net.crop(0, 0)
    own, temperature = PlanesFrom(0), np.ones(1, np.float32)
    with pytest.raises(ModelError, match="queries and keys are of different maps"):
        net.append(ChannelAttention(own, PlanesFrom(other), own, 3, temperature))
    with pytest.raises(ModelError, match="2 heads of 3 planes"):
        net.append(ChannelAttention(own, own, own, 3, np.ones(2, np.float32)))


@pytest.mark.parametrize(
    ("window", "period", "message"),
    [
        (8, 2, "windows of 8, at a period of 2"),
        (-1, 1, "windows of -1"),
        (0, 0, "at a period of 0"),
        (64, 1, "in windows of 64x64"),
        (0, 17, "a period of 17; at most 16"),
    ],
)
def test_parts_that_do_not_fit(window: int, period: int, message: str) -> None:
    net = GraphBuilder("net", 3)
    own, temperature = PlanesFrom(0), np.ones(1, np.float32)
    with pytest.raises(ModelError, match=message):
        net.append(ChannelAttention(own, own, own, 3, temperature, window=window, period=period))


def test_heads_of_windows_have_few_planes() -> None:
    net = GraphBuilder("net", 65)
    own, temperature = PlanesFrom(0), np.ones(1, np.float32)
    with pytest.raises(ModelError, match="between 65 planes in windows of 8x8; at most 64 planes"):
        net.append(ChannelAttention(own, own, own, 65, temperature, window=8))


def test_attention_between_planes_by_omnisr() -> None:
    """Its rearrangements: windows, and the pixels that are alike in all of them."""
    side, (rows, columns) = 4, (12, 8)
    q, k, v = maps(*[(rows, columns)] * 3)
    temperature = RNG.uniform(0.5, 3, HEADS).astype(np.float32)
    own = PlanesFrom(0)

    def attended(axes: tuple[int, ...], back: tuple[int, ...]) -> Maps:
        """The result of maps cut into (down, side, across, side, heads, depth), the first two axes
        of the order being parts, the last two pixels."""
        shape = (rows // side, side, columns // side, side, HEADS, DEPTH)
        cut = [one.reshape(shape).transpose(axes) for one in (q, k, v)]
        flat = [one.reshape(*one.shape[:4], -1) for one in cut]
        unit = [one / np.linalg.norm(one, axis=-1, keepdims=True) for one in flat[:2]]
        logits = unit[0] @ unit[1].swapaxes(-1, -2) * temperature[:, None, None]
        made = (softmax(logits) @ flat[2]).reshape(cut[2].shape)
        return made.transpose(back).reshape(rows, columns, -1)

    windows = attended((0, 2, 4, 5, 1, 3), (0, 4, 1, 5, 2, 3))
    node = ChannelAttention(own, own, own, HEADS * DEPTH, temperature, window=side)
    np.testing.assert_allclose(attention_of_planes(node, q, k, v), windows, atol=1e-12)
    grid = attended((1, 3, 4, 5, 0, 2), (4, 0, 5, 1, 2, 3))
    node = ChannelAttention(own, own, own, HEADS * DEPTH, temperature, period=side)
    np.testing.assert_allclose(attention_of_planes(node, q, k, v), grid, atol=1e-12)


def test_attention_between_planes_of_flat_and_of_black_maps() -> None:
    """Planes that are alike share what they have; none is divided by a norm of 0."""
    own = PlanesFrom(0)
    node = ChannelAttention(own, own, own, 2, np.full(1, 3, np.float32))
    flat = np.full((4, 5, 2), 0.25)
    np.testing.assert_allclose(attention_of_planes(node, flat, flat, flat), flat)
    black = np.zeros((4, 5, 2))
    np.testing.assert_array_equal(attention_of_planes(node, black, black, black), black)
