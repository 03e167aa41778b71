"""Makes a group of files on a worker of a Dask cluster."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from distributed import Event, get_worker

from waifu2x import __version__
from waifu2x.errors import ClusterError, Waifu2xError
from waifu2x.flows.batch.session import ModelFiles, SessionHolder, SessionSettings
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores
from waifu2x.system.lazy_dataclass import dataclass


def dask_setup(worker: object) -> None:
    """Makes a worker ignore SIGINT; Dask calls it where this module is preloaded. The workers of
    `--cluster local` share a terminal with their client, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True)
class Settings:
    """Settings of every group of a batch."""

    session: SessionSettings
    folders: tuple[Path, Path]
    """Folders of inputs and outputs, which a worker has to see."""
    version: str = __version__


@dataclass(frozen=True)
class Group:
    """Files for one worker."""

    key: str
    """The key of its Dask task."""
    jobs: Sequence[Job]
    """Their targets did not exist when the batch began, unless they may be replaced."""
    repeated: bool = False
    """Whether a worker was lost on it, which may have finished some."""


@dataclass(frozen=True)
class Finished:
    """The result of a group."""

    worker: str
    """Address of its worker."""
    device: str
    outcomes: Sequence[Outcome]
    notices: Sequence[str]
    """Notices of the upscaler."""
    job_notices: Sequence[tuple[Job, str]]
    seconds: float
    """Seconds since the upscaler was open."""


def work_on(group: Group, settings: Settings, model_files: ModelFiles | None) -> Finished:
    """Makes the files of a group on this worker. Files that a lost worker has finished stay. Raises
    ClusterError if this worker cannot take part."""
    worker = get_worker()
    _check(settings, worker.address)
    # The scheduler keeps this even if the worker is lost.
    begun = Event(group.key)
    repeated = group.repeated or begun.is_set()
    begun.set()

    def is_wanted() -> bool:
        # A worker notes here that the client has cancelled a task, or is gone.
        task = worker.state.tasks.get(group.key)
        return task is not None and task.state != "cancelled"

    with ExitStack() as held:
        try:
            session = held.enter_context(_SESSION.opened(settings.session, model_files))
        except Waifu2xError as error:
            raise ClusterError(error.sentence.of(f"worker {worker.address}")) from error
        began = time.monotonic()
        outcomes, notices = session.make(group.jobs, is_wanted, repeated=repeated)
        seconds = time.monotonic() - began
        device = session.upscaler.engine.backend.device
        described = f"{session.upscaler.engine.backend.name}: {device.name}, {device.detail}"
        told = session.upscaler.notices
    return Finished(worker.address, described, outcomes, told, notices, seconds)


def _check(settings: Settings, address: str) -> None:
    if settings.version != __version__:
        raise ClusterError(
            f"worker {address} has waifu2x {__version__}, not {settings.version}",
            "install the same",
        )
    for folder in settings.folders:
        if not stores.is_url(folder) and not folder.is_dir():
            raise ClusterError(
                f"{folder}: worker {address} does not see this folder",
                "give one that all machines share, or a URL",
            )


_SESSION = SessionHolder()
