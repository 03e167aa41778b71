"""Colours keep their meaning: profiles, PNG's words for them, CMYK and Lab."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image, ImageCms

from tests.helpers.contents import (
    Frames,
    adapt,
    decode,
    decode_all,
    encode,
    encoded,
    identity_models,
    noise,
    ramp,
)
from waifu2x.api import Upscaler
from waifu2x.cli import cli
from waifu2x.formats import table
from waifu2x.formats.metadata import code_points, icc, profiles
from waifu2x.formats.png.colours import colours_of
from waifu2x.formats.table import OutputOptions
from waifu2x.imaging.picture import CodePoints, Colours, Picture

LAB = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
DISPLAY_P3 = Colours(None, CodePoints(12, 13))
ADOBE_RGB = Colours(
    gamma=round(100_000 * 256 / 563),
    primaries=(31270, 32900, 64000, 33000, 21000, 71000, 15000, 6000),
)
LINEAR = Colours(gamma=100_000)
PRO_PHOTO = Colours(gamma=55_556, primaries=(34567, 35850, 73470, 26530, 15960, 84040, 3660, 10))


def profile(colours: Colours) -> bytes:
    made = profiles.profile_of(colours, 3)
    assert made is not None
    return made


def lab(pixels: NDArray[Any], icc_profile: bytes) -> NDArray[np.float64]:
    """By littleCMS, in float."""
    return np.asarray(
        imagecodecs.cms_transform(
            pixels / np.iinfo(pixels.dtype).max,
            icc_profile,
            LAB,
            colorspace="rgb",
            outcolorspace="lab",
            outdtype="f8",
        )
    )


def delta_e(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE 1976."""
    return np.asarray(np.sqrt(((one - other) ** 2).sum(axis=-1)))


# The profiles that we make.

APPLE_P3 = np.array(
    [[0.51512, 0.29198, 0.15710], [0.24120, 0.69225, 0.06657], [-0.00105, 0.04189, 0.78407]]
)
"""Display P3 to XYZ under D50, as in Apple's profile."""


