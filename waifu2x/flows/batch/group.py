"""A group of files on a worker of a cluster: what `cluster.py` hands out."""

from __future__ import annotations

import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from distributed import Event, get_worker

from waifu2x import __version__
from waifu2x.api import Upscaler
from waifu2x.errors import ClusterError, Waifu2xError
from waifu2x.flows.batch.driver import InFlight
from waifu2x.flows.batch.run import run
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores


def dask_setup(worker: object) -> None:
    """What Dask calls in a worker that is to load this module when it starts: those of `--cluster
    local` are, and Ctrl-C in their terminal is for their client, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


_LOOK_SECONDS = 0.5
"""Between looks at whether anybody still waits."""
Weights = Mapping[str, bytes]
"""The files of a model that did not come with waifu2x, by their paths in a folder."""


@dataclass(frozen=True)
class Settings:
    """What is the same for every group of a batch."""

    arguments: Mapping[str, Any]
    """Of Upscaler. Where there are weights, `model` is a path in their folder."""
    output: Output
    in_flight: InFlight | None
    max_pixels: int
    """These three are for `run`."""
    key: str
    """Different where anything above is, or the weights: what works is kept by it."""
    folders: tuple[Path, Path]
    """Of inputs and outputs: a worker has to see them."""
    version: str = __version__


@dataclass(frozen=True)
class Group:
    """Files for one worker."""

    key: str
    """Of the task."""
    jobs: Sequence[Job]
    """None of their targets was there when the batch began, unless they may be replaced."""
    repeated: bool = False
    """Whether a worker was lost on it before, and may have finished some."""


@dataclass(frozen=True)
class Finished:
    """What became of a group."""

    worker: str
    """Its address."""
    device: str
    outcomes: Sequence[Outcome]
    notes: Sequence[str]
    """Those of the upscaler."""
    job_notes: Sequence[tuple[Job, str]]
    seconds: float
    """From when the upscaler was there."""


def work_on(group: Group, settings: Settings, weights: Weights | None) -> Finished:
    """Makes the files of a group, on the worker that this runs on.

    Where an earlier worker was lost on the group, its finished files stay as they are.
    Raises ClusterError if this worker is none for the batch.
    """
    worker = get_worker()
    _check(settings, worker.address)
    # The scheduler remembers, whatever becomes of this worker.
    begun = Event(group.key)
    repeated = group.repeated or begun.is_set()
    begun.set()

    def is_wanted() -> bool:
        # So the worker notes that a client has cancelled a task, or is gone.
        task = worker.state.tasks.get(group.key)
        return task is not None and task.state != "cancelled"

    with ExitStack() as held:
        try:
            lasting = held.enter_context(_KEPT.opened(settings, weights))
        except Waifu2xError as error:
            raise ClusterError(f"worker {worker.address}: {error}") from error
        began = time.monotonic()
        there: set[Job] = set()
        if repeated and settings.output.existing != "overwrite":
            there = {job for job in group.jobs if _exists(job.target)}
        outcomes, notes = lasting.make([job for job in group.jobs if job not in there], is_wanted)
        outcomes += _made_before(
            [job for job in group.jobs if job in there], lasting.upscaler, settings
        )
        seconds = time.monotonic() - began
        device = lasting.upscaler.engine.backend.device
        described = f"{lasting.upscaler.engine.backend.name}: {device.name}, {device.detail}"
        told = lasting.upscaler.notes
    return Finished(worker.address, described, outcomes, told, notes, seconds)


class _CancelledError(Exception):
    """Ends the work on a group that nobody waits for."""


def _check(settings: Settings, address: str) -> None:
    if settings.version != __version__:
        raise ClusterError(
            f"worker {address} has waifu2x {__version__}, not {settings.version}: install the same"
        )
    for folder in settings.folders:
        if not stores.is_url(folder) and not folder.is_dir():
            raise ClusterError(
                f"{folder}: worker {address} does not see this folder: give one that all machines"
                " share, or a URL"
            )


def _exists(path: Path) -> bool:
    if not stores.is_url(path):
        return path.exists()
    try:
        stores.stat(path)
    except OSError:
        return False
    return True


def _made_before(jobs: Sequence[Job], upscaler: Upscaler, settings: Settings) -> Iterator[Outcome]:
    """How jobs ended whose worker was lost before it could say so: they are made once more, into
    a folder that is thrown away, since what is in their place is not to be touched."""
    if not jobs:
        return
    output = replace(settings.output, existing="overwrite")
    with tempfile.TemporaryDirectory(prefix="waifu2x-") as folder:
        again = {
            Job(job.source, Path(folder, str(number), job.target.name)): job
            for number, job in enumerate(jobs)
        }
        outcomes = run(
            again, upscaler, output, in_flight=settings.in_flight, max_pixels=settings.max_pixels
        )
        for outcome in outcomes:
            yield replace(outcome, job=again[outcome.job])


class _Lasting:
    """One `run` for group after group: its lanes, and their processes, stay."""

    def __init__(self, upscaler: Upscaler, settings: Settings) -> None:
        self.upscaler = upscaler
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """None: there will be no more."""
        self._lock = threading.Lock()
        self._waiting: dict[Job, list[_Answers]] = {}
        """Who is to be told of a job: several, where batches share a folder."""
        self._outcomes = run(
            self._given(),
            upscaler,
            settings.output,
            in_flight=settings.in_flight,
            max_pixels=settings.max_pixels,
            on_progress=self._go_on,
            on_notice=self._on_notice,
        )
        self.broken = False
        """Whether its device has stopped working: nothing more comes of it."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="waifu2x-groups")
        self._thread.start()

    def make(
        self, jobs: Sequence[Job], is_wanted: Callable[[], bool]
    ) -> tuple[list[Outcome], list[tuple[Job, str]]]:
        """The outcomes of jobs, and what there is to note. Raises _CancelledError."""
        answers: _Answers = queue.SimpleQueue()
        with self._lock:
            for job in jobs:
                self._waiting.setdefault(job, []).append(answers)
        for job in jobs:
            self._jobs.put(job)
        outcomes: list[Outcome] = []
        notes: list[tuple[Job, str]] = []
        while len(outcomes) < len(jobs):
            try:
                answer = answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if not is_wanted():
                    raise _CancelledError from None
                continue
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Outcome):
                outcomes.append(answer)
                self.broken |= answer.device_failed
            else:
                notes.append(answer)
        return outcomes, notes

    def close(self) -> None:
        """Drops what is not finished."""
        self._ended.set()
        self._jobs.put(None)
        self._thread.join()

    def _given(self) -> Iterator[Job | None]:
        # The process ends when all its threads have.
        while threading.main_thread().is_alive():
            try:
                job = self._jobs.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                yield None
                continue
            if job is None:
                return
            yield job

    def _tell(self) -> None:
        error: BaseException = _CancelledError()
        try:
            with closing(self._outcomes):
                for outcome in self._outcomes:
                    self._answers_of(outcome.job).put(outcome)
        except BaseException as raised:
            error = raised
        with self._lock:
            for answers in chain.from_iterable(self._waiting.values()):
                answers.put(error)

    def _answers_of(self, job: Job) -> _Answers:
        with self._lock:
            waiting = self._waiting[job]
            answers = waiting.pop(0)
            if not waiting:
                del self._waiting[job]
            return answers

    def _go_on(self, job: Job, part: float) -> None:
        if self._ended.is_set():
            raise _CancelledError

    def _on_notice(self, job: Job, note: str) -> None:
        with self._lock:
            self._waiting[job][0].put((job, note))


