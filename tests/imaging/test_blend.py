"""--strength and --mask: results of networks blended with what Pillow's Lanczos makes."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

import waifu2x
from tests.helpers.contents import decode, encode, noise
from waifu2x import Upscaler
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.imaging.blend import Mask
from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.picture import Picture

Floats = NDArray[np.float64]
HEIGHT, WIDTH = 23, 34
OPTIONS: dict[str, Any] = {"model": "anime4k/s", "backend": "numpy", "precision": "fp32"}


def lanczos(values: Floats, height: int, width: int) -> Floats:
    """Pillow's, for each plane of floats."""
    planes = [
        np.asarray(
            Image.fromarray(values[..., plane].astype(np.float32)).resize(
                (width, height), Image.Resampling.LANCZOS
            )
        )
        for plane in range(values.shape[-1])
    ]
    return np.stack(planes, axis=-1).clip(0, 1).astype(np.float64)


def network(pixels: NDArray[np.float32], **size: Any) -> Floats:
    """The network's result in floats."""
    return np.asarray(waifu2x.upscale(pixels, noise=None, **size, **OPTIONS), np.float64)


def levels(dtype: Any) -> float:
    return 1.0 if dtype == np.float32 else float(np.iinfo(dtype).max)


def drawn(dtype: Any, planes: int) -> NDArray[Any]:
    made = noise(HEIGHT, WIDTH, planes, dtype=np.uint16)
    return (made / 65535 * levels(dtype)).astype(dtype)


SIZES: list[dict[str, Any]] = [{"scale": 2}, {"scale": 1.5}]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=["2x", "1.5x"])
@pytest.mark.parametrize("strength", [0, 0.3])
def test_results_lie_between(dtype: Any, planes: int, size: Any, strength: float) -> None:
    pixels = drawn(dtype, planes)
    unit = (pixels / levels(dtype)).astype(np.float32)
    best = network(unit, **size)
    plain = lanczos(unit.astype(np.float64), *best.shape[:2])
    made = waifu2x.upscale(pixels, noise=None, strength=strength, **size, **OPTIONS)
    assert made.dtype == dtype
    expected = (plain + strength * (best - plain)) * levels(dtype)
    tolerance = 2e-6 if dtype == np.float32 else 0.51
    assert np.abs(made - expected).max() <= tolerance


def test_all_of_the_network_is_the_network(tmp_path: Path) -> None:
    pixels = drawn(np.uint8, 3)
    white = np.full((HEIGHT, WIDTH), 255, np.uint8)
    one, other, masked = (
        waifu2x.upscale(pixels, **given, **OPTIONS)
        for given in ({}, {"strength": 1.0}, {"mask": white})
    )
    np.testing.assert_array_equal(one, other)
    assert np.abs(one.astype(int) - masked).max() <= 1  # it is rounded once less


def test_noise_removal_alone_is_blended_with_the_picture() -> None:
    pixels = drawn(np.uint8, 3)
    options = {**OPTIONS, "model": "vgg_7"}  # anime4k removes no noise
    with Upscaler(1, 2, strength=0, **options) as upscaler:
        np.testing.assert_array_equal(upscaler(pixels), pixels)
    cleaned = waifu2x.upscale(pixels, 1, 2, **options).astype(float)
    half = waifu2x.upscale(pixels, 1, 2, strength=0.5, **options)
    assert np.abs(half - (cleaned + pixels) / 2).max() <= 1


