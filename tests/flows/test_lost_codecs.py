"""Codec processes that are killed: what they were at is made by others."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import zipfile
from collections import Counter
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import deadly_codecs
from tests.helpers.contents import decode, encode, identity_models, noise
from tests.helpers.drivers import (
    IN_PROCESSES,
    PNG,
    by_name,
    comic,
    driver_of,
    jobs_of,
    outcomes_of,
    pictures,
    processes,
    small,
)
from tests.helpers.networks import Doubling, use_network
from tests.helpers.outcomes import run
from waifu2x.api import Upscaler
from waifu2x.backends import Pin
from waifu2x.flows.batch import crew, driver, worker
from waifu2x.flows.batch.assignments import FileRequest
from waifu2x.flows.batch.codec import Offered
from waifu2x.flows.batch.driver import DeviceDriver, RunOptions
from waifu2x.flows.batch.semaphore import MemorySemaphore
from waifu2x.flows.batch.worker import CodecProcess
from waifu2x.flows.fleet import shared_memory
from waifu2x.flows.fleet.processes import ChildProcess, EndedError
from waifu2x.flows.fleet.shared_memory import AttachedPool, SharedArray
from waifu2x.flows.fleet.supervisor import State
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import STOPPED
from waifu2x.imaging.picture import Picture

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
KILLED = "it crashed 3 worker processes in a row: its process was killed (SIGKILL)"


@pytest.fixture
def upscaler(tmp_path: Path) -> Upscaler:
    identity_models(tmp_path / "identity")
    return Upscaler(2, model=str(tmp_path / "identity"), backend="numpy")


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "work", deadly_codecs.work)


class Pins:
    """Memory that a device has page-locked."""

    def __init__(self, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.open = 0
        monkeypatch.setattr(shared_memory, "_PINNED_FROM", 1)
        monkeypatch.setattr(upscaler.engine.backend, "pin", self._pin)

    def _pin(self, array: NDArray[Any]) -> Pin:
        self.made += 1
        self.open += 1
        return Pin(self._unpin)

    def _unpin(self) -> None:
        self.open -= 1


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> list[MemorySemaphore]:
    """The memory of drivers, each for one picture at a time."""
    made: list[MemorySemaphore] = []

    def semaphore(sharing: int) -> MemorySemaphore:
        made.append(MemorySemaphore(1))
        return made[-1]

    monkeypatch.setattr(driver, "MemorySemaphore", semaphore)
    return made


def check_doubled(content: bytes, source: bytes) -> None:
    expected = decode(source).pixels.repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(decode(content).pixels, expected)


@pytest.mark.parametrize("existing", ["skip", "overwrite"])
@pytest.mark.usefixtures("deadly")
def test_what_was_under_way_is_made_by_another_process(
    existing: Any,
    tmp_path: Path,
    upscaler: Upscaler,
    budgets: list[MemorySemaphore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At whatever stage the first one or two are killed: nothing stays unfinished, page-locked or
    reserved, and the parts of the work add up to 1."""
    pins = Pins(upscaler, monkeypatch)
    folder = tmp_path / "in"
    pictures(folder, *small(2))
    for number, stage in enumerate(deadly_codecs.STAGES):
        for count in (1, 2):
            content = encode(Picture(noise(3 + count, 5 + number, 3)), "png")
            (folder / f"{stage}-{count}.png").write_bytes(content)
    jobs = jobs_of(folder)
    parts: Counter[Job] = Counter()

    def count_part(job: Job, part: float) -> None:
        parts[job] += part  # type: ignore[assignment]

    output = replace(PNG, existing=existing)
    outcomes = list(run(jobs, upscaler, output, in_flight=IN_PROCESSES, on_progress=count_part))
    assert {each.job: (each.status, each.error) for each in outcomes} == dict.fromkeys(
        jobs, ("done", "")
    )
    assert len(list((tmp_path / "deaths").iterdir())) == 3 * len(deadly_codecs.STAGES)
    for job in jobs:
        check_doubled(job.target.read_bytes(), job.source.read_bytes())
        assert parts[job] == pytest.approx(1)
    assert len(list((tmp_path / "out").iterdir())) == len(jobs)
    (budget,) = budgets
    assert budget._taken == 0
    assert pins.made > pins.open == 0


@pytest.mark.usefixtures("deadly")
def test_what_kills_three_processes_fails_alone(tmp_path: Path, upscaler: Upscaler) -> None:
    """A file, and an archive by a page of it."""
    folder = tmp_path / "in"
    pictures(folder, *small(3))
    for stage in ("decode", "encode"):
        (folder / f"{stage}-3.png").write_bytes(encode(Picture(noise(4, 5, 3)), "png"))
    comic(folder / "good.cbz", 3)
    with zipfile.ZipFile(folder / "bad.cbz", "w") as archive:
        for name in ("0.png", "network-3.png", "1.png"):
            archive.writestr(name, encode(Picture(noise(4, 5, 3)), "png"))
    outcomes = by_name(run(jobs_of(folder), upscaler, PNG, in_flight=IN_PROCESSES))
    for name in ("decode-3.png", "encode-3.png", "bad.cbz"):
        assert outcomes.pop(name).error == f"{folder / name}: {KILLED}"
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["0.png", "1.png", "2.png", "good.cbz"]


