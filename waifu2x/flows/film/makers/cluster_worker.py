"""Makes a run of parts of a film on a worker of a Dask cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from distributed import get_worker

from waifu2x import __version__
from waifu2x.errors import BackendError, ClusterError, Waifu2xError
from waifu2x.flows.batch.session import CancelledError
from waifu2x.flows.film.frames.frame_device import Enlarging, FrameDevice
from waifu2x.flows.film.makers.run_maker import make_run
from waifu2x.flows.film.parts import part_files
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun, missing_runs, runs_within
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.fleet.processes import may_start_processes
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.lazy_dataclass import dataclass

_LOOK_SECONDS = 0.5
"""Seconds between two looks at whether the task is still wanted."""


@dataclass(frozen=True)
class FilmTask:
    """The settings of all runs of a film."""

    key: str
    """Unique for each film; what a worker has open is kept by it."""
    source: Path
    identity: Mapping[str, str]
    film: Film
    shape: Shape
    enlarging: Enlarging
    version: str = __version__


class WorkerDevice(NamedTuple):
    worker: str
    arithmetic: str
    is_gpu: bool
    described: str


class RunMade(NamedTuple):
    worker: str
    has_ended: bool
    frames: int
    computed: int
    failure: str = ""
    """Why its device can make no more parts of the film; the run was not made."""


def kept(task: FilmTask) -> FilmTask:
    """Returns its argument: a result of a Dask task is sent once, and again if a worker is lost."""
    return task


def device_of(task: FilmTask) -> WorkerDevice:
    """Opens the device of this worker. Raises ClusterError."""
    address = get_worker().address
    with _HELD.opened(task, address) as (_, device):
        return WorkerDevice(address, device.arithmetic, device.is_gpu, device.described)


def make_parts(run: PartRun, work: FilmWork, task: FilmTask, arithmetic: str, key: str) -> RunMade:
    """Makes the missing parts of a run: a worker that was lost may have made some. `key` is that of
    the Dask task. Raises ClusterError if this worker cannot make the film, and as `make_run`."""
    worker = get_worker()
    frames = computed = 0
    looked = time.monotonic()

    def count(more: int, made: int) -> None:
        nonlocal frames, computed, looked
        frames, computed = frames + more, computed + made
        if time.monotonic() - looked > _LOOK_SECONDS:
            looked = time.monotonic()
            # A worker notes here that the client has cancelled a task, or is gone.
            state = worker.state.tasks.get(key)
            if state is None or state.state == "cancelled":
                raise CancelledError

    with _HELD.opened(task, worker.address) as (reader, device):
        if device.arithmetic != arithmetic:  # it came later, or has lost a device
            why = f"it computes in {device.arithmetic}, not {arithmetic} as others do"
            return RunMade(worker.address, False, 0, 0, why)
        if not work.folder.is_dir():
            raise _unseen(work.folder, worker.address)
        there = part_files.all_recorded(work.folder, run.first, run.until)
        has_ended = any(told.following is None for told in there.values())
        missing = missing_runs(there, run.first, work.part_ticks).runs
        for left in runs_within(missing, run.first, run.until):
            before = run.before if left.first == run.first else left.before
            wanted = PartRun(left.first, left.until, before, run.is_sought)
            try:
                has_ended |= make_run(reader, work, wanted, device, count)
            except BackendError as error:
                _HELD.drop()
                return RunMade(worker.address, False, 0, 0, str(error))
    frames += sum(len(told.encoded.pts) for told in there.values())
    computed += sum(told.computed for told in there.values())
    return RunMade(worker.address, has_ended, frames, computed)


def _unseen(path: Path, address: str) -> ClusterError:
    return ClusterError(
        f"{path}: worker {address} does not see it", "use paths that all machines share"
    )


class _Holder:
    """The film and the device that this process has open, for one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = ""
        self._held = ExitStack()
        self._open: tuple[FilmReader, FrameDevice] | None = None

    @contextmanager
    def opened(self, task: FilmTask, address: str) -> Iterator[tuple[FilmReader, FrameDevice]]:
        """Opens a reader of the film and the device while the context lasts. After an error in it,
        they are opened anew."""
        with self._lock:
            if self._open is None or self._key != task.key:
                self._close()
                _check(task, address)
                try:
                    self._open = self._opened(task)
                except Waifu2xError as error:
                    raise ClusterError(error.sentence.of(f"worker {address}")) from error
                self._key = task.key
            sound = False
            try:
                yield self._open
                sound = True
            finally:
                if not sound:
                    self._close()

    def drop(self) -> None:
        """Closes both within the context, so that they are opened anew."""
        self._close()

    def _opened(self, task: FilmTask) -> tuple[FilmReader, FrameDevice]:
        device = self._held.enter_context(task.enlarging.opened(task.film, task.shape))
        reader = FilmReader(task.source, device.pin, start=task.film.start)
        return self._held.enter_context(reader), device

    def _close(self) -> None:
        self._open = None
        self._held.close()


def _check(task: FilmTask, address: str) -> None:
    if task.version != __version__:
        raise ClusterError(
            f"worker {address} has waifu2x {__version__}, not {task.version}", "install the same"
        )
    if not may_start_processes():
        raise ClusterError(
            f"worker {address} may not start processes, and films are read by one",
            "start it with `DASK_DISTRIBUTED__WORKER__DAEMON=False dask worker`",
        )
    try:
        identity = part_files.source_identity(task.source)
    except OSError as error:
        raise _unseen(task.source, address) from error
    if identity != task.identity:
        raise ClusterError(f"{task.source}: worker {address} sees another file there")


_HELD = _Holder()