@pytest.mark.parametrize(
    ("height", "width"), [(HEIGHT, WIDTH), (2 * HEIGHT, 2 * WIDTH), (HEIGHT // 2, WIDTH // 2)]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_mask_says_where(height: int, width: int, dtype: Any) -> None:
    """White on the left, black on the right, whatever its size."""
    pixels = drawn(np.uint8, 3)
    mask = np.zeros((height, width), dtype)
    mask[:, : width // 2] = np.iinfo(dtype).max
    made, best, plain = (
        waifu2x.upscale(pixels, **given, **OPTIONS).astype(int)
        for given in ({"mask": mask}, {}, {"strength": 0})
    )
    assert np.abs(made[:, : WIDTH - 14] - best[:, : WIDTH - 14]).max() <= 1
    assert np.abs(made[:, WIDTH + 14 :] - plain[:, WIDTH + 14 :]).max() <= 1
    assert np.abs(best - plain).max() > 20


def test_a_mask_multiplies_the_strength() -> None:
    pixels = drawn(np.uint16, 1)
    grey = np.full((HEIGHT, WIDTH), 0.5, np.float32)
    masked = waifu2x.upscale(pixels, mask=grey, strength=0.5, **OPTIONS)
    assert np.abs(masked - waifu2x.upscale(pixels, strength=0.25, **OPTIONS).astype(int)).max() <= 1


def test_a_mask_of_what_is_cropped() -> None:
    """It belongs to the picture, whose middle the result shows; one of the result's proportions
    belongs to that."""
    pixels = drawn(np.uint8, 3)
    size: dict[str, Any] = {"width": 40, "height": 40, "fit": "cover"}
    across = np.linspace(0, 1, WIDTH, dtype=np.float32)
    of_source = np.repeat(across[np.newaxis], HEIGHT, 0)
    middle = (np.linspace(0.5, 39.5, 40) - 20) * (HEIGHT / 40) / (WIDTH - 1) + 0.5
    of_result = np.repeat(middle[np.newaxis].astype(np.float32), 40, 0)
    one, other = (
        waifu2x.upscale(pixels, mask=mask, **size, **OPTIONS) for mask in (of_source, of_result)
    )
    assert np.abs(one.astype(int) - other).max() <= 3


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_transparent_pictures_are_blended_as_they_are_seen(dtype: Any) -> None:
    colours, top = drawn(dtype, 3), levels(dtype)
    alpha = (np.linspace(0, 1, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) * top).astype(dtype)
    alpha[:4] = 0
    pixels = np.dstack([colours, alpha])
    one, half, none = (
        waifu2x.upscale(pixels, strength=strength, **OPTIONS) / top for strength in (1, 0.5, 0)
    )
    for ground in (0.0, 1.0):
        shown = [x[..., :3] * x[..., 3:] + ground * (1 - x[..., 3:]) for x in (one, half, none)]
        assert np.abs(shown[1] - (shown[0] + shown[2]) / 2).max() < 2.1 / 255
    # Clear ground stays clear, and plain enlargement is that of multiplied colours.
    seen = (colours / top) * (alpha / top)[..., np.newaxis]
    plain = lanczos(np.dstack([seen, alpha / top]), 2 * HEIGHT, 2 * WIDTH)
    assert np.abs(none[..., 3] - plain[..., 3]).max() < 1 / 255
    limited = np.minimum(plain[..., :3], plain[..., 3:])  # no colour is above white
    assert np.abs(none[..., :3] * none[..., 3:] - limited).max() < 0.01


def test_a_mask_turns_with_a_film() -> None:
    mask = Mask(noise(12, 7), "m")
    for orientation in range(1, 9):
        stored = mask.stored(orientation, None)
        np.testing.assert_array_equal(oriented_plane(stored.levels, orientation), mask.levels)
    assert mask.stored(1, Fraction(2)).levels.shape == (12, 4)
    assert pickle.loads(pickle.dumps(mask)) == mask == Mask(noise(12, 7), "other")
    assert mask != Mask(noise(12, 7) ^ 1, "m")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"strength": 1.5}, ValueError, "a strength from 0 to 1, but got 1.5"),
        ({"strength": True}, ValueError, "a strength from 0 to 1"),
        ({"strength": float("nan")}, ValueError, "a strength from 0 to 1"),
        ({"mask": np.zeros((HEIGHT, HEIGHT), np.uint8)}, ImageError,
         f"mask: a mask of {HEIGHT}x{HEIGHT} has other proportions than the picture of"
         f" {WIDTH}x{HEIGHT}; make it as large as the picture"),
        ({"mask": "nowhere.png"}, ImageError, "nowhere.png: "),
        ({"mask": np.zeros((3, 4), complex)}, ImageError, "complex"),
    ],
)  # fmt: skip
def test_mistakes(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        waifu2x.upscale(drawn(np.uint8, 3), **given, **OPTIONS)


# Through the program.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.png").write_bytes(encode(Picture(drawn(np.uint8, 3)), "png"))
    ramp = np.linspace(0, 255, WIDTH).astype(np.uint8)[np.newaxis].repeat(HEIGHT, 0)
    Image.fromarray(ramp).convert("RGB").save("mask.png")
    Image.fromarray(ramp[:, :5]).save("narrow.png")
    return tmp_path


def run(*arguments: str) -> Any:
    how = ["-m", "anime4k/s", "-n", "none", "--backend", "numpy", "--precision", "fp32"]
    return CliRunner().invoke(cli, [*arguments[:1], *how, *arguments[1:]])


def test_the_program(folder: Path) -> None:
    made = run("upscale", "--strength", "0.5", "--mask", "mask.png", "a.png", "b.png")
    assert (made.exit_code, made.stderr) == (0, "")
    result = decode(Path("b.png").read_bytes()).pixels
    expected = waifu2x.upscale(
        drawn(np.uint8, 3), noise=None, strength=0.5, mask="mask.png", **OPTIONS
    )
    np.testing.assert_array_equal(result, expected)
    Path("in").mkdir()
    Path("a.png").rename("in/a.png")
    assert run("batch", "--strength", "0.5", "--mask", "mask.png", "in", "out").exit_code == 0
    assert Path("out/a.png").read_bytes() == Path("b.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--mask", "narrow.png"), "narrow.png: a mask of 5x23 has other proportions than the"
         " picture of 34x23; make it as large as the picture"),
        (("--mask", "none.png"), "none.png: "),
        (("--strength", "2"), "expected a number from 0 to 1"),
        (("--strength", "nan"), "expected a number from 0 to 1"),
    ],
)  # fmt: skip
def test_mistakes_of_the_program(folder: Path, arguments: tuple[str, ...], sentence: str) -> None:
    made = run("upscale", *arguments, "a.png", "b.png")
    assert made.exit_code in (1, 2)
    assert sentence in made.stderr
    assert "Traceback" not in made.output
    assert not Path("b.png").exists()


