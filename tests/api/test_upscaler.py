"""Pictures through networks: planes, transparency, passes, and the Python interface."""

from __future__ import annotations

import importlib
import io
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import waifu2x
from tests.helpers import obvious
from waifu2x.api import Upscaler
from waifu2x.backends import Backend, Device
from waifu2x.backends.call import Call
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump


@pytest.fixture(scope="module")
def y_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a model set of one plane: a scale model and one noise level."""
    folder = tmp_path_factory.mktemp("vgg_7_y")
    for seed, name in ((1, "scale2.0x_model.json"), (2, "noise1_model.json")):
        (folder / name).write_bytes(written(obvious.random_model([1, 16, 16, 1], seed)))
    return folder


def written(model: Model) -> bytes:
    """Writes a stack of convolutions as waifu2x JSON."""
    layers = [Layer("convolution", node.weight, node.bias) for _, node in model.weighted]
    return dump(NetworkWeights(f"vgg_{len(layers)}", layers))


upscale: Any = partial(waifu2x.upscale, model="vgg_7", precision="fp32")
"""Exact enough to be compared level by level."""


def expected(pixels: NDArray[Any], scale: int, noise: int | None) -> NDArray[np.float64]:
    """Returns the shipped models' result for RGB pixels, by definition."""
    return obvious.run(model_set.find("vgg_7/art").models(scale, noise), pixels)


def assert_levels(result: NDArray[Any], values: NDArray[np.float64]) -> None:
    """Asserts that 8-bit results are exact, except at rounding boundaries."""
    difference = abs(result.astype(int) - obvious.to_levels(values, np.uint8).astype(int))
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 1 / 1000


@pytest.mark.parametrize(("scale", "noise"), [(1, 1), (2, None), (2, 3), (4, 0), (8, None)])
def test_passes(drawn: NDArray[np.uint8], scale: int, noise: int | None) -> None:
    pixels = drawn[40:54, 50:68]
    result = upscale(pixels, scale, noise)
    assert result.shape == (14 * scale, 18 * scale, 3)
    values = np.ascontiguousarray(pixels)
    models = model_set.find("vgg_7/art")
    # Denoised once and first, then doubled; never rounded in between.
    chain = [] if noise is None else models.models(1, noise)
    chain += models.models(2, None) * (scale.bit_length() - 1) if scale > 1 else []
    assert_levels(result, obvious.run(chain, values))


def test_array_kinds_come_back_as_they_went(drawn: NDArray[np.uint8]) -> None:
    pixels = drawn[40:60, 50:80]
    with Upscaler(scale=2, model="vgg_7") as upscaler:
        for planes in (1, 2, 3, 4):
            image = np.concatenate([pixels, pixels[..., :1]], axis=-1)[..., :planes]
            assert upscaler(image).shape == (40, 60, planes)
        assert upscaler(pixels[..., 0]).shape == (40, 60)
        for dtype in (np.uint8, np.uint16, np.float32):
            assert upscaler((pixels > 99).astype(dtype)).dtype == dtype


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_arrays_of_either_byte_order(drawn: NDArray[np.uint8], dtype: type) -> None:
    values = drawn[:12, :10].astype(np.float32) / 255
    pixels = values if dtype is np.float32 else np.rint(values * 65535).astype(dtype)
    with Upscaler(model="vgg_7", backend="numpy") as upscaler:
        expected = upscaler(pixels)
        for dtype_of_order in (
            np.dtype(dtype).newbyteorder("<"),
            np.dtype(dtype).newbyteorder(">"),
        ):
            found = upscaler(pixels.astype(dtype_of_order))
            assert found.dtype == dtype
            assert (found == expected).all()


def test_sixteen_bits_keep_what_eight_lose(drawn: NDArray[np.uint8]) -> None:
    pixels = drawn[40:60, 50:80].astype(np.uint16) * 257
    result = upscale(pixels, scale=2)
    exact = obvious.to_levels(expected(pixels, 2, None), np.uint16).astype(int)
    assert abs(result.astype(int) - exact).max() <= 1


