"""The parts of a film: one writer at a time, full disks, other versions, sources that change."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge, twice  # noqa: E402
from tests.helpers.film_making import make_film_here  # noqa: E402
from waifu2x.errors import ImageError, OutputError  # noqa: E402
from waifu2x.flows.batch.subset import Shard  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.makers.run_maker import MakerHere  # noqa: E402
from waifu2x.flows.film.making import join_film, make_shard  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.system.locks import HeldElsewhereError, locked  # noqa: E402

FFV1 = Wish("ffv1")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)


@pytest.fixture
def job(tmp_path: Path) -> FilmJob:
    """A film of 24 frames, in three parts."""
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1")
    return FilmJob(source, tmp_path / "out.mkv", FFV1)


def shard(job: FilmJob, number: int, parts: int) -> int:
    """Makes one shard of a film; how many parts of it there are."""
    with FilmReader(job.source) as reader:
        prepared = prepare(reader, job, 128, 192)
        maker = MakerHere(reader, FrameDevice(twice))
        return make_shard(maker, reader, job, prepared, Shard(number, parts))


def joined(job: FilmJob) -> None:
    with FilmReader(job.source) as reader:
        join_film(reader, job, prepare(reader, job, 128, 192))


def test_a_second_run_is_kept_away(job: FilmJob) -> None:
    folder = parts_folder(job.target)
    folder.mkdir()
    with locked(folder / "lock"):
        with pytest.raises(OutputError, match=rf"is being made by .*, process {os.getpid()}; wait"):
            enlarge(job)
        with pytest.raises(OutputError, match="is being made by"):
            shard(job, 1, 2)
    with locked(folder / "lock", shared=True):  # as a shard elsewhere has it
        with pytest.raises(OutputError, match="is being made by"):
            enlarge(job)
        assert shard(job, 1, 2) == 1
    with locked(folder / "shard-2-of-2.lock"), pytest.raises(OutputError, match="is being made"):
        shard(job, 2, 2)
    assert enlarge(job).resumed == 10


def test_the_lock_of_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = (
        "import sys\nfrom pathlib import Path\nfrom waifu2x.system.locks import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(HeldElsewhereError, match=f"process {holder.pid}"), locked(lock):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with locked(lock) as has_locks:
            assert has_locks


@pytest.mark.skipif(sys.platform == "win32", reason="fcntl")
def test_a_file_system_without_locks_is_said(job: FilmJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("waifu2x.system.files.fcntl.flock", refuse)
    notices: list[str] = []
    assert enlarge(job, on_notice=notices.append).frames == 24
    assert [notice.partition(": ")[2][:29] for notice in notices] == [
        "this file system has no locks"
    ]


@pytest.mark.matrix
def test_shards_make_what_one_run_does(job: FilmJob) -> None:
    whole = replace(job, target=job.target.with_name("whole.mkv"))
    enlarge(whole)
    assert shard(job, 3, 3) == 1
    assert shard(job, 1, 3) == 1
    with pytest.raises(OutputError, match=r"parts are missing \(from 0\.4 s to 0\.8 s\)"):
        joined(job)
    assert shard(job, 2, 3) == shard(job, 2, 3) == 1
    other = replace(job, settings=(("backend", "another"),))
    with pytest.raises(OutputError, match="backend was 'not there' and is 'another'"):
        enlarge(other)
    joined(job)
    assert job.target.read_bytes() == whole.target.read_bytes()


def test_another_version_is_named(job: FilmJob, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(job, 1, 2)
    monkeypatch.setattr(request, "versions", lambda: {"PyAV": "17.0.0"})
    with pytest.raises(OutputError, match=r"version of PyAV was '.*' and is '17\.0\.0'"):
        enlarge(job)
    monkeypatch.setattr(request, "__version__", "0.0.1")
    with pytest.raises(OutputError, match=r"version of waifu2x was '.*' and is '0\.0\.1'"):
        enlarge(job)


@pytest.mark.matrix
def test_threads_are_those_of_the_machine_that_began(
    job: FilmJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(job, wish=Wish("x264"))
    whole = replace(job, target=job.target.with_name("whole.mkv"))
    enlarge(whole)
    shard(job, 1, 2)
    monkeypatch.setattr(request, "core_count", lambda: 64)
    assert enlarge(job).resumed == 10
    assert job.target.read_bytes() == whole.target.read_bytes()
    shard(job, 1, 2)
    with pytest.raises(OutputError, match="threads was '4' and is '3'"):
        enlarge(replace(job, threads=3))


def test_a_source_that_changes_meanwhile_is_a_sentence(job: FilmJob) -> None:
    def work(frames: Any, results: Any) -> None:
        os.utime(job.source, ns=(1, 1))
        twice(frames, results)

    with FilmReader(job.source) as reader:
        prepared = prepare(reader, job, 128, 192)
        with pytest.raises(ImageError, match="has changed meanwhile; do it again, with --restart"):
            make_film_here(reader, job, prepared, work)
    assert not job.target.exists()


_FULL = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.flows.test_film_streams import enlarge
from tests.helpers.limits import limit_files
from waifu2x.errors import Waifu2xError
from waifu2x.flows.film import request
from waifu2x.flows.film.request import FilmJob
from waifu2x.formats.film.writing.codecs import Wish

if __name__ == "__main__":
    request.PART_SECONDS = 0.4
    limit_files(int(sys.argv[3]))
    try:
        enlarge(FilmJob(Path(sys.argv[1]), Path(sys.argv[2]), Wish("ffv1")))
    except Waifu2xError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits")
@pytest.mark.parametrize(
    ("share", "message", "parts"),
    [
        pytest.param(0.2, "out.mkv.parts: cannot write", 0, id="part"),
        pytest.param(0.6, "out.mkv: cannot write", 3, id="film", marks=pytest.mark.matrix),
    ],
)
def test_a_full_disk_is_a_sentence(
    job: FilmJob, share: float, message: str, parts: int, tmp_path: Path
) -> None:
    """While a part is written, and while the parts are joined: a file may not be as large."""
    whole = replace(job, target=job.target.with_name("whole.mkv"))
    enlarge(whole)
    script = tmp_path / "full.py"
    script.write_text(_FULL)
    limit = int(whole.target.stat().st_size * share)
    done = subprocess.run(
        [sys.executable, str(script), str(job.source), str(job.target), str(limit)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith(f"{message}: file too large\n"), done
    assert done.stderr == ""
    assert not job.target.exists()
    folder = parts_folder(job.target)
    assert len(list(folder.glob("part-*.json"))) == parts
    assert folder.exists() == bool(parts)
    assert not list(tmp_path.rglob("*.part"))
    assert enlarge(job).resumed == (24 if parts else 0)
    assert job.target.read_bytes() == whole.target.read_bytes()


@pytest.mark.long
def test_thirty_kills_lose_at_most_a_part_each() -> None:
    subprocess.run(
        [sys.executable, "-m", "benchmarks.film_kills"], cwd=ROOT, check=True, timeout=3600
    )