def test_films(folder: Path) -> None:
    """Frames are what the same upscaler makes of their RGB."""
    av = pytest.importorskip("av")
    films = pytest.importorskip("tests.helpers.films")
    from tests.helpers.obvious_planes import Meaning, codes, from_rgb, to_rgb

    films.film(
        Path("a.mkv"), codec="ffv1", pixels="yuv444p", times=(0, 40), size=(HEIGHT, WIDTH),
        colours=(1, 1, 1, 1),
    )  # fmt: skip
    made = run("video", "--strength", "0.6", "--mask", "mask.png", "-c", "ffv1", "a.mkv", "b.mkv")
    assert made.exit_code == 0, made.output

    def planes(path: str) -> list[NDArray[Any]]:
        with av.open(path) as film:
            frame = next(film.decode(video=0))
            return [
                np.frombuffer(one, np.uint8).reshape(one.height, -1)[:, : one.width].copy()
                for one in frame.planes
            ]

    meaning = Meaning(8, "444", "bt709", False, "left")
    rgb = to_rgb(planes("a.mkv"), meaning).clip(0, 1).astype(np.float32)
    best = waifu2x.upscale(rgb, noise=None, strength=0.6, mask="mask.png", **OPTIONS)
    for found, wanted in zip(planes("b.mkv"), codes(from_rgb(best, meaning), 8), strict=True):
        assert np.abs(found.astype(int) - wanted).max() <= 1


def test_requests() -> None:
    pytest.importorskip("starlette")
    from waifu2x.serve.job_settings import JobSettings

    settings = JobSettings.of({"strength": "0.5"})
    assert settings.arguments()["strength"] == 0.5
    assert "--strength 0.5" in settings.command("a.png", is_film=False)
    assert "--strength 0.5" in settings.command("a.mkv", is_film=True)
    assert "--strength" not in JobSettings().command("a.png", is_film=False)
    with pytest.raises(ValueError, match=r"strength: .*expected a number from 0 to 1"):
        JobSettings.of({"strength": "7"})
