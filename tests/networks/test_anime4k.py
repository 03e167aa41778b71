"""Anime4K's networks, as they are shipped: their formulas, and results of the shaders."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from release.anime4k import converted
from tests.helpers import obvious
from tests.helpers.cases import thinned
from waifu2x.backends import Backend
from waifu2x.backends.call import Call
from waifu2x.errors import ModelError
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers import architectures, waifu2x_json

SIZES = "sml"


def model(size: str, noise: int | None) -> Model:
    (found,) = model_set.find(f"anime4k/{size}").models(2 if noise is None else 1, noise)
    return found


def picture(height: int = 41, width: int = 38) -> NDArray[np.float64]:
    return np.random.default_rng(1).random((3, height, width)).transpose(1, 2, 0)


@pytest.mark.parametrize(
    ("size", "middle", "multiply_adds"),
    [("s", 0.315702, 1008), ("m", 0.315782, 2544), ("l", 0.399066, 8544)],
)
def test_the_middle_of_a_picture(size: str, middle: float, multiply_adds: int) -> None:
    found = model(size, None)
    made = obvious.values(found, picture())[-1]
    assert made.shape == (82, 76, 3)
    assert made[41, 38, 1] == pytest.approx(middle, abs=1e-6)
    # Both signs of what a layer makes are made here, and the transparency is not read.
    assert found.multiply_adds < multiply_adds


def by_definition(size: str, noise: int | None, source: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shader's formulas, valid: what is left of a picture without any border."""
    role = "noise0" if noise == 0 else "scale2.0x"
    path = model_set.find(f"anime4k/{size}").folder / f"{role}_model.json"
    layers = waifu2x_json.parse(path.read_bytes(), "m")[0].layers

    def valid(source: NDArray[np.float64], layer: architectures.Layer) -> NDArray[np.float64]:
        windows = np.lib.stride_tricks.sliding_window_view(source, layer.weight.shape[2:], (0, 1))
        made: NDArray[np.float64] = np.einsum("yxipq,oipq->yxo", windows, layer.weight)
        return made + layer.bias

    signs = []
    value = source
    for layer in layers[:-1]:
        value = valid(value, layer)
        value = np.concatenate([value.clip(0), (-value).clip(0)], axis=-1)
        signs.append(value)
    if layers[-1].weight.shape[-1] == 1:
        cuts = [(len(each) - len(value)) // 2 for each in signs]
        value = np.concatenate(
            [
                each[cut : len(each) - cut, cut : each.shape[1] - cut]
                for cut, each in zip(cuts, signs, strict=True)
            ],
            axis=-1,
        )
    value = valid(value, layers[-1])
    lost = (len(source) - len(value)) // 2
    inner = source[lost:-lost, lost:-lost]
    if noise == 0:
        return inner + value
    rows, columns, planes = value.shape
    cells = value.reshape(rows, columns, planes // 4, 2, 2).transpose(0, 3, 1, 4, 2)
    added = cells.reshape(2 * rows, 2 * columns, planes // 4)
    enlarged = np.zeros((2 * rows, 2 * columns, 3))
    for y in range(2 * rows):
        for x in range(2 * columns):
            at = (y + 0.5) / 2 - 0.5 + lost, (x + 0.5) / 2 - 0.5 + lost
            (top, left), (down, right) = (int(n) for n in at), (n % 1 for n in at)
            four = source[top : top + 2, left : left + 2]
            enlarged[y, x] = np.einsum("y,x,yxp->p", [1 - down, down], [1 - right, right], four)
    return enlarged + added


@pytest.mark.parametrize("noise", [None, 0])
@pytest.mark.parametrize("size", SIZES)
def test_by_its_formula(size: str, noise: int | None) -> None:
    source = picture(19, 23)
    found = model(size, noise)
    made = obvious.values(found, source)[-1]
    inner = by_definition(size, noise, source)
    lost = (len(made) - len(inner)) // 2
    np.testing.assert_allclose(made[lost:-lost, lost:-lost], inner, rtol=0, atol=1e-6)
    # Beyond the picture, it reads the nearest pixel.
    assert (found.border, found.multiple, found.padding * found.scale) == ("replicate", 1, lost)


@pytest.mark.parametrize("backend", ["cpu", "opencl"], indirect=True)
@pytest.mark.parametrize(("size", "noise"), thinned(SIZES, (None, 0)))
def test_every_backend_runs_it(backend: Backend, size: str, noise: int | None) -> None:
    pixels = np.ascontiguousarray(picture(33, 27), np.float32)
    found = model(size, noise)
    made = backend.compile([found], "fp32").run(Call(pixels, np.float32))
    assert obvious.psnr(made, obvious.run([found], pixels)) >= 100


def test_a_flat_picture_stays_about_what_it_is() -> None:
    flat = np.full((12, 12, 3), 0.5)
    for size in SIZES:
        for noise in (None, 0):
            made = obvious.values(model(size, noise), flat)[-1]
            np.testing.assert_allclose(made, 0.5, atol=0.05)
            assert np.ptp(made, axis=(0, 1)).max() < 0.01


def test_weights_lie_column_first_behind_both_signs() -> None:
    """The package's order: source, tap (columns first), plane read, plane made."""

    def part(groups: int, taps: int) -> dict[str, list[float]]:
        count = groups * taps**2 * 16
        return {"weights": np.arange(count, dtype=float).tolist(), "bias": [1.0, 2.0, 3.0, 4.0]}

    first = part(1, 3)
    numbers = np.array(first["weights"]).reshape(9, 4, 4)
    numbers[:, 3] = 0  # transparency
    first["weights"] = numbers.ravel().tolist()
    document = {
        "name": "anime4k/cnn-2x-s",
        "layers": {"conv2d_tf": first, "conv2d_last_tf": part(2, 1), "pixel_shuffle": {}},
    }
    weights = converted(document)
    assert weights.architecture == "anime4k_2x"
    one, last = (layer.weight for layer in weights.layers)
    assert (one.shape, last.shape) == ((4, 3, 3, 3), (4, 8, 1, 1))
    # Row 0 and column 2 are the tap (dx, dy) = (1, -1), the seventh.
    assert one[1, 2, 0, 2] == numbers[6, 2, 1]
    assert last[3, 5, 0, 0] == (1 * 4 + 1) * 4 + 3


@pytest.mark.parametrize("planes", [5, 24])
def test_last_planes_that_make_no_picture_are_refused(planes: int) -> None:
    """Twelve are four pixels of three colours: 5 do not divide them, 24 are too many."""
    first = architectures.Layer(
        "convolution", np.ones((4, 3, 3, 3), np.float32), np.zeros(4, np.float32)
    )
    last = architectures.Layer(
        "convolution", np.ones((planes, 8, 1, 1), np.float32), np.zeros(planes, np.float32)
    )
    with pytest.raises(
        ModelError, match=f"layer 2: weight makes {planes} planes, which do not divide"
    ):
        architectures.build("set", "anime4k_2x", [first, last])
