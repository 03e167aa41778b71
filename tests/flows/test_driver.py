"""Several files at a time: codec workers, as threads and as processes, and what ends them."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.helpers.contents import decode, encode, identity_models, noise
from tests.helpers.drivers import (
    IN_PROCESSES,
    PNG,
    by_name,
    comic,
    driver_of,
    pictures,
    processes,
    small,
)
from tests.helpers.networks import Doubling, use_network
from tests.helpers.outcomes import run
from waifu2x.api import Upscaler
from waifu2x.backends import Device
from waifu2x.errors import BackendError, DeviceError
from waifu2x.flows.batch import crew, driver, worker
from waifu2x.flows.batch.assignments import FileRequest
from waifu2x.flows.batch.codec import Make, Paged
from waifu2x.flows.batch.driver import DeviceDriver, RunOptions
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.batch.semaphore import MemorySemaphore
from waifu2x.flows.batch.worker import CodecProcess
from waifu2x.flows.fleet.processes import ChildProcess, EndedError, prepare
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import STOPPED, Outcome
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.imaging.picture import Picture
from waifu2x.system import files


@pytest.fixture
def upscaler(tmp_path: Path) -> Upscaler:
    identity_models(tmp_path / "identity")
    return Upscaler(2, model=str(tmp_path / "identity"), backend="numpy")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the codec processes that are started."""
    names: list[str] = []

    class Counted(CodecProcess):
        def start(self, tell: Any) -> None:
            names.append(self.name)
            super().start(tell)

    monkeypatch.setattr(crew, "CodecProcess", Counted)
    return names


def test_processes_make_what_threads_make(tmp_path: Path, upscaler: Upscaler) -> None:
    opacity = np.linspace(0, 255, 35, dtype=np.uint8).reshape(5, 7)
    jobs = pictures(
        tmp_path / "in",
        Picture(noise(5, 7, 3)),
        Picture(noise(5, 7, 3), opacity),  # two calls of networks
        Picture(noise(90, 70, 1)),
        Picture(noise(6, 4, 3, dtype=np.uint16)),
        *small(5),
    )
    (tmp_path / "in/bad.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing of use")
    jobs += list(plan(tmp_path / "in", tmp_path / "out", "jpg", False).jobs)[-2:]
    told: dict[InFlight | None, list[str]] = {None: [], IN_PROCESSES: []}
    made: list[dict[str, bytes]] = []
    ended: list[list[tuple[str, str, str]]] = []
    for in_flight, notes in told.items():
        outcomes = list(
            run(
                jobs,
                upscaler,
                Output("png", Quality(), "overwrite"),
                in_flight=in_flight,
                on_notice=lambda job, note, notes=notes: notes.append(note),
            )
        )
        ended.append(sorted((o.job.target.name, o.status, o.error) for o in outcomes))
        made.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert ended[0] == ended[1]
    assert [status for _, status, _ in ended[0]].count("failed") == 1
    assert made[0] == made[1]
    assert len(made[0]) == len(jobs) - 1
    assert sorted(told[None]) == sorted(told[IN_PROCESSES])


