"""Animated pictures become films, and films animated GIF: frames, times and transparency stay."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

films = pytest.importorskip("tests.helpers.films")
pytest.importorskip("av")

from tests.cli.test_cli import tiny  # noqa: E402
from waifu2x.cli import cli  # noqa: E402

needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="needs ffprobe")
Run = Callable[..., Result]
LASTING = (40, 50, 0, 100, 70)
"""Milliseconds of each frame; browsers show the third for 100."""
BEGINNING = (0, 0.04, 0.09, 0.19, 0.29)
LENGTH = 0.36


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls `video` with a model of one layer in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    tiny()
    given = ["video", "-m", "./tiny", "--backend", "numpy"]
    return lambda *words: CliRunner().invoke(cli, [*given, *words])


def drawings(*, transparent: bool = False) -> list[Image.Image]:
    """Five frames of 37x21 pixels, a square on plain ground."""
    made = []
    for number in range(5):
        image = np.zeros((21, 37, 4), np.uint8)
        image[...] = (200, 90, 30, 0 if transparent else 255)
        image[4:16, 4 + 4 * number : 16 + 4 * number] = (20, 160, 220, 255)
        made.append(Image.fromarray(image))
    return made


def animation(path: str, frames: Sequence[Image.Image]) -> None:
    options: dict[str, Any] = {"disposal": 2} if path.endswith(".gif") else {"lossless": True}
    if path.endswith(("png", "apng")):
        options = {"format": "PNG"}
    options |= {"append_images": frames[1:], "duration": list(LASTING), "loop": 0}
    frames[0].save(path, save_all=True, **options)


def probed(path: str) -> tuple[list[float], str]:
    """The times of frames, and the pixel format, as ffprobe says."""
    command = ["ffprobe", "-v", "error", "-of", "json", "-select_streams", "v", "-show_frames"]
    found = json.loads(subprocess.check_output([*command, "-show_streams", path]))
    times = [float(frame["pts_time"]) for frame in found["frames"]]
    return times, found["streams"][0]["pix_fmt"]


@needs_ffprobe
@pytest.mark.parametrize("kind", ["gif", "apng", "png", "webp"])
def test_an_animation_becomes_a_film_with_its_times(run: Run, kind: str) -> None:
    animation(f"in.{kind}", drawings())
    result = run("-c", "ffv1", f"in.{kind}", "out.mkv")
    assert (result.exit_code, result.output) == (0, "")
    times, pixels = probed("out.mkv")
    assert times == pytest.approx(BEGINNING, abs=0.001)
    assert "a" not in pixels.removeprefix("yuv")
    film = run("--chroma", "420", f"in.{kind}", "out.mp4")
    assert (film.exit_code, film.output.count("4:4:4")) == (0, 0)
    shown = ["ffprobe", "-v", "error", "-of", "json", "-show_entries", "format=duration"]
    length = json.loads(subprocess.check_output([*shown, "out.mp4"]))["format"]["duration"]
    assert float(length) == pytest.approx(LENGTH, abs=0.01)


@needs_ffprobe
def test_only_seen_transparency_counts(run: Run) -> None:
    """Most GIF have a transparent colour in order to keep what is there already."""
    animation("clear.gif", drawings(transparent=True))
    first, *rest = drawings()
    first.save("kept.gif", save_all=True, append_images=rest, duration=40, disposal=1)
    controls = Path("kept.gif").read_bytes().split(b"\x21\xf9\x04")[1:]
    assert any(control[0] & 1 for control in controls)  # transparent pixels keep what is there
    assert run("--chroma", "420", "kept.gif", "kept.mp4").exit_code == 0
    refused = run("clear.gif", "clear.mp4")
    message = "Error: .mp4 cannot hold transparency; use .mkv, .mov or .webm\n"
    assert (refused.exit_code, refused.stderr) == (1, message)
    assert run("clear.gif", "clear.mkv").exit_code == 0
    assert "a" in probed("clear.mkv")[1].removeprefix("yuv")


@pytest.mark.parametrize(
    ("rate", "tick", "step", "count", "kept"),
    [
        (Fraction(25), Fraction(1, 25), 1, 12, 12),
        (Fraction(30000, 1001), Fraction(1, 30000), 1001, 20, 20),
        (Fraction(60), Fraction(1, 60), 1, 60, 50),
    ],
    ids=str,
)
def test_a_film_becomes_a_gif_of_the_same_length(
    run: Run, rate: Fraction, tick: Fraction, step: int, count: int, kept: int
) -> None:
    times = range(0, count * step, step)
    films.film(Path("in.nut"), codec="ffv1", times=times, tick=tick, rate=rate, size=(21, 37))
    result = run("in.nut", "out.gif")
    assert result.exit_code == 0
    left_out = f"out.gif: GIF shows at most 50 frames a second: {count - kept} are left out\n"
    told = "out.gif: GIF holds 256 colours a picture\n" + left_out * (kept < count)
    assert result.stderr == told
    made: Any
    with Image.open("out.gif") as made:
        assert (made.size, made.n_frames) == ((74, 42), kept)
        assert "loop" in made.info
        lasting = []
        for number in range(kept):
            made.seek(number)
            lasting.append(made.info["duration"])
    assert min(lasting) >= 20
    begins = np.cumsum([0, *lasting])
    assert begins[-1] == pytest.approx(float(1000 * count / rate), abs=10)
    if kept == count:
        wanted = [float(1000 * number / rate) for number in range(count)]
        np.testing.assert_allclose(begins[:-1], wanted, atol=5)


def test_held_frames_and_transparency_reach_a_gif(run: Run) -> None:
    animation("in.gif", drawings(transparent=True))
    assert run("-m", "upconv_7/art", "in.gif", "out.gif").exit_code == 0
    made: Any
    with Image.open("in.gif") as source, Image.open("out.gif") as made:
        assert (made.size, made.n_frames) == ((74, 42), 5)
        for number in range(5):
            source.seek(number)
            made.seek(number)
            assert made.info["duration"] == (LASTING[number] or 100)
            clear = np.asarray(source.convert("RGBA"))[..., 3].repeat(2, 0).repeat(2, 1) == 0
            assert (np.asarray(made.convert("RGBA"))[..., 3] == 0)[clear].mean() > 0.9


MISTAKES = [
    ("upscale in.gif out.mp4", 2, "out.mp4: it is a film; use `waifu2x video in.gif out.mp4`."),
    ("upscale in.mkv out.gif", 2, "in.mkv: it is a film; use `waifu2x video in.mkv out.gif`."),
    ("upscale photo.jpg out.mp4", 2, "out.mp4: it is a film, but photo.jpg is a picture."),
    ("video still.png out.mp4", 1,
     "still.png: it is a picture, not a film; use `waifu2x still.png`"),
    ("video cut.gif out.mp4", 1, "cut.gif: damaged or cut off: its header is cut off"),
    ("video in.gif out.tif", 1,
     "out.tif: a film is written as .mkv, .mp4, .mov, .webm, .gif or .y4m, or as frames such as"
     " frames/%06d.png; choose one"),
    ("video --depth 10 in.gif out.gif", 1, "GIF holds 8 bits; leave --depth 10 out"),
    ("video -c x264 in.gif out.gif", 1, "gif has no encoder; leave --codec out"),
    ("video --start 9 in.gif out.gif", 1,
     "in.gif: it has no frames in that stretch, and ends at 0.36 s; choose another --start or"
     " --end"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "sentence"), MISTAKES, ids=[words for words, *_ in MISTAKES]
)
def test_a_mistake_names_what_was_meant(run: Run, words: str, code: int, sentence: str) -> None:
    animation("in.gif", drawings())
    Path("in.mkv").write_bytes(b"a film")
    Image.new("RGB", (9, 9)).save("still.png")
    Path("photo.jpg").write_bytes(b"a picture")
    Path("cut.gif").write_bytes(Path("in.gif").read_bytes()[:9])
    before = sorted(Path().iterdir())
    command, *rest = words.split()
    backend = ["-m", "./tiny", "--backend", "numpy"]
    result = CliRunner().invoke(cli, [command, *backend, *rest])
    assert (result.exit_code, result.stderr) == (code, f"Error: {sentence}\n")
    assert sorted(Path().iterdir()) == before
