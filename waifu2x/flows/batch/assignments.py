"""What a driver's workers are at: files and pages, their memory and their calls."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.backends import Progress
from waifu2x.flows.batch.request import FileRequest
from waifu2x.flows.jobs import Job
from waifu2x.system import stores
from waifu2x.system.files import is_temporary, remove_abandoned, remove_unfinished
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage


@dataclass(eq=False)
class WantedPage:
    """A page that the owner of an archive waits for."""

    job: Job
    """The archive's."""
    request: FileRequest
    name: str
    content: bytes
    on_progress: Progress
    """Told of parts that add up to 1; raises StoppedError once the page is not wanted."""
    answer: queue.SimpleQueue[ArchivePage | Exception] = field(default_factory=queue.SimpleQueue)


@dataclass(eq=False)
class Assignment:
    """A file that a worker makes, or a page of an archive."""

    job: Job
    """The file's, or the archive's."""
    request: FileRequest
    page: WantedPage | None
    on_progress: Progress
    memory: dict[int, tuple[int, Callable[[], None]]] = field(default_factory=dict)
    """Bytes that it has or waits for, by the number of the report, and what is called when they are
    there."""
    progress: float = 0.0
    """The part that has been told of."""
    waited: float = 0.0
    """Seconds that its calls waited for the network."""
    is_over: bool = False


@dataclass(eq=False)
class Pending:
    """An offer whose calls are not all done."""

    number: int
    left: int
    error: Exception | None = None
    is_recomputed: bool = False


def with_wait(spent: Mapping[str, float], waited: float) -> Mapping[str, float]:
    """Seconds by stage, with the time that was waited for a turn at the network told apart."""
    if "network" not in spent:
        return spent
    network = max(0.0, spent["network"] - waited)
    return {**spent, "wait": spent.get("wait", 0.0) + waited, "network": network}


def clear_job(job: Job, is_process: bool) -> None:
    """Removes what a worker that was stopped has left of its file."""
    if stores.is_url(job.target):
        return  # uploads are whole or nothing
    if is_process:
        clear_folder(job.target.resolve().parent)
    else:
        remove_unfinished(job.target)


def clear_folder(folder: Path) -> None:
    """Removes what processes that have ended have left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for path in [entry.path for entry in entries if is_temporary(entry.name)]:
            remove_abandoned(Path(path))
