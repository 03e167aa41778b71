"""Makes the files of a batch by the workers of a fleet. Each worker has a session open: names go
out, outcomes come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from waifu2x.api import Upscaler
from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import ClusterError
from waifu2x.flows.batch.listings import Listings
from waifu2x.flows.batch.session import Answer, ModelFiles, Session, SessionSettings, unpacked
from waifu2x.flows.fleet import processes
from waifu2x.flows.fleet.messages import Begun, Broken, Done, Failed, Noticed, Opened, Order
from waifu2x.flows.fleet.process_worker import Ahead
from waifu2x.flows.fleet.progress import Advances
from waifu2x.flows.fleet.supervisor import Settled
from waifu2x.flows.fleet.task import Left, Tell
from waifu2x.flows.jobs import Job, is_archive
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores
from waifu2x.system.lazy_dataclass import dataclass

AHEAD = Ahead(least=4, seconds=0.1)
"""Names that wait in a process of a device: each thread on a name's way may wait some milliseconds
for Python's lock."""

_FILE_BYTES = 1 << 14
"""Bytes added to the size of each file for its fixed costs."""


class FileNames(NamedTuple):
    """The names of a file to read and of the one to make of it."""

    source: str
    target: str


class FileTask:
    """A file to make."""

    def __init__(self, job: Job, weight: float) -> None:
        self.key = self._job = job
        self.weight = weight
        self.work = FileNames(str(job.source), str(job.target))

    @property
    def job(self) -> Job:
        return self._job

    @property
    def folder(self) -> Path | None:
        """Returns the folder of the target, unless it is a URL: uploads are whole or nothing."""
        target = self._job.target
        return None if stores.is_url(target) else target.resolve().parent

    def left(self) -> Left:
        """Returns the whole file: a worker that gets it again looks whether it is there."""
        return Left([self])

    def done(self, outcome: Outcome) -> Outcome:
        """Returns the outcome of the job."""
        return replace(outcome, job=self._job)

    def failed(self, why: str, *, is_blamed: bool) -> Outcome:
        """Returns the outcome of a file that cannot be made."""
        said = f"it {why}" if is_blamed else f"not made, since {why}"
        error = f"{self._job.source}: {said}"
        return Outcome(self._job, error=error, device_failed=not is_blamed)


def file_tasks(
    jobs: Iterable[Job | None], listings: Listings, weigh: Callable[[Job], float]
) -> Iterator[FileTask | Settled | None]:
    """Yields the tasks of jobs, and the outcomes of those that need no work. None stays None."""
    for job in jobs:
        if job is None:
            yield None
        elif (outcome := listings.settled(job)) is not None:
            yield Settled(outcome)
        else:
            yield FileTask(job, weigh(job))


def names_of(job: Job) -> float:
    """Returns for how many names a file counts: archives must not wait where another device is
    free."""
    return AHEAD.least if is_archive(job.source) else 1.0


def bytes_of(listings: Listings) -> Callable[[Job], float]:
    """Returns a function that returns the cost of a file in bytes."""
    return lambda job: _FILE_BYTES + listings.bytes(job)


@dataclass(frozen=True)
class SessionOpening:
    """Opens a device, and a session on it."""

    settings: SessionSettings
    model_files: ModelFiles | None = None
    fallback: bool = False
    """Whether another backend takes over when the device fails."""
    folders: tuple[Path, ...] = ()
    """Folders that the worker has to see."""

    @contextmanager
    def opened(self, tell: Tell) -> Iterator[_SessionPlace]:
        """Opens both, as `Opening`."""
        for folder in self.folders:
            if not stores.is_url(folder) and not folder.is_dir():
                raise ClusterError(
                    f"{folder}: it does not see this folder",
                    "give one that all machines share, or a URL",
                )
        if self.settings.many:
            processes.prepare()  # beside the device
        with unpacked(self.settings.arguments, self.model_files) as arguments:
            choice = [arguments.pop(name) for name in ("backend", "device", "precision")]
            with (
                Engine(*choice, fallback=self.fallback) as engine,
                Upscaler(engine=engine, **arguments) as upscaler,
            ):
                # Machines may compute in other backends.
                place = _SessionPlace(upscaler, self.settings, tell, is_one=not self.folders)
                try:
                    yield place
                finally:
                    place.close()


class _SessionPlace:
    """Makes files by a session."""

    def __init__(
        self, upscaler: Upscaler, settings: SessionSettings, tell: Tell, *, is_one: bool
    ) -> None:
        """`is_one`: all workers have to be of one backend."""
        engine = upscaler.engine
        backend = engine.backend
        described = f"{backend.name}: {backend.device.name}, {backend.device.detail}"
        notices = (*upscaler.notices, *engine.notices)
        arithmetic = backend.name if is_one else ""
        self.opened = Opened(described, arithmetic, backend.device.is_gpu, notices)
        self._tell = tell
        self._advances = Advances(tell)
        self._numbers: dict[Job, int] = {}
        self._session = Session(upscaler, settings, on_begun=self._begun, on_progress=self._advance)
        self.close = self._session.close

    def begin(self, order: Order) -> None:
        """Begins a file."""
        names: FileNames = order.work
        job = Job(stores.located(names.source), stores.located(names.target))
        self._numbers[job] = order.number
        answer = partial(self._answer, order.number)
        self._session.submit(job, answer, repeated=order.repeated)

    def withdraw(self) -> Sequence[int]:
        """Drops the files that no worker has taken."""
        return [self._numbers.pop(job) for job in self._session.withdraw()]

    def _begun(self, job: Job) -> None:
        if job in self._numbers:
            self._tell(Begun(self._numbers[job]))

    def _advance(self, job: Job, part: float) -> None:
        if job in self._numbers:
            self._advances.add(self._numbers[job], part)

    def _answer(self, number: int, answer: Answer) -> None:
        if isinstance(answer, BaseException):
            self._tell(Failed(answer))
        elif not isinstance(answer, Outcome):
            self._tell(Noticed(number, answer[1]))
        elif answer.device_failed:
            self._tell(Broken(answer.error.removeprefix(f"{answer.job.source}: ")))
        else:
            self._numbers.pop(answer.job, None)
            self._advances.drop(number)
            self._tell(Done(number, answer))
