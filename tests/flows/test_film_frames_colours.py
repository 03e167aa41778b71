"""Frames say the colours of their film, and a film of frames those of its frames.

Judges: PNG's specification for chunks, ffprobe for films, the formulas of BT.2020 for pixels.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageCms

av = pytest.importorskip("av")

from tests.formats.test_colours import ADOBE_PROFILE, HDR, chunks_in, hdr_pixels, png, pq  # noqa: E402
from tests.helpers import films  # noqa: E402
from tests.helpers.colorimetry import srgb_values  # noqa: E402
from tests.helpers.contents import encoded, identity_models  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.formats.film.description import PQ  # noqa: E402

needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="needs ffprobe")
TIMES = (0, 40)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")


def video(*arguments: str) -> str:
    command = ["video", "-m", "identity", "--backend", "numpy", *arguments]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    return result.stderr


def probe(path: str) -> dict[str, Any]:
    """ffprobe's words on the pictures and the first of them, with their side data."""
    command = ["ffprobe", "-v", "quiet", "-of", "json", "-show_streams", "-show_frames"]
    done = subprocess.run(
        [*command, "-read_intervals", "%+#1", path], capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    told: dict[str, Any] = {}
    for part in (found["streams"][0], found["frames"][0]):
        for one in (part, *part.pop("side_data_list", ())):
            told |= one
    return told


def hdr_film() -> None:
    films.film(
        Path("a.mkv"), codec="libx265", pixels="yuv420p10le", times=TIMES, colours=(9, 1, 9, 16),
        options={
            "x265-params": "log-level=none:bframes=0:hdr10=1:repeat-headers=1:"
            f"master-display={films.MASTERING}:max-cll=1000,400"
        },
    )  # fmt: skip


@needs_ffprobe
def test_hdr_goes_to_frames_and_back() -> None:
    hdr_film()
    warned = video("a.mkv", "frames/%d.png")
    assert "HDR10" not in warned
    chunks = dict(chunks_in(Path("frames/1.png").read_bytes()))
    assert chunks[b"cICP"] == bytes((9, 16, 0, 1))
    display = (34000, 16000, 13250, 34500, 7500, 3000, 15635, 16450)
    assert chunks[b"mDCV"] == struct.pack(">8H2I", *display, 10_000_000, 50)
    assert chunks[b"cLLI"] == struct.pack(">2I", 10_000_000, 4_000_000)
    video("--codec", "ffv1", "frames/%d.png", "b.mkv")
    before, after = probe("a.mkv"), probe("b.mkv")
    for key in (
        "color_space", "color_primaries", "color_transfer", "color_range", "red_x", "red_y",
        "white_point_x", "min_luminance", "max_luminance", "max_content", "max_average",
    ):  # fmt: skip
        one, other = after[key], before[key]
        assert one == other or Fraction(one) == Fraction(other), key


@pytest.mark.parametrize("colours", [(1, 1, 1, 1), (5, 1, 5, 6), (7, 1, 7, 7)])
@needs_ffprobe
def test_frames_keep_the_primaries_and_the_curve(colours: tuple[int, int, int, int]) -> None:
    """The matrix of the film that they become goes with their primaries, whatever their height."""
    films.film(Path("a.mkv"), codec="ffv1", times=TIMES, colours=colours)
    video("a.mkv", "frames/%d.png")
    chunks = dict(chunks_in(Path("frames/1.png").read_bytes()))
    assert chunks[b"cICP"] == bytes((colours[2], colours[3], 0, 1))
    video("--codec", "ffv1", "frames/%d.png", "b.mkv")
    before, after = probe("a.mkv"), probe("b.mkv")
    for key in ("color_space", "color_primaries", "color_transfer"):
        assert after[key] == before[key], key


@pytest.mark.parametrize("target", ["frames/%d.png", "a.gif"])
def test_black_and_white_of_a_film_are_those_of_pictures(target: str) -> None:
    """In limited range they are 16 and 235."""
    with av.open("a.mkv", "w") as out:
        stream = out.add_stream("ffv1", rate=25)
        context = stream.codec_context
        context.height, context.width, context.pix_fmt = 16, 24, "yuv420p"
        pixels = np.zeros((16, 24, 3), np.uint8)
        pixels[:, 12:] = 255
        for number in range(2):
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    Path("frames").mkdir()
    video("a.mkv", target)
    with Image.open(target.replace("%d", "1")) as image:
        found = np.asarray(image.convert("RGB"))
    assert (found[:, 0].max(), found[:, -1].min()) == (0, 255)


def test_films_that_say_nothing_become_frames_that_say_nothing() -> None:
    films.film(Path("a.mkv"), codec="ffv1", times=TIMES)
    video("a.mkv", "frames/%d.png")
    kinds = [kind for kind, _ in chunks_in(Path("frames/1.png").read_bytes())]
    assert set(kinds) == {b"IHDR", b"IDAT", b"IEND"}


def test_frames_of_hdr_are_coded_by_their_own_matrix() -> None:
    """By the formulas of BT.2020, not those of BT.601."""
    pixels = hdr_pixels()
    Path("frames").mkdir()
    for number in (1, 2):
        chunks = [(b"cICP", b"\x09\x10\0\1"), *HDR]
        Path(f"frames/{number}.png").write_bytes(png(pixels, *chunks))
    video("--codec", "ffv1", "--chroma", "444", "frames/%d.png", "b.mkv")
    with av.open("b.mkv") as container:
        frame = next(container.decode(video=0))
        rows = [np.frombuffer(plane, "<u2").reshape(frame.height, -1) for plane in frame.planes]
        planes = [row[::2, : frame.width : 2].astype(float) for row in rows]
    assert (frame.color_primaries, frame.color_trc, frame.colorspace) == (9, PQ, 9)
    assert frame.format.name == "yuv444p10le"
    y, u, v = (
        (plane - zero) / span
        for plane, zero, span in zip(planes, (64, 512, 512), (876, 896, 896), strict=True)
    )
    red, blue = y + 1.4746 * v, y + 1.8814 * u
    green = (y - 0.2627 * red - 0.0593 * blue) / 0.6780
    assert abs(np.stack([red, green, blue], -1) - pixels / 65535).max() < 0.003


@pytest.mark.parametrize(
    ("profile", "expected", "lost"),
    [
        ("sRGB", (1, 13), ()),
        ("Adobe RGB", (2, 2), ("the colour profile",)),
    ],
)
def test_profiles_of_frames(profile: str, expected: tuple[int, int], lost: tuple[str, ...]) -> None:
    """A film has no profiles: those of colours with numbers become these."""
    made = ADOBE_PROFILE
    if profile == "sRGB":
        made = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for number in (1, 2):
        content = encoded(Image.new("RGB", (8, 8)), "PNG", icc_profile=made)
        Path(f"{number}.png").write_bytes(content)
    with FilmReader(Path("%d.png")) as reader:
        colours = reader.film.pictures.colours
        assert (colours.primaries, colours.transfer) == expected
        assert reader.film.pictures.lost == lost


def test_y4m_says_no_colours_but_those_of_its_height() -> None:
    hdr_film()
    assert "y4m does not say its colours (matrix BT.2020, BT.2020, PQ)" in video("a.mkv", "a.y4m")
    films.film(Path("b.mkv"), codec="ffv1", times=TIMES, colours=(6, 1, 6, 6))
    assert "does not say" not in video("b.mkv", "b.y4m")


def test_a_preview_of_hdr_shows_its_light() -> None:
    """A grey of 90 cd/m² is below the highlights, so it is 90/203 of white on paper."""
    level = round(float(pq(90)) * (940 - 64) + 64)
    with av.open("b.mkv", "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv444p10le"
        stream.codec_context.colorspace = stream.codec_context.color_primaries = 9
        stream.codec_context.color_trc, stream.codec_context.color_range = 16, 1
        for _ in TIMES:
            frame = av.VideoFrame(64, 48, "yuv444p10le")
            for plane, value in zip(frame.planes, (level, 512, 512), strict=True):
                plane.update(np.full(plane.buffer_size // 2, value, "<u2").tobytes())
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    video("--preview", "0", "b.mkv", "look.png")
    shown = np.asarray(Image.open("look.png").convert("L"))
    expected = round(float(srgb_values(90 / 203)) * 255)
    assert (abs(shown.astype(int) - expected) <= 2).mean() > 0.1
