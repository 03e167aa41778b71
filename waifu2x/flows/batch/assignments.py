"""The tasks of a driver's workers: requests, files and pages, with their memory and calls."""

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
"""The most pictures of one file that are under way."""


class FileRequest:
    """Settings of files that are made alike. Threads may share it."""

    def __init__(
        self, upscaler: Upscaler, output: Output, max_pixels: int, in_network: int
    ) -> None:
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
        """For workers that are threads."""
        self._lock = threading.Lock()
        self._told: CodecTask | None = None

    def task_for(self, is_process: bool) -> CodecTask:
        """Returns the task for a worker."""
        if not is_process:
            return self.task
        with self._lock:
            self._told = self._told or self._process_task()
            return self._told

    def _process_task(self) -> CodecTask:
        """Returns the task as a codec process gets it: with facts about models for all scales that
        may be asked for, since the process reads no models."""
        task = self.task
        scales = [Fraction(scale) for scale in range(1, MOST + 1)]
        if task.request.scale is not None:
            scales = [task.request.scale]
        levels = {task.noise} | (task.limits.levels if task.limits else frozenset())
        return replace(task, facts=FactTable.of(task.facts, levels, scales))


@dataclass(eq=False)
class WantedPage:
    """A page that the owner of an archive waits for."""

    name: str
    content: bytes
    answer: queue.SimpleQueue[ArchivePage | Exception] = field(default_factory=queue.SimpleQueue)


@dataclass(eq=False)
class Assignment:
    """A file or page that a worker makes, or that waits for one."""

    job: Job
    """The file's or the archive's."""
    request: FileRequest
    page: WantedPage | None
    on_progress: Progress
    """Gets parts that add up to 1; raises StoppedError once the file or page is unwanted."""
    lost: int = 0
    """Processes that have ended while they worked on it."""
    told: float = 0.0
    """The reported part."""
    memory: tuple[int, Callable[[], None]] | None = None
    """Granted or awaited bytes, and the call that grants them."""
    progress: float = 0.0
    """The part that this worker has done."""
    waited: float = 0.0
    """Seconds that its calls waited for the network."""
    is_over: bool = False


def with_wait(spent: Mapping[str, float], waited: float) -> Mapping[str, float]:
    """Returns the seconds by stage with those of waiting for the network taken out of it."""
    if "network" not in spent:
        return spent
    network = max(0.0, spent["network"] - waited)
    return {**spent, "wait": spent.get("wait", 0.0) + waited, "network": network}


def clear_job(job: Job, is_process: bool) -> None:
    """Removes the unfinished file of a stopped worker."""
    if stores.is_url(job.target):
        return  # uploads are whole or nothing
    if is_process:
        clear_folder(job.target.resolve().parent)
    else:
        remove_unfinished(job.target)