@pytest.mark.parametrize("in_flight", [None, IN_PROCESSES])
def test_outcomes_count_what_was_computed_again(
    tmp_path: Path,
    upscaler: Upscaler,
    in_flight: InFlight | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each picture by itself, in a stack and in an archive; one whose opacity is a second call
    counts once."""
    bright = Picture(np.full((5, 7, 3), 255, np.uint8))
    opaque = replace(bright, alpha=np.linspace(0, 255, 35, dtype=np.uint8).reshape(5, 7))
    pictures(tmp_path / "in", *small(3), bright, opaque)
    with zipfile.ZipFile(tmp_path / "in/pages.cbz", "w") as archive:
        for number, page in enumerate([bright, *small(2), bright]):
            archive.writestr(f"{number}.png", encode(page, "png"))
    jobs = list(plan(tmp_path / "in", tmp_path / "out", "png", False).jobs)
    network = Doubling(is_again=lambda pixels: bool(pixels[..., 0].min() == 255))
    use_network(upscaler, network, monkeypatch)
    with closing(run(jobs, upscaler, PNG, in_flight=in_flight)) as outcomes:
        made = {
            name: outcome.made.recomputed
            for name, outcome in by_name(outcomes).items()
            if outcome.made is not None
        }
    expected = {"0.png": 0, "1.png": 0, "2.png": 0, "3.png": 1, "4.png": 1, "pages.cbz": 2}
    assert made == expected


def test_stages_are_timed_in_processes_too(tmp_path: Path, upscaler: Upscaler) -> None:
    jobs = pictures(tmp_path / "in", *small(3))
    for outcome in run(jobs, upscaler, PNG, in_flight=IN_PROCESSES):
        assert outcome.made is not None
        spent = outcome.made.spent
        assert {"read", "decode", "wait", "network", "encode", "write"} <= set(spent)
        assert all(seconds >= 0 for seconds in spent.values())


def test_a_device_that_stops_working_ends_the_work_of_processes(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise DeviceError("Fake: its driver stopped the work")

    use_network(upscaler, Doubling(fail), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(9))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert len(outcomes) == len(jobs)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert all("stopped" in outcome.error for outcome in outcomes)
    assert not list(tmp_path.glob("out/*"))


def test_a_defect_is_not_kept_from_the_caller(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    use_network(upscaler, Doubling(fail), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(2))
    for in_flight in (None, IN_PROCESSES):
        with pytest.raises(ZeroDivisionError):
            list(run(jobs, upscaler, PNG, in_flight=in_flight))


@pytest.mark.parametrize("in_flight", [None, IN_PROCESSES])
def test_a_defect_with_one_picture_is_its_failure_alone(
    tmp_path: Path, upscaler: Upscaler, in_flight: InFlight | None
) -> None:
    opacity = np.zeros((5, 7), np.uint8)
    made = pictures(tmp_path / "in", *small(2), Picture(noise(5, 7, 3), opacity))
    jobs = [replace(job, target=job.target.with_suffix(".bmp")) for job in made]
    wrong: Any = (0, 0, "blue")
    output = Output("bmp", Quality(), "fail", OutputOptions(background=wrong))
    outcomes = by_name(run(jobs, upscaler, output, in_flight=in_flight))
    assert [outcomes[f"{number}.png"].status for number in range(3)] == ["done", "done", "failed"]
    error = outcomes["2.png"].error
    assert re.search(r"2\.png: ValueError: could not convert .*: this is a fault of waifu2x", error)
    assert len(list((tmp_path / "out").iterdir())) == 2


class UnsentError(OSError):
    """An error of another library: it does not survive the way to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("holds what cannot be sent")


def test_errors_that_cannot_be_sent_to_processes_end_the_work(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UnsentError

    use_network(upscaler, Doubling(fail), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(2))
    with pytest.raises(TypeError, match="cannot be sent"):
        list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))


def test_notices_that_nobody_takes_end_the_work_of_processes(
    tmp_path: Path, upscaler: Upscaler
) -> None:
    """As where what reads the messages of a program is gone."""

    def broken(job: Job, note: str) -> None:
        raise BrokenPipeError

    half = Picture(noise(5, 7, 3), np.full((5, 7), 128, np.uint8))
    pictures(tmp_path / "in", half, half)
    jobs = list(plan(tmp_path / "in", tmp_path / "out", "jpg", False).jobs)
    with pytest.raises(BrokenPipeError):
        list(
            run(
                jobs,
                upscaler,
                replace(PNG, extension="jpg"),
                in_flight=IN_PROCESSES,
                on_notice=broken,
            )
        )
    assert not processes()


def test_threads_do_what_processes_cannot(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a container has all the processes and threads that it may have."""
    codecs: list[int] = []
    start = threading.Thread.start

    def refuse(*arguments: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def start_two(thread: threading.Thread) -> None:
        if thread.name.startswith("waifu2x-codec"):
            codecs.append(1)
            if len(codecs) > 2:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(crew, "CodecProcess", refuse)
    monkeypatch.setattr(threading.Thread, "start", start_two)
    jobs = pictures(tmp_path / "in", *small(6))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes] == ["done"] * 6


def no_start(child: ChildProcess) -> None:
    raise EndedError("cannot be started: no")


def test_processes_that_never_start_are_done_without(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where modules cannot be loaded twice, or a program has no guarded main module."""
    monkeypatch.setattr(ChildProcess, "start", no_start)
    jobs = pictures(tmp_path / "in", *small(6))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes] == ["done"] * 6


