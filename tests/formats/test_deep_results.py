"""AVIF, JPEG XL and HEIC of 10 to 16 bits as results, read by other programs and by us."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from click.testing import CliRunner

from tests.formats.test_metadata import SAID
from tests.helpers.contents import Frames, adapt, decode, encode, identity_models
from waifu2x.cli import cli
from waifu2x.formats.description import describe
from waifu2x.formats.metadata import transfer
from waifu2x.formats.table import OutputOptions, Quality, check, of
from waifu2x.imaging.picture import CodePoints, Colours, Hdr, Picture, with_alpha

SIZE = 77, 66
PQ_2020 = CodePoints(9, 16)
HDR = Hdr(
    tuple(
        Fraction(value, 50_000) for value in (35400, 14600, 8500, 39850, 6550, 2300, 15635, 16450)
    ),
    (Fraction(1, 10_000), Fraction(1000)),
    (Fraction(900), Fraction(300)),
)
WRITTEN = [("avif", 10), ("avif", 12), ("heic", 10), ("heic", 12), ("jxl", 10), ("jxl", 16)]
ALL = pytest.mark.parametrize(("extension", "bits"), WRITTEN)


@pytest.fixture(autouse=True)
def plugins() -> None:
    pytest.importorskip("pillow_heif")
    pytest.importorskip("pillow_jxl")


def gradient(planes: int = 3, *, alpha: bool = False) -> Picture:
    """Slow gradients, which 8 bits would turn into steps."""
    height, width = SIZE
    y, x = np.mgrid[:height, :width]
    ways = [x * 400 + y * 430, y * 500 + x * 300, 60_000 - x * 400 + y * 11][:planes]
    pixels = np.stack(ways, axis=-1).astype(np.uint16)
    opacity = (65535 - 12 * x * y).astype(np.uint16) if alpha else None
    return Picture(pixels, opacity)


def written(picture: Picture, extension: str, bits: int, level: int = 100) -> bytes:
    depth: Any = str(bits)
    return encode(picture, extension, level, OutputOptions(depth))


@ALL
@pytest.mark.parametrize(("planes", "alpha"), [(1, False), (1, True), (3, False), (3, True)])
def test_all_bits_arrive(extension: str, bits: int, planes: int, alpha: bool) -> None:
    picture = gradient(planes, alpha=alpha)
    data = written(picture, extension, bits)
    found = decode(data)
    assert found.depth == bits
    expected = with_alpha(picture)
    if found.pixels.shape[-1] > planes:  # AVIF has no grey, and HEIF none with transparency
        expected = expected[..., (0, 0, 0, 1)[: 3 + alpha]]
    # HEIC has losses at any quality; the others are exact at this one.
    allowed = 65535 / (2**bits - 1) / 2 + 1 + 300 * (extension == "heic")
    difference = np.abs(with_alpha(found).astype(float) - expected)
    assert difference.max() <= allowed
    assert difference.mean() < 65535 / 1023
    assert len(np.unique(found.pixels[..., 0])) > 700


@ALL
def test_the_default_is_the_depth_of_the_source(extension: str, bits: int, tmp_path: Path) -> None:
    """As many bits as there are, of 16 as many as the format has; and losses are small."""
    source = replace(gradient(), bits=bits)
    form = of(extension)
    for picture, held in ((source, bits), (gradient(), max(form.depths))):
        kept, notices = adapt(Frames((picture,)), form, OutputOptions())
        assert kept.pictures[0].depth == held
        assert any(f"not {picture.depth}" in notice for notice in notices) == (held < picture.depth)
    found = decode(encode(source, extension))
    assert found.depth == bits
    assert np.abs(found.pixels.astype(float) - source.pixels).mean() < 100
    path = tmp_path / f"a.{extension}"
    path.write_bytes(written(gradient(), extension, bits))
    assert describe(path, extension).bits == bits
    assert f"{bits} bits" in describe(path, "jxl").kept


@ALL
def test_metadata_and_a_profile_are_there(extension: str, bits: int, tmp_path: Path) -> None:
    profile = imagecodecs.cms_profile("adobergb")
    metadata, _ = transfer.fitted(SAID, of(extension))
    colours = Colours(None if extension == "jxl" else profile)
    data = written(
        replace(gradient(alpha=True), metadata=metadata, colours=colours), extension, bits
    )
    found = decode(data)
    assert found.metadata.xmp
    assert found.metadata.exif
    assert extension == "jxl" or found.colours.icc_profile == profile
    exiftool = shutil.which("exiftool")
    if exiftool is None:
        pytest.skip("exiftool is not installed")
    (tmp_path / f"a.{extension}").write_bytes(data)
    told = subprocess.run(
        [exiftool, "-j", "-G1", f"a.{extension}"], cwd=tmp_path, capture_output=True, check=True
    )
    (tags,) = json.loads(told.stdout)
    assert tags["IFD0:Make"]
    assert "ExifTool:Warning" not in tags
    assert extension == "jxl" or "ICC_Profile:ProfileDescription" in tags


@ALL
@pytest.mark.parametrize("points", [PQ_2020, CodePoints(9, 18), CodePoints(12, 13)])
def test_code_points_stay(extension: str, bits: int, points: CodePoints) -> None:
    hdr = HDR if points.transfer == 16 and extension != "jxl" else None
    picture = replace(gradient(alpha=True), colours=Colours(None, points, hdr=hdr))
    found = decode(written(picture, extension, bits))
    assert found.colours.code_points == points
    assert found.colours.hdr == hdr
    assert found.depth == bits


@pytest.mark.parametrize("points", [PQ_2020, CodePoints(9, 18)])
def test_ffprobe_reads_the_stream(points: CodePoints, tmp_path: Path) -> None:
    if shutil.which("ffprobe") is None:
        pytest.skip("ffprobe is not installed")
    (tmp_path / "a.avif").write_bytes(
        written(replace(gradient(), colours=Colours(None, points)), "avif", 12, 90)
    )
    told = subprocess.run(
        ["ffprobe", "-v", "error", "-of", "json", "-show_streams", "a.avif"],
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    stream = json.loads(told.stdout)["streams"][0]
    assert stream["pix_fmt"] == "yuv444p12le"
    assert stream["color_primaries"] == "bt2020"
    assert stream["color_transfer"] == {16: "smpte2084", 18: "arib-std-b67"}[points.transfer]
    assert stream["color_range"] == "pc"


def test_what_a_format_does_not_hold_is_said() -> None:
    with pytest.raises(
        ValueError, match="PNG does not hold 12 bits a sample; choose avif, heic or jxl"
    ):
        check("png", Quality(), "12")
    with pytest.raises(ValueError, match="AVIF does not hold 16 bits a sample; choose png or tiff"):
        check("avif", Quality(), "16")
    kept, notices = adapt(Frames((gradient(),)), of("jxl"), OutputOptions(), Quality(80))
    assert notices == ["JPEG XL holds 8 bits a sample with losses, not 16"]
    assert kept.pictures[0].depth == 8


def test_an_animation_has_eight_bits(tmp_path: Path) -> None:
    first = Picture(np.full((20, 30, 3), 9, np.uint8))
    frames = Frames((first, Picture(first.pixels + 90)), (100.0, 100.0))
    kept, notices = adapt(frames, of("avif"), OutputOptions("10"))
    assert notices == ["AVIF holds 8 bits a sample in an animation, not 10"]
    assert {one.depth for one in kept.pictures} == {8}
    encode(frames, "avif", options=OutputOptions("10"))


@pytest.mark.parametrize("extension", ["avif", "heic", "jxl"])
def test_the_program(extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    picture = replace(gradient(), colours=Colours(None, PQ_2020))
    Path("a.png").write_bytes(encode(picture, "png"))
    arguments = ["-m", "identity", "--backend", "numpy", "--depth", "10", "-q", "100"]
    result = CliRunner().invoke(cli, ["upscale", *arguments, "a.png", f"b.{extension}"])
    assert (result.exit_code, result.stderr) == (0, "")
    found = decode(Path(f"b.{extension}").read_bytes())
    assert found.depth == 10
    assert found.colours.code_points == PQ_2020
    large = picture.pixels.repeat(2, 0).repeat(2, 1)
    assert np.abs(found.pixels.astype(float) - large).mean() < 60