_Answers = queue.SimpleQueue[Outcome | tuple[Job, str] | BaseException]


class _Kept:
    """What works in this process, kept from group to group, until other settings come."""

    def __init__(self) -> None:
        self._freed = threading.Condition()
        self._users = 0
        self._key = ""
        self._lasting: _Lasting | None = None
        self._held = ExitStack()

    @contextmanager
    def opened(self, settings: Settings, weights: Weights | None) -> Iterator[_Lasting]:
        """What works, for as long as the context lasts. Raises Waifu2xError."""
        with self._freed:
            # A worker may have several threads, and these the groups of several batches.
            self._freed.wait_for(lambda: not self._users or self._key == settings.key)
            if self._lasting is None or self._key != settings.key:
                self._close()
                self._lasting = self._open(settings, weights)
                self._key = settings.key
            self._users += 1
            lasting = self._lasting
        sound = False
        try:
            yield lasting
            sound = not lasting.broken
        finally:
            with self._freed:
                self._users -= 1
                if not (sound or self._users):
                    self._close()
                self._freed.notify_all()

    def _open(self, settings: Settings, weights: Weights | None) -> _Lasting:
        arguments = dict(settings.arguments)
        if weights is not None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="waifu2x-")))
            for name, content in weights.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
            arguments["model"] = str(folder / arguments["model"])
        upscaler = self._held.enter_context(Upscaler(**arguments))
        lasting = _Lasting(upscaler, settings)
        self._held.callback(lasting.close)
        return lasting

    def _close(self) -> None:
        self._lasting = None
        self._held.close()


_KEPT = _Kept()
