"""Films whose pictures change their size, as recordings of television do at every break."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import twice  # noqa: E402
from tests.helpers.film_making import make_film_here  # noqa: E402
from waifu2x.errors import ImageError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.making import MadeFilm  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.reading.selection import Change, Ending, Selection  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg")
SECOND = 90_000
WHOLE = Selection()


def _recording(
    path: Path, *sizes: str, restarts: bool = False, extra: tuple[str, ...] = ()
) -> None:
    """Writes recordings of a second each, one after the other."""
    whole = b""
    for number, size in enumerate(sizes):
        part = path.with_suffix(f".{number}.ts")
        begin = [] if restarts else ["-output_ts_offset", str(number)]
        command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"testsrc=s={size}:r=10:d=1"]
        command += ["-f", "lavfi", "-i", "sine=d=1", "-pix_fmt", "yuv420p", "-c:v", "libx264"]
        subprocess.run([*command, "-g", "5", "-bf", "0", *extra, *begin, str(part)], check=True)
        whole += part.read_bytes()
    path.write_bytes(whole)


class _Read:
    """The frames of a film, and its ending."""

    def __init__(self, path: Path, selection: Selection = WHOLE) -> None:
        self.times: list[int] = []
        self.planes: list[list[NDArray[Any]]] = []
        with FilmReader(path, start=selection.start) as reader:
            self.film = reader.film
            for frame in reader.frames(selection, 8):
                self.times.append(frame.pts)
                self.planes.append([plane.copy() for plane in frame.planes])
                frame.release()
            self.ending: Ending = reader.ending


def _of_ffmpeg(path: Path) -> NDArray[np.uint8]:
    """Luma of all frames by the program ffmpeg, which gives them the size of the first."""
    command = [
        "ffmpeg",
        "-v",
        "quiet",
        "-i",
        str(path),
        "-vf",
        "scale=64:48",
        "-pix_fmt",
        "yuv420p",
    ]
    command += ["-f", "rawvideo", "-fps_mode", "passthrough", "-"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, 72, 64)[:, :48]


@needs_ffmpeg
@pytest.mark.parametrize("restarts", [False, True])
def test_a_film_goes_on_at_its_first_size(restarts: bool, tmp_path: Path) -> None:
    path = tmp_path / "film.ts"
    _recording(path, "64x48", "128x96", "64x48", restarts=restarts)
    found = _Read(path)
    assert len(found.times) == 30
    begin = found.times[0]
    assert [change.to for change in found.ending.changes] == ["128x96", ""]
    for number, change in enumerate(found.ending.changes, 1):
        assert abs(change.pts - begin - number * SECOND) <= SECOND // 10
    assert not found.ending.damaged
    luma = np.stack([planes[0] for planes in found.planes])
    assert luma.shape == (30, 48, 64)
    if not restarts:
        assert np.abs(luma.astype(int) - _of_ffmpeg(path)).mean() < 3


@needs_ffmpeg
@pytest.mark.parametrize(
    ("size", "bars"), [("96x48", (8, 8, 0, 0)), ("64x64", (0, 0, 8, 8)), ("128x96", (0, 0, 0, 0))]
)
def test_other_proportions_get_bars(
    size: str, bars: tuple[int, int, int, int], tmp_path: Path
) -> None:
    """As `cropdetect` sees it, which is the judge of bars: above, below, left, right."""
    path = tmp_path / "film.ts"
    _recording(path, "64x48", size)
    luma = _Read(path).planes[-1][0]
    above, below, left, right = bars
    within = luma[above : 48 - below, left : 64 - right]
    assert (luma == 16).sum() - (within == 16).sum() == luma.size - within.size
    assert (within.mean(axis=0) > 24).all() or (within.mean(axis=1) > 24).all()


@needs_ffmpeg
def test_a_start_behind_the_change_makes_a_film_of_that_size(tmp_path: Path) -> None:
    path = tmp_path / "film.ts"
    _recording(path, "64x48", "128x96")
    with FilmReader(path) as reader:
        changes = reader.sizes()
    assert [change[1:] for change in changes] == [(64, 48), (128, 96)]
    at = Fraction(changes[1].seconds).limit_denominator(1000)
    behind = _Read(path, Selection(start=at))
    assert (behind.film.pictures.width, behind.film.pictures.height) == (128, 96)
    assert len(behind.times) == 10
    assert behind.ending.changes == ()
    assert not behind.ending.damaged
    before = _Read(path, Selection(end=at))
    assert len(before.times) == 10
    assert before.ending.changes == ()
    assert not before.ending.damaged


@needs_ffmpeg
def test_a_gap_without_a_change_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "film.ts"
    _recording(path, "64x48", "64x48")
    data = path.read_bytes()
    middle = len(data) // 188 // 2 * 188
    path.write_bytes(data[: middle - 188 * 8] + data[middle:])
    assert _Read(path).ending.damaged


def _made(job: FilmJob) -> tuple[MadeFilm, list[Any]]:
    with FilmReader(job.source, start=job.cut.start) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        made = make_film_here(reader, job, prepared, twice)
    with av.open(str(job.target)) as film:
        return made, list(film.decode(video=0))


@needs_ffmpeg
def test_parts_tell_each_change_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that begin within another recording."""
    monkeypatch.setattr(request, "PART_SECONDS", Fraction(4, 10))
    source, target = tmp_path / "film.ts", tmp_path / "out.mkv"
    _recording(source, "64x48", "128x96", "64x48")
    made, frames = _made(FilmJob(source, target, Wish("ffv1"), sound=False))
    assert len(frames) == 30
    assert {(frame.width, frame.height) for frame in frames} == {(128, 96)}
    assert [change.to for change in made.ending.changes] == ["128x96", ""]
    assert not made.ending.damaged
    later = tmp_path / "later.mkv"
    cut = Cut(Fraction(12, 10) + Fraction(made.ending.changes[0].pts % SECOND, SECOND))
    _, frames = _made(FilmJob(source, later, Wish("ffv1"), cut=cut, sound=False))
    assert {(frame.width, frame.height) for frame in frames} == {(256, 192)}


