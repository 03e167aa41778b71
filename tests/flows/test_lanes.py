"""Several files at a time: turns at the network, memory by bytes, and processes for codecs."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.contents import decode, encode, identity_models, noise
from waifu2x.api import Upscaler
from waifu2x.backends import Device, ignore
from waifu2x.errors import BackendError, DeviceError
from waifu2x.flows.batch import run as lanes
from waifu2x.flows.batch import segments
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.batch.queue import Queue, QueuedNetwork
from waifu2x.flows.batch.room import Room, needed_bytes
from waifu2x.flows.batch.run import Jobs, run
from waifu2x.flows.batch.segments import Attached, Segments, Shared
from waifu2x.flows.batch.worker import Worker, prepare
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.read import extent
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

PNG = Output("png", Quality(), "fail")
IN_PROCESSES = Jobs(4, 2)


class Doubling:
    """A network that repeats pixels, and counts who is in it at once."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.shapes: list[tuple[int, ...]] = []

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: Any,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Callable[[float], None] = ignore,
    ) -> NDArray[Any]:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.shapes.append(pixels.shape)
        try:
            self.meanwhile()
            on_progress(1.0)
            return pixels.repeat(2, axis=-3).repeat(2, axis=-2).astype(out_dtype)
        finally:
            with self.lock:
                self.inside -= 1

    def close(self) -> None:
        pass


@pytest.fixture
def upscaler(tmp_path: Path) -> Upscaler:
    identity_models(tmp_path / "identity")
    return Upscaler(2, model=str(tmp_path / "identity"), backend="numpy")


