"""GridSample agrees with its definition: by hand, and by PyTorch's grid_sample."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from waifu2x.errors import ModelError
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.nodes import GridSample


def sampled(
    source: NDArray[np.float64], offsets: NDArray[np.float64], scale: int, groups: int
) -> NDArray[np.float64]:
    """(rows, columns, planes * scale**2) by the definition that tests hold every backend to."""
    both = np.concatenate([source, offsets], axis=2)
    net = GraphBuilder("sampled", both.shape[2])
    read, moves = net.split(0, source.shape[2], offsets.shape[2])
    net.append(GridSample(read, moves, scale, groups))
    return obvious.values_of(net.nodes, both)[-1]


def test_offsets_move_samples_along_their_axes() -> None:
    source = np.array([[0.0, 1, 2], [10, 11, 12]])[:, :, None]
    none = np.zeros((2, 3, 2))
    np.testing.assert_array_equal(sampled(source, none, 1, 1), source)
    right, down = none.copy(), none.copy()
    right[..., 0], down[..., 1] = 0.25, 0.5
    np.testing.assert_allclose(
        sampled(source, right, 1, 1)[..., 0], [[0.25, 1.25, 2], [10.25, 11.25, 12]]
    )
    np.testing.assert_allclose(sampled(source, down, 1, 1)[..., 0], [[5, 6, 7], [10, 11, 12]])
    np.testing.assert_allclose(sampled(source, right * 4000, 1, 1)[..., 0], [[2] * 3, [12] * 3])
    np.testing.assert_allclose(sampled(source, down * -4000, 1, 1)[..., 0], [[0, 1, 2]] * 2)


def test_planes_of_samples() -> None:
    """Without offsets it is bilinear enlargement; sample by sample, then plane by plane."""
    source = np.arange(2.0 * 2).reshape(1, 2, 2)
    made = sampled(source, np.zeros((1, 2, 16)), 2, 2)[0]
    assert made.shape == (2, 8)
    np.testing.assert_allclose(made[0], [0, 1, 0.5, 1.5, 0, 1, 0.5, 1.5])
    np.testing.assert_allclose(made[1], [1.5, 2.5, 2, 3, 1.5, 2.5, 2, 3])
    moved = np.zeros((1, 2, 16))
    moved[0, 0, (3 * 2 + 1) * 2] = 0.75  # of the last sample, the second group
    changed = sampled(source, moved, 2, 2)[0]
    assert changed[0, 7] == made[0, 7] + 1.5
    changed[0, 7] = made[0, 7]
    np.testing.assert_array_equal(changed, made)


@pytest.mark.parametrize(("scale", "groups", "reach"), [(1, 3, 4.0), (2, 4, 0.5), (3, 3, 50.0)])
def test_it_is_what_dysample_does_in_pytorch(scale: int, groups: int, reach: float) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(scale)
    rows, columns, planes = 7, 5, 12
    source = rng.normal(size=(rows, columns, planes))
    offsets = rng.normal(size=(rows, columns, scale**2, groups, 2)) * reach
    inner = (torch.arange(scale, dtype=torch.float64) - (scale - 1) / 2) / scale
    moves = torch.from_numpy(offsets).permute(4, 3, 2, 0, 1)  # [x, y][group][sample]
    moves = moves.reshape(2, groups, scale, scale, rows, columns).clone()
    moves[0] += inner.reshape(1, 1, scale, 1, 1)
    moves[1] += inner.reshape(1, scale, 1, 1, 1)
    grid = torch.stack(
        torch.meshgrid(torch.arange(columns) + 0.5, torch.arange(rows) + 0.5, indexing="xy")
    )
    places = grid.reshape(2, 1, 1, 1, rows, columns) + moves
    places = 2 * places / torch.tensor([columns, rows]).reshape(2, 1, 1, 1, 1, 1) - 1
    places = torch.nn.functional.pixel_shuffle(places.reshape(1, -1, rows, columns), scale)
    places = places.reshape(2, groups, rows * scale, columns * scale).permute(1, 2, 3, 0)
    maps = torch.from_numpy(source).permute(2, 0, 1).reshape(groups, -1, rows, columns)
    expected = torch.nn.functional.grid_sample(
        maps, places, mode="bilinear", align_corners=False, padding_mode="border"
    )
    made = sampled(source, offsets.reshape(rows, columns, -1), scale, groups)
    cells = made.reshape(rows, columns, scale, scale, planes).transpose(4, 0, 2, 1, 3)
    large = cells.reshape(groups, -1, rows * scale, columns * scale)
    np.testing.assert_allclose(large, expected.numpy(), rtol=0, atol=1e-12)


def test_what_does_not_fit() -> None:
    net = GraphBuilder("m", 8)
    with pytest.raises(ModelError, match="reads 16 offsets, but the picture makes 8"):
        net.append(GridSample(0, 0, 2, 2))
    with pytest.raises(ModelError, match="3 groups of 8 planes"):
        net.append(GridSample(0, 0, 1, 3))
    with pytest.raises(ModelError, match="factor 0"):
        net.append(GridSample(0, 0, 0, 1))
    with pytest.raises(ModelError, match="its sources lie at different places"):
        net.append(GridSample(0, net.crop(0, 1), 2, 1))
    with pytest.raises(ModelError, match="expected maps"):
        net.append(GridSample(0, net.mean(0), 2, 1))
