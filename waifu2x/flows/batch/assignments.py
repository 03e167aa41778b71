"""What a driver's workers make: requests, files and pages, with their memory and calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from waifu2x.api import Upscaler
from waifu2x.backends import Progress
from waifu2x.flows.batch.codec import CodecTask
from waifu2x.flows.jobs import Job, Output
from waifu2x.imaging.enlarger import Networks
from waifu2x.imaging.sizes import MOST
from waifu2x.networks.chains import FactTable
from waifu2x.system import stores
from waifu2x.system.files import clear_folder, remove_unfinished
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage

_IN_FLIGHT = 4
"""Pictures of one file that are under way at a time, at most."""


class FileRequest:
    """What is the same for files that are made alike. Threads may share it."""

    def __init__(
        self, upscaler: Upscaler, output: Output, max_pixels: int, in_network: int
    ) -> None:
        """`in_network` is how many pictures are in the network at a time."""
        enlarger = upscaler.enlarger
        self.networks: Networks = upscaler.networks
        self.task = CodecTask(
            enlarger.facts,
            enlarger.request,
            enlarger.noise,
            enlarger.limits,
            output,
            max_pixels,
            min(in_network + 1, _IN_FLIGHT),
        )
        """What threads are told of it."""
        self._lock = threading.Lock()
        self._told: CodecTask | None = None

    def task_for(self, is_process: bool) -> CodecTask:
        """What a worker is told of it."""
        if not is_process:
            return self.task
        with self._lock:
            self._told = self._told or self._process_task()
            return self._told

    def _process_task(self) -> CodecTask:
        """The task, with facts that need no models: of the scales that pictures may grow by."""
        task = self.task
        scales = [Fraction(scale) for scale in range(1, MOST + 1)]
        if task.request.scale is not None:
            scales = [task.request.scale]
        levels = {task.noise} | (task.limits.levels if task.limits else frozenset())
        return replace(task, facts=FactTable.of(task.facts, levels, scales))


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
