"""Networks of several frames: windows of frames, and single frames, against the definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from tests.helpers import family_weights, obvious, weight_files
from tests.helpers.family_weights import filled
from tests.networks import test_families as families
from waifu2x import Upscaler, upscale
from waifu2x.backends import Backend
from waifu2x.backends.call import Call
from waifu2x.cli import cli
from waifu2x.errors import ModelError
from waifu2x.networks.activations import leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.frame_windows import WindowNetwork
from waifu2x.networks.model import Model, Surround
from waifu2x.networks.readers import parse_named

FRAMES = 3
HEIGHT, WIDTH = 11, 18


def small(planes: int = 3, surround: Surround | None = None) -> Model:
    """Two convolutions of three frames, and a shuffle: small, and mirrored around."""
    rng = np.random.default_rng(planes)
    net = GraphBuilder("small", planes * FRAMES)
    value = 0
    for made, read in ((8, planes * FRAMES), (4 * planes, 8)):
        weight = (rng.normal(size=(made, read, 3, 3)) / (3 * read)).astype(np.float32)
        bias = (rng.random(made) / 2).astype(np.float32)
        value = net.convolution(value, weight, bias, leaky(0.2, made), padding=1)
    net.pixel_shuffle(value, 2)
    return net.model("zero", frames=FRAMES, surround=surround)


def windows(count: int, planes: int = 3) -> NDArray[np.float32]:
    shape = count, HEIGHT, WIDTH, planes * FRAMES
    return np.random.default_rng(7).random(shape, np.float32)


def result(model: Model, source: NDArray[Any]) -> NDArray[np.float64]:
    return families.result(model, source.astype(np.float64)).clip(0, 1)


def compiled(backend: Backend, model: Model) -> WindowNetwork:
    return WindowNetwork(backend.compile([model], "fp32"), model)


@pytest.mark.parametrize("surround", [None, Surround(8), Surround(8, 8)], ids=str)
def test_windows_are_mirrored_around(surround: Surround | None, backend: Backend) -> None:
    model = small(surround=surround)
    network = compiled(backend, model)
    stack = windows(2)
    made = network.run(Call(stack))
    for window, found in zip(stack, made, strict=True):
        assert obvious.psnr(found, result(model, window)) >= 100
    for call in (Call(stack, tile=7), Call(stack, out=np.empty_like(made))):
        np.testing.assert_array_equal(network.run(call), made)
    np.testing.assert_array_equal(network.run(Call(stack[0])), made[0])


def test_a_frame_is_a_film_that_stands_still(backend: Backend) -> None:
    network = compiled(backend, small(surround=Surround(8)))
    frame = np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    made = network.run(Call(frame))
    assert made.shape == (2 * HEIGHT, 2 * WIDTH, 3)
    assert made.dtype == np.uint8
    still = np.concatenate([frame] * FRAMES, axis=-1)
    np.testing.assert_array_equal(network.run(Call(still)), made)


def test_a_grey_frame_has_a_grey_result(backend: Backend) -> None:
    model = small()
    grey = windows(1, 1)[0, ..., :1].copy()
    made = compiled(backend, model).run(Call(grey))
    rgb = result(model, np.repeat(grey, 3 * FRAMES, -1))
    assert obvious.psnr(made[..., 0], rgb @ [0.299, 0.587, 0.114]) >= 100


def test_transforms_are_of_the_picture_without_what_is_around(backend: Backend) -> None:
    """At an odd size, mirrored pixels are not as many on both sides."""
    model = small(surround=Surround(8))
    window = windows(1)[0]
    made = compiled(backend, model).run(Call(window, tta=8))
    total: Any = 0
    for step in (1, -1):
        for quarters in range(4):
            turned = np.rot90(window[:, ::step], quarters)
            total = total + np.rot90(result(model, turned), -quarters)[:, ::step]
    assert obvious.psnr(made, total / 8) >= 100


def test_pictures_are_enlarged_as_films_that_stand_still(tmp_path: Path) -> None:
    path = tmp_path / "t.pth"
    path.write_bytes(weights("tspan"))
    pixels = families.picture(9, 12).astype(np.float32)
    with Upscaler(2, model=path, backend="numpy", precision="fp32") as upscaler:
        made = upscaler(pixels)
        clear = upscaler(np.concatenate([pixels, pixels[..., :1]], axis=-1))
    model = parse_named(weights("tspan"), "t.pth")
    expected = result(model, np.concatenate([pixels] * 5, axis=-1))
    assert obvious.psnr(made, expected) >= 100
    assert obvious.psnr(clear[..., :3], expected) >= 100
    with pytest.raises(ModelError, match=r"takes 5 frames runs alone, not in a chain of 2; choose"):
        upscale(pixels, 3, model=path, backend="numpy")


def test_an_animation_is_said_to_be_enlarged_frame_by_frame(tmp_path: Path) -> None:
    path = tmp_path / "t.pth"
    path.write_bytes(weights("tspan"))
    frames = [Image.new("RGB", (9, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:], duration=100)
    words = [str(tmp_path / "a.gif"), str(tmp_path / "b.gif"), "-m", str(path), "--backend"]
    done = CliRunner().invoke(cli, ["upscale", *words, "numpy"])
    assert done.exit_code == 0, done.stderr
    told = "each of its frames is enlarged as if the film stood still; use `waifu2x video`"
    assert told in done.stderr
    assert CliRunner().invoke(cli, ["video", *words, "numpy", "--overwrite"]).exit_code == 0
    told = CliRunner().invoke(cli, ["models", "info", str(path)]).stdout
    assert "frames: it takes 5 of a film, and makes the middle one" in told


def test_results_have_the_planes_of_a_frame(tmp_path: Path) -> None:
    tensors = filled(family_weights.tspan())
    for key in [key for key in tensors if key.startswith(("center_conv", "history_convs"))]:
        if tensors[key].ndim == 4 and tensors[key].shape[1] == 3:
            tensors[key] = tensors[key][:, :1].copy()
    (tmp_path / "t.pth").write_bytes(weight_files.pth(tensors))
    with pytest.raises(ModelError, match="take 1 planes and make 3, not 1 or 3"):
        upscale(np.zeros((8, 8), np.uint8), 2, model=tmp_path / "t.pth", backend="numpy")


def test_no_network_takes_more_frames_than_memory_holds() -> None:
    content = weight_files.pth(filled(family_weights.tspan(frames=17)))
    with pytest.raises(ModelError, match="it asks for more than 15 frames of a film"):
        parse_named(content, "t.pth")


def weights(name: str) -> bytes:
    return weight_files.pth(families.CHECKS[name].tensors())