def test_pil_image_comes_back_as_one(drawn: NDArray[np.uint8]) -> None:
    image = Image.fromarray(drawn[40:60, 50:80])
    result = upscale(image, scale=2)
    assert isinstance(result, Image.Image)
    assert (result.mode, result.size) == ("RGB", (60, 40))
    assert_levels(np.asarray(result), expected(np.asarray(image), 2, None))


def test_pil_image_comes_back_upright(drawn: NDArray[np.uint8]) -> None:
    image = Image.fromarray(drawn[40:60, 50:80])
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its left side
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=exif)
    with Image.open(stream) as stored:
        result = upscale(stored, scale=2)
    assert result.size == (40, 60)
    assert not result.getexif()  # or a viewer would turn it once more
    upright = upscale(image.transpose(Image.Transpose.ROTATE_270), scale=2)
    assert result.tobytes() == upright.tobytes()


def test_pil_image_of_a_damaged_file(drawn: NDArray[np.uint8]) -> None:
    stream = io.BytesIO()
    Image.fromarray(drawn).save(stream, "PNG")
    with Upscaler(model="vgg_7") as upscaler:
        with (
            Image.open(io.BytesIO(stream.getvalue()[:-3000])) as cut_off,
            pytest.raises(waifu2x.ImageError, match="the picture: damaged, cut off, or"),
        ):
            upscaler(cut_off)
        with Image.open(stream) as closed:
            pass
        with pytest.raises(waifu2x.ImageError, match="its file was closed before it was read"):
            upscaler(closed)


def test_grey_stays_grey(drawn: NDArray[np.uint8]) -> None:
    grey = np.asarray(Image.fromarray(drawn).convert("L"))[40:70, 50:90]
    rgb = expected(np.stack([grey] * 3, axis=-1), 2, None)
    luma = rgb @ np.array([0.299, 0.587, 0.114])
    assert_levels(upscale(grey, scale=2), luma)


def test_one_plane_model_on_colours(drawn: NDArray[np.uint8], y_models: Path) -> None:
    """Luma through the network, chroma by bicubic interpolation: the model sees Y only."""
    pixels = drawn[40:70, 50:90]
    result = upscale(pixels, scale=2, model=str(y_models))
    rgb = pixels / 255.0
    y = rgb @ np.array([0.299, 0.587, 0.114])
    u, v = 0.492 * (rgb[..., 2] - y), 0.877 * (rgb[..., 0] - y)
    y_float = np.ascontiguousarray(y[..., None].astype(np.float32))
    big_y = obvious.run(model_set.find(str(y_models)).models(2, None), y_float)[..., 0]
    big_u, big_v = (
        np.asarray(Image.fromarray(c.astype(np.float32)).resize((80, 60), Image.Resampling.BICUBIC))
        for c in (u, v)
    )
    red, blue = big_y + 1.14 * big_v, big_y + 2.032 * big_u
    green = big_y - 0.395 * big_u - 0.581 * big_v
    values = np.clip(np.stack([red, green, blue], axis=-1), 0, 1)
    assert_levels(result, values)


def test_one_plane_model_on_grey_is_the_plain_network(
    drawn: NDArray[np.uint8], y_models: Path
) -> None:
    grey = np.ascontiguousarray(drawn[40:70, 50:90, :1])
    result = upscale(grey, scale=4, noise=1, model=str(y_models))
    chain = model_set.find(str(y_models)).models(4, 1)
    assert_levels(result, obvious.run(chain, grey))


def test_opaque_alpha_stays_opaque_and_changes_nothing(drawn: NDArray[np.uint8]) -> None:
    pixels = drawn[40:60, 50:80]
    opaque = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    result = upscale(opaque, scale=2)
    assert (result[..., 3] == 255).all()
    np.testing.assert_array_equal(result[..., :3], upscale(pixels, scale=2))


