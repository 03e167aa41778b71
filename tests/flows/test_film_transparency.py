"""Transparent films keep their transparency, by an encoder that the container implies."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

av = pytest.importorskip("av")
pytest.importorskip("tests.helpers.films")

from waifu2x.cli import cli  # noqa: E402
from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.formats.film.description import PixelFormat  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish, choose  # noqa: E402

needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None, reason="needs ffmpeg"
)
HEIGHT, WIDTH = 24, 34
CLEAR = PixelFormat("yuva420p", 8, 2, 2, 4)
OPAQUE = PixelFormat("yuv444p10le", 10, 1, 1, 3)


def alpha_of(number: int) -> NDArray[np.uint8]:
    """The transparency of a frame: a hard step, and a slope."""
    made = np.full((HEIGHT, WIDTH), 40 * number, np.uint8)
    made[:, 8:20] = 255
    made[12:, 20:] = np.linspace(20, 250, WIDTH - 20).astype(np.uint8)
    return made


def clear_film(path: Path, codec: str = "ffv1", pixels: str = "bgra") -> None:
    """Writes a transparent film of three frames."""
    with av.open(str(path), "w") as out:
        video = out.add_stream(codec, rate=25)
        video.height, video.width, video.pix_fmt = HEIGHT, WIDTH, pixels
        for number in range(3):
            colours = np.full((HEIGHT, WIDTH, 3), (200, 90, 30), np.uint8)
            frame = av.VideoFrame.from_ndarray(np.dstack([colours, alpha_of(number)]), "rgba")
            frame = frame.reformat(format=pixels)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            out.mux(video.encode(frame))
        out.mux(video.encode())


def seen(path: Path) -> dict[str, Any]:
    """Returns ffprobe's words about the pictures."""
    command = ["ffprobe", "-v", "error", "-of", "json", "-select_streams", "v", "-show_streams"]
    (stream,) = json.loads(subprocess.check_output([*command, str(path)]))["streams"]
    found: dict[str, Any] = stream
    return found


def alpha_by_ffmpeg(path: Path) -> NDArray[np.float64]:
    """The transparency of all frames in 0 to 255, decoded by the ffmpeg of this machine."""
    decoder = ["-c:v", "libvpx-vp9"] if seen(path)["codec_name"] == "vp9" else []
    command = ["ffmpeg", "-v", "error", *decoder, "-i", str(path), "-f", "rawvideo"]
    raw = subprocess.check_output([*command, "-pix_fmt", "rgba64le", "-"])
    return np.frombuffer(raw, "<u2").reshape(-1, 2 * HEIGHT, 2 * WIDTH, 4)[..., 3] / 257


def enlarge(source: Path, target: Path, *words: str) -> None:
    """Makes a film by the command, twice as large."""
    given = ["video", "--backend", "numpy", "-n", "none", *words]
    done = CliRunner().invoke(cli, [*given, str(source), str(target)])
    assert done.exit_code == 0, done.output


@needs_ffmpeg
@pytest.mark.parametrize(
    ("name", "words", "codec", "profile"),
    [
        ("out.mkv", "", "ffv1", None),
        ("out.mov", "", "prores", "4444"),
        ("out.webm", "", "vp9", None),
        *(
            pytest.param(*case, marks=pytest.mark.matrix)
            for case in (
                ("out.mkv", "-c prores", "prores", "4444"),
                ("out.mkv", "-c vp9", "vp9", None),
                ("out.mov", "-c prores --preset 4444xq", "prores", "XQ"),
            )
        ),
    ],
)
def test_transparency_is_kept(
    name: str,
    words: str,
    codec: str,
    profile: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    clear_film(Path("in.mkv"))
    target = Path(name)
    enlarge(Path("in.mkv"), target, *words.split())
    found = seen(target)
    assert found["codec_name"] == codec
    if profile is not None:
        assert found["profile"] == profile
        assert found["pix_fmt"].startswith("yuva444p")
    wanted = np.stack([alpha_of(number) for number in range(3)]).repeat(2, 1).repeat(2, 2)
    apart = np.abs(alpha_by_ffmpeg(target) - wanted)
    # The network smooths the step, and VP9 loses a little; without transparency it is a hundred.
    assert apart.mean() < 8


@needs_ffmpeg
def test_prores_of_444_has_a_profile_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with av.open("in.mkv", "w") as out:
        video = out.add_stream("ffv1", rate=25)
        video.height, video.width, video.pix_fmt = HEIGHT, WIDTH, "yuv444p10le"
        frame = av.VideoFrame(WIDTH, HEIGHT, "yuv444p10le")
        frame.pts, frame.time_base = 0, Fraction(1, 25)
        out.mux(video.encode(frame))
        out.mux(video.encode())
    enlarge(Path("in.mkv"), Path("out.mov"), "-c", "prores")
    found = seen(Path("out.mov"))
    assert (found["profile"], found["pix_fmt"][:7]) == ("4444", "yuv444p")
    enlarge(Path("in.mkv"), Path("hq.mov"), "-c", "prores", "--preset", "hq")
    found = seen(Path("hq.mov"))
    assert (found["profile"], found["pix_fmt"][:7]) == ("HQ", "yuv422p")


@pytest.mark.parametrize(
    ("source", "container", "wish", "message"),
    [
        (CLEAR, "mp4", Wish(), ".mp4 cannot hold transparency; use .mkv, .mov or .webm"),
        (CLEAR, "mp4", Wish("vp9"), ".mp4 cannot hold transparency; use .mkv, .mov or .webm"),
        (CLEAR, "webm", Wish("av1"),
         "av1 cannot code transparency; leave --codec out, or use vp9"),
        (CLEAR, "mov", Wish("prores", preset="3"),
         "prores of profile 3 has no transparency; use --preset 4"),
        (CLEAR, "mov", Wish(options=(("profile", "hq"),)),
         "prores of profile hq has no transparency; use --preset 4"),
        (CLEAR, "webm", Wish(chroma="444"),
         "vp9 cannot code 4:4:4 with transparency; leave --chroma out"),
        (OPAQUE, "mov", Wish("prores", preset="3", chroma="444"),
         "prores of profile 3 has no 4:4:4; use --preset 4"),
        (OPAQUE, "mov", Wish("prores", preset="fast"),
         "prores has no preset 'fast'; use 0 to 5, proxy, lt, standard, hq, 4444, 4444xq"),
        (OPAQUE, "mkv", Wish("av1", preset="ultrafast"),
         "av1 has no preset 'ultrafast'; use 0 to 13"),
        (OPAQUE, "mkv", Wish("av1", crf=64), "av1 has no --crf 64; use 0 to 63"),
        (OPAQUE, "mkv", Wish("av1", chroma="444"), "av1 cannot code 4:4:4; leave --chroma out"),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_be_lost_is_refused(
    source: PixelFormat, container: str, wish: Wish, message: str
) -> None:
    with pytest.raises(OutputError) as found:
        choose(wish, source, container, None)
    assert str(found.value) == message