def lab_of_xyz(xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio = xyz / np.array([0.9642, 1.0, 0.8249])
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    x, y, z = f[..., 0], f[..., 1], f[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def test_a_profile_made_of_cicp_is_display_p3() -> None:
    pixels = noise(9, 11, 3)
    unit = pixels / 255
    light = np.where(unit <= 0.04045, unit / 12.92, ((unit + 0.055) / 1.055) ** 2.4)
    expected = lab_of_xyz(light @ APPLE_P3.T)
    assert delta_e(lab(pixels, profile(DISPLAY_P3)), expected).max() < 0.3


def test_a_profile_made_of_srgb_words_is_none() -> None:
    primaries = (31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
    for colours in (
        Colours(),
        Colours(intent=0),
        Colours(gamma=45455, primaries=primaries),
        Colours(None, CodePoints(1, 13)),
    ):
        assert profiles.profile_of(colours, 3) is None
        assert profiles.tone(colours, 3) is None


@pytest.mark.parametrize("broken", [b"\0" * 32, struct.pack(">8I", *[0] * 8), b"\xff" * 32, b""])
def test_broken_words_are_no_failure(broken: bytes) -> None:
    for kind, word in ((b"cHRM", broken), (b"gAMA", broken[:4]), (b"cICP", broken[:4])):
        colours, _ = colours_of({kind: word}, 3)
        is_number = (kind, word) == (b"gAMA", b"\xff" * 4)  # a steep one, but one that can be used
        assert (profiles.profile_of(colours, 3) is not None) == is_number
        assert (profiles.tone(colours, 3) is not None) == is_number


# Pixels that networks see, and those that come back.


@pytest.mark.parametrize("gamma", [1.0, 1.8, 2.6])
@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("words", ["gAMA", "icc"])
def test_networks_see_the_tones_of_srgb(gamma: float, planes: int, words: str) -> None:
    colours = Colours(gamma=round(100_000 / gamma))
    if words == "icc":
        colours = Colours(profiles.profile_of(colours, planes))
        assert colours.icc_profile
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(planes, -1)
    seen: list[NDArray[Any]] = []

    def work(picture: Picture) -> Picture:
        seen.append(picture.pixels)
        return picture

    back = profiles.in_srgb_tone(Picture(levels, None, colours), work)
    light = (levels / 255) ** gamma
    expected = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    assert abs(seen[0] - expected).max() < 0.002
    assert (back.pixels == levels).all()
    deep = levels.astype(np.uint16) * 257
    back = profiles.in_srgb_tone(Picture(deep, None, colours), work)
    assert abs(back.pixels.astype(int) - deep).max() <= 1


@pytest.mark.parametrize("colours", [Colours(), Colours(SRGB), DISPLAY_P3], ids=["-", "srgb", "p3"])
def test_tones_of_srgb_are_left_alone(colours: Colours) -> None:
    picture = Picture(noise(4, 4, 3), None, colours)
    assert profiles.in_srgb_tone(picture, lambda seen: seen) is picture


@pytest.mark.parametrize(
    "colours", [DISPLAY_P3, ADOBE_RGB, PRO_PHOTO, LINEAR], ids=["p3", "adobe", "prophoto", "linear"]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_wide_gamuts_stay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    photo: NDArray[np.uint8],
    colours: Colours,
    dtype: Any,
) -> None:
    """Every pixel, through the program with networks that repeat them, and PNG, TIFF and back."""
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    # All of the gamut, with its corners.
    drawn = np.concatenate([photo[:16, :24], noise(16, 24, 3) // 128 * 255], 0).astype(dtype)
    pixels = drawn * 257 if dtype == np.uint16 else drawn
    icc_profile = profile(colours)
    Path("a.png").write_bytes(encode(Picture(pixels, None, Colours(icc_profile)), "png"))
    Path("words.png").write_bytes(encode(Picture(pixels, None, colours), "png"))
    for source, target in (("a.png", "b.png"), ("words.png", "c.tif"), ("words.png", "d.png")):
        command = ["upscale", "-m", "identity", "--backend", "numpy", source, target]
        assert CliRunner().invoke(cli, command).exit_code == 0
        back = decode(Path(target).read_bytes())
        found = back.colours.icc_profile or profile(back.colours)
        difference = delta_e(lab(back.pixels[::2, ::2], found), lab(pixels, icc_profile))
        assert difference.max() < 0.3


@pytest.mark.parametrize("colours", [DISPLAY_P3, ADOBE_RGB], ids=["p3", "adobe"])
def test_wide_photos_enlarged_look_as_before(photo: NDArray[np.uint8], colours: Colours) -> None:
    pixels = np.ascontiguousarray(photo[:64, :64])
    icc_profile = profile(colours)
    with Upscaler(2, model="vgg_7") as upscaler:
        picture = Picture(pixels, None, Colours(icc_profile))
        result = profiles.in_srgb_tone(picture, upscaler.enlarger.picture)

    def reduced(values: NDArray[np.uint8], size: int) -> NDArray[np.float64]:
        blocks = lab(values, icc_profile).reshape(8, size, 8, size, 3)
        return np.asarray(blocks.mean(axis=(1, 3)))

    assert delta_e(reduced(result.pixels, 16), reduced(pixels, 8)).max() < 1


def test_pil_images_in_other_tones() -> None:
    linear = profile(LINEAR)
    pixels = ramp(3)[::3, ::3]
    image = Image.fromarray(pixels)
    image.info["icc_profile"] = linear
    with Upscaler(2, model="vgg_7", backend="numpy") as upscaler:
        result = np.asarray(upscaler(image)).astype(int)
        plain = np.asarray(upscaler(Image.fromarray(pixels))).astype(int)
    assert abs(result - plain).max() > 5  # shadows are seen as such
    blocks = result.reshape(8, 2, 11, 2, 3).mean(axis=(1, 3))
    assert abs(blocks - pixels).mean() < 12


# Broken and foreign profiles.


@pytest.mark.parametrize(
    "bad",
    [b"garbage", SRGB[:200], b"\0" * 400, SRGB[:16] + b"GRAY" + SRGB[20:]],
    ids=["short", "cut off", "zeros", "grey"],
)
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_bad_profiles_are_left_out_with_a_word(bad: bytes, form: str) -> None:
    data = encoded(Image.fromarray(ramp(3)), form, icc_profile=bad)
    frames = decode_all(data, "p")
    assert frames.pictures[0].colours.icc_profile is None
    assert frames.notices == (profiles.BAD_PROFILE,)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_profiles_are_no_failure(seed: int) -> None:
    generator = np.random.default_rng(seed)
    damaged = bytearray(profile(ADOBE_RGB) if seed % 2 else SRGB)
    for place in generator.integers(128, len(damaged), 4):
        damaged[place] = generator.integers(256)
    colours = Colours(bytes(damaged))
    if icc.fits(bytes(damaged), 3):
        picture = Picture(ramp(3), None, colours)
        back = profiles.in_srgb_tone(picture, lambda seen: seen)
        assert abs(back.pixels.astype(int) - ramp(3)).max() <= 1


@pytest.mark.parametrize("planes", [1, 3])
def test_formats_without_profiles_get_srgb(planes: int) -> None:
    colours = Colours(profiles.profile_of(LINEAR, planes))
    picture = Picture(ramp(planes), None, colours)
    back = decode(encode(picture, "bmp"))
    assert back.pixels.shape == picture.pixels.shape
    light = ramp(planes) / 255
    expected = 255 * code_points.srgb_encoded(light)
    assert abs(back.pixels - expected).max() <= 2
    _, notes = adapt(Frames((picture,)), table.of("bmp"), OutputOptions())
    assert notes == ["BMP holds no colour profile: converted to sRGB"]


# CMYK and Lab.


def cmyk_profile() -> bytes:
    """A printer's, as a table: inks that multiply, to Lab, on a grid of 5 values."""
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 5)] * 4, indexing="ij"), -1)
    black = 1 - 0.9 * grid[..., 3:]
    light = (1 - grid[..., :3] * np.array([0.9, 0.8, 0.95])) * black
    lab_values = lab_of_xyz(light @ APPLE_P3.T)
    levels = np.rint(lab_values * [2.55, 1, 1] + [0, 128, 128]).clip(0, 255).astype(np.uint8)
    even = bytes(range(256))
    table = b"mft1" + bytes(4) + bytes([4, 3, 5, 0])
    table += struct.pack(">9i", *(65536 * v for v in (1, 0, 0, 0, 1, 0, 0, 0, 1)))
    table += 4 * even + levels.tobytes() + 3 * even
    text = b"CMYK\0"
    tags = {
        b"desc": b"desc" + struct.pack(">II", 0, len(text)) + text + bytes(78),
        b"cprt": b"text" + bytes(4) + b"none\0",
        b"wtpt": b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061),
        b"A2B0": table,
    }
    body, entries = b"", b""
    for name, content in tags.items():
        body += bytes(-len(body) % 4)
        entries += struct.pack(">4sII", name, 132 + 48 + len(body), len(content))
        body += content
    size = 132 + 48 + len(body)
    header = struct.pack(">I4xI4s4s4s12x4s28x3i48x", size, 0x02400000, b"prtr", b"CMYK", b"Lab ",
                         b"acsp", 63190, 65536, 54061)  # fmt: skip
    return header + struct.pack(">I", 4) + entries + body


