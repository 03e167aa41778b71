"""Several devices, each with a process of its own: what they make, and what is lost with one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.contents import decode, encode, identity_models, noise
from tests.helpers.odd_devices import DEADLY, OddOpening
from waifu2x.cli import workers
from waifu2x.errors import BackendError, UnavailableError
from waifu2x.flows.batch.by_fleet import AHEAD, SessionOpening, file_tasks, names_of
from waifu2x.flows.batch.listings import Listings
from waifu2x.flows.batch.plan import JobList, plan
from waifu2x.flows.batch.session import SessionSettings
from waifu2x.flows.fleet.process_worker import Ahead, ProcessWorker
from waifu2x.flows.fleet.supervisor import Fleet, Hooks
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

PNG = Output("png", Quality(), "fail")
THREADS = InFlight(3, 1)
PROCESSES = InFlight(4, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With 24 pictures in `in`."""
    (tmp_path / "in").mkdir()
    for number in range(24):
        content = encode(Picture(noise(5 + number, 7, 3, seed=number)), "png")
        (tmp_path / f"in/{number:02}.png").write_bytes(content)
    identity_models(tmp_path / "identity")
    return tmp_path


def jobs_of(folder: Path) -> list[Job]:
    return list(plan(folder / "in", folder / "out", "png", False).jobs)


class Run:
    """A run on two devices that are one, of kinds of OddOpening."""

    def __init__(
        self, folder: Path, in_flight: InFlight, *kinds: str, ahead: Ahead = AHEAD, **changes: Any
    ) -> None:
        self.folder = folder
        self.output = changes.pop("output", PNG)
        arguments = {
            "scale": 2,
            "model": str(folder / "identity"),
            "backend": "numpy",
            "device": (0,),
            "precision": "auto",
            **changes,
        }
        settings = SessionSettings(arguments, self.output, in_flight, 10**6, sharing=2)

        def worker(name: str, kind: str) -> ProcessWorker:
            opening = OddOpening(SessionOpening(settings), kind, folder)
            return ProcessWorker(name, opening, ahead)

        self.stopped = threading.Event()
        self.news: list[str] = []
        self.devices: list[str] = []
        kinds += ("",) * (2 - len(kinds))
        workers = [worker(f"device {number}", kind) for number, kind in enumerate(kinds[:2])]
        self.fleet = Fleet(
            workers,
            hooks=Hooks(
                on_opened=lambda name, opened: self.devices.append(f"{name}: {opened.described}"),
                on_news=self.news.append,
            ),
            last=worker("the rest", kinds[2]) if len(kinds) > 2 else None,
        )

    def outcomes(self, jobs: list[Job]) -> Iterator[Outcome]:
        self.fleet.open()
        folders = self.folder / "in", self.folder / "out"
        listings = Listings(folders, self.output.existing, frozenset())
        tasks = file_tasks(self.until_stopped(jobs), listings, names_of)
        try:
            yield from self.fleet.run(tasks, self.stopped)
        finally:
            self.left = self.pids()
            self.fleet.close()

    def until_stopped(self, jobs: list[Job]) -> Iterator[Job]:
        for job in jobs:
            if self.stopped.is_set():
                return
            yield job

    def pids(self) -> list[int]:
        workers: Any = self.fleet.workers
        return [worker.pid for worker in workers if worker.pid is not None]

    def result(self, jobs: list[Job]) -> dict[str, Outcome]:
        """The outcomes by the names of their sources; each source has one."""
        outcomes = list(self.outcomes(jobs))
        assert sorted(outcome.job.source for outcome in outcomes) == sorted(
            job.source for job in jobs
        )
        check_nothing_is_left(self.folder, self)
        return {outcome.job.source.name: outcome for outcome in outcomes}


def check_nothing_is_left(folder: Path, run: Run) -> None:
    assert not list((folder / "out").glob(".*"))
    assert not run.pids()
    assert not any(map(is_alive, run.left))
    for thread in threading.enumerate():
        assert not thread.name.startswith("waifu2x-device")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def check(job: Job) -> None:
    expected = decode(job.source.read_bytes()).pixels.repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(decode(job.target.read_bytes()).pixels, expected)


