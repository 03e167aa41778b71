"""A group of files on a worker of a cluster: what `cluster.py` hands out."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition
from typing import Any

from distributed import Event, get_worker

from waifu2x import __version__, stores
from waifu2x.batch.outcome import Outcome
from waifu2x.batch.run import run
from waifu2x.errors import ClusterError, Waifu2xError
from waifu2x.pipeline import Job, Output, Stages
from waifu2x.upscaler import Upscaler


def dask_setup(worker: object) -> None:
    """What Dask calls in a worker that is to load this module when it starts: those of `--cluster
    local` are, and Ctrl-C in their terminal is for their client, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


Weights = Mapping[str, bytes]
"""The files of a model that did not come with waifu2x, by their paths in a folder."""


@dataclass(frozen=True)
class Settings:
    """What is the same for every group of a batch."""

    arguments: Mapping[str, Any]
    """Of Upscaler. Where there are weights, `model` is a path in their folder."""
    key: str
    """Different for other arguments or weights: an upscaler is kept by it."""
    output: Output
    stages: tuple[int, int, int, int]
    """The arguments of Stages."""
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
    notes: list[tuple[Job, str]] = []

    def go_on(job: Job, part: float) -> None:
        # As it says where a client has cancelled a task, or is gone.
        state = worker.state.tasks.get(group.key)
        if state is None or state.state == "cancelled":
            raise _CancelledError

    with ExitStack() as held:
        try:
            upscaler = held.enter_context(_KEPT.opened(settings, weights))
        except Waifu2xError as error:
            raise ClusterError(f"worker {worker.address}: {error}") from error
        began = time.monotonic()

        def outcomes_of(jobs: Sequence[Job], output: Output) -> list[Outcome]:
            stages = Stages(*settings.stages)
            told = lambda job, note: notes.append((job, note))  # noqa: E731
            with closing(run(jobs, upscaler, output, stages, go_on, told)) as outcomes:
                return list(outcomes)

        there: set[Job] = set()
        if repeated and settings.output.existing != "overwrite":
            there = {job for job in group.jobs if _exists(job.target)}
        outcomes = outcomes_of([job for job in group.jobs if job not in there], settings.output)
        outcomes += _made_before(sorted(there, key=str), settings.output, outcomes_of)
        seconds = time.monotonic() - began
        device = upscaler.backend.device
        described = f"{upscaler.backend.name}: {device.name}, {device.detail}"
        told = upscaler.notes
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


def _made_before(
    jobs: Sequence[Job], output: Output, run: Callable[[Sequence[Job], Output], list[Outcome]]
) -> Iterator[Outcome]:
    """How jobs ended whose worker was lost before it could say so: they are made once more, into
    a folder that is thrown away, since what is in their place is not to be touched."""
    with tempfile.TemporaryDirectory(prefix="waifu2x-") as folder:
        again = {
            Job(job.source, Path(folder, str(number), job.target.name)): job
            for number, job in enumerate(jobs)
        }
        for outcome in run(list(again), output):
            yield replace(outcome, job=again[outcome.job])


class _Kept:
    """The upscaler of this process, kept from group to group, until other arguments come."""

    def __init__(self) -> None:
        self._freed = Condition()
        self._users = 0
        self._key = ""
        self._upscaler: Upscaler | None = None
        self._held = ExitStack()

    @contextmanager
    def opened(self, settings: Settings, weights: Weights | None) -> Iterator[Upscaler]:
        """An upscaler, for as long as the context lasts. Raises Waifu2xError."""
        with self._freed:
            # A worker may have threads, and these tasks of several batches.
            self._freed.wait_for(lambda: not self._users or self._key == settings.key)
            if self._upscaler is None or self._key != settings.key:
                self._upscaler = None
                self._held.close()
                self._upscaler = self._open(settings, weights)
                self._key = settings.key
            self._users += 1
            upscaler = self._upscaler
        try:
            yield upscaler
        finally:
            with self._freed:
                self._users -= 1
                self._freed.notify_all()

    def _open(self, settings: Settings, weights: Weights | None) -> Upscaler:
        arguments = dict(settings.arguments)
        if weights is not None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="waifu2x-")))
            for name, content in weights.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
            arguments["model"] = str(folder / arguments["model"])
        return self._held.enter_context(Upscaler(**arguments))


_KEPT = _Kept()
