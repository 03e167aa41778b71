"""Sentences about films that have to be true."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_reading import Found  # noqa: E402
from tests.flows.test_film_streams import enlarge  # noqa: E402
from waifu2x.cli.film import messages  # noqa: E402
from waifu2x.flows.film.making import MadeFilm  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, PreparedFilm, prepare  # noqa: E402
from waifu2x.formats.film.reading.opening import format_of  # noqa: E402
from waifu2x.formats.film.reading.packets import Gap  # noqa: E402
from waifu2x.formats.film.reading.selection import Ending, Selection  # noqa: E402

needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None,
    reason="needs the programs ffmpeg and ffprobe",
)


def _prepared(source: Path, target: Path, **options: Any) -> tuple[str, Any, PreparedFilm]:
    with FilmReader(source) as reader:
        pictures = reader.film.pictures
        job = FilmJob(source, target, **options)
        return "film", reader.film, prepare(reader, job, pictures.height * 2, pictures.width * 2)


def test_options_that_are_named_exist(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.CASES["interlaced.mkv"](source)
    told = {
        how: list(messages.warnings(*_prepared(source, tmp_path / "o.mkv", deinterlacing=how)))
        for how in ("ivtc", "frame", "off")
    }
    assert told["ivtc"] == ["film: it is interlaced, and its pulldown is undone"]
    assert "--deinterlace off" in told["frame"][0]
    assert "--deinterlace frame" in told["off"][0]


# Stereo pictures.


def _stereo(path: Path) -> tuple[str, bool] | None:
    """The arrangement by ffprobe, and whether it is reversed."""
    command = ["ffprobe", "-v", "quiet", "-of", "json", "-show_streams", str(path)]
    stream = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["streams"]
    for data in stream[0].get("side_data_list", ()):
        if data["side_data_type"] == "Stereo 3D" and data["type"] != "2D":
            return data["type"], bool(data["inverted"])
    return None


@needs_ffmpeg
@pytest.mark.parametrize(
    "mode",
    [
        "right_left",
        *(
            pytest.param(mode, marks=pytest.mark.matrix)
            for mode in ("left_right", "bottom_top", "row_interleaved_lr")
        ),
    ],
)
def test_the_arrangement_of_a_stereo_picture_is_kept_or_said(mode: str, tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, video_tags={"stereo_mode": mode}, times=[0, 40])
    found = _stereo(source)
    assert found is not None
    for container in ("mkv", "mp4"):
        target = tmp_path / f"out.{container}"
        enlarge(FilmJob(source, target))
        told = " ".join(messages.warnings(*_prepared(source, target)))
        is_kept = _stereo(target) == found
        assert is_kept == (container == "mkv")
        assert ("stereo" in told) == (not is_kept)


@needs_ffmpeg
@pytest.mark.parametrize("packing", [3, 4, 0])
def test_an_arrangement_within_the_pictures_is_kept_too(packing: int, tmp_path: Path) -> None:
    """As H.264 tells it, by numbers: 3 is side by side, 4 one above the other, 0 a chessboard."""
    source, target = tmp_path / "film.ts", tmp_path / "out.mkv"
    options = {"x264-params": f"frame-packing={packing}"}
    films.film(source, options=options, times=range(0, 90000, 3600), tick=films.TICK)
    enlarge(FilmJob(source, target))
    command = ["ffmpeg", "-v", "error", "-i", str(source), "-vf", "showinfo", "-f", "null", "-"]
    told = subprocess.run([*command, "-v", "info"], check=True, capture_output=True, text=True)
    found = _stereo(target)
    assert found is not None
    assert f"type - {found[0]}" in told.stderr


def test_a_plain_picture_is_not_stereo(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, video_tags={"stereo_mode": "mono"}, times=[0, 40])
    assert list(messages.warnings(*_prepared(source, tmp_path / "out.mp4"))) == []


# The parts of a film that could be read.


def _damage(ending: Ending, selection: Selection, seconds: float | None, path: Path) -> list[str]:
    films.film(path, times=[0, 40])
    with FilmReader(path) as reader:
        film = replace(reader.film, seconds=seconds)
    return messages.damage(film, selection, MadeFilm(ending.frames, 0, 0, ending))


def test_gaps_could_not_be_read(tmp_path: Path) -> None:
    gap = Gap(Fraction(1), Fraction(1))
    ending = Ending(55, 3, seconds=Fraction(321, 100), gaps=(gap,))
    found = _damage(ending, Selection(), 3.21, tmp_path / "film.mkv")
    assert found == [
        "3 places are damaged (55 frames, 2.21 s of 3.21 s could be read)",
        "no pictures from 1.00 to 2.00 s",
    ]


def test_a_stretch_is_measured_from_its_start(tmp_path: Path) -> None:
    ending = Ending(25, 1, seconds=Fraction(3))
    selection = Selection(Fraction(2), Fraction(4))
    found = _damage(ending, selection, 10.0, tmp_path / "film.mkv")
    assert found == ["1 place is damaged (25 frames, 1.00 s of 2.00 s could be read)"]


def test_no_more_is_read_than_there_is(tmp_path: Path) -> None:
    """The length that joined recordings claim is that of one."""
    ending = Ending(500, 1, seconds=Fraction(20))
    found = _damage(ending, Selection(), 10.0, tmp_path / "film.mkv")
    assert found == ["1 place is damaged (500 frames, 20.00 s could be read)"]


# Recordings that begin within a packet.


@pytest.mark.parametrize("cut", [1, 99, 187, 188, 1000])
def test_a_recording_may_begin_within_a_packet(cut: int, tmp_path: Path) -> None:
    source = tmp_path / "film.ts"
    times = range(0, 24 * 3600, 3600)
    films.film(source, tick=films.TICK, times=times, options={"g": "4"}, rate=Fraction(25))
    data = source.read_bytes()
    source.write_bytes(data[cut:])
    found = Found(source)
    with av.open(str(source)) as film:  # FFmpeg finds the format by itself
        assert len(found.times) == sum(1 for _ in film.decode(video=0))
    assert len(found.times) >= 16


@pytest.mark.parametrize("stride", [188, 192, 204])
def test_packets_of_each_length_are_known(stride: int) -> None:
    packets = (b"\x47" + bytes(stride - 1)) * 12
    assert all(format_of(packets[cut:]) == "mpegts" for cut in (0, 1, stride - 1))
    damaged = packets.replace(b"\x47", b"\x46")
    assert format_of(damaged) is None
    assert format_of(b"") is None
    assert format_of(b"\x47" * 3) is None