def test_an_interrupt_while_workers_begin(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DeviceDriver.start

    def interrupted(these: DeviceDriver, all_at_once: bool) -> None:
        whole(these, all_at_once)
        raise KeyboardInterrupt

    monkeypatch.setattr(DeviceDriver, "start", interrupted)
    use_network(upscaler, Doubling(lambda: time.sleep(0.05)), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(60))
    with pytest.raises(KeyboardInterrupt):
        next(run(jobs, upscaler, PNG))
    assert not [each for each in threading.enumerate() if each.name.startswith("waifu2x-codec")]
    assert len(list(tmp_path.glob("out/*"))) < len(jobs)


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys, time
from multiprocessing import forkserver, get_context
from pathlib import Path
from waifu2x.flows.fleet.processes import prepare

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored, as in background
    prepare("loaded")
    while not Path("loading").exists():
        time.sleep(0.01)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)
    process = get_context("forkserver").Process(target=print, args=("works",))
    process.start()
    process.join()
    os.kill(os.getpid(), signal.SIGINT)
"""
LOADED_WHILE_INTERRUPTED = """
import signal, time
from pathlib import Path

Path("loading").touch()
while signal.SIGINT not in signal.sigpending():
    time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are started in another way")
def test_an_interrupt_while_the_process_that_starts_others_loads_modules(tmp_path: Path) -> None:
    """A terminal's Ctrl-C reaches all: only the program itself says so."""
    (tmp_path / "loaded.py").write_text(LOADED_WHILE_INTERRUPTED)
    (tmp_path / "script.py").write_text(INTERRUPTED_WHILE_LOADING)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "works\n"
    assert done.stderr.count("Traceback") == 1
    assert done.returncode == -signal.SIGINT


def test_closing_stops_processes(tmp_path: Path, upscaler: Upscaler) -> None:
    jobs = pictures(tmp_path / "in", *small(30))
    outcomes = run(jobs, upscaler, PNG, in_flight=IN_PROCESSES)
    next(outcomes)
    outcomes.close()
    assert not processes()
    made = list((tmp_path / "out").iterdir())
    assert len(made) < len(jobs)
    for path in made:
        decode(path.read_bytes(), path.name)