@pytest.mark.usefixtures("deadly")
def test_pages_of_killed_processes_are_made_by_others(tmp_path: Path, upscaler: Upscaler) -> None:
    """They stay in order."""
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["0.png", "decode-2.png", "network-1.png", "network-2.png", "encode-1.png", "9.png"]
    content = {
        name: encode(Picture(noise(4, 5 + number, 3)), "png") for number, name in enumerate(names)
    }
    with zipfile.ZipFile(folder / "book.cbz", "w") as archive:
        for name in names:
            archive.writestr(name, content[name])
    (job,) = jobs_of(folder)
    (outcome,) = run([job], upscaler, PNG, in_flight=IN_PROCESSES)
    assert outcome.status == "done", outcome.error
    with zipfile.ZipFile(job.target) as book:
        assert book.namelist() == names
        for name in names:
            check_doubled(book.read(name), content[name])
    assert len(list((tmp_path / "deaths").iterdir())) == 6


def test_memory_is_in_use_until_the_network_has_ended(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a process that is killed meanwhile."""
    jobs = pictures(tmp_path / "in", *small(12))
    pins = Pins(upscaler, monkeypatch)
    offering: list[int] = []
    buried = threading.Event()
    open_before: list[int] = []
    bury = DeviceDriver._bury

    class Watched(CodecProcess):
        def _received(self) -> Any:
            report = super()._received()
            if isinstance(report, Offered):
                offering.append(self._child.pid)
            return report

    def burying(these: DeviceDriver, lost: Any, why: str) -> None:
        buried.set()
        bury(these, lost, why)

    def kill() -> None:
        if not open_before:
            open_before.append(pins.open)
            os.kill(offering[0], signal.SIGKILL)
            assert buried.wait(30)
            assert pins.open >= open_before[0]

    monkeypatch.setattr(DeviceDriver, "_bury", burying)
    monkeypatch.setattr(crew, "CodecProcess", Watched)
    use_network(upscaler, Doubling(kill), monkeypatch)
    outcomes = by_name(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes.values()] == ["done"] * len(jobs)
    assert pins.open == 0


@pytest.mark.usefixtures("deadly")
def test_requests_that_share_a_driver_are_independent(tmp_path: Path, upscaler: Upscaler) -> None:
    """As on a page: the file of one kills, those of another are made by their own settings."""
    folder = tmp_path / "in"
    pictures(folder, *small(4))
    (folder / "encode-3.png").write_bytes(encode(Picture(noise(4, 5, 3)), "png"))
    (folder / "network-1.png").write_bytes(encode(Picture(noise(4, 6, 3)), "png"))
    jobs = jobs_of(folder)
    with Upscaler(4, model=str(tmp_path / "identity"), engine=upscaler.engine) as larger:
        requests = {
            job: FileRequest(larger if job.source.stem in "024" else upscaler, PNG, 10**6, 1)
            for job in jobs
        }
        these = DeviceDriver(
            jobs, upscaler.engine, lambda job: requests[job], RunOptions(isolates=True)
        )
        these.start(False)
        outcomes = {each.job: each for each in outcomes_of(these)}
    assert not processes()
    for job, outcome in outcomes.items():
        if job.source.stem == "encode-3":
            assert outcome.error.endswith(KILLED)
            continue
        scale = 4 if job.source.stem in "024" else 2
        height, width, _ = decode(job.source.read_bytes()).pixels.shape
        made = decode(job.target.read_bytes()).pixels
        assert made.shape == (scale * height, scale * width, 3)
    assert len(outcomes) == len(jobs)


def test_a_file_that_is_ended_as_nobody_wants_it_is_not_made_again(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may stand still."""
    jobs = pictures(tmp_path / "in", *small(3))
    unwanted = threading.Event()
    at_it = threading.Event()

    def meanwhile() -> None:
        at_it.set()
        assert unwanted.wait(30)

    def on_progress(job: Job, part: float) -> None:
        if job == jobs[0] and unwanted.is_set():
            raise StoppedError

    use_network(upscaler, Doubling(meanwhile), monkeypatch)
    request = FileRequest(upscaler, PNG, 10**6, 1)
    these = DeviceDriver(
        jobs,
        upscaler.engine,
        lambda job: request,
        RunOptions(isolates=True, on_progress=on_progress),
    )
    these.start(False)
    assert at_it.wait(30)
    these.end(jobs[0])
    unwanted.set()
    outcomes = by_name(outcomes_of(these))
    assert outcomes.pop("0.png").error == STOPPED
    assert [outcome.status for outcome in outcomes.values()] == ["done"] * 2


@pytest.mark.usefixtures("deadly")
def test_what_has_killed_a_process_is_made_by_no_thread(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end the program. Threads make the rest where no other process can be started."""
    started: list[ChildProcess] = []
    start = ChildProcess.start

    def start_one(child: ChildProcess) -> None:
        started.append(child)
        if len(started) > 1:
            raise EndedError("cannot be started: no")
        start(child)

    lost = threading.Event()
    do_again = DeviceDriver._do_again

    def noted(these: DeviceDriver, *rest: Any) -> None:
        lost.set()
        do_again(these, *rest)

    monkeypatch.setattr(ChildProcess, "start", start_one)
    monkeypatch.setattr(DeviceDriver, "_do_again", noted)
    use_network(upscaler, Doubling(lambda: lost.wait(30)), monkeypatch)
    folder = tmp_path / "in"
    folder.mkdir()
    for deaths in range(3, 7):  # one for each worker
        (folder / f"decode-{deaths}.png").write_bytes(encode(Picture(noise(4, 5, 3)), "png"))
    errors = [each.error for each in run(jobs_of(folder), upscaler, PNG, in_flight=IN_PROCESSES)]
    errors.sort()
    assert errors[:3] == [""] * 3
    assert errors[3].endswith("not made, since no process can be started for it")


class UnmadeError(OSError):
    """An error of another library: the other process cannot make it of what it is told."""

    def __new__(cls, fault: str, remedy: str) -> UnmadeError:
        return super().__new__(cls, fault)


def test_errors_that_processes_cannot_make_fail_a_picture(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UnmadeError("fault", "remedy")

    use_network(upscaler, Doubling(fail), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(2))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes] == ["failed"] * 2
    assert all("it crashed 3 worker processes in a row" in each.error for each in outcomes)


def test_what_cannot_be_shared_once_is_made_again(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process has too many files open for a moment."""
    whole, taken = recv_handle, threading.Semaphore(1)

    def without_room(connection: Any) -> int:
        if taken.acquire(blocking=False):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return whole(connection)

    monkeypatch.setattr(shared_memory, "recv_handle", without_room)
    jobs = pictures(tmp_path / "in", *small(8))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes] == ["done"] * 8


def test_memory_that_cannot_be_shared_fails_a_picture(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_room(connection: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(shared_memory, "recv_handle", without_room)
    jobs = pictures(tmp_path / "in", *small(1))
    (failed,) = run(jobs, upscaler, PNG, in_flight=IN_PROCESSES)
    assert failed.error.endswith(
        "worker processes in a row: its process cannot share its memory: [Errno 24] Too many open "
        "files"
    )


def test_a_process_that_dies_before_it_has_shared_its_memory(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a message that names memory come the files of it, or the end of the connection."""
    jobs = pictures(tmp_path / "in", *small(6))
    received = AttachedPool.receive
    died: list[object] = []

    def receive(self: AttachedPool, arrays: list[SharedArray]) -> list[NDArray[Any]]:
        if died:
            return received(self, arrays)
        died.append(self)
        for child in processes():
            child.kill()
        raise EOFError

    monkeypatch.setattr(AttachedPool, "receive", receive)
    use_network(upscaler, Doubling(), monkeypatch)
    outcomes = list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes] == ["done"] * 6


def test_processes_that_die_while_they_have_nothing_to_do(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = pictures(tmp_path / "in", *small(3))
    started: list[str] = []

    class Counted(CodecProcess):
        def start(self, tell: Any) -> None:
            started.append(self.name)
            super().start(tell)

    def dying() -> Any:
        yield jobs[0]
        while (
            sum(each.state is State.READY for each in these._crew.workers) < 4
        ):  # until all are up
            yield None
        for child in processes():
            child.kill()
        while len(started) < 8:
            yield None
        yield from jobs[1:]

    monkeypatch.setattr(crew, "CodecProcess", Counted)
    these = driver_of(dying(), upscaler, IN_PROCESSES)
    these.start(False)
    outcomes = list(outcomes_of(these))
    assert [outcome.status for outcome in outcomes] == ["done"] * 3


@pytest.mark.usefixtures("deadly")
def test_the_process_that_starts_others_is_killed(tmp_path: Path, upscaler: Upscaler) -> None:
    """Another one starts the next, and those that are there can still be ended."""
    folder = tmp_path / "in"
    pictures(folder, *small(8))
    (folder / "decode-1.png").write_bytes(encode(Picture(noise(4, 5, 3)), "png"))
    first, *rest = jobs_of(folder)
    these: DeviceDriver

    def killing() -> Any:
        yield first
        while sum(each.state is State.READY for each in these._crew.workers) < 4:
            yield None
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
        yield from rest

    these = driver_of(killing(), upscaler, IN_PROCESSES)
    these.start(False)
    assert [outcome.error for outcome in outcomes_of(these)] == [""] * 9
    assert len(list((tmp_path / "deaths").iterdir())) == 1
    assert not processes()