def statuses(outcomes: dict[str, Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes.values()]


def test_a_process_that_is_killed_loses_nothing(folder: Path) -> None:
    """Nor does it leave anything, with codec processes of its own: the others go on, and another
    takes its place."""
    jobs = jobs_of(folder)
    (folder / "in/05.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing of use")
    (folder / "out").mkdir()
    (folder / "out/07.png").write_text("precious")
    run = Run(folder, PROCESSES)
    found: dict[str, Outcome] = {}
    for outcome in run.outcomes(jobs):
        found[outcome.job.source.name] = outcome
        if len(found) == 6:
            os.kill(run.pids()[0], signal.SIGKILL)
    check_nothing_is_left(folder, run)
    assert len(found) == 24
    assert {name for name, each in found.items() if each.status == "failed"} == {"05.png", "07.png"}
    assert (folder / "out/07.png").read_text() == "precious"
    for job in jobs:
        if found[job.source.name].status == "done":
            check(job)
            height, width = decode(job.target.read_bytes()).pixels.shape[:2]
            made = found[job.source.name].made
            assert made is not None
            assert (made.height, made.width) == (height, width)
    assert run.news == ["device 0: its process was killed (SIGKILL): goes on in another process"]
    assert {line[:8] for line in run.devices} == {"device 0", "device 1"}


def test_a_picture_that_kills_its_processes_fails_alone(folder: Path) -> None:
    (folder / "in/09.png").rename(folder / "in" / DEADLY)
    found = Run(folder, THREADS, "dies", "dies").result(jobs_of(folder))
    assert found[DEADLY].status == "failed"
    said = f"{DEADLY}: it crashed 3 worker processes in a row: its process ended (exit code 1)"
    assert said in found[DEADLY].error
    assert statuses(found).count("done") == 23
    assert len(list((folder / "out").iterdir())) == 23


def test_a_broken_device_hands_its_files_to_others(folder: Path) -> None:
    run = Run(folder, THREADS, "broken")
    found = run.result(jobs_of(folder))
    assert statuses(found) == ["done"] * 24
    assert run.news[0] == (
        "device 0: the device fell off the bus; use another backend: goes on in another process"
    )
    assert not any(line.startswith("device 1") for line in run.news)


def test_a_process_that_ends_before_its_device_is_there(folder: Path) -> None:
    run = Run(folder, THREADS, "never-opens")
    assert statuses(run.result(jobs_of(folder))) == ["done"] * 24
    assert run.news == [
        "device 0: its process ended (exit code 1): goes on in another process",
        "device 0: its process ended (exit code 1): gets no more files",
    ]
    run = Run(folder, THREADS, "never-opens", "never-opens")
    with closing(run.fleet), pytest.raises(BackendError, match="no device is left that works"):
        run.fleet.open()


@pytest.mark.matrix
@pytest.mark.parametrize("has_last", [False, True])
def test_where_no_device_works_any_more(folder: Path, has_last: bool) -> None:
    run = Run(folder, THREADS, *["broken"] * (2 + has_last))
    found = run.result(jobs_of(folder))
    assert statuses(found) == ["failed"] * 24
    for outcome in found.values():
        assert "not made, since no device is left that works" in outcome.error
    assert any(line.startswith("the rest: ") for line in run.news) == has_last


@pytest.mark.parametrize("existing", ["fail", "overwrite"])
def test_what_a_lost_process_has_finished_counts(folder: Path, existing: Any) -> None:
    """And it stays, unless it may be replaced."""
    (folder / "in/03.png").rename(folder / "in" / DEADLY)
    kinds = "dies-after", "dies-after"
    run = Run(folder, THREADS, *kinds, output=replace(PNG, existing=existing))
    jobs = jobs_of(folder)
    inodes: list[int] = []
    found: list[Outcome] = []
    for outcome in run.outcomes(jobs):
        found.append(outcome)
        if (folder / "died").exists() and not inodes:
            inodes.append((folder / "out" / DEADLY).stat().st_ino)
    assert [outcome.status for outcome in found] == ["done"] * 24
    for job in jobs:
        check(job)
    if existing == "fail":
        assert inodes == [(folder / "out" / DEADLY).stat().st_ino]
    sizes = {
        outcome.job.source.name: (outcome.made.height, outcome.made.width)
        for outcome in found
        if outcome.made is not None
    }
    assert sizes[DEADLY] == (16, 14)


def test_names_that_wait_are_taken_back(folder: Path) -> None:
    """When nothing more is to be begun."""
    run = Run(folder, THREADS, ahead=Ahead(100))
    found = []
    for outcome in run.outcomes(jobs_of(folder)):
        found.append(outcome)
        run.stopped.set()
    check_nothing_is_left(folder, run)
    assert len(found) == len(list((folder / "out").iterdir())) < 24


def test_closing_ends_all_processes(folder: Path) -> None:
    run = Run(folder, PROCESSES)
    outcomes = run.outcomes(jobs_of(folder))
    with closing(outcomes):  # type: ignore[type-var]
        next(outcomes)
    check_nothing_is_left(folder, run)
    made = list((folder / "out").iterdir())
    assert 0 < len(made) < 24


def test_a_device_that_is_not_there_ends_the_run_before_it_begins(folder: Path) -> None:
    run = Run(folder, THREADS, backend="cpu", device=(7,))
    with closing(run.fleet), pytest.raises(UnavailableError, match="no device 7"):
        run.fleet.open()
    assert not run.pids()


def test_devices_of_one_run_are_of_one_backend(folder: Path) -> None:
    """`auto` may find another one by another number."""
    run = Run(folder, THREADS, "", "other-backend")
    error = "computes in .* as others do; choose by --backend"
    with closing(run.fleet), pytest.raises(BackendError, match=error):
        run.fleet.open()


_ABANDONED = """
import os, sys
from pathlib import Path
from tests.flows.test_devices import PROCESSES, Run, jobs_of
folder = Path(sys.argv[1])
run = Run(folder, PROCESSES)
for outcome in run.outcomes(jobs_of(folder)):
    print(*run.pids(), flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.matrix
def test_processes_end_with_who_has_started_them(folder: Path, wait: Callable[..., Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ABANDONED, str(folder)], capture_output=True, text=True
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert (len(pids), done.returncode) == (2, -signal.SIGKILL), done.stderr
    wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    wait(lambda: not list((folder / "out").glob(".*")))


@pytest.fixture
def wait() -> Callable[[Callable[[], bool]], None]:
    """Until a condition holds."""

    def until(condition: Callable[[], bool]) -> None:
        ended = threading.Event()
        for _ in range(3000):
            if condition():
                return
            ended.wait(0.01)
        raise AssertionError

    return until


def test_few_files_share_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        workers, "device_numbers", lambda name: {"cuda": [0, 2, 3], "cpu": [0]}[name]
    )

    def numbers(device: Any, count: int, watching: bool = False, backend: str = "cuda") -> Any:
        return workers.devices_of({"backend": backend, "device": device}, count, watching=watching)

    assert numbers((0,), 1000) == ()
    assert numbers((0, 1), 15) == ()
    assert numbers((0, 1), 16) == (0, 1)
    assert numbers("all", 23) == ()
    assert numbers("all", 24) == [0, 2, 3]
    assert numbers("all", 0, watching=True) == [0, 2, 3]
    assert numbers("all", 1000, backend="cpu") == ()
    monkeypatch.setattr("waifu2x.flows.fleet.processes.may_start_processes", lambda: False)
    assert numbers((0, 1), 1000) == ()


@pytest.mark.matrix
def test_the_program_on_two_devices(
    folder: Path, opencl_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL has as many devices as it is told to."""
    from waifu2x.backends import opencl

    if "Portable" not in opencl_device.platform.name:
        pytest.skip("PoCL is not the default OpenCL platform")
    command = [sys.executable, "-m", "waifu2x", "batch", "--backend", "opencl", "-m", "vgg_7"]
    command += ["-c", "ffv1"]
    (folder / "in/07.png").write_text("none")
    films = pytest.importorskip("tests.helpers.films")
    films.film(folder / "in/film.mkv", rate=1, times=range(0, 60_000, 1000), size=(16, 24))
    monkeypatch.setenv("POCL_DEVICES", "pthread pthread")
    if len(opencl.devices()) > 1:
        # Each package's PoCL would have two: those of the system are left out.
        monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    told = {}
    for device in ("0", "0,1", "all"):
        target = folder / device
        run = [*command, "--json", "-v", "-g", device, str(folder / "in"), str(target)]
        done = subprocess.run(run, capture_output=True, text=True, timeout=300)
        assert done.returncode == 1, done.stderr
        assert "24 done (23 pictures, 1 film of 60 frames), 0 skipped, 1 failed" in done.stderr
        assert done.stderr.count("07.png: ") == 2
        # One for the pictures, and one for the film.
        assert done.stderr.count("device 1: opencl: ") == (2 if device != "0" else 0)
        told[device] = {path.name: path.read_bytes() for path in target.iterdir()}
        assert len(done.stdout.splitlines()) == 25
    assert len(told["0"]) == 24
    assert told["0"] == told["0,1"] == told["all"]


def test_archives_come_first() -> None:
    names = ["a.png", "b.cbz", "c.PNG", "d.ZIP", "e.png"]
    jobs = JobList(Path("in"), Path("out"), [(name, name) for name in names])
    assert [job.source.name for job in workers.archives_first(jobs)] == [
        "b.cbz", "d.ZIP", "a.png", "c.PNG", "e.png"
    ]  # fmt: skip