def test_closing_does_not_wait_for_processes(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that stand still are as those whose encoder takes a minute."""
    frozen = threading.Event()

    def freeze() -> None:
        if len(network.shapes) > 6 and not frozen.is_set():
            for child in processes():
                os.kill(child.pid, signal.SIGSTOP)
            frozen.set()

    network = Doubling(freeze)
    use_network(upscaler, network, monkeypatch)
    jobs = pictures(tmp_path / "in", *small(30))
    (tmp_path / "out").mkdir()
    left = tmp_path / "out" / f".waifu2x-{files._machine()}-0123456789ab.part"
    left.touch()  # as of one that was killed while it wrote
    these = driver_of(jobs, upscaler, IN_PROCESSES)
    these.start(False)
    assert frozen.wait(30)
    these.stop()
    assert not processes()
    assert not left.exists()


def test_closing_does_not_wait_for_an_encoder(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread it cannot be ended: what it makes never appears."""
    encoding, finish = threading.Event(), threading.Event()
    whole = files._rename

    def slow(*arguments: Any) -> None:
        encoding.set()
        assert finish.wait(60)
        whole(*arguments)

    monkeypatch.setattr(files, "_rename", slow)
    monkeypatch.setattr(worker, "_ENDING_SECONDS", 0.05)
    these = driver_of(pictures(tmp_path / "in", *small(4)), upscaler)
    these.start(False)
    assert encoding.wait(30)
    these.stop()
    assert not list((tmp_path / "out").iterdir())
    finish.set()
    for thread in threading.enumerate():
        if thread.name.startswith("waifu2x-codec"):
            thread.join(30)
            assert not thread.is_alive()
    assert not list((tmp_path / "out").iterdir())


def stand_still(pid: int) -> None:
    """Stops a process, and waits until each of its threads stands, where Linux tells: one that is
    still to see the signal may take a message of megabytes before."""
    os.kill(pid, signal.SIGSTOP)
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        while thread.read_text().rpartition(")")[2].split()[0] != "T":
            pass


class Makers:
    """Who made pages, as the driver sees it: the threads that their calls are reported by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        handle = DeviceDriver._handle

        def watched(these: DeviceDriver, worker: Any, report: Any) -> None:
            if isinstance(report, Paged):
                self.names.add(threading.current_thread().name)
            handle(these, worker, report)

        monkeypatch.setattr(DeviceDriver, "_handle", watched)


@pytest.mark.parametrize("in_processes", [True, False])
def test_several_workers_make_the_pages_of_an_archive(
    in_processes: bool, tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two calls meet in the network: both are of the one archive."""
    meeting, met = threading.Barrier(2), threading.Event()

    def meet() -> None:
        if not met.is_set():
            meeting.wait(30)
            met.set()

    network = Doubling(meet)
    use_network(upscaler, network, monkeypatch)
    monkeypatch.setattr(crew, "may_start_processes", lambda: in_processes)
    makers = Makers(monkeypatch)
    comic(tmp_path / "in/book.cbz", 12)
    (job,) = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    parts: list[float] = []
    (outcome,) = run(
        [job],
        upscaler,
        PNG,
        in_flight=IN_PROCESSES,
        on_progress=lambda job, part: parts.append(part),
    )
    assert (made := outcome.made) is not None
    assert (made.height, made.width) == (14, 14)
    assert {"read", "wait", "decode", "network", "encode", "write"} <= set(made.spent)
    assert sum(parts) == pytest.approx(1)
    assert len(makers.names) > 1
    with zipfile.ZipFile(job.target) as book:
        names = [f"{number}.{kind}" for number in range(12) for kind in ("txt", "png")]
        assert book.namelist() == names
        for number in range(12):
            expected = noise(7 + number, 7, 3, seed=number).repeat(2, 0).repeat(2, 1)
            np.testing.assert_array_equal(decode(book.read(f"{number}.png")).pixels, expected)
    (again,) = run([job], upscaler, replace(PNG, existing="skip"), in_flight=IN_PROCESSES)
    assert again.status == "skipped"


def test_pages_do_not_wait_for_the_next_job(tmp_path: Path, upscaler: Upscaler) -> None:
    """One worker, and a list that has nothing more until the archive is there."""
    comic(tmp_path / "in/book.cbz", 3)
    jobs = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    ended = threading.Event()

    def arriving() -> Any:
        yield from jobs
        assert ended.wait(30)

    for outcome in run(arriving(), upscaler, PNG, in_flight=InFlight(1, 1)):
        assert outcome.status == "done"
        ended.set()
    assert ended.is_set()


def test_the_first_bad_page_fails_its_archive_alone(tmp_path: Path, upscaler: Upscaler) -> None:
    jobs = pictures(tmp_path / "in", *small(3))
    comic(tmp_path / "in/bad.cbz", 12, bad=(5, 7))
    comic(tmp_path / "in/good.cbz", 6)
    jobs = list(plan(tmp_path / "in", tmp_path / "out", "png", False).jobs)
    outcomes = by_name(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES))
    failed = outcomes.pop("bad.cbz")
    assert failed.error.startswith(f"{tmp_path / 'in/bad.cbz'}: 5.png: damaged or cut off")
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["0.png", "1.png", "2.png", "good.cbz"]


