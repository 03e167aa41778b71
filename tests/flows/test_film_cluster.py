"""Films by the workers of a cluster, and by machines that know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("distributed")
films = pytest.importorskip("tests.helpers.films")

from click.testing import CliRunner, Result  # noqa: E402
from distributed import Client  # noqa: E402

from tests.cli.test_cli import tiny  # noqa: E402
from tests.flows.test_cluster import scheduling, working  # noqa: E402
from tests.flows.test_film_streams import enlarge  # noqa: E402
from tests.helpers.film_devices import Squares  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.errors import ClusterError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.makers.by_fleet import (  # noqa: E402
    MOST,
    PARTS_STAY,
    FilmOpening,
    MakerByFleet,
)
from waifu2x.flows.film.making import MadeFilm, make_film  # noqa: E402
from waifu2x.flows.film.parts import part_files  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.flows.fleet import cluster  # noqa: E402
from waifu2x.flows.fleet.supervisor import Hooks  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

pytestmark = [pytest.mark.matrix]
FFV1 = Wish("ffv1")


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with scheduling(tmp_path_factory.mktemp("scheduler")) as address:
        yield address


def _made(job: FilmJob, address: str, squares: Squares, news: list[str]) -> MadeFilm:
    counted = [0, 0]

    def count(frames: int, computed: int) -> None:
        counted[0] += frames
        counted[1] += computed

    with FilmReader(job.source) as reader, Client(address, set_as_default=False) as client:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        identity = part_files.source_identity(job.source)
        opening = FilmOpening(job.source, reader.film, prepared.shape, squares, identity)
        policy = cluster.policy("parts", PARTS_STAY)
        hooks = Hooks(on_news=news.append)
        with cluster.fleet_of(client, opening, policy, hooks, seconds=0.0) as fleet:
            made = make_film(MakerByFleet(reader, fleet, count, MOST), reader, job, prepared)
    assert counted == [made.frames - made.resumed, made.computed]
    return made


@pytest.fixture
def job(tmp_path: Path) -> FilmJob:
    source = tmp_path / "film.mkv"
    films.film(source, times=range(0, 120 * 40, 40), sounds=[("aac", 0.1)])
    whole = FilmJob(source, tmp_path / "whole.mkv", FFV1)
    enlarge(whole)
    return FilmJob(source, tmp_path / "out.mkv", FFV1)


def _whole(job: FilmJob) -> bytes:
    return job.target.with_name("whole.mkv").read_bytes()


def test_a_worker_is_killed_in_the_middle(job: FilmJob, scheduler: str, tmp_path: Path) -> None:
    with working(scheduler, "--no-nanny", count=2):
        squares = Squares("dies", 14, tmp_path / "died")
        made = _made(job, scheduler, squares, [])
    assert (tmp_path / "died").exists()
    assert (made.frames, made.computed) == (120, 120)
    assert job.target.read_bytes() == _whole(job)


def test_a_worker_whose_device_breaks_gets_no_more(job: FilmJob, tmp_path: Path) -> None:
    """Here those of both do, one after the other: the parts that are complete stay."""
    news: list[str] = []
    with scheduling(tmp_path) as scheduler:
        with working(scheduler, "--no-nanny", count=2):
            squares = Squares("broken", 14, tmp_path / "broken")
            with pytest.raises(ClusterError, match="no worker is left that works, see above"):
                _made(job, scheduler, squares, news)
        assert len(news) == 2
        said = "the device fell off the bus; use another backend: gets no more parts"
        assert all(line.endswith(said) for line in news)
        with working(scheduler, "--no-nanny"):
            made = _made(job, scheduler, Squares(), news)
    assert made.resumed >= 10
    assert job.target.read_bytes() == _whole(job)


def test_a_worker_that_may_not_start_processes_is_told_how(job: FilmJob, tmp_path: Path) -> None:
    with (
        scheduling(tmp_path) as scheduler,
        working(scheduler),
        pytest.raises(ClusterError, match="DASK_DISTRIBUTED__WORKER__DAEMON=False dask worker"),
    ):
        _made(job, scheduler, Squares(), [])
    assert not parts_folder(job.target).exists()


def video(*words: str) -> Result:
    return CliRunner().invoke(cli, ["video", "-m", "./tiny", "-n", "none", "-c", "ffv1", *words])


def test_the_command_line_makes_the_same_by_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny()
    films.film(Path("film.mkv"), codec="ffv1", times=range(0, 60 * 40, 40), size=(16, 24))
    assert video("film.mkv", "here.mkv").exit_code == 0
    whole = Path("here.mkv").read_bytes()
    found = video("-v", "--cluster", "local", "film.mkv", "there.mkv")
    assert found.exit_code == 0, found.stderr
    assert found.stderr.count("worker tcp://") == 2
    assert "Exception" not in capfd.readouterr().err  # of the workers' own, at their ends
    assert Path("there.mkv").read_bytes() == whole
    for number in (3, 1):
        assert video("--shard", f"{number}/3", "film.mkv", "shards.mkv").exit_code == 0
    refused = video("--join", "film.mkv", "shards.mkv")
    assert refused.exit_code == 1
    assert "shards.mkv.parts: parts are missing (from 0.8 s to 1.6 s)" in refused.stderr
    assert video("-v", "--shard", "2/3", "film.mkv", "shards.mkv").exit_code == 0
    joined = video("--join", "film.mkv", "shards.mkv")
    assert joined.exit_code == 0, joined.stderr
    assert Path("shards.mkv").read_bytes() == whole
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--join", "--restart"], "--join makes nothing"),
        (["--join", "--shard", "1/2"], "--join makes nothing"),
        (["--shard", "1/2", "--restart"], "--shard keeps what others make"),
        (["--shard", "3/2"], "expected a part like 3/16"),
        (["--join"], "out.mkv.parts: there are no parts to join; make them with --shard"),
    ],
)
def test_ways_that_make_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny()
    films.film(Path("film.mkv"), codec="ffv1", times=(0, 40), size=(16, 24))
    found = video(*words, "film.mkv", "out.mkv")
    assert found.exit_code in (1, 2)
    assert message in found.stderr.replace("\n", " ")
