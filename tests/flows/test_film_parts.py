"""A film that is killed goes on where it was; what does not fit any more is a sentence."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge, pictures_of, squares, twice  # noqa: E402
from tests.helpers.film_making import make_film_here  # noqa: E402
from waifu2x.errors import ImageError, OutputError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

FFV1 = Wish("ffv1")
X264 = Wish("x264", preset="ultrafast")

_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.flows.test_film_streams import twice
from tests.flows.test_film_parts import FFV1, X264
from waifu2x.flows.film import request
from waifu2x.flows.film.reading.client import FilmReader
from tests.helpers.film_making import make_film_here
from waifu2x.flows.film.request import FilmJob, prepare

if __name__ == "__main__":
    request.PART_SECONDS = 0.4
    source, target, codec, last = sys.argv[1:]
    left = int(last)

    def work(pictures, results):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        twice(pictures, results)

    job = FilmJob(Path(source), Path(target), FFV1 if codec == "ffv1" else X264)
    with FilmReader(job.source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        make_film_here(reader, job, prepared, work)
"""


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)


def _killed(folder: Path, job: FilmJob, at: int) -> int:
    script = folder / "killed.py"
    script.write_text(_KILLED)
    codec = job.wish.codec or ""
    done = subprocess.run(
        [sys.executable, str(script), str(job.source), str(job.target), codec, str(at)],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""},
        capture_output=True,
    )
    return done.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="kills")
@pytest.mark.parametrize(
    ("wish", "kills"),
    [
        pytest.param(FFV1, [17], id="ffv1"),
        pytest.param(X264, [1, 25, 11], id="x264", marks=pytest.mark.matrix),
        pytest.param(
            FFV1,
            [random.Random(3).randint(1, 25) for _ in range(12)],
            id="often",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_a_film_that_is_killed_goes_on(wish: Wish, kills: list[int], tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, times=range(0, 120 * 40, 40), sounds=[("aac", 0.1)], subtitles=["subrip"])
    whole = FilmJob(source, tmp_path / "whole.mkv", wish)
    enlarge(whole)
    job = FilmJob(source, tmp_path / "killed.mkv", wish)
    complete = 0
    for at in kills:
        assert _killed(tmp_path, job, at) == -signal.SIGKILL
        assert not job.target.exists()
        parts = len(list(parts_folder(job.target).glob("part-*.json")))
        # The frames in flight are those of one part or the next.
        assert parts >= complete + (at - 3) // 10
        complete = parts
    made = enlarge(job)
    assert made.resumed == complete * 10
    assert made.resumed + made.computed == 120
    assert job.target.read_bytes() == whole.target.read_bytes()
    assert not parts_folder(job.target).exists()


def _stopped(job: FilmJob, at: int) -> None:
    """Makes a film up to a frame whose work fails."""

    class WorkError(Exception):
        pass

    count = 0

    def work(pictures: Any, results: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise WorkError
        twice(pictures, results)

    with FilmReader(job.source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        with pytest.raises(WorkError):
            make_film_here(reader, job, prepared, work, in_flight=1)


@pytest.fixture
def begun(tmp_path: Path) -> FilmJob:
    """A film with two parts of 10 frames made."""
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1")
    job = FilmJob(source, tmp_path / "out.mkv", FFV1)
    _stopped(job, 23)
    assert len(list(parts_folder(job.target).glob("part-*.json"))) == 2
    return job


def test_other_options_are_named(begun: FilmJob) -> None:
    other = FilmJob(begun.source, begun.target, X264)
    with pytest.raises(OutputError, match=r"codec was 'ffv1' and is 'x264'.*--restart"):
        enlarge(other)
    assert enlarge(replace(other, restart=True)).resumed == 0


def test_a_source_that_has_changed_is_named(begun: FilmJob) -> None:
    films.film(begun.source, codec="ffv1", shown=lambda index: index + 1)
    with pytest.raises(OutputError, match="source content was"):
        enlarge(begun)


def test_a_part_that_has_changed_is_made_again(begun: FilmJob) -> None:
    part = parts_folder(begun.target) / "part-000000.mkv"
    part.write_bytes(part.read_bytes()[:-5] + b"wrong")
    made = enlarge(begun)
    assert (made.resumed, made.computed) == (10, 14)
    _, planes, _ = pictures_of(begun.target)
    _, wanted, _ = pictures_of(begun.source)
    assert all((squares(old)[0] == new[0]).all() for old, new in zip(wanted, planes, strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {"pts": [0, 0]},
        {"pts": "x"},
        {"depth": -1},
        {"durations": []},
        {"size": True},
        {"more": 1},
        {"version": 1},
        {"before": 3},
        {"following": 0},
        {"is_short": 0},
    ],
)
def test_a_damaged_record_is_a_sentence(begun: FilmJob, change: dict[str, Any]) -> None:
    path = parts_folder(begun.target) / "part-000001.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(OutputError, match=r"part-000001.json: damaged"):
        enlarge(begun)


def test_held_frames_are_computed_once(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.CASES["twos.mkv"](source)
    once = FilmJob(source, tmp_path / "once.mkv", FFV1)
    each = FilmJob(source, tmp_path / "each.mkv", FFV1, duplicates="off")
    assert enlarge(once).computed == 12
    assert enlarge(each).computed == 24
    assert once.target.read_bytes() == each.target.read_bytes()


def test_a_decoder_that_dies_is_a_sentence(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source)
    job = FilmJob(source, tmp_path / "out.mkv", FFV1)
    with FilmReader(source) as reader:
        prepared = prepare(reader, job, 128, 192)

        def work(pictures: Any, results: Any) -> None:
            reader._child.kill()
            twice(pictures, results)

        with pytest.raises(ImageError, match=r"film\.mkv: the process that reads it was killed"):
            make_film_here(reader, job, prepared, work)
    assert not job.target.exists()


def test_only_a_stretch_is_made(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, sounds=[("flac", 0.0)], times=range(0, 100 * 40, 40))
    cut = Cut(Fraction(3, 2), Fraction(3))
    job = FilmJob(source, tmp_path / "out.mkv", FFV1, cut=cut)
    made = enlarge(job)
    times, planes, _ = pictures_of(job.target)
    old_times, old_planes, _ = pictures_of(source)
    wanted = [index for index, time in enumerate(old_times) if cut.start <= time < Fraction(3)]
    assert made.frames == len(wanted)
    assert times == [old_times[index] - cut.start for index in wanted]
    for index, new in zip(wanted, planes, strict=True):
        assert (squares(old_planes[index])[0] == new[0]).all()
