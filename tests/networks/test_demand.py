"""Demands of a model are counted before they are met: it is refused in a sentence, or done in
bounded time and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers import greedy_models, weight_files
from tests.helpers.onnx_files import model, node
from waifu2x.errors import ModelError
from waifu2x.lowering.lower import lower
from waifu2x.networks.readers import parse_named

MODELS = dict(greedy_models.models())
REFUSED = {
    # 748 bytes, which took 31 s and 1.85 GB.
    "64 by 16 parts, Relu": r"node 3 \(Convolution\): it asks for more than 16,777,216 weights",
    "64 by 64 parts, Conv": r"asks for more than 4,096 joined maps",
    "9000 of Add itself": "asks for more than 4,096 nodes",
    "40 layers of 512 planes, 3x3, one weight": "asks for more than",
    "2000 means one after another": "asks for more than 512 means over the picture",
    "400 maps 32 times the picture": "asks for more than 268,435,456 multiply-adds for a pixel of",
}


def test_enough_models_that_ask_for_too_much() -> None:
    assert len(MODELS) >= 100


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_it_is_done(name: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[name]) as caught:
        parse_named(MODELS[name], "m.onnx")
    message = str(caught.value)
    assert message.startswith("m.onnx: ")
    assert message.isprintable()
    assert len(message) < 200


def test_copies_into_a_concatenation_are_made_once() -> None:
    nodes = [
        node("Concat", ["input", "input"], ["a"], axis=1),
        node("Concat", ["input", "input", "input"], ["b"], axis=1),
        node("Conv", ["a", "v"], ["x"]),
        node("Conv", ["b", "w"], ["y"]),
        node("Add", ["x", "y"], ["output"]),
    ]
    weights = {"v": np.ones((3, 6, 1, 1), np.float32), "w": np.ones((3, 9, 1, 1), np.float32)}
    program = lower(parse_named(model(nodes, weights), "m.onnx"))
    written = [step.writes for step in program.steps]
    # The shorter one is the start of the longer one, whose three parts are copies.
    assert max(map(written.count, written)) == 3


def test_the_largest_networks_of_the_field_are_not_refused() -> None:
    for tensors, scale in (
        (weight_files.esrgan(blocks=23), 4),
        (weight_files.old_esrgan(4, blocks=23), 16),
    ):
        assert parse_named(weight_files.pth(tensors), "m.pth").scale == scale


@pytest.mark.matrix
@pytest.mark.parametrize("name", MODELS)
def test_refused_or_done_within_bounds(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(MODELS[name])
    said, _, mebibytes = greedy_models.run(path, 30)
    assert said.startswith(("made", "ModelError: ", "BackendError: ")), said
    assert mebibytes < 1024