def test_alpha_goes_through_the_scale_model_without_denoising(drawn: NDArray[np.uint8]) -> None:
    pixels, alpha = drawn[40:60, 50:80], drawn[80:100, 50:80, 0].copy()
    alpha[3:9, 4:11] = 255  # some of it opaque, none of it 0: no colour bleeds
    alpha[alpha == 0] = 1
    result = upscale(np.dstack([pixels, alpha]), scale=2, noise=2)
    planes = expected(np.stack([alpha] * 3, axis=-1), 2, None)
    assert_levels(result[..., 3], planes.mean(axis=-1))
    assert_levels(result[..., :3], expected(pixels, 2, 2))


def test_noise_alone_leaves_alpha_alone(drawn: NDArray[np.uint8]) -> None:
    image = np.dstack([drawn[40:60, 50:80], drawn[80:100, 50:80, 0]])
    result = upscale(image, scale=1, noise=1)
    np.testing.assert_array_equal(result[..., 3], image[..., 3])


def test_a_missing_scale_model_is_found_before_the_work(
    drawn: NDArray[np.uint8], y_models: Path, tmp_path: Path
) -> None:
    """A model that denoises and enlarges at once serves the colours, but not transparency."""
    data = (y_models / "scale2.0x_model.json").read_bytes()
    (tmp_path / "noise1_scale2.0x_model.json").write_bytes(data)
    pixels = drawn[40:60, 50:80]
    image = np.dstack([pixels, drawn[80:100, 50:80, 0]])
    parts: list[float] = []
    with Upscaler(2, 1, model=str(tmp_path)) as upscaler:
        with pytest.raises(waifu2x.ModelError) as caught:
            upscaler(image, on_progress=parts.append)
        assert str(caught.value) == (
            f"transparency needs a scale model: {tmp_path}:"
            " no model that enlarges: scale2.0x_model.json is missing"
        )
        assert parts == []
        # A picture that is opaque everywhere, or transparent alike, needs none.
        image[..., 3] = 255
        assert upscaler(image).shape == (40, 60, 4)


def test_a_scale_model_of_other_planes_does_not_serve_transparency(
    drawn: NDArray[np.uint8], y_models: Path, tmp_path: Path
) -> None:
    data = (y_models / "scale2.0x_model.json").read_bytes()
    (tmp_path / "scale2.0x_model.json").write_bytes(data)
    data = written(obvious.random_model([3, 8, 3], 3))
    (tmp_path / "noise1_scale2.0x_model.json").write_bytes(data)
    image = np.dstack([drawn[40:60, 50:80], drawn[80:100, 50:80, 0]])
    with (
        Upscaler(2, 1, model=str(tmp_path)) as upscaler,
        pytest.raises(waifu2x.ModelError, match=r"transparency needs a scale model: .* 3 planes"),
    ):
        upscaler(image)