@pytest.mark.parametrize("form", ["JPEG", "TIFF"])
def test_cmyk_through_its_profile(form: str) -> None:
    y, x = np.mgrid[0:16, 0:16]
    inks = np.stack([y * 16, x * 16, 255 - y * 16, x * 8], axis=-1).astype(np.uint8)
    icc_profile = cmyk_profile()
    options: dict[str, Any] = {"quality": 100} if form == "JPEG" else {}
    data = encoded(Image.fromarray(inks, "CMYK"), form, icc_profile=icc_profile, **options)
    with Image.open(io.BytesIO(data)) as image:
        stored = np.array(image)
    frames = decode_all(data, "p")
    converted = imagecodecs.cms_transform(
        stored, icc_profile, SRGB, colorspace="cmyk", outcolorspace="rgb", outdtype="u1"
    )
    difference = delta_e(lab(frames.pictures[0].pixels, SRGB), lab(np.asarray(converted), SRGB))
    assert difference.max() < 3
    assert frames.notices == ("CMYK is converted to sRGB",)
    assert frames.pictures[0].colours == Colours()


@pytest.mark.parametrize("icc_profile", [None, b"garbage", SRGB], ids=["none", "garbage", "sRGB"])
def test_cmyk_without_a_profile(icc_profile: bytes | None) -> None:
    inks = noise(5, 6, 4)
    image = Image.fromarray(inks, "CMYK")
    frames = decode_all(encoded(image, "TIFF", icc_profile=icc_profile), "p")
    assert (frames.pictures[0].pixels == np.asarray(image.convert("RGB"))).all()
    assert "approximate" in frames.notices[0]


def test_lab() -> None:
    pixels = ramp(3)
    to_lab = ImageCms.profileToProfile(
        Image.fromarray(pixels),
        ImageCms.createProfile("sRGB"),
        ImageCms.createProfile("LAB"),
        outputMode="LAB",
    )
    assert to_lab is not None
    back = decode(encoded(to_lab, "TIFF"))
    assert np.median(delta_e(lab(back.pixels, SRGB), lab(pixels, SRGB))) < 1.5
