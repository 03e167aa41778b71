"""Films among the pictures of a batch: what is made of them, what is told, what is gone on with."""

from __future__ import annotations

import io
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

films = pytest.importorskip("tests.helpers.films")

from tests.cli.test_cli import tiny  # noqa: E402
from tests.flows.test_folders import picture, rows  # noqa: E402
from tests.helpers.film_devices import Squares  # noqa: E402
from waifu2x.cli import cli, workers  # noqa: E402
from waifu2x.cli.film import work  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.frames import frame_enlarger  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.jobs import Job  # noqa: E402
from waifu2x.flows.outcome import Outcome  # noqa: E402

GIVEN = ("-m", "./tiny", "--backend", "numpy")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tiny()
    Path("in").mkdir()
    return tmp_path


def run(command: str, *words: str) -> Result:
    return CliRunner().invoke(cli, [command, *GIVEN, *words])


def film(path: str, **options: Any) -> None:
    given = {"times": (0, 40, 80), "size": (22, 34), **options}
    films.film(Path(path), **given)


def made(folder: str = "out") -> dict[str, bytes]:
    found = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def as_by_video(name: str, target: str, *words: str) -> bytes:
    """Returns what `video` makes of a film in the folder."""
    result = run("video", *words, f"in/{name}", f"alone/{target}")
    assert result.exit_code == 0, result.stderr
    return Path("alone", target).read_bytes()


def test_pictures_and_films_and_what_is_neither() -> None:
    picture("in/sub/a.png")
    film("in/b.mkv", times=range(0, 1200, 40), sounds=[("aac", 0.1)], interlaced=True)
    film("in/sub/c.avi", tick=Fraction(1, 25), times=range(3))
    Path("in/bad.mp4").write_text("no film")
    Path("in/code.ts").write_text("let a = 1;")
    Path("in/d.mkv.parts").mkdir()
    film("in/d.mkv.parts/part-000000.mkv")
    Path("alone").mkdir()
    result = run("batch", "-r", "--json", "--report", "look.html", "in", "out")
    assert result.exit_code == 1
    files = made()
    assert {*files} == {"sub/a.png", "b.mkv", "sub/c.mkv"}
    assert files["b.mkv"] == as_by_video("b.mkv", "b.mkv")
    assert files["sub/c.mkv"] == as_by_video("sub/c.avi", "c.mkv")
    told = rows(result)
    assert [row["status"] for row in told.values()] == ["done", "done", "failed", "done"]
    assert next(iter(told)) == "in/sub/a.png"  # no picture waits for a film
    assert (told["in/b.mkv"]["frames"], told["in/b.mkv"]["width"]) == (30, 68)
    bad = "in/bad.mp4: it is not a film that can be read"
    assert told["in/bad.mp4"]["error"].startswith(bad)
    assert f"failed   {bad}" in result.stderr
    assert (
        "3 done (1 picture, 2 films of 33 frames), 0 skipped, 1 failed;"
        " skipped 1 file that is no picture and no film"
    ) in result.stderr
    page = Path("look.html").read_text()
    assert "68x44, 30 frames" in page
    assert page.index("it is not a film") < page.index("30 frames")
    shown = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    clip = next(each for each in shown if ">in/b.mkv<" in each)
    thumbnail, before, after = (
        np.asarray(Image.open(io.BytesIO(b64decode(found))).convert("RGB"), float)
        for found in re.findall(r"data:image/jpeg;base64,([^\"]+)", clip)
    )
    assert thumbnail.shape == before.shape == after.shape == (44, 68, 3)
    wanted = np.asarray(Image.fromarray(films.drawing(3, 22, 34)).resize((68, 44)), float)
    assert abs(before - wanted).mean() < 12
    assert abs(after - thumbnail).mean() < 4
    assert "<dt>model of films</dt><dd>./tiny</dd>" in page


def test_options_and_settings_are_those_of_video(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("settings.toml").write_text(
        'model = "none-such"\nquality = 50\n[batch]\ncrf = "30"\n[video]\nduplicates = "off"\n'
    )
    monkeypatch.setenv("WAIFU2X_CONFIG", "settings.toml")
    picture("in/a.png")
    film("in/b.mp4", shown=lambda index: 0)
    options = ("--max-height", "30", "--audio", "none", "-x", "2", "--preset", "fast", "-c", "x264")
    of_pictures = ("--depth", "16", "--format", "png", "--strip", "--copy-times")
    os.utime("in/b.mp4", (10**9, 10**9))
    result = run("batch", *options, *of_pictures, "--json", "in", "out")
    assert result.exit_code == 0, result.stderr
    assert rows(result)["in/b.mp4"]["computed"] == 3
    assert result.stderr.count("--strip is for pictures: films keep their metadata\n") == 1
    Path("alone").mkdir()
    assert made()["b.mp4"] == as_by_video("b.mp4", "b.mp4", *options, "--crf", "30")
    assert Path("out/b.mp4").stat().st_mtime == 10**9


def test_wrong_settings_of_films_end_a_watch_before_it_begins() -> None:
    Path("settings.toml").write_text('[video]\ncrf = "x"\n')
    result = run("batch", "--watch", "--config", "settings.toml", "in", "out")
    assert result.exit_code == 2
    assert "settings.toml: video.crf: 'x': expected a number such as 18" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--crf", "x"], 2, "--crf: 'x': expected a number such as 18: less is better."),
        (["--ivtc", "--deinterlace", "off"], 2, "--deinterlace and --ivtc exclude each other."),
        (["-c", "vp9"], 1, "in/a.mov: .mov cannot hold vp9; use .mkv"),
        (["-s", "1"], 1, "in/a.mov: nothing to do; give --noise, a --scale above 1, or both"),
    ],
)
def test_a_mistake_ends_in_one_sentence(words: list[str], code: int, sentence: str) -> None:
    film("in/a.mov", codec="prores_ks", pixels="yuv422p10le")
    result = run("batch", *words, "in", "out")
    assert (result.exit_code, sentence in result.stderr) == (code, True), result.stderr
    assert made() == {}