@needs_ffmpeg
def test_a_film_without_changes_has_one_size(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    films.film(path)
    with FilmReader(path) as reader:
        assert reader.sizes() == ((0.0, films.WIDTH, films.HEIGHT),)


@needs_ffmpeg
def test_samples_that_would_be_lost_are_an_error(tmp_path: Path) -> None:
    """With a remedy that works."""
    path = tmp_path / "film.ts"
    _recording(path, "64x48", "64x48")
    other = tmp_path / "other.ts"
    _recording(other, "64x48", extra=("-pix_fmt", "yuv444p"))
    path.write_bytes(path.read_bytes() + other.read_bytes())
    with pytest.raises(ImageError, match="change from 64x48 yuv420p to 64x48 yuv444p at"):
        _Read(path)
    found = _Read(path, Selection(start=Fraction(25, 10)))
    assert found.film.pictures.pixels.name == "yuv444p"
    assert len(_Read(path, Selection(end=Fraction(19, 10))).times) == 19
    path.write_bytes(other.read_bytes() + path.read_bytes())
    within = Selection(Fraction(12, 10), Fraction(18, 10))
    assert _Read(path, within).film.pictures.pixels.name == "yuv420p"


def test_numbered_pictures_may_be_cut_where_they_change(tmp_path: Path) -> None:
    for number, mode in enumerate(("RGB", "RGB", "L", "L"), 1):
        Image.new(mode, (8, 8)).save(tmp_path / f"{number}.png")
    (tmp_path / "1.png").rename(tmp_path / "5.png")
    for number, place in enumerate((3, 4, 2, 5), 1):
        (tmp_path / f"{place}.png").rename(tmp_path / f"new{number}.png")
    pattern = tmp_path / "new%d.png"
    with pytest.raises(ImageError, match=r"gray to 8x8 rgb24 at 0\.08 s"):
        _Read(pattern)
    at = Fraction(8, 100)
    parts = [_Read(pattern, Selection(end=at)), _Read(pattern, Selection(start=at))]
    assert [len(part.times) for part in parts] == [2, 2]
    assert [part.film.pictures.pixels.planes for part in parts] == [1, 3]


def test_changes_of_a_record_are_checked(tmp_path: Path) -> None:
    from tests.flows.test_film_chain import part
    from waifu2x.errors import OutputError
    from waifu2x.flows.film.parts import part_files

    file = part_files.part_path(tmp_path, 0)
    file.write_bytes(b"part")
    told = part(0)._replace(
        size=4, fingerprint=part_files.fingerprint(file), changes=(Change(5, "8x8"),)
    )
    part_files.record(tmp_path, 0, told)
    assert part_files.recorded(tmp_path, 0) == told
    path = file.with_suffix(".json")
    for wrong in ('[["5","8x8"]]', "[[5]]", '[[5,"' + "8" * 99 + '"]]', "5", "[5]"):
        path.write_text(path.read_text().replace('[[5,"8x8"]]', wrong))
        with pytest.raises(OutputError, match="damaged"):
            part_files.recorded(tmp_path, 0)
        part_files.record(tmp_path, 0, told)
