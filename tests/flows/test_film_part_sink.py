"""How parts follow each other: encoders that are open by then, lengths that a manifest keeps."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge, pictures_of  # noqa: E402
from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.parts import part_files, part_sink  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.request import FilmJob  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.formats.film.writing.encode import PartEncoder  # noqa: E402

FFV1 = Wish("ffv1")


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)


class Opened:
    """Encoders of parts, which are counted: by which threads they were opened."""

    def __init__(self, refused: int = 0) -> None:
        """The one of that number, from 1 on, cannot be opened."""
        self.refused = refused
        self.threads: list[str] = []

    def __call__(self, file: Any, shape: Any) -> PartEncoder:
        self.threads.append(threading.current_thread().name)
        if len(self.threads) == self.refused:
            raise OSError(28, "No space left on device")
        return PartEncoder(file, shape)


def _job(folder: Path, times: Any = range(0, 24 * 40, 40)) -> FilmJob:
    films.film(folder / "film.mkv", codec="ffv1", times=times)
    return FilmJob(folder / "film.mkv", folder / "out.mkv", FFV1)


def test_the_next_encoder_is_opened_beside_the_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each of three parts, and none for one that does not come."""
    opened = Opened()
    monkeypatch.setattr(part_sink, "PartEncoder", opened)
    assert enlarge(_job(tmp_path)).frames == 24
    assert len(opened.threads) == 3
    assert [name.startswith("waifu2x-part") for name in opened.threads] == [False, True, True]


def test_a_part_without_frames_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened()
    monkeypatch.setattr(part_sink, "PartEncoder", opened)
    job = _job(tmp_path, [*range(0, 400, 40), *range(1640, 1800, 40)])
    assert enlarge(replace(job, keep_parts=True)).frames == 14
    assert len(opened.threads) == 3  # one of them in vain
    names = sorted(path.name for path in parts_folder(job.target).glob("*part-*"))
    assert names == [f"part-00000{number}.{kind}" for number in (0, 4) for kind in ("json", "mkv")]
    times, _, _ = pictures_of(job.target)
    assert len(times) == 14


def test_an_encoder_that_cannot_be_opened_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(tmp_path)
    monkeypatch.setattr(part_sink, "PartEncoder", Opened(refused=2))
    with pytest.raises(OutputError, match=r"out\.mkv\.parts: cannot write: no space left"):
        enlarge(job)
    folder = parts_folder(job.target)
    assert list(part_files.all_recorded(folder)) == [0]
    assert [path.name for path in folder.glob(".*")] == []
    monkeypatch.undo()
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)
    assert enlarge(job).resumed == 10


def test_whoever_begins_a_film_decides_how_long_parts_are(tmp_path: Path) -> None:
    """A film that a processor has begun, and a GPU goes on with, say."""
    job = _job(tmp_path)
    made = enlarge(replace(job, keep_parts=True))
    whole = job.target.read_bytes()
    job.target.unlink()
    part_files.forget(parts_folder(job.target), 1)
    again = enlarge(replace(job, has_long_parts=True))
    assert (made.frames, again.resumed, again.computed) == (24, 14, 10)
    assert job.target.read_bytes() == whole


def test_long_parts_are_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "LONG_PART_SECONDS", 0.8)
    job = replace(_job(tmp_path), has_long_parts=True)
    enlarge(replace(job, keep_parts=True))
    found = part_files.all_recorded(parts_folder(job.target))
    assert [len(one.encoded.pts) for one in found.values()] == [20, 4]


@pytest.mark.parametrize("odd", ["0", "-1", "x", "1" * 30])
def test_an_odd_length_is_a_damaged_manifest(tmp_path: Path, odd: str) -> None:
    job = _job(tmp_path)
    enlarge(replace(job, keep_parts=True))
    job.target.unlink()
    path = parts_folder(job.target) / "manifest.json"
    text = path.read_text().replace('"ticks of a part": "400"', f'"ticks of a part": "{odd}"')
    path.write_text(text)
    with pytest.raises(OutputError, match=r"manifest\.json: damaged"):
        enlarge(job)