@pytest.mark.parametrize("frozen", [True, False])
def test_closing_in_the_middle_of_an_archive(
    frozen: bool, tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that stand still do not even take the pages that they are sent."""
    reached = threading.Event()

    def freeze() -> None:
        if len(network.shapes) > 6 and not reached.is_set():
            if frozen:
                for child in processes():
                    os.kill(child.pid, signal.SIGSTOP)
            reached.set()

    network = Doubling(freeze)
    use_network(upscaler, network, monkeypatch)
    comic(tmp_path / "in/book.cbz", 60, size=10_000)
    jobs = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    these = driver_of(jobs, upscaler, IN_PROCESSES)
    these.start(False)
    assert reached.wait(30)
    these.stop()
    assert not processes()
    for thread in threading.enumerate():
        if thread.name.startswith(("waifu2x-archive", "waifu2x-flow")):
            thread.join(30)
            assert not thread.is_alive()
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("told", [0, 1, 5])
def test_progress_that_nobody_takes_ends_the_work_on_archives(
    told: int, tmp_path: Path, upscaler: Upscaler
) -> None:
    """As where a terminal is gone: it is no fault of the archive's."""
    left = threading.Semaphore(told)

    def broken(job: Job, part: float) -> None:
        if not left.acquire(blocking=False):
            raise BrokenPipeError

    comic(tmp_path / "in/book.cbz", 6)
    jobs = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    with pytest.raises(BrokenPipeError):
        list(run(jobs, upscaler, PNG, in_flight=IN_PROCESSES, on_progress=broken))
    assert not processes()
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="no process can be made to stand still")
def test_closing_does_not_wait_for_a_page_to_be_sent(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a process that stands still, and that has not taken all of it."""
    stuck: list[CodecProcess] = []
    sending = threading.Event()

    class Watched(CodecProcess):
        def start(self, tell: Any) -> None:
            super().start(tell)
            self.send = self._send

        def _send(self, command: Any) -> None:
            if isinstance(command, Make) and not stuck:
                stuck.append(self)
                stand_still(self._child.pid)
                sending.set()
            self._child.send(command)

    monkeypatch.setattr(crew, "CodecProcess", Watched)
    comic(tmp_path / "in/book.cbz", 3, size=100_000)
    jobs = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    these = driver_of(jobs, upscaler, IN_PROCESSES)
    these.start(False)
    assert sending.wait(30)
    (process,) = stuck
    while process._child._sending.acquire(blocking=False):
        process._child._sending.release()
    these.stop()
    assert not processes()
    assert not list((tmp_path / "out").iterdir())


def test_one_archive_gets_processes(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    monkeypatch.setattr(driver, "most_workers", lambda in_network, sharing: 5)
    use_network(upscaler, Doubling(), monkeypatch)
    comic(tmp_path / "in/book.cbz", 40)
    jobs = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    (outcome,) = run(jobs, upscaler, PNG)
    assert outcome.status == "done"
    assert 1 <= len(started) <= 5


def test_workers_are_added_where_the_network_is_idle(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    monkeypatch.setattr(driver, "most_workers", lambda in_network, sharing: 5)
    use_network(upscaler, Doubling(), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(40))
    outcomes = list(run(jobs, upscaler, PNG))
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len(outcomes) == 40
    assert 1 <= len(started) <= 5


def test_many_pictures_for_a_gpu_have_all_workers_at_once(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    prepare()
    monkeypatch.setattr(driver, "most_workers", lambda in_network, sharing: 5)
    monkeypatch.setattr(upscaler.engine.backend, "device", Device("GPU", "", is_gpu=True))
    busy = Doubling(lambda: time.sleep(0.05))
    use_network(upscaler, busy, monkeypatch)
    outcomes = list(run(pictures(tmp_path / "in", *small(30)), upscaler, PNG, many=True))
    assert [outcome.status for outcome in outcomes] == ["done"] * 30
    assert len(started) == 5


def test_a_machine_has_so_many_processes_at_most(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    monkeypatch.setattr(crew, "core_count", lambda: 1)
    jobs = pictures(tmp_path / "in", *small(24))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=InFlight(9, 2)))
    assert [outcome.status for outcome in outcomes] == ["done"] * 24
    assert len(started) <= crew._PROCESSES


def test_no_process_where_the_network_is_busy(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    busy = Doubling(lambda: time.sleep(0.1))
    use_network(upscaler, busy, monkeypatch)
    outcomes = list(run(pictures(tmp_path / "in", *small(12)), upscaler, PNG))
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert busy.most == 1
    assert not started


def test_slow_codecs_keep_several_calls_in_flight(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three calls meet in the network, each of another file."""
    meeting = threading.Barrier(3)
    network = Doubling(lambda: meeting.wait(30))
    use_network(upscaler, network, monkeypatch)
    jobs = pictures(tmp_path / "in", *small(9))
    outcomes = list(run(jobs, upscaler, PNG, in_flight=InFlight(6, 3)))
    assert [outcome.status for outcome in outcomes] == ["done"] * 9
    assert network.most == 3


def test_jobs_are_taken_when_they_are_wanted(tmp_path: Path, upscaler: Upscaler) -> None:
    """A list that has nothing for a while, as of a folder that is watched."""
    jobs = pictures(tmp_path / "in", *small(5))
    done = threading.Semaphore(0)

    def arriving() -> Any:
        for number, job in enumerate(jobs):
            while number > 1 and not done.acquire(timeout=0.01):
                yield None
            yield job

    names = []
    for outcome in run(arriving(), upscaler, PNG):
        names.append(outcome.job.source.name)
        done.release()
    assert sorted(names) == [f"{number}.png" for number in range(5)]


def test_memory_bounds_what_is_under_way(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With memory for less than one picture, there is one at a time."""
    network = Doubling()
    use_network(upscaler, network, monkeypatch)
    taken, whole = [], MemorySemaphore.acquire

    def counted(semaphore: MemorySemaphore, size: int, granted: Callable[[], None]) -> None:
        taken.append(size)
        whole(semaphore, size, granted)

    monkeypatch.setattr(driver, "MemorySemaphore", lambda sharing: MemorySemaphore(1))
    monkeypatch.setattr(MemorySemaphore, "acquire", counted)
    for in_flight in (InFlight(3, 3), IN_PROCESSES):
        outcomes = list(
            run(
                pictures(tmp_path / f"in{in_flight.pictures}", *small(6)),
                upscaler,
                Output("png", Quality(), "overwrite"),
                in_flight=in_flight,
            )
        )
        assert {outcome.status for outcome in outcomes} == {"done"}
    assert network.most == 1
    assert len(taken) == 12


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_files_of_many_pictures_in_processes(
    memory: int, tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pictures are under way together, come out in order, and share the memory."""
    monkeypatch.setattr(driver, "MemorySemaphore", lambda sharing: MemorySemaphore(memory))
    folder = tmp_path / "in"
    folder.mkdir()
    frames = [Image.fromarray(noise(8, 9, 3, seed=number)) for number in range(7)]
    frames[0].save(folder / "a.tiff", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "b.png", save_all=True, append_images=frames[1:], duration=70)
    with zipfile.ZipFile(folder / "c.cbz", "w") as archive:
        for number, frame in enumerate(frames):
            content = io.BytesIO()
            frame.save(content, "PNG")
            archive.writestr(f"{number}.png", content.getvalue())
    made: list[dict[str, bytes]] = []
    for in_flight in (InFlight(1, 1), InFlight(4, 3)):
        jobs = plan(folder, tmp_path / f"out{in_flight.pictures}", "tiff", False).jobs
        outcomes = list(run(jobs, upscaler, replace(PNG, extension="tiff"), in_flight=in_flight))
        assert [outcome.error for outcome in outcomes] == [""] * 3
        made.append({job.target.name: job.target.read_bytes() for job in jobs})
    assert made[0] == made[1]
    with Image.open(io.BytesIO(made[1]["a.tiff"])) as pages:
        for number, frame in enumerate(frames):
            pages.seek(number)
            expected = np.asarray(frame).repeat(2, 0).repeat(2, 1)
            np.testing.assert_array_equal(np.asarray(pages), expected)


def test_files_of_several_requests_share_workers(tmp_path: Path, upscaler: Upscaler) -> None:
    """As a page asks for them: each file by its own scale and format, all through one engine."""
    jobs = pictures(tmp_path / "in", *small(6))
    suffixes = [".png", ".webp"] * 3
    jobs = [
        replace(job, target=job.target.with_suffix(suffix))
        for job, suffix in zip(jobs, suffixes, strict=True)
    ]
    with Upscaler(4, model=str(tmp_path / "identity"), engine=upscaler.engine) as larger:
        requests = [
            FileRequest(upscaler, PNG, 10**6, 1),
            FileRequest(larger, replace(PNG, extension="webp"), 10**6, 1),
        ]
        driver = DeviceDriver(
            jobs,
            upscaler.engine,
            lambda job: requests[jobs.index(job) % 2],
            RunOptions(isolates=True),
        )
        driver.start(False)
        ended: dict[Job, Any] = {}
        while isinstance(outcome := driver.ended.get(timeout=60), Outcome):
            ended[outcome.job] = outcome
        assert outcome is None
        assert processes()
        driver.stop()
    for number, job in enumerate(jobs):
        source, made = decode(job.source.read_bytes()), decode(job.target.read_bytes())
        scale = (2, 4)[number % 2]
        height, width = source.pixels.shape[:2]
        assert made.pixels.shape[:2] == (scale * height, scale * width), ended[job]


def test_a_file_that_nobody_wants_any_more_ends(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on."""
    jobs = pictures(tmp_path / "in", *small(4))

    def unwanted(job: Job, part: float) -> None:
        if job == jobs[1]:
            raise StoppedError

    use_network(upscaler, Doubling(), monkeypatch)
    outcomes = {each.job: each for each in run(jobs, upscaler, PNG, on_progress=unwanted)}
    assert outcomes.pop(jobs[1]).error == STOPPED
    assert not jobs[1].target.exists()
    assert {each.status for each in outcomes.values()} == {"done"}


def test_where_processes_are_needed_threads_do_not_do(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChildProcess, "start", no_start)
    jobs = pictures(tmp_path / "in", *small(2))
    request = FileRequest(upscaler, PNG, 10**6, 1)
    driver = DeviceDriver(
        jobs,
        upscaler.engine,
        lambda job: request,
        RunOptions(isolates=True),
    )
    driver.start(False)
    assert isinstance(driver.ended.get(timeout=60), BackendError)
    driver.stop()
