"""Black bars are found and said, and cropped by choice: FFmpeg's cropdetect and crop judge."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.cli.test_cli import tiny  # noqa: E402
from tests.flows.test_film_streams import pictures_of  # noqa: E402
from waifu2x.cli import cli  # noqa: E402

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
Run = Callable[..., Result]
HEIGHT, WIDTH = 44, 56


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls `video` with a model of one layer in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    tiny()
    given = ["video", "-m", "./tiny", "--backend", "numpy", "-n", "none", "-c", "ffv1"]
    return lambda *words: CliRunner().invoke(cli, [*given, *words])


def barred(
    path: str,
    bars: tuple[int, int, int, int],
    codec: str = "ffv1",
    pixels: str = "yuv420p",
    black: tuple[int, ...] = (),
) -> None:
    """Writes a film of eight frames with black bars at the top, bottom, left and right; frames
    whose numbers are in `black` are black all over."""
    top, bottom, left, right = bars
    with av.open(path, "w") as out:
        video = out.add_stream(codec, rate=10)
        video.height, video.width, video.pix_fmt = HEIGHT, WIDTH, pixels
        for number in range(8):
            image: NDArray[Any] = films.drawing(number, HEIGHT, WIDTH)
            image = image // 2 + 100
            image[:top], image[HEIGHT - bottom :] = 0, 0
            image[:, :left], image[:, WIDTH - right :] = 0, 0
            if number in black:
                image[...] = 0
            frame = av.VideoFrame.from_ndarray(image, "rgb24").reformat(format=pixels)
            frame.pts, frame.time_base = number, Fraction(1, 10)
            out.mux(video.encode(frame))
        out.mux(video.encode())


def by_cropdetect(path: str) -> str:
    """Returns the words of FFmpeg's filter at the end of a film."""
    command = ["ffmpeg", "-i", path, "-vf", "cropdetect=limit=24:round=2", "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *_, last = re.findall(r"crop=([\d:]+)", done.stderr)
    return str(last)


@needs_ffmpeg
@pytest.mark.parametrize(
    ("bars", "codec", "told"),
    [
        ((10, 10, 0, 0), "ffv1", "10 above, 10 below"),
        ((0, 0, 12, 8), "libx264", "12 left, 8 right"),
        ((6, 0, 0, 4), "libx264", "6 above, 4 right"),
    ],
)
def test_bars_are_said_and_cropped_by_choice(
    run: Run, bars: tuple[int, int, int, int], codec: str, told: str
) -> None:
    barred("in.mkv", bars, codec)
    crop = by_cropdetect("in.mkv")
    result = run("in.mkv", "whole.mkv")
    message = f"in.mkv: it has black bars ({told}); use --crop {crop} to remove them\n"
    assert (result.exit_code, result.stderr) == (0, message)
    assert pictures_of(Path("whole.mkv"))[1][0][0].shape == (2 * HEIGHT, 2 * WIDTH)
    for name, words in (("auto", "auto"), ("named", crop)):
        done = run("--crop", words, "in.mkv", f"{name}.mkv")
        assert (done.exit_code, done.stderr) == (0, "")
    # The same as of a film that FFmpeg has cropped.
    command = ["ffmpeg", "-v", "error", "-i", "in.mkv", "-vf", f"crop={crop}", "-c:v", "ffv1"]
    subprocess.run([*command, "cut.mkv"], check=True)
    assert run("cut.mkv", "wanted.mkv").exit_code == 0
    _, wanted, _ = pictures_of(Path("wanted.mkv"))
    for name in ("auto", "named"):
        _, made, _ = pictures_of(Path(f"{name}.mkv"))
        assert len(made) == len(wanted) == 8
        for frame, same in zip(made, wanted, strict=True):
            for plane, other in zip(frame, same, strict=True):
                np.testing.assert_array_equal(plane, other)


def test_black_frames_and_night_are_no_bars(run: Run) -> None:
    barred("plain.mkv", (0, 0, 0, 0), black=(2, 5))
    barred("one.mkv", (1, 0, 0, 0))  # the edge of an old camera's picture
    barred("black.mkv", (10, 10, 0, 0), black=tuple(range(8)))
    films.film(Path("dusk.mkv"), codec="ffv1", pixels="gray", times=(0, 40, 80), size=(22, 34))
    for name in ("plain.mkv", "one.mkv", "black.mkv", "dusk.mkv"):
        result = run(name, f"out-{name}")
        assert (result.exit_code, result.stderr) == (0, "")
    result = run("--crop", "auto", "plain.mkv", "auto.mkv")
    told = "plain.mkv: it has no black bars, so nothing is cropped\n"
    assert (result.exit_code, result.stderr) == (0, told)


def test_a_pipe_and_pictures_are_cropped_by_numbers(run: Run) -> None:
    barred("in.mkv", (10, 10, 0, 0), pixels="yuv422p10le")
    assert run("--crop", "55:24:0:10", "in.mkv", "out.mkv").exit_code == 0
    assert pictures_of(Path("out.mkv"))[1][0][0].shape == (48, 110)
    given = ["video", "-m", "./tiny", "--backend", "numpy", "-n", "none"]
    assert CliRunner().invoke(cli, [*given, "in.mkv", "frames/%d.png"]).exit_code == 0
    done = CliRunner().invoke(cli, [*given, "--crop", "31:17:5:21", "frames", "cut/"])
    assert done.exit_code == 0
    with films.Image.open("cut/1.png") as image:
        assert image.size == (62, 34)


@pytest.mark.parametrize(
    ("crop", "code", "sentence"),
    [
        ("56:24", 2, "--crop: '56:24': expected auto, or like 1920:800:0:140."),
        ("96:0:0:0", 2, "--crop: '96:0:0:0': expected auto, or like 1920:800:0:140."),
        ("56:44:2:0", 1, "in.mkv: it has 56x44 pixels: --crop 56:44:2:0 is not within them"),
        ("50:24:1:10", 1,
         "in.mkv: it has chroma for 2x2 pixels; begin --crop 50:24:1:10 at multiples of that"),
    ],
)  # fmt: skip
def test_a_mistake_ends_in_one_sentence(run: Run, crop: str, code: int, sentence: str) -> None:
    barred("in.mkv", (10, 10, 0, 0))
    result = run("--crop", crop, "in.mkv", "out.mkv")
    assert (result.exit_code, result.stderr) == (code, f"Error: {sentence}\n")
    assert not Path("out.mkv").exists()
