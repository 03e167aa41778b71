"""How the making of a film begins and ends: rounds, locks, what others would make otherwise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.cli.test_cli import tiny  # noqa: E402
from tests.flows.test_film_streams import enlarge, twice  # noqa: E402
from tests.helpers.film_devices import Squares, fleet_of  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.errors import BackendError, DeviceError, ImageError, OutputError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.makers.by_fleet import MakerByFleet  # noqa: E402
from waifu2x.flows.film.makers.run_maker import MakerHere  # noqa: E402
from waifu2x.flows.film.making import MadeFilm, make_film  # noqa: E402
from waifu2x.flows.film.parts import part_files  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.parts.part_runs import (  # noqa: E402
    FilmWork,
    PartRun,
    missing_runs,
)
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.flows.fleet.supervisor import Hooks  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.system.locks import HeldElsewhereError, locked  # noqa: E402

FFV1 = Wish("ffv1")


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)


@pytest.fixture
def job(tmp_path: Path) -> FilmJob:
    """A film of 24 frames, three parts."""
    films.film(tmp_path / "film.mkv", codec="ffv1")
    return FilmJob(tmp_path / "film.mkv", tmp_path / "out.mkv", FFV1)


Spoil = Callable[[FilmWork, int], None]


def _made(job: FilmJob, spoil: Spoil, **options: Any) -> tuple[MadeFilm, list[list[PartRun]]]:
    """A film whose parts are spoiled after each round, which is counted; the runs of all rounds."""
    rounds: list[list[PartRun]] = []
    with FilmReader(job.source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        here = MakerHere(reader, FrameDevice(twice))

        def make(runs: Sequence[PartRun], work: FilmWork) -> None:
            rounds.append(list(runs))
            here(runs, work)
            spoil(work, len(rounds))

        return make_film(make, reader, job, prepared, **options), rounds


def test_the_last_round_counts(job: FilmJob) -> None:
    """Parts are lost three times, and there after the fourth."""

    def lose(work: FilmWork, turn: int) -> None:
        if turn < 4:
            part_files.forget(work.folder, 1)

    made, rounds = _made(job, lose)
    assert made.frames == 24
    assert len(rounds) == 4
    assert [[(run.first, run.until) for run in runs] for runs in rounds[1:]] == [[(1, 2)]] * 3
    assert [run.is_sought for runs in rounds for run in runs] == [True, False, False, False]


def test_what_never_stays_is_a_sentence(job: FilmJob) -> None:
    with pytest.raises(ImageError, match="differ at each reading"):
        _made(job, lambda work, turn: part_files.forget(work.folder, 1))


def test_parts_are_removed_while_nobody_else_can_begin(
    job: FilmJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = parts_folder(job.target)
    found = []

    unlink = Path.unlink

    def remove(path: Path, missing_ok: bool = False) -> None:
        if path.name == "manifest.json":
            found.append(sorted(one.name for one in path.parent.iterdir()))
            with pytest.raises(HeldElsewhereError), locked(path.parent / "lock"):
                pass
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", remove)
    _made(job, lambda work, turn: None)
    assert found
    assert "lock" in found[0]
    assert not folder.exists()


def test_parts_that_cannot_be_removed_are_said_and_the_film_is_there(
    job: FilmJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "manifest.json":
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    notices: list[str] = []
    made, _ = _made(job, lambda work, turn: None, on_notice=notices.append)
    assert made.frames == 24
    assert job.target.exists()
    folder = parts_folder(job.target)
    assert notices == [f"{folder}: cannot remove it: permission denied; remove it yourself"]


def test_what_others_keep_beside_the_parts_stays(job: FilmJob) -> None:
    folder = parts_folder(job.target)
    (folder / "folder").mkdir(parents=True)
    (folder / "folder" / "precious").write_text("mine")
    (folder / "part-list.txt").write_text("mine, too")
    notices: list[str] = []
    made, _ = _made(replace(job, restart=True), lambda work, turn: None, on_notice=notices.append)
    assert made.frames == 24
    assert notices == [f"{folder}: it stays, with what is not of the film: folder"]
    kept = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    assert kept == [str(Path("folder") / "precious"), "part-list.txt"]


def test_a_part_behind_the_end_is_left_out(job: FilmJob) -> None:
    """A maker that sought found frames there; one that decoded all before them found the end."""

    def end_earlier(work: FilmWork, turn: int) -> None:
        told = part_files.all_recorded(work.folder)
        part_files.record(work.folder, 1, told[1]._replace(following=None, is_sought=False))
        part_files.record(work.folder, 2, told[2]._replace(is_sought=True))

    made, rounds = _made(job, end_earlier)
    assert (made.frames, len(rounds)) == (20, 1)
    assert job.target.exists()


def test_a_source_that_is_gone_is_a_sentence(job: FilmJob) -> None:
    with pytest.raises(ImageError, match=r"film\.mkv: cannot read: no such file"):
        _made(job, lambda work, turn: job.source.unlink())


def test_an_interrupt_while_a_process_starts_ends_quietly(
    job: FilmJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multiprocessing.process import BaseProcess

    with FilmReader(job.source) as reader:
        prepared = prepare(reader, job, 128, 192)

        def interrupted(process: BaseProcess) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(BaseProcess, "start", interrupted)
        with (
            pytest.raises(KeyboardInterrupt),
            fleet_of(reader, prepared, Squares(), Squares()),
        ):
            pass


def test_a_device_that_comes_back_otherwise_gets_no_more(job: FilmJob, tmp_path: Path) -> None:
    """Its process is killed; the next one computes in something else, as with another backend."""
    films.film(job.source, codec="ffv1", times=range(0, 60 * 40, 40))
    enlarge(FilmJob(job.source, tmp_path / "whole.mkv", FFV1))
    news: list[str] = []
    with FilmReader(job.source) as reader:
        prepared = prepare(reader, job, 128, 192)
        changes = Squares("changes", 3, tmp_path / "mark")
        hooks = Hooks(on_news=news.append)
        with fleet_of(reader, prepared, changes, Squares(), hooks=hooks) as fleet:
            make_film(MakerByFleet(reader, fleet), reader, job, prepared)
    assert job.target.read_bytes() == (tmp_path / "whole.mkv").read_bytes()
    assert news[0].startswith("device 0: its process was killed")
    for line in news[1:]:  # unless the other device has made the rest before
        assert line.endswith("it computes in other, not squares as others do: gets no more parts")


@pytest.fixture
def video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in a folder with a film and a model."""
    monkeypatch.chdir(tmp_path)
    tiny()
    films.film(Path("film.mkv"), codec="ffv1", size=(16, 24))
    words = ["video", "--backend", "cpu", "-m", "./tiny", "-n", "none", "-c", "ffv1"]
    return lambda *more: CliRunner().invoke(cli, [*words, *more])


