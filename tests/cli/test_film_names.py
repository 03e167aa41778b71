"""The words of `waifu2x video`: several films, folders, numbered pictures, names of results."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

films = pytest.importorskip("tests.helpers.films")

from tests.cli.test_cli import tiny  # noqa: E402
from waifu2x.cli import cli  # noqa: E402

needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="needs ffprobe")
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls `video` with a model of one layer in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    tiny()
    given = ["video", "-m", "./tiny", "--backend", "numpy"]
    return lambda *words: CliRunner().invoke(cli, [*given, *words])


def film(path: str) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    films.film(Path(path), times=(0, 40, 80), size=(22, 34))


def pictures(folder: str, numbers: range, name: str = "{}.png") -> None:
    Path(folder).mkdir(exist_ok=True)
    for number in numbers:
        colour = (number % 200, 90, 30)
        Image.new("RGB", (17, 11), colour).save(Path(folder, name.format(number)))


def frames(path: str) -> int:
    """How many frames a film has, as ffprobe counts them."""
    command = ["ffprobe", "-v", "error", "-of", "json", "-count_frames", "-show_streams", path]
    return int(json.loads(subprocess.check_output(command))["streams"][0]["nb_read_frames"])


def made(folder: str = ".") -> set[str]:
    return {path.name for path in Path(folder).iterdir()} - {"tiny"}


@needs_ffprobe
def test_a_film_alone_gets_a_name_beside_it(run: Run) -> None:
    film("a.mp4")
    film("b.nut")
    assert run("a.mp4").exit_code == 0
    assert run("-s", "1.5", "b.nut").exit_code == 0
    assert run("--height", "40", "a.mp4").exit_code == 0
    wanted = {"a-2x.mp4", "b-1.5x.mkv", "a-resized.mp4"}
    assert made() == {"a.mp4", "b.nut", *wanted}
    assert {frames(name) for name in wanted} == {3}


def test_a_folder_takes_the_names_of_its_films(run: Run) -> None:
    film("a.mp4")
    film("b.nut")
    assert run("a.mp4", "b.nut", "new/").exit_code == 0
    assert made("new") == {"a.mp4", "b.mkv"}
    assert run("a.mp4", ".").exit_code == 0  # it must not become itself
    assert made() == {"a.mp4", "b.nut", "new", "a-2x.mp4"}


def test_a_folder_of_films(run: Run) -> None:
    film("season/1.mkv")
    film("season/2.mkv")
    Path("season/cover.jpg").write_bytes(b"no film")
    assert run("season", "large/").exit_code == 0
    assert made("large") == {"1.mkv", "2.mkv"}
    assert run("season").exit_code == 0
    wanted = {"1.mkv", "2.mkv", "cover.jpg", "1-2x.mkv", "2-2x.mkv"}
    assert made("season") == wanted
    again = run("season")  # results are not enlarged again
    assert again.exit_code == 1
    assert again.stderr.count("exists already; use --overwrite") == 2
    assert made("season") == wanted


def test_a_bad_film_does_not_stop_the_others(run: Run) -> None:
    film("b.mkv")
    Path("a.mkv").write_text("just text")
    result = run("--json", "a.mkv", "nowhere.mkv", "b.mkv", "large/")
    assert result.exit_code == 1
    assert "a.mkv: it is not a film that can be read" in result.stderr
    assert "nowhere.mkv: cannot read: no such file" in result.stderr
    assert made("large") == {"b.mkv"}
    told = [json.loads(line) for line in result.stdout.splitlines()]
    ends = [one["status"] for one in told if one["status"] != "running"]
    assert ends == ["failed", "done"]


@needs_ffprobe
@pytest.mark.parametrize(
    ("name", "first"), [("{}.png", 1001), ("{:04}.png", 7), ("shot_{:03}.png", 0), ("{}.PNG", 9)]
)
def test_sequences_begin_with_any_number(run: Run, name: str, first: int) -> None:
    pictures("late", range(first, first + 4), name)
    assert run("-c", "ffv1", "late", "a.mkv").exit_code == 0
    assert frames("a.mkv") == 4
    assert run("late").exit_code == 0
    numbered = {name.format(number) for number in range(first, first + 4)}
    assert made("late-2x") == {*numbered, "timestamps.txt"}
    assert run("late", "large/").exit_code == 0
    assert made("large") == {*numbered, "timestamps.txt"}
    with Image.open(Path("large", name.format(first + 2))) as third:
        assert third.size == (34, 22)


def test_a_pattern_takes_only_what_it_names(run: Run) -> None:
    pictures("late", range(998, 1002), "{:04}.png")
    pictures("late", range(1, 3), "other{}.png")
    pictures("late", range(5, 6), "{}.png")  # %04d has four digits
    assert run("-c", "ffv1", "late/%04d.png", "a.mkv").exit_code == 0
    with films.av.open("a.mkv") as opened:
        assert len(list(opened.decode(video=0))) == 4


def test_frames_of_an_earlier_film_do_not_lengthen_this_one(run: Run) -> None:
    film("a.mkv")
    pictures("out", range(1000, 1003), "{:04}.png")
    refused = run("a.mkv", "out/%04d.png")
    message = "Error: out/1000.png: it exists already; use --overwrite, or other names\n"
    assert (refused.exit_code, refused.stderr) == (1, message)
    assert run("--overwrite", "a.mkv", "out/%04d.png").exit_code == 0
    assert made("out") == {"0001.png", "0002.png", "0003.png", "timestamps.txt"}


MISTAKES = [
    ("", 2, "IN... [OUT|DIR/] is missing: `waifu2x video IN... [OUT|DIR/]`."),
    ("a.mkv a.mkv new/", 2, "a.mkv: it is named twice."),
    ("a.mkv b/a.mkv new/", 2, "a.mkv and b/a.mkv would both become new/a.mkv; use two folders."),
    ("a.mkv b/a.mkv c.mkv", 2,
     "There are 3 names: for several films, end with a folder for the results."),
    ("-", 2, "- is standard input; give it alone, and a file as OUT."),
    ("- new/", 2, "- is standard input; give it alone, and a file as OUT."),
    ("empty", 2, "empty: it has no films, and no numbered PNG files."),
    ("b c.mkv", 2, "b: it has no numbered PNG files; for the films in it, give a folder as OUT."),
    ("--preview 0 a.mkv c.mkv new/", 2, "--preview shows a frame of one film; name one."),
    ("two c.mkv", 1,
     "two: it has several sequences of pictures; name one, two/%d.png and two/a%d.png say"),
    ("gap/%d.png c.mkv", 1,
     "gap/3.png: it is missing, but 5.png is there; number frames without a gap"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "sentence"), MISTAKES, ids=[words for words, *_ in MISTAKES]
)
def test_a_mistake_ends_in_one_sentence(run: Run, words: str, code: int, sentence: str) -> None:
    film("a.mkv")
    film("b/a.mkv")
    Path("empty").mkdir()
    pictures("two", range(1, 3))
    pictures("two", range(1, 3), "a{}.png")
    pictures("gap", range(1, 3))
    pictures("gap", range(5, 7))
    before = sorted(Path().rglob("*"))
    result = run(*words.split())
    assert (result.exit_code, result.stderr) == (code, f"Error: {sentence}\n")
    assert sorted(Path().rglob("*")) == before
