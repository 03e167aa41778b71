"""--to sdr: pictures and films of PQ and HLG as SDR, against formulas in float64 and zimg."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.helpers.colorimetry import (
    Floats,
    delta_e,
    lab_of_light,
    srgb_light,
    srgb_values,
)
from tests.helpers.contents import Frames, adapt, decode, encode, identity_models
from tests.helpers.obvious_planes import Meaning, to_rgb
from waifu2x.cli import cli
from waifu2x.formats.metadata.profiles import converted
from waifu2x.formats.table import OutputOptions, of
from waifu2x.imaging.picture import CodePoints, Colours, Hdr, Picture

PQ, HLG = CodePoints(9, 16), CodePoints(9, 18)
TO_709 = np.array(
    [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]]
)
"""From BT.2020: ITU-R BT.2087, annex 1, table 2 the other way round."""
LUMA_2020, LUMA_709 = np.array([0.2627, 0.6780, 0.0593]), np.array([0.2126, 0.7152, 0.0722])
M1, M2, C1, C2, C3 = 0.1593017578125, 78.84375, 0.8359375, 18.8515625, 18.6875


def pq_of(nits: Any) -> Floats:
    power = (np.asarray(nits, np.float64) / 10_000) ** M1
    return np.asarray(((C1 + C2 * power) / (1 + C3 * power)) ** M2)


def nits_of(values: Any) -> Floats:
    root = np.asarray(values, np.float64) ** (1 / M2)
    return np.asarray(10_000 * (np.maximum(root - C1, 0) / (C2 - C3 * root)) ** (1 / M1))


def shown_hlg(values: Any) -> Floats:
    """cd/m² on a display of 1000: ITU-R BT.2100, table 5."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    values = np.asarray(values, np.float64)
    scene = np.where(values <= 0.5, values**2 / 3, (np.exp((values - c) / a) + b) / 12)
    return np.asarray(1000 * scene * ((scene @ LUMA_2020) ** 0.2)[..., np.newaxis])


def compressed(nits: Any, brightest: float) -> Floats:
    """ITU-R BT.2390-10, section 5.4.1, with black at 0 and a display of 203 cd/m²."""
    top = pq_of(brightest)
    e1 = np.minimum(pq_of(nits) / top, 1)
    most = pq_of(203) / top
    ks = 1.5 * most - 0.5
    t = (e1 - ks) / (1 - ks)
    spline = (
        (2 * t**3 - 3 * t**2 + 1) * ks + (t**3 - 2 * t**2 + t) * (1 - ks)
        + (-2 * t**3 + 3 * t**2) * most
    )  # fmt: skip
    return nits_of(np.where(e1 < ks, e1, spline) * top)


def expected(values: Floats, points: CodePoints, brightest: float = 1000) -> Floats:
    """Linear light of BT.709, 1 for white."""
    nits = nits_of(values) if points.transfer == 16 else shown_hlg(values)
    light = compressed(nits, brightest) / 203 @ TO_709.T
    luma = (light @ LUMA_709)[..., np.newaxis]
    low, high = light.min(-1, keepdims=True), light.max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.minimum(
            np.where(low < 0, luma / (luma - low), 1),
            np.where(high > 1, (1 - luma) / (high - luma), 1),
        )
    return np.asarray(np.clip(luma + share * (light - luma), 0, 1))


def values(seed: int, size: tuple[int, int] = (37, 52)) -> Floats:
    """Colours of all kinds, black and the brightest among them."""
    found: Floats = np.random.default_rng(seed).random((*size, 3)) ** 1.3 * 0.95
    found[0, :4] = [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 0, 1]]
    found[1] = np.linspace(0, 1, size[1])[:, np.newaxis]
    return found


@pytest.mark.parametrize("points", [PQ, HLG])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_pictures_are_what_the_formulas_say(points: CodePoints, dtype: Any) -> None:
    exact = values(1)
    pixels = np.rint(exact * 65535).astype(dtype) if dtype == np.uint16 else exact.astype(dtype)
    picture = Picture(pixels, np.full(pixels.shape[:2], 1, dtype), Colours(None, points))
    made = converted(picture)
    assert made is not None
    assert made.colours == Colours()
    assert made.pixels.dtype == dtype
    assert made.alpha is picture.alpha
    found = made.pixels / (65535 if dtype == np.uint16 else 1)
    difference = delta_e(lab_of_light(srgb_light(found)), lab_of_light(expected(exact, points)))
    assert difference.mean() < 0.1
    assert difference.max() < 1


