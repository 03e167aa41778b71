"""Graphs built node by node: what is known of each value, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.graphs import fit_padding
from waifu2x.errors import ModelError
from waifu2x.networks import model
from waifu2x.networks.activations import leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.nodes import (
    MOST_PLANES,
    Concatenate,
    Convolution,
    Enlarge,
    InterpolateTo,
    MaxPool,
    Node,
    PixelShuffle,
    ValueShape,
)
from waifu2x.networks.shared import doubled, halved


def weights(made: int, read: int, taps: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(made)
    weight = rng.normal(size=(made, read, taps, taps)).astype(np.float32)
    return weight, rng.normal(size=made).astype(np.float32)


def test_every_shape_is_known_while_the_graph_grows() -> None:
    net = GraphBuilder("m", 3)
    assert (net.last, net.planes(0), net.is_vector(0)) == (0, 3, False)
    wide = net.convolution(0, *weights(8, 3, 3))
    small = net.convolution(wide, *weights(8, 8, 2), stride=2)
    mean = net.mean(small)
    factors = net.dense(mean, weights(8, 8, 1)[0][:, :, 0, 0], np.zeros(8, np.float32))
    scaled = net.multiply(small, factors)
    up = net.transposed(scaled, *weights(8, 8, 2), stride=2)
    both = net.concatenate(up, wide)
    last = net.convolution(both, *weights(12, 16, 3), padding=1)
    shuffled = net.pixel_shuffle(last, 2)
    net.add(shuffled, net.crop(net.enlarge(0, 2), 2))
    one = Fraction(1)
    assert [net.shape(value) for value in range(11)] == [
        ValueShape(3, one, Fraction(0)),
        ValueShape(8, one, one),
        ValueShape(8, one / 2, one),
        ValueShape(8, None, Fraction(0)),
        ValueShape(8, None, Fraction(0)),
        ValueShape(8, one / 2, one),
        ValueShape(8, one, one),
        ValueShape(16, one, one),
        ValueShape(12, one, one),
        ValueShape(3, 2 * one, one),
        ValueShape(3, 2 * one, Fraction(0)),
    ]
    made = net.model("reflect")
    assert (made.scale, made.padding, made.multiple, made.border) == (2, 1, 2, "reflect")
    again = fit_padding("m", 3, net.nodes, "reflect")
    assert again.shapes == made.shapes == tuple(map(net.shape, range(13)))


def test_shapes_are_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred: list[str] = []

    def counted(node: Node, *rest: Any) -> ValueShape:
        inferred.append(type(node).__name__)
        return infer(node, *rest)

    infer = Node.infer_shape
    monkeypatch.setattr(Node, "infer_shape", counted)
    net = GraphBuilder("m", 3)
    net.pixel_shuffle(net.convolution(net.pixel_unshuffle(0, 4), *weights(48, 48, 1)), 4)
    assert net.model().multiple == 4
    assert inferred == ["PixelUnshuffle", "Convolution", "PixelShuffle"]
    assert model.Model("m", 3, net.nodes, 0, "replicate", 4).multiple == 4
    assert len(inferred) == 6


REFUSED: dict[str, tuple[Callable[[GraphBuilder], object], str]] = {
    "planes": (
        lambda net: net.convolution(net.enlarge(0, 2), *weights(4, 5, 3)),
        "weight reads 5 planes, but node 1 (Enlarge) makes 3",
    ),
    "vector": (lambda net: net.crop(net.mean(0), 1), "reads a vector, but expected a map"),
    "map": (lambda net: net.dense(0, *weights(4, 3, 1)), "reads a map, but expected a vector"),
    "places": (lambda net: net.add(net.crop(0, 1), 0), "its sources lie at different places"),
    "sum": (
        lambda net: net.add(net.convolution(0, *weights(4, 3, 1)), 0),
        "adds the 3 planes of the picture to the 4 of node 1 (Convolution)",
    ),
    "maxima of nothing": (
        lambda net: net.append(MaxPool(0, 0, 1)),
        "kernel 0, stride 1; at most 64",
    ),
    "far maxima": (lambda net: net.append(MaxPool(0, 2, 65)), "kernel 2, stride 65; at most 64"),
    "like a smaller one": (
        lambda net: net.append(InterpolateTo(net.enlarge(0, 2), 0)),
        "its result is smaller than what it reads",
    ),
    "like a vector": (
        lambda net: net.append(InterpolateTo(0, net.mean(0))),
        "its result is smaller",
    ),
    "nothing": (lambda net: net.append(Concatenate(())), "reads no value"),
    "later": (lambda net: net.append(Enlarge(1, 2)), "reads value 1, which is not made before"),
    "factor": (lambda net: net.pixel_shuffle(0, 2), "3 planes are not a multiple of 4"),
    "scale": (lambda net: net.enlarge(0, 65), "its map is 65 times the picture, but at most 64"),
    "small": (lambda net: net.pixel_unshuffle(0, 65), "its map is 1/65 times the picture"),
    "margin": (lambda net: net.crop(0, 1025), "begins more than 1024 pixels inside the picture"),
    "many": (lambda net: net.pixel_unshuffle(0, 64) and net.concatenate(*[1] * 6), "makes 73728 p"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_names_file_and_layer(name: str) -> None:
    build, message = REFUSED[name]
    net = GraphBuilder("m.pth", 3)
    with pytest.raises(ModelError) as caught:
        build(net)
    assert str(caught.value).startswith("m.pth: node ")
    assert message in str(caught.value)
    named = GraphBuilder("m.pth", 3)
    named.layer = "body.0"
    with pytest.raises(ModelError, match=r"^m\.pth: body\.0: "):
        build(named)


def test_a_refused_node_leaves_nothing() -> None:
    net = GraphBuilder("m", 3)
    with pytest.raises(ModelError):
        net.pixel_shuffle(0, 2)
    assert (net.last, net.nodes) == (0, ())
    net.enlarge(0, 2)
    assert net.model().scale == 2


def test_pictures() -> None:
    for planes in (0, -1, MOST_PLANES + 1):
        with pytest.raises(ModelError, match=f"m: the picture: it makes {planes} planes"):
            GraphBuilder("m", planes)
    with pytest.raises(ModelError, match="a network without nodes"):
        GraphBuilder("m", 3).model()
    net = GraphBuilder("m", 3)
    net.convolution(0, *weights(4, 3, 1))
    assert net.model().out_planes == 4
    with pytest.raises(ModelError, match="makes 4 planes of the picture's 3: a picture must stay"):
        net.model(same_planes=True)


def test_a_node_is_exchanged_for_one_of_the_same_shape() -> None:
    net = GraphBuilder("m", 3)
    value = net.convolution(0, *weights(12, 3, 3))
    net.activate(value, leaky(0.1, 12))
    node = net.node(value)
    assert isinstance(node, Convolution)
    assert node.activation.slopes.tolist() == leaky(0.1, 12).slopes.tolist()
    with pytest.raises(ModelError, match="changes the shape"):
        net.exchange(value, PixelShuffle(0, 1))
    assert net.node(value) is node


def test_rescaled_networks_compute_what_they_say() -> None:
    plain = obvious.random_model((3, 4, 3), seed=5)
    picture = np.random.default_rng(2).random((6, 8, 3))
    expected = obvious.run([plain], picture.repeat(2, 0).repeat(2, 1))
    np.testing.assert_allclose(obvious.run([doubled(plain)], picture), expected, atol=1e-12)
    large = obvious.values(doubled(plain), picture)[-1]
    mean = large.reshape(6, 2, 8, 2, 3).mean((1, 3))
    np.testing.assert_allclose(obvious.values(halved(doubled(plain)), picture)[-1], mean, atol=1e-7)
