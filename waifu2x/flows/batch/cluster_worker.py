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
    """Lets a worker ignore SIGINT; Dask calls it where this module is preloaded. The workers of
    `--cluster local` are started so: Ctrl-C in their terminal is for their client, which ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True)
class Settings:
    """What is the same for every group of a batch."""

    session: SessionSettings
    folders: tuple[Path, Path]
    """The folders of inputs and outputs: a worker has to see them."""
    version: str = __version__


@dataclass(frozen=True)
class Group:
    """Files for one worker."""

    key: str
    """The key of its task."""
    jobs: Sequence[Job]
    """None of their targets was there when the batch began, unless they may be replaced."""
    repeated: bool = False
    """Whether a worker was lost on it before, and may have finished some."""


@dataclass(frozen=True)
class Finished:
    """What became of a group."""

    worker: str
    """The address of the worker that made it."""
    device: str
    outcomes: Sequence[Outcome]
    notices: Sequence[str]
    """What the upscaler had to say when it was opened."""
    job_notices: Sequence[tuple[Job, str]]
    seconds: float
    """Time from when the upscaler was there."""


def work_on(group: Group, settings: Settings, model_files: ModelFiles | None) -> Finished:
    """Makes the files of a group, on the worker that this runs on. Where an earlier worker was lost
    on the group, its finished files stay as they are. Raises ClusterError if this worker is none
    for the batch."""
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
            session = held.enter_context(_SESSION.opened(settings.session, model_files))
        except Waifu2xError as error:
            raise ClusterError(f"worker {worker.address}: {error}") from error
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
            f"worker {address} has waifu2x {__version__}, not {settings.version}: install the same"
        )
    for folder in settings.folders:
        if not stores.is_url(folder) and not folder.is_dir():
            raise ClusterError(
                f"{folder}: worker {address} does not see this folder: give one that all machines"
                " share, or a URL"
            )


_SESSION = SessionHolder()