@pytest.mark.parametrize("points", [PQ, HLG])
def test_grey(points: CodePoints) -> None:
    grey = np.linspace(0, 1, 256).reshape(16, 16, 1)
    made = converted(Picture(np.rint(grey * 65535).astype(np.uint16), None, Colours(None, points)))
    assert made is not None
    light = expected(grey.repeat(3, -1), points)[..., :1]
    assert np.abs(made.pixels / 65535 - srgb_values(light)).max() < 0.002


@pytest.mark.parametrize("brightest", [400, 4000])
def test_metadata_tells_how_bright_it_is(brightest: int) -> None:
    exact = values(2)
    hdr = Hdr(light=(Fraction(brightest), Fraction(100)))
    pixels = np.rint(exact * 65535).astype(np.uint16)
    made = converted(Picture(pixels, None, Colours(None, PQ, hdr=hdr)))
    assert made is not None
    light = expected(exact, PQ, brightest)
    difference = delta_e(lab_of_light(srgb_light(made.pixels / 65535)), lab_of_light(light))
    assert difference.mean() < 0.1


def test_zimg_shows_the_same_where_nothing_is_compressed() -> None:
    """Colours of BT.709 below the knee, converted by FFmpeg's zscale."""
    ffmpeg = shutil.which("ffmpeg")
    if (
        ffmpeg is None
        or " zscale "
        not in subprocess.run(
            [ffmpeg, "-v", "error", "-filters"], capture_output=True, text=True, check=True
        ).stdout
    ):
        pytest.skip("an ffmpeg with zscale is not installed")
    light = np.random.default_rng(3).random((16, 24, 3)) @ np.linalg.inv(TO_709).T
    pixels = np.rint(pq_of(light * 80) * 65535).astype("<u2")
    chain = (
        "setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=gbr:range=pc,"
        "format=gbrpf32le,zscale=t=linear:npl=203,zscale=p=bt709,zscale=t=iec61966-2-1,"
        "format=gbrp16le,format=rgb48le"
    )
    told = subprocess.run(
        [ffmpeg, "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb48le", "-s", "24x16", "-i", "-",
         "-vf", chain, "-f", "rawvideo", "-pix_fmt", "rgb48le", "-"],
        input=pixels.tobytes(), capture_output=True, check=True,
    )  # fmt: skip
    theirs = np.frombuffer(told.stdout, "<u2").reshape(pixels.shape) / 65535
    made = converted(Picture(pixels.astype(np.uint16), None, Colours(None, PQ)))
    assert made is not None
    one, other = (lab_of_light(srgb_light(found)) for found in (made.pixels / 65535, theirs))
    assert delta_e(one, other).mean() < 0.5


def test_only_hdr_is_converted() -> None:
    wide = Picture(np.full((3, 4, 3), 40_000, np.uint16), None, Colours(None, CodePoints(12, 13)))
    kept, notices = adapt(Frames((wide,)), of("png"), OutputOptions(to="sdr"))
    assert notices == []
    assert kept.pictures[0].colours.code_points == CodePoints(12, 13)
    assert kept.pictures[0].pixels is wide.pixels


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    exact = values(4)
    pixels = np.rint(exact * 65535).astype(np.uint16)
    Path("a.png").write_bytes(encode(Picture(pixels, None, Colours(None, PQ)), "png"))
    command = ["upscale", "-m", "identity", "--backend", "numpy", "--to", "sdr", "a.png", "b.png"]
    result = CliRunner().invoke(cli, command)
    assert (result.exit_code, result.stderr) == (0, "")
    found = decode(Path("b.png").read_bytes())
    assert found.colours == Colours()
    light = expected(exact, PQ).repeat(2, 0).repeat(2, 1)
    difference = delta_e(lab_of_light(srgb_light(found.pixels / 65535)), lab_of_light(light))
    assert difference.mean() < 0.1
    result = CliRunner().invoke(cli, ["upscale", "--to", "hdr", "a.png", "c.png"])
    assert result.exit_code == 2
    assert "expected sdr" in result.stderr


