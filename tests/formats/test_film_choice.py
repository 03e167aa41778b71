"""Which of several streams of pictures is the film."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

av = pytest.importorskip("av")

from waifu2x.errors import ImageError  # noqa: E402
from waifu2x.formats.film.reading.describe import main_stream  # noqa: E402
from waifu2x.formats.film.reading.opening import opened  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None,
    reason="needs the programs ffmpeg and ffprobe",
)


def _made(path: Path, *streams: tuple[str, int, str, str]) -> None:
    """Writes a film of streams: size, frames, codec and disposition."""
    command = ["ffmpeg", "-v", "error"]
    for size, frames, _, _ in streams:
        command += ["-f", "lavfi", "-i", f"testsrc=s={size}:r=10:d={frames / 10}"]
    for number, (_, _, codec, disposition) in enumerate(streams):
        command += ["-map", f"{number}", f"-c:{number}", codec]
        command += [f"-disposition:{number}", disposition]
    subprocess.run([*command, str(path)], check=True)


def _chosen(path: Path) -> int:
    with path.open("rb") as file, opened(file, path.name) as container:
        return main_stream(container, path.name).index


def _of_ffmpeg(path: Path) -> int:
    """The stream that the program ffmpeg chooses by itself."""
    command = ["ffmpeg", "-i", str(path), "-frames:v", "1", "-an", "-f", "null", "-"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return int(told.partition("Stream mapping:")[2].partition("#0:")[2].partition(" ")[0])


def _longest(path: Path) -> int:
    """The stream of most frames, as ffprobe counts them."""
    command = ["ffprobe", "-v", "quiet", "-of", "json", "-count_frames", "-show_streams", str(path)]
    streams = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["streams"]
    return max(range(len(streams)), key=lambda index: int(streams[index]["nb_read_frames"]))


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv", "film.mov", "film.ts"])
@pytest.mark.parametrize("size", ["32x18", "320x480"])
def test_a_single_picture_is_not_the_film(name: str, size: str, tmp_path: Path) -> None:
    """Neither first, nor as the default, nor larger."""
    path = tmp_path / name
    codec = "libx264" if name.endswith("ts") else "mjpeg"
    _made(path, (size, 1, codec, "default"), ("64x48", 20, "libx264", "0"))
    assert _chosen(path) == _longest(path) == 1


@pytest.mark.parametrize(
    "streams",
    [
        [("64x48", "0"), ("128x96", "0")],
        [("128x96", "0"), ("64x48", "default")],
        [("64x48", "default"), ("128x96", "default")],
        [("64x48", "0"), ("64x48", "0")],
    ],
)
def test_of_several_films_the_one_that_ffmpeg_takes(
    streams: list[tuple[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "film.mkv"
    _made(path, *((size, 5, "libx264", disposition) for size, disposition in streams))
    assert _chosen(path) == _of_ffmpeg(path)


def test_a_film_of_one_picture_is_a_film(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    _made(path, ("64x48", 1, "libx264", "default"))
    assert _chosen(path) == 0


def test_a_cover_alone_is_none(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    _made(path, ("64x48", 1, "mjpeg", "attached_pic"))
    with pytest.raises(ImageError, match="only sound or a cover"):
        _chosen(path)