def with_network(upscaler: Upscaler, network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts another network into the place of an upscaler's."""
    monkeypatch.setattr(upscaler.backend, "compile", lambda models, precision: network)
    upscaler.enlarger.chains._networks.clear()  # type: ignore[attr-defined]


def pictures(folder: Path, *contents: Picture) -> list[Job]:
    folder.mkdir()
    for number, picture in enumerate(contents):
        (folder / f"{number}.png").write_bytes(encode(picture, "png"))
    return list(plan(folder, folder.parent / "out", "png", False).jobs)


def small(count: int) -> list[Picture]:
    return [Picture(noise(5 + number, 7, 3, seed=number)) for number in range(count)]


def by_name(outcomes: Any) -> dict[str, Outcome]:
    return {outcome.job.source.name: outcome for outcome in outcomes}


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
    told: dict[Jobs | None, list[str]] = {None: [], IN_PROCESSES: []}
    made: list[dict[str, bytes]] = []
    ended: list[list[tuple[str, str, str]]] = []
    for at_once, notes in told.items():
        outcomes = list(
            run(
                jobs,
                upscaler,
                Output("png", Quality(), "overwrite"),
                at_once=at_once,
                on_notice=lambda job, note, notes=notes: notes.append(note),  # type: ignore[misc]
            )
        )
        ended.append(sorted((o.job.target.name, o.status, o.error) for o in outcomes))
        made.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert ended[0] == ended[1]
    assert [status for _, status, _ in ended[0]].count("failed") == 1
    assert made[0] == made[1]
    assert len(made[0]) == len(jobs) - 1
    assert sorted(told[None]) == sorted(told[IN_PROCESSES])


def test_stages_are_timed_in_processes_too(tmp_path: Path, upscaler: Upscaler) -> None:
    jobs = pictures(tmp_path / "in", *small(3))
    for outcome in run(jobs, upscaler, PNG, at_once=IN_PROCESSES):
        assert {"read", "decode", "wait", "network", "encode", "write"} <= set(outcome.spent)
        assert all(seconds >= 0 for seconds in outcome.spent.values())


def test_a_process_that_dies_takes_one_picture_with_it(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = pictures(tmp_path / "in", *small(12))
    victims: list[int] = []

    def kill() -> None:
        if not victims:
            found = [child.pid for child in multiprocessing.active_children()]
            assert found[0] is not None
            victims.append(found[0])
            os.kill(found[0], signal.SIGKILL)

    with_network(upscaler, Doubling(kill), monkeypatch)
    outcomes = by_name(run(jobs, upscaler, PNG, at_once=IN_PROCESSES))
    assert len(outcomes) == len(jobs)
    (failed,) = [outcome for outcome in outcomes.values() if outcome.status == "failed"]
    assert failed.error.endswith("the process that worked on it was killed (SIGKILL)")
    assert len(list((tmp_path / "out").iterdir())) == len(jobs) - 1


def test_a_process_that_dies_before_it_has_shared_its_memory(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a message that names memory come the files of it, or the end of the connection."""
    jobs = pictures(tmp_path / "in", *small(6))
    received = Attached.receive
    died: list[object] = []

    def receive(self: Attached, *arrays: Shared) -> list[NDArray[Any]]:
        if died:
            return received(self, *arrays)
        died.append(self)
        for child in multiprocessing.active_children():
            child.kill()
        raise EOFError

    monkeypatch.setattr(Attached, "receive", receive)
    with_network(upscaler, Doubling(lambda: None), monkeypatch)
    outcomes = by_name(run(jobs, upscaler, PNG, at_once=IN_PROCESSES))
    failed = [outcome for outcome in outcomes.values() if outcome.status == "failed"]
    assert failed
    for outcome in failed:
        # How it ended is known to the first of the threads that look.
        assert re.search(r"worked on it (was killed \(SIGKILL\)|ended \()", outcome.error)


def test_a_device_that_stops_working_ends_the_work_of_processes(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise DeviceError("Fake: its driver stopped the work")

    with_network(upscaler, Doubling(fail), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(9))
    outcomes = list(run(jobs, upscaler, PNG, at_once=IN_PROCESSES))
    assert len(outcomes) == len(jobs)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert all("stopped" in outcome.error for outcome in outcomes)
    assert not list(tmp_path.glob("out/*"))


def test_a_defect_is_not_kept_from_the_caller(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with_network(upscaler, Doubling(fail), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(2))
    for at_once in (None, IN_PROCESSES):
        with pytest.raises(ZeroDivisionError):
            list(run(jobs, upscaler, PNG, at_once=at_once))


def test_notes_that_nobody_takes_end_the_work_of_processes(
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
                at_once=IN_PROCESSES,
                on_notice=broken,
            )
        )
    assert not [child for child in multiprocessing.active_children() if "worker" in child.name]


def test_memory_that_cannot_be_shared_fails_a_picture(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, taken = recv_handle, threading.Semaphore(1)

    def without_room(connection: Any) -> int:
        if taken.acquire(blocking=False):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return whole(connection)

    monkeypatch.setattr(segments, "recv_handle", without_room)
    jobs = pictures(tmp_path / "in", *small(8))
    outcomes = list(run(jobs, upscaler, PNG, at_once=IN_PROCESSES))
    (failed,) = [outcome for outcome in outcomes if outcome.status == "failed"]
    assert "cannot share its memory: [Errno 24] Too many open files" in failed.error
    assert len(list((tmp_path / "out").iterdir())) == len(outcomes) - 1 == 7


def test_threads_do_what_processes_cannot(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a container has all the processes and threads that it may have."""
    started: list[int] = []
    start = threading.Thread.start

    def refuse(*arguments: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def start_two(thread: threading.Thread) -> None:
        if thread.name.startswith("waifu2x-lane"):
            started.append(1)
            if len(started) > 2:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(lanes, "Worker", refuse)
    monkeypatch.setattr(threading.Thread, "start", start_two)
    jobs = pictures(tmp_path / "in", *small(6))
    outcomes = list(run(jobs, upscaler, PNG, at_once=IN_PROCESSES))
    assert [outcome.status for outcome in outcomes] == ["done"] * 6


def test_an_interrupt_while_lanes_begin(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = lanes._Lanes.start

    def interrupted(these: Any, all_at_once: bool) -> None:
        whole(these, all_at_once)
        raise KeyboardInterrupt

    monkeypatch.setattr(lanes._Lanes, "start", interrupted)
    with_network(upscaler, Doubling(lambda: time.sleep(0.05)), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(60))
    with pytest.raises(KeyboardInterrupt):
        next(run(jobs, upscaler, PNG))
    assert not [each for each in threading.enumerate() if each.name.startswith("waifu2x-lane")]
    assert len(list(tmp_path.glob("out/*"))) < len(jobs)


def test_closing_stops_processes(tmp_path: Path, upscaler: Upscaler) -> None:
    jobs = pictures(tmp_path / "in", *small(30))
    outcomes = run(jobs, upscaler, PNG, at_once=IN_PROCESSES)
    next(outcomes)
    outcomes.close()
    assert not [child for child in multiprocessing.active_children() if "worker" in child.name]
    made = list((tmp_path / "out").iterdir())
    assert len(made) < len(jobs)
    for path in made:
        decode(path.read_bytes(), path.name)


def test_lanes_grow_where_the_network_is_idle(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    whole = Worker

    def counted(*arguments: Any) -> Any:
        started.append(1)
        return whole(*arguments)

    monkeypatch.setattr(lanes, "Worker", counted)
    monkeypatch.setattr(lanes, "_most_lanes", lambda in_network: 5)
    with_network(upscaler, Doubling(), monkeypatch)
    jobs = pictures(tmp_path / "in", *small(40))
    outcomes = list(run(jobs, upscaler, PNG))
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len(outcomes) == 40
    assert 1 <= len(started) <= 5


def test_many_pictures_for_a_gpu_have_all_lanes_at_once(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    whole = Worker

    def counted(*arguments: Any) -> Any:
        started.append(1)
        return whole(*arguments)

    prepare()
    monkeypatch.setattr(lanes, "Worker", counted)
    monkeypatch.setattr(lanes, "_most_lanes", lambda in_network: 5)
    monkeypatch.setattr(upscaler.backend, "device", Device("GPU", "", is_gpu=True))
    busy = Doubling(lambda: time.sleep(0.05))
    with_network(upscaler, busy, monkeypatch)
    outcomes = list(run(pictures(tmp_path / "in", *small(30)), upscaler, PNG, many=True))
    assert [outcome.status for outcome in outcomes] == ["done"] * 30
    assert 2 <= len(started) <= 5


def test_a_machine_has_so_many_processes_at_most(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    whole = Worker

    def counted(*arguments: Any) -> Any:
        started.append(1)
        return whole(*arguments)

    monkeypatch.setattr(lanes, "Worker", counted)
    monkeypatch.setattr(lanes, "core_count", lambda: 1)
    jobs = pictures(tmp_path / "in", *small(24))
    outcomes = list(run(jobs, upscaler, PNG, at_once=Jobs(9, 2)))
    assert [outcome.status for outcome in outcomes] == ["done"] * 24
    assert len(started) <= lanes._PROCESSES


def test_devices_that_are_half_busy_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six calls keep two devices busy, four almost do; three are too few."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    queue = Queue(6)
    now[0] = 10.0
    assert queue.idle_seconds() == 0.0  # before the first call
    for calls in range(1, 7):
        queue._count(1)
        now[0] += 1.0
        assert queue.idle_seconds() == min(calls, 3)
    for _ in range(3):
        queue._count(-1)
    now[0] += 5.0
    assert queue.idle_seconds() == 8.0


def test_pictures_are_freed_at_once(tmp_path: Path) -> None:
    """Not when Python happens to look for cycles: they are large, and their pages are locked."""
    network = QueuedNetwork(Doubling(), Queue(1))
    pixels = noise(4, 5, 3)
    gc.disable()
    try:
        result = network(pixels, np.uint8)
        seen = [weakref.ref(pixels), weakref.ref(result)]
        del pixels, result
        assert all(each() is None for each in seen)
    finally:
        gc.enable()


def test_no_process_where_the_network_is_busy(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "Worker", None)
    busy = Doubling(lambda: time.sleep(0.1))
    with_network(upscaler, busy, monkeypatch)
    outcomes = list(run(pictures(tmp_path / "in", *small(12)), upscaler, PNG))
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert busy.most == 1


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
    """With room for less than one picture, there is one at a time."""
    decoding = threading.Lock()
    network = Doubling()
    with_network(upscaler, network, monkeypatch)
    taken, whole = [], Room.taken

    def counted(room: Room, size: int) -> Any:
        taken.append(size)
        return whole(room, size)

    monkeypatch.setattr(lanes, "Room", lambda: Room(1))
    monkeypatch.setattr(Room, "taken", counted)
    network.meanwhile = lambda: decoding.release() if decoding.acquire(blocking=False) else 1 / 0
    for at_once in (Jobs(3, 3), IN_PROCESSES):
        outcomes = list(
            run(
                pictures(tmp_path / f"in{at_once.pictures}", *small(6)),
                upscaler,
                Output("png", Quality(), "overwrite"),
                at_once=at_once,
            )
        )
        assert {outcome.status for outcome in outcomes} == {"done"}
    assert network.most == 1
    assert len(taken) == 12


@pytest.mark.parametrize("named", [False, True])
def test_two_processes_see_the_same_arrays(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named memory is what other systems than Linux have."""
    if named:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    one, other = multiprocessing.Pipe()
    mine, theirs = Segments(one), Attached(other)
    numbers = []
    for size in (3, 5000, 5000, 4000, 7, 5000):
        array, told = mine.array((size, 3), np.uint16)
        mine.send(told)
        (seen,) = theirs.receive(told)
        array[:] = noise(size, 3)
        np.testing.assert_array_equal(seen, array)
        seen[-1] = 65535
        assert (array[-1] == 65535).all()
        numbers.append(told.segment)
        del array, seen
    # Memory that nobody holds any more is used again, where it is not far too large.
    assert numbers == [1, 2, 2, 2, 1, 2]
    held, told = mine.array((5000, 3), np.uint16)
    mine.send(told)
    another, told_too = mine.array((5000, 3), np.uint16)
    mine.send(told_too)
    assert told.segment != told_too.segment
    theirs.receive(told, told_too)
    monkeypatch.setattr(segments, "_KEPT_BYTES", 0)
    del held, another
    gone = mine.dropped()
    assert sorted(gone) == [1, 2, 3]
    theirs.drop(gone)
    assert mine.array((2, 2), np.uint8)[1].is_new


def test_room_is_given_in_order_and_never_beyond_its_size() -> None:
    room = Room(10)
    order: list[int] = []
    inside, most = 0, 0
    lock = threading.Lock()
    gate = threading.Event()

    def work(size: int) -> None:
        nonlocal inside, most
        with room.taken(size):
            with lock:
                order.append(size)
                inside += size
                most = max(most, inside)
            gate.wait(10)
            with lock:
                inside -= size

    sizes = [6, 4, 7, 1, 30, 2, 8]
    with ThreadPoolExecutor(len(sizes)) as pool:
        futures = []
        for number, size in enumerate(sizes):
            futures.append(pool.submit(work, size))
            while len(order) + len(room._waiting) <= number:
                time.sleep(0.001)
        assert order == [6, 4]  # 1 would fit beside them, but 7 came before
        gate.set()
        for future in futures:
            future.result()
    assert sorted(order) == sorted(sizes)
    assert most == 30  # which nobody else was beside
    assert room._taken == 0


@pytest.mark.parametrize("extension", ["png", "jpg", "gif", "bmp", "tiff", "webp", "ppm", "tga"])
@pytest.mark.parametrize("planes", [1, 3])
def test_files_tell_how_much_memory_they_take(extension: str, planes: int) -> None:
    content = encode(Picture(noise(20, 31, planes)), extension)
    found = extent(content)
    assert found is not None
    assert (found.height, found.width) == (20, 31)
    decoded = decode(content, "p").pixels
    assert found.nbytes >= decoded.nbytes or decoded.shape[-1] > planes


def test_the_memory_of_a_picture_counts_its_result(upscaler: Upscaler, tmp_path: Path) -> None:
    content = encode(Picture(noise(100, 300, 3)), "png")
    pixels = 100 * 300 * 3
    enlarger = upscaler.enlarger
    assert needed_bytes(content, enlarger) == len(content) + pixels * (1 + 4)
    with Upscaler(1.5, model=str(tmp_path / "identity"), backend="numpy") as resized:
        assert needed_bytes(content, resized.enlarger) > len(content) + pixels * 4 * 4
    assert needed_bytes(b"no picture", enlarger) >= 10
    # What would be refused for its size is found out by who decodes it.
    with Upscaler(width=99999, model=str(tmp_path / "identity"), backend="numpy") as refusing:
        assert needed_bytes(content, refusing.enlarger) == len(content) + pixels


def test_small_pictures_of_one_size_are_one_call() -> None:
    gate = threading.Event()
    network = Doubling(lambda: gate.wait(10))
    queue = Queue(1)
    queued = QueuedNetwork(network, queue)
    pixels = [noise(4, 6, 3, seed=number) for number in range(5)]
    other = noise(5, 6, 3)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(queued, pixels[0], np.uint8)
        while not network.inside:
            time.sleep(0.001)
        futures = []
        for number, picture in enumerate([pixels[1], other, *pixels[2:]]):
            futures.append(pool.submit(queued, picture, np.uint8))
            while len(queue._waiting) <= number:
                time.sleep(0.001)
        gate.set()
        results = [first.result(), *(future.result() for future in futures)]
    for picture, result in zip([pixels[0], pixels[1], other, *pixels[2:]], results, strict=True):
        np.testing.assert_array_equal(result, picture.repeat(2, 0).repeat(2, 1))
    assert network.shapes == [(4, 6, 3), (4, 4, 6, 3), (5, 6, 3)]
    assert network.most == 1


def test_an_error_of_a_stack_reaches_all_of_it() -> None:
    gate = threading.Event()

    def fail() -> None:
        gate.wait(10)
        raise BackendError("no memory")

    network, queue = Doubling(fail), Queue(1)
    queued = QueuedNetwork(network, queue)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(queued, noise(4, 6, 3), np.uint8) for _ in range(3)]
        while len(queue._waiting) < 2:
            time.sleep(0.001)
        gate.set()
        for future in futures:
            with pytest.raises(BackendError, match="no memory"):
                future.result()
    assert len(network.shapes) == 2
    np.testing.assert_array_equal(
        QueuedNetwork(Doubling(), queue)(noise(2, 2, 3), np.uint8),
        noise(2, 2, 3).repeat(2, 0).repeat(2, 1),
    )


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_calls_run_at_a_time(at_once: int) -> None:
    meeting = threading.Barrier(at_once)
    network = Doubling(lambda: meeting.wait(10))
    queued = QueuedNetwork(network, Queue(at_once))
    with ThreadPoolExecutor(9) as pool:
        sizes = [noise(3 + number, 4, 3) for number in range(9)]
        results = list(pool.map(lambda pixels: queued(pixels, np.uint8), sizes))
    assert [result.shape[0] for result in results] == [2 * len(pixels) for pixels in sizes]
    assert network.most == at_once