def hdr_film(path: Path, transfer: int) -> Floats:
    """A film of two frames in HDR10 or HLG; the RGB of its first frame."""
    av = pytest.importorskip("av")
    height, width = 22, 34
    meaning = Meaning(10, "444", "bt2020", False, "left")
    rgb = values(5, (height, width))
    y = rgb @ LUMA_2020
    chroma = (rgb[..., 2] - y) / 1.8814, (rgb[..., 0] - y) / 1.4746
    planes = [np.rint(64 + 876 * y), *(np.rint(512 + 896 * plane) for plane in chroma)]
    planes = [plane.astype(np.uint16) for plane in planes]
    with av.open(str(path), "w") as out:
        video = out.add_stream("ffv1", rate=25)
        context = video.codec_context
        context.height, context.width, context.pix_fmt = height, width, "yuv444p10le"
        context.colorspace, context.color_range = 9, 1
        context.color_primaries, context.color_trc = 9, transfer
        for number in range(2):
            frame = av.VideoFrame(width, height, "yuv444p10le")
            for plane, samples in zip(frame.planes, planes, strict=True):
                rows = np.frombuffer(plane, np.uint16).reshape(height, -1)
                rows[:, :width] = samples
            frame.pts = number
            out.mux(video.encode(frame))
        out.mux(video.encode())
    return to_rgb(planes, meaning).clip(0, 1)


@pytest.mark.parametrize("transfer", [16, 18])
def test_films(transfer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    av = pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    rgb = hdr_film(tmp_path / "in.mkv", transfer)
    command = ["video", "-m", "identity", "--backend", "numpy", "-n", "none", "--to", "sdr"]
    result = CliRunner().invoke(cli, [*command, "-c", "ffv1", "in.mkv", "out.mkv"])
    assert result.exit_code == 0, result.output
    assert "HDR" not in result.stderr
    with av.open("out.mkv") as film:
        context = film.streams.video[0].codec_context
        tags = context.colorspace, context.color_range, context.color_primaries, context.color_trc
        assert tuple(map(int, tags)) == (1, 1, 1, 1)
        frame = next(film.decode(video=0))
        planes = [
            np.frombuffer(plane, np.uint16).reshape(plane.height, -1)[:, : plane.width].copy()
            for plane in frame.planes
        ]
    found = to_rgb(planes, Meaning(10, "444", "bt709", False, "left")).clip(0, 1)
    light = expected(rgb, CodePoints(9, transfer)).repeat(2, 0).repeat(2, 1)
    difference = delta_e(lab_of_light(found**2.4), lab_of_light(light))
    assert difference.mean() < 0.5
    result = CliRunner().invoke(cli, [*command, "in.mkv", "frames/%03d.png"])
    assert result.exit_code == 0, result.output
    picture = decode(Path("frames/001.png").read_bytes())
    assert picture.colours.code_points == CodePoints(1, 1)
    difference = delta_e(lab_of_light((picture.pixels / 65535) ** 2.4), lab_of_light(light))
    assert difference.mean() < 0.5


def test_hdr10_metadata_goes_with_hdr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    av = pytest.importorskip("av")
    films = pytest.importorskip("tests.helpers.films")
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    films.film(
        tmp_path / "in.mkv", codec="libx265", pixels="yuv420p10le", colours=(9, 1, 9, 16),
        times=(0, 40),
        options={
            "x265-params": "log-level=none:hdr10=1:repeat-headers=1:"
            f"master-display={films.MASTERING}:max-cll=1000,400"
        },
    )  # fmt: skip
    command = ["video", "-m", "identity", "--backend", "numpy", "-n", "none", "--to", "sdr"]
    for codec in ("ffv1", "x265"):
        result = CliRunner().invoke(cli, [*command, "-c", codec, "in.mkv", f"{codec}.mkv"])
        assert result.exit_code == 0, result.output
        with av.open(f"{codec}.mkv") as film:
            frame = next(film.decode(video=0))
            assert not [one for one in frame.side_data if "MASTERING" in one.type.name]