def test_what_lies_under_transparent_pixels_does_not_show() -> None:
    """A sprite on a transparent ground: its edge must not take the ground's hidden colour."""
    sprite = np.zeros((40, 40, 4), np.uint8)
    sprite[..., :3] = (0, 255, 0)
    sprite[12:28, 12:28] = (200, 40, 40, 255)
    result = upscale(sprite, scale=2)
    visible = result[..., 3] > 0
    assert visible.any()
    assert abs(result[visible][:, :3].astype(int) - (200, 40, 40)).max() < 25


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 5), np.uint8), r"Expected shape \(H, W\), \(H, W, 1 to 4\) or"),
        (np.zeros(4, np.uint8), "Expected shape"),
        (np.zeros((0, 4, 3), np.uint8), "Expected at least one pixel"),
        (np.zeros((4, 4, 3), np.float64), "Expected uint8, uint16 or float32, but got float64"),
        (
            np.full((4, 4, 3), np.nan, np.float32),
            r"Expected float32 in \[0, 1\], but got NaN; replace it first",
        ),
        (np.full((2, 4, 4, 3), [0, 1, np.inf], np.float32), "but got infinity; replace it"),
        (np.full((4, 4), -0.5, np.float32), "but got -0.5 to -0.5"),
        (np.zeros((0, 4, 4, 3), np.uint8), "Expected at least one pixel"),
        (Image.new("RGB", (0, 5)), "the picture: it has no pixels: its size is 0x5"),
        ([[1, 2], [3, 4]], "Expected a NumPy array, a PIL image, or an object .* but got list"),
        (Image.new("F", (4, 4)), "F pictures are not supported"),
    ],
)
def test_images_that_cannot_be_handled(image: Any, message: str) -> None:
    with Upscaler(model="vgg_7") as upscaler, pytest.raises(waifu2x.ImageError, match=message):
        upscaler(image)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 33}, "Expected a scale above 0, at most 32, but got 33"),
        ({"noise": 4}, "Expected a noise level"),
        ({"scale": 1}, "Nothing to do"),
        ({"tile": 0}, "Expected a tile of at least 1 pixel or None, but got 0"),
        ({"tile": -16}, "Expected a tile"),
        ({"tile": 16.5}, "Expected a tile .* but got 16.5"),
        ({"tile": "auto"}, "Expected a tile .* but got 'auto'"),
        ({"tile": True}, "Expected a tile .* but got True"),
        ({"scale": 0.0}, "Expected a scale above 0, at most 32, but got 0.0"),
        ({"scale": True, "noise": 1}, "Expected a scale .* but got True"),
        ({"scale": np.True_, "noise": 1}, "Expected a scale .* but got np.True_"),
        ({"scale": np.array([2, 4])}, "Expected a scale .* but got array"),
        ({"scale": 2, "width": 3}, "Expected one of scale, width and height"),
        ({"min_size": 3}, r"Expected a min_size of \(width, height\), but got 3"),
        ({"min_size": (3, 4, 5)}, r"Expected a min_size of \(width, height\), but got \(3, 4, 5\)"),
        ({"tta": 3}, "Expected a tta of 1, 2, 4 or 8, but got 3"),
        ({"noise": 1.0}, "Expected a noise level .* but got 1.0"),
        ({"noise": False}, "Expected a noise level .* but got False"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Upscaler(**arguments)


def test_integers_of_numpy_are_integers(drawn: NDArray[np.uint8]) -> None:
    pixels = drawn[40:60, 50:80]
    result = upscale(pixels, np.int64(2), np.uint8(1), tile=np.int32(32))
    np.testing.assert_array_equal(result, upscale(pixels, 2, 1, tile=32))


def resized(values: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """Resizes planes by Pillow."""
    planes = [
        np.asarray(
            Image.fromarray(values[..., plane].astype(np.float32)).resize(
                (width, height), Image.Resampling.LANCZOS
            )
        )
        for plane in range(values.shape[-1])
    ]
    return np.stack(planes, axis=-1).astype(np.float64).clip(0, 1)


@pytest.mark.parametrize(
    ("sizes", "doublings", "size"),
    [
        ({"scale": 1.5}, 1, (27, 36)),
        ({"width": 50}, 2, (38, 50)),
        ({"longer_side": 24, "noise": 1}, 0, (18, 24)),
        ({"longer_side": 25, "noise": 1}, 1, (19, 25)),
        ({"width": 30, "height": 60, "fit": "exact"}, 2, (60, 30)),
        ({"scale": 0.5}, 0, (9, 12)),
    ],
)
def test_any_size(
    drawn: NDArray[np.uint8], sizes: Any, doublings: int, size: tuple[int, int]
) -> None:
    """Doubled until it is as large as asked for, then reduced, in float, and rounded once."""
    pixels = np.ascontiguousarray(drawn[60:78, 50:74])
    result = upscale(pixels, **sizes)
    assert result.shape == (*size, 3)
    models = []
    if doublings or "noise" in sizes:
        models = model_set.find("vgg_7/art").models(1 << doublings, sizes.get("noise"))
    values = obvious.run(models, pixels)
    same = values.shape[:2] == size
    assert_levels(result, values if same else resized(values, *size))


def test_no_tile_changes_a_result_of_any_size(drawn: NDArray[np.uint8]) -> None:
    pixels = drawn[40:90, 50:109]
    whole = upscale(pixels, 1.7, tta=2)
    np.testing.assert_array_equal(upscale(pixels, 1.7, tta=2, tile=37), whole)


def test_a_cover_is_the_middle(drawn: NDArray[np.uint8]) -> None:
    pixels = np.ascontiguousarray(drawn[60:80, 50:90])
    result = upscale(pixels, width=40, height=40, fit="cover")
    # The result is as high as the doubled picture: what is over is cut off, at whole pixels here.
    np.testing.assert_array_equal(result, upscale(pixels, 2)[:, 20:60])


def test_several_pictures_of_any_size_equal_each_alone() -> None:
    pictures = np.random.default_rng(8).integers(0, 256, (3, 9, 8, 3), np.uint8)
    with Upscaler(shorter_side=13, model="vgg_7") as upscaler:
        together = upscaler(pictures)
        alone = np.stack([upscaler(picture) for picture in pictures])
    assert together.shape == (3, 15, 13, 3)
    np.testing.assert_array_equal(together, alone)


def test_one_upscaler_for_pictures_that_need_other_networks(drawn: NDArray[np.uint8]) -> None:
    with Upscaler(longer_side=40, model="vgg_7") as upscaler:
        for side in (8, 20, 39, 40, 41, 60):
            pixels = drawn[40 : 40 + side, 50:55]
            parts: list[float] = []
            result = upscaler(pixels, on_progress=parts.append)
            assert max(result.shape[:2]) == 40
            assert sum(parts) == pytest.approx(1.0)
        with pytest.raises(waifu2x.ImageError, match="of 1x1 would grow 40 times; ask for at most"):
            upscaler(drawn[:1, :1])


def test_large_pictures_stay_as_they_are(drawn: NDArray[np.uint8]) -> None:
    with Upscaler(noise=1, only_smaller_than=30, model="vgg_7") as upscaler:
        assert upscaler(drawn[:20, :29]).shape == (40, 58, 3)
        np.testing.assert_array_equal(upscaler(drawn[:20, :30]), drawn[:20, :30])
    with Upscaler(min_size=(20, 20), model="vgg_7") as upscaler:
        np.testing.assert_array_equal(upscaler(drawn[:20, :30]), drawn[:20, :30])
        assert upscaler(drawn[:19, :30]).shape == (20, 32, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("ground", [0, 255])
def test_a_sprite_of_any_size_laid_over_a_ground(ground: int, dtype: type) -> None:
    """It is what the picture laid over that ground becomes, away from the edge."""
    levels = np.iinfo(dtype).max // 255
    sprite: NDArray[Any] = np.zeros((40, 44, 4), dtype)
    sprite[..., 1] = 255 * levels  # an invisible colour
    sprite[10:28, 12:30] = np.array([200, 40, 40, 255]) * levels
    seen = sprite[..., 3:] > 0
    flat: NDArray[Any] = np.where(seen, sprite[..., :3], ground * levels).astype(dtype)
    for scale in (1.5, 0.75):
        result = upscale(sprite, scale).astype(float) / levels
        expected = upscale(flat, scale).astype(float) / levels
        opacity = result[..., 3:] / 255
        laid = result[..., :3] * opacity + ground * (1 - opacity)
        edge = np.ones(result.shape[:2], bool)
        edge[: int(6 * scale)] = edge[-int(8 * scale) :] = False
        edge[:, : int(8 * scale)] = edge[:, -int(10 * scale) :] = False
        edge[int(14 * scale) : int(24 * scale), int(16 * scale) : int(26 * scale)] = False
        assert 0.2 < edge.mean() < 0.8
        assert abs(laid - expected)[~edge].max() <= 2
    assert not opacity.all()


@pytest.mark.parametrize("tta", [2, 8])
def test_turned_pictures(drawn: NDArray[np.uint8], y_models: Path, tta: int) -> None:
    grey = np.ascontiguousarray(drawn[60:77, 50:73, :1])
    models = model_set.find(str(y_models)).models(2, 1)
    result = upscale(grey, 2, 1, model=str(y_models), tta=tta)
    assert_levels(result, obvious.run_turned(models, grey, tta))


def test_a_one_plane_model_at_any_size(drawn: NDArray[np.uint8], y_models: Path) -> None:
    pixels = drawn[40:70, 50:90]
    doubled = upscale(pixels.astype(np.float32) / 255, 2, model=str(y_models))
    result = upscale(pixels, 1.5, model=str(y_models))
    assert_levels(result, resized(doubled, 45, 60))


def test_a_closed_upscaler_says_so(drawn: NDArray[np.uint8]) -> None:
    with Upscaler(model="vgg_7") as upscaler:
        upscaler(drawn[40:60, 50:80])
    upscaler.close()
    with pytest.raises(waifu2x.BackendError, match="this upscaler is closed; make a new one"):
        upscaler(drawn[40:60, 50:80])


def test_skipped_backends_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_numba(module: str) -> Any:
        if module == "waifu2x.backends.cpu.backend":
            raise ModuleNotFoundError("No module named 'numba'", name="numba")
        return real_import(module)

    real_import = importlib.import_module
    with Upscaler(backend="numpy", model="vgg_7") as upscaler:
        assert upscaler.notices == ()
    monkeypatch.setattr(importlib, "import_module", without_numba)
    with Upscaler(model="vgg_7") as upscaler:
        assert upscaler.engine.backend.name == "numpy"
        (reason,) = upscaler.notices
    assert reason == "backend cpu needs the package numba; run `pip install waifu2x-kernels`"


def test_threads_may_share_an_upscaler(drawn: NDArray[np.uint8]) -> None:
    pieces = [np.ascontiguousarray(drawn[y : y + 30, 20:70]) for y in range(0, 60, 10)]
    with Upscaler(scale=2, model="vgg_7") as upscaler, ThreadPoolExecutor(4) as pool:
        together = list(pool.map(upscaler, pieces))
        for piece, result in zip(pieces, together, strict=True):
            np.testing.assert_array_equal(result, upscaler(piece))


@pytest.mark.parametrize("planes", [1, 3, 4])
def test_several_pictures_equal_each_alone(backend: Backend, planes: int) -> None:
    shape = (5, 14, 9, planes)
    pictures = np.random.default_rng(planes).integers(0, 256, shape, np.uint8)
    parts: list[float] = []
    with Upscaler(backend=backend.name, noise=1, model="vgg_7") as upscaler:
        together = upscaler(pictures, on_progress=parts.append)
        alone = [upscaler(picture) for picture in pictures]
    np.testing.assert_array_equal(together, np.stack(alone))
    assert sum(parts) == pytest.approx(1.0)


class CountingBackend:
    """Counts what is opened and closed; its compile fails, or takes its time."""

    name = "counting"
    calls_at_once = 1
    device = Device("Counting", "")

    def __init__(self, failing: bool) -> None:
        self.failing = failing
        self.compiled = 0
        self.closed = 0

    def compile(self, models: Any, precision: Any) -> Any:
        self.compiled += 1
        if self.failing:
            raise waifu2x.BackendError("no kernels")
        # Long enough for all threads to ask before the first is answered.
        time.sleep(0.1)
        return ZeroNetwork()

    def close(self) -> None:
        self.closed += 1


class ZeroNetwork:
    """Doubles pictures to black ones."""

    def run(self, call: Call[NDArray[Any]]) -> NDArray[Any]:
        return np.zeros((*(2 * size for size in call.source.shape[:2]), 3), call.dtype)

    def close(self) -> None:
        pass


def test_a_backend_that_cannot_compile_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = CountingBackend(failing=True)
    monkeypatch.setattr("waifu2x.backends.engine.engine.open_devices", lambda *_: opened)
    with pytest.raises(waifu2x.BackendError, match="no kernels"):
        Upscaler(model="vgg_7")
    assert opened.closed == 1


def test_transparency_is_compiled_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = CountingBackend(failing=False)
    monkeypatch.setattr("waifu2x.backends.engine.engine.open_devices", lambda *_: opened)
    sprite = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    with Upscaler(noise=1, model="vgg_7") as upscaler, ThreadPoolExecutor(4) as pool:
        list(pool.map(upscaler, [sprite] * 4))
    assert opened.compiled == 2  # colours, and transparency