def test_parts_keep_what_they_were_really_computed_in(video: Callable[..., Result]) -> None:
    """`auto` is something on each machine; the same under another name goes on."""
    pytest.importorskip("numba")
    done = video("--keep-parts", "film.mkv", "out.mkv")
    assert done.exit_code == 0, done.stderr
    settings = json.loads(Path("out.mkv.parts/manifest.json").read_text())["settings"]
    backend, precision = settings["arithmetic"].split(": ")
    assert backend == "cpu"
    assert precision in ("int16", "bf16", "fp32")
    assert "precision" not in settings
    Path("out.mkv").unlink()
    shutil.copytree("out.mkv.parts", "kept")
    other = video("--backend", "numpy", "film.mkv", "out.mkv")
    assert other.exit_code == 1
    assert (
        f"(arithmetic was 'cpu: {precision}' and is 'numpy: fp64'); use --restart, or --backend and"
        " --precision as before" in other.stderr
    )
    again = video("--json", "--precision", precision, "film.mkv", "out.mkv")
    assert json.loads(again.stdout.splitlines()[-1])["resumed"] == 24
    shutil.copytree("kept", "out.mkv.parts")
    Path("out.mkv").unlink()
    assert video("--restart", "--backend", "numpy", "film.mkv", "out.mkv").exit_code == 0


def test_no_other_backend_goes_on_within_a_film(
    video: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that stops working ends the film, also where `auto` has others."""
    pytest.importorskip("numba")
    from waifu2x.backends.cpu.network import CpuNetwork

    def broken(*_: object, **__: object) -> None:
        raise DeviceError("the device fell off the bus")

    monkeypatch.setattr(CpuNetwork, "run", broken)
    monkeypatch.setenv("POCL_DEVICES", "")
    done = video("--backend", "auto", "film.mkv", "out.mkv")
    assert done.exit_code == 1
    assert "the device fell off the bus" in done.stderr
    assert not Path("out.mkv").exists()
    assert isinstance(done.exception, (SystemExit, BackendError, OutputError))


def test_a_shard_has_its_last_line(video: Callable[..., Result]) -> None:
    done = video("--json", "--shard", "1/2", "film.mkv", "out.mkv")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "status": "done",
        "input": "film.mkv",
        "output": "out.mkv.parts",
        "shard": "1/2",
        "parts": 1,
    }


def test_frames_that_are_there_are_said_before_the_network_is_opened(
    video: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    from waifu2x.backends.engine import engine

    Path("frames").mkdir()
    Path("frames/0001.png").write_bytes(b"mine")

    def opened(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(engine, "open_devices", opened)
    done = video("film.mkv", "frames/%04d.png")
    assert done.exit_code == 1
    assert (
        done.stderr
        == "Error: frames/0001.png: it exists already; use --overwrite, or other names\n"
    )
    assert Path("frames/0001.png").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "words",
    ["--json", "--restart", "--keep-parts", "--join", "--cluster local", "--shard 1/2"],
)
def test_a_preview_refuses_what_it_has_no_use_for(video: Callable[..., Result], words: str) -> None:
    done = video("--preview", "0", *words.split(), "film.mkv", "look.png")
    assert done.exit_code == 2
    name = words.split()[0]
    assert f"--preview makes one picture, here; leave out {name}." in " ".join(done.stderr.split())
    assert not Path("look.png").exists()


def test_settings_give_way_to_a_preview(
    video: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIFU2X_KEEP_PARTS", "true")
    done = video("--preview", "0", "film.mkv", "look.png")
    assert done.exit_code == 0, done.stderr
    assert Path("look.png").exists()


def test_the_chain_is_looked_at_after_each_round(job: FilmJob) -> None:
    """Nothing is made where nothing is missing."""
    _, rounds = _made(replace(job, keep_parts=True), lambda work, turn: None)
    job.target.unlink()
    _, again = _made(job, lambda work, turn: None)
    assert (len(rounds), len(again)) == (1, 0)
    assert missing_runs({}, 0, 1).runs == [PartRun(0, None)]
