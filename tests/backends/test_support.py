"""Parts of pictures, run as pictures of their own, against whole pictures: to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.backends.test_backends import in_every_mode
from tests.helpers import obvious
from tests.helpers.graphs import (
    RandomGraph,
    halving_model,
    norms_of_groups,
    reduced_maps,
    sampled_head,
)
from waifu2x.backends import Backend, Network, Precision
from waifu2x.backends.call import Call
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.support import Support
from waifu2x.networks import model_set
from waifu2x.networks.model import Model


def halved() -> Model:
    """A padded layer, a map of half the size, and its enlargement."""
    net = RandomGraph(3, 3)
    value = net.random_convolution(0, 8, 3, 1, 1, "leaky")
    value = net.random_convolution(value, 8, 2, 2, 0, "leaky")
    value = net.random_convolution(value, 8, 3, 1, 1, "leaky")
    net.random_transposed(value, 3, 2, 2, 0, "linear")
    return net.model()


CHAINS: dict[str, list[Model]] = {
    "valid": [obvious.random_model([3, 16, 32, 3], seed=1)],
    "doubling": [obvious.random_model([3, 16, 32, 3], seed=1, scale=2)],
    "two": [obvious.random_model([3, 16, 3], seed=4), obvious.random_model([3, 16, 3], 5, scale=2)],
    "padded and halved": [halved()],
}


def local(network: Network) -> Support:
    """Returns the support of a network that has one."""
    assert network.support is not None
    return network.support


def spans(support: Support, length: int, first: int, end: int) -> tuple[slice, slice]:
    """Returns the pixels that a part is run on, and those whose result is right."""
    begin = max(0, first - support.before) // support.unit * support.unit
    close = end + support.after
    return slice(begin, min(length, -(-close // support.unit) * support.unit)), slice(first, end)


@in_every_mode
@pytest.mark.parametrize("name", CHAINS)
def test_a_part_with_its_reach_is_bit_for_bit_that_of_the_picture(
    backend: Backend, precision: Precision, name: str
) -> None:
    chain = CHAINS[name]
    scale = int(np.prod([model.scale for model in chain]))
    network = backend.compile(chain, precision)
    try:
        if backend.name == "numpy":
            assert network.support is None
            return
        support = local(network)
        height, width = (support.before + support.after + support.unit * n + 5 for n in (3, 4))
        rng = np.random.default_rng(7)
        picture = rng.random((height, width, chain[0].in_planes)).astype(np.float32)
        whole = network.run(Call(picture))
        for top, left in ((1, 2), (0, 3), (2, 0)):
            sides: list[Any] = []
            for first, length in ((top, height), (left, width)):
                sides.append(
                    spans(support, length, first * support.unit, (first + 1) * support.unit)
                )
            (rows, y), (columns, x) = sides
            # Pixels that are far away may be anything.
            other = 1 - picture
            other[rows, columns] = picture[rows, columns]
            part = np.ascontiguousarray(picture[rows, columns])
            inner = Box(
                y.start - rows.start, x.start - columns.start, y.stop - y.start, x.stop - x.start
            )
            for found, up, back in (
                (network.run(Call(part)), rows, columns),
                (network.run(Call(part, inner=inner)), rows, columns),
                (network.run(Call(other)), slice(0, 0), slice(0, 0)),
            ):
                wanted = edged(whole, y, x, scale, slice(0, 0), slice(0, 0))
                np.testing.assert_array_equal(edged(found, y, x, scale, up, back), wanted)
    finally:
        network.close()


def edged(
    result: NDArray[Any], rows: slice, columns: slice, scale: int, up: slice, back: slice
) -> NDArray[Any]:
    """Returns the result of pixels of a picture with one pixel around, where the result begins at
    those where `up` and `back` begin."""
    top, left = max(0, rows.start * scale - 1), max(0, columns.start * scale - 1)
    return result[
        top - up.start * scale : (rows.stop - up.start) * scale + 1,
        left - back.start * scale : (columns.stop - back.start) * scale + 1,
    ]


@pytest.mark.parametrize(
    "model", [halving_model(3), norms_of_groups(), reduced_maps(), sampled_head(2, 2)]
)
def test_what_depends_on_the_whole_picture_has_no_support(model: Model) -> None:
    from waifu2x.lowering.lower import lower
    from waifu2x.lowering.plan.support import support_of

    assert support_of(lower(model), (1, 1)) is None


def test_the_reach_is_that_of_the_layers_and_of_one_pixel_more() -> None:
    """upconv_7 sees 7 pixels on each side; its result is twice as large."""
    from waifu2x.lowering.lower import lower
    from waifu2x.lowering.plan.support import support_of

    (model,) = model_set.find("upconv_7/art").models(2, None)
    assert support_of(lower(model), (1, 1)) == Support(1, 8, 8)