def test_parts_of_a_run_that_ended_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)
    film("in/a.mkv", times=range(0, 2000, 40))
    Path("alone").mkdir()
    whole = as_by_video("a.mkv", "a.mkv")
    assert run("batch", "in", "out", "--shard", "1/1").exit_code == 0
    assert made() == {"a.mkv": whole}
    Path("out/a.mkv").unlink()
    assert run("video", "--shard", "1/2", "in/a.mkv", "out/a.mkv").exit_code == 0
    again = run("batch", "--json", "--skip-existing", "in", "out")
    told = rows(again)["in/a.mkv"]
    assert told["resumed"] >= 20
    assert told["resumed"] + told["computed"] == 50
    assert f"out/a.mkv: going on with {told['resumed']} of 50 frames" in again.stderr
    assert made() == {"a.mkv": whole}
    assert not Path("out/a.mkv.parts").exists()


def test_parts_that_were_made_otherwise_are_kept_unless_told() -> None:
    film("in/a.mkv")
    assert run("video", "--shard", "1/1", "--crf", "30", "in/a.mkv", "out/a.mkv").exit_code == 1
    Path("out").mkdir()
    assert run("video", "--shard", "1/1", "--crf", "30", "in/a.mkv", "out/a.mkv").exit_code == 0
    other = run("batch", "in", "out")
    assert other.exit_code == 1
    assert "use --restart, or do as before" in other.stderr
    assert run("batch", "--restart", "in", "out").exit_code == 0
    assert [*made()] == ["a.mkv"]


def test_films_that_are_there() -> None:
    film("in/a.mkv")
    Path("out").mkdir()
    Path("out/a.mkv").write_bytes(b"precious")
    result = run("batch", "in", "out")
    assert result.exit_code == 1
    assert "out/a.mkv: it exists already; use --overwrite or --skip-existing" in result.stderr
    assert (
        "0 done, 1 skipped, 0 failed" in run("batch", "-v", "--skip-existing", "in", "out").stderr
    )
    assert made() == {"a.mkv": b"precious"}
    assert run("batch", "--overwrite", "in", "out").exit_code == 0
    assert len(made()["a.mkv"]) > 1000


def test_a_damaged_film_is_made_and_not_repeated() -> None:
    film("in/a.mkv", times=range(0, 4000, 40))
    data = Path("in/a.mkv").read_bytes()
    Path("in/a.mkv").write_bytes(data[: len(data) // 2])
    result = run("batch", "--json", "in", "out")
    assert result.exit_code == 1
    assert "0 done, 1 damaged, 0 skipped, 0 failed" in result.stderr
    assert "damaged  in/a.mkv: the input ends early (" in result.stderr
    assert rows(result)["in/a.mkv"]["status"] == "damaged"
    Path("log").write_text(result.stdout)
    again = run("batch", "--retry-failed", "log", "in", "out")
    assert "log: nothing that failed is in in" in again.stderr


def test_names_of_films_by_a_template() -> None:
    film("in/a.avi", tick=Fraction(1, 25), times=range(3))
    name = "{stem}-{width}x{height}-{scale}-{model}-{noise}{ext}"
    assert run("batch", "--name", name, "--height", "33", "in", "out").exit_code == 0
    assert [*made()] == ["a-50x32-1.47-tiny-auto.mkv"]  # the encoder needs even sides
    with FilmReader(Path("out/a-50x32-1.47-tiny-auto.mkv")) as reader:
        assert (reader.film.pictures.width, reader.film.pictures.height) == (50, 32)


def test_one_film_has_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)
    monkeypatch.setattr(work, "device_numbers", lambda backend: (0, 1))
    monkeypatch.setattr(frame_enlarger, "UpscalerEnlarging", lambda arguments: Squares())
    picture("in/a.png")
    film("in/b.mkv", times=range(0, 4000, 40))
    result = run("batch", "-v", "--json", "-g", "all", "in", "out")
    assert result.exit_code == 0, result.stderr
    assert "device 0: squares" in result.stderr
    assert "device 1: squares" in result.stderr
    assert rows(result)["in/b.mkv"]["computed"] == 100
    assert {*made()} == {"a.png", "b.mkv"}


def test_pictures_and_films_take_turns() -> None:
    """As they arrive in a folder that is watched."""
    said = list[str]()

    @contextmanager
    def pictures() -> Iterator[workers.Runner]:
        said.append("open")

        def compute(jobs: Iterable[Job | None], *hearers: Any) -> Iterator[Outcome]:
            yield from (Outcome(job) for job in jobs if job)

        yield compute  # type: ignore[misc]
        said.append("close")

    def make_film(job: Job, on_progress: Any) -> Outcome:
        said.append("film")
        return Outcome(job)

    names = ["a.png", "b.mkv", None, "c.mp4", "d.png", None, "e.zip", "f.mov"]
    jobs = [name and Job(Path(name), Path("out", name)) for name in names]
    turns = workers._in_turn(pictures, make_film, begins_with_pictures=True)
    with turns as compute:
        for outcome in compute(jobs, lambda *_: None, lambda *_: None):  # type: ignore[arg-type]
            said.append(outcome.job.source.name)
    assert said == [
        "open", "a.png", "close", "film", "b.mkv", "film", "c.mp4",
        "open", "d.png", "e.zip", "close", "film", "f.mov",
    ]  # fmt: skip
