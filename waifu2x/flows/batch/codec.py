"""The work of a codec worker: it reads, decodes and prepares files; finishes, encodes and writes
them.

The driver, which has the device, runs the networks. It tells a worker to make a file or a page of
an archive (Make). The worker hands each picture over as arrays (Offered), hears when
the results are there (Computed), and reports its Outcome or returns the page
(Paged). Each worker makes one file or page at a time.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress
from waifu2x.flows.batch.semaphore import needed_bytes
from waifu2x.flows.fleet.messages import Failed, Lost, Opened
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.outcome import STOPPED, Outcome, outcome_of_error, run_one
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.processing import ChainCall
from waifu2x.imaging.sizes import Request
from waifu2x.imaging.streams import Allocate
from waifu2x.networks.chains import Facts
from waifu2x.networks.noise_levels import NoiseLimits
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage
    from waifu2x.flows.fleet.shared_memory import SharedPool


@dataclass(frozen=True)
class CodecTask:
    """Settings of all files of a request, sent to a worker with the first of them."""

    facts: Facts
    request: Request
    noise: int | None
    limits: NoiseLimits | None
    """As for an Enlarger."""
    output: Output
    max_pixels: int
    in_flight: int
    """Pictures of a file that are under way."""


# Commands to a worker:


class Make(NamedTuple):
    job: Job
    """The file's, or the page's archive's."""
    page: tuple[str, bytes] | None
    """The page's name for messages, and the content of its file."""
    allowance: int
    """Bytes of memory that need no permission."""
    task: CodecTask | None
    """None: as for the file or page before."""


class Proceed(NamedTuple):
    """Permits the memory of a Looked."""

    number: int


class Computed(NamedTuple):
    """The result of a call is written, or there was an error."""

    number: int
    error: Exception | None
    is_recomputed: bool
    """Whether the picture was computed again in wider numbers."""


Command = Make | Proceed | Computed | None
"""None: there are no more files."""


# Reports to the driver:


class Looked(NamedTuple):
    """The memory that the file needs by its header, in bytes, until it has ended. The worker waits
    for Proceed before it decodes."""

    number: int
    size: int


class Offered(NamedTuple):
    """A network call of a picture."""

    number: int
    factor: int
    noise: int | None
    """With `factor`, names the chain."""
    pixels: Any
    out: Any
    """The place of the result. Both are arrays, or SharedArray on their way from a process."""
    share: float
    """Its share of the work on the file."""
    dropped: Sequence[int] = ()
    """Numbers of shared segments that were freed."""


class Notified(NamedTuple):
    """A notice about the file, for people."""

    text: str


class Paged(NamedTuple):
    """A finished page. A failed one is an Outcome of its archive."""

    page: ArchivePage


Report = Opened | Looked | Offered | Notified | Outcome | Paged | Failed | Lost
"""Opened: the worker is ready for its first file; Failed: an error of the program, not of a file;
Lost: the worker's process has ended."""
OnReport = Callable[[Report], None]


class Codec:
    """Makes files and pages for the driver, one after the other."""

    def __init__(self, tell: OnReport, pool: SharedPool | None = None) -> None:
        """`tell` gets reports, from any thread. `pool` has the arrays that the driver sees; None:
        it sees all."""
        self._tell = tell
        self._pool = pool
        self._task: CodecTask
        self._enlarger: Enlarger
        """Set, as `_task`, with the first file."""
        self._jobs: queue.SimpleQueue[Make | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        """Queues of threads that wait for an answer, by the number of their report."""
        self._told = threading.local()
        self._allowance = 0
        self._is_stopped = False

    def deliver(self, command: Command) -> None:
        """Takes a command, from any thread."""
        if isinstance(command, Computed | Proceed):
            with self._lock:
                answer = self._waiting.pop(command.number)
            answer.put(command)
        else:
            self._jobs.put(command)

    def stop(self) -> None:
        """Ends the file under way, from any thread; nothing of it stays."""
        with self._lock:
            self._is_stopped = True
            waiting = list(self._waiting.values())
        for answer in waiting:
            answer.put(StoppedError())
        self._jobs.put(None)

    def run(self) -> None:
        """Makes files and pages until there are no more."""
        self._tell(Opened("codecs"))
        while (make := self._jobs.get()) is not None:
            try:
                self._allowance = make.allowance
                if make.task is not None:
                    self._take(make.task)
                if make.page is not None:
                    made: Outcome | Paged = self._page(make.job, *make.page)
                else:
                    output = self._task.output.again(make.job)
                    options = self._options(self._task.in_flight)
                    made = run_one(make.job, self._enlarger, output, options)
            except StoppedError:
                if self._is_stopped:
                    return
                # Only the page is unwanted: another one of its archive has failed.
                made = Outcome(make.job, error=STOPPED)
            except Exception as error:
                self._tell(Failed(error))
                continue
            self._tell(made)

    def _take(self, task: CodecTask) -> None:
        self._task = task
        self._enlarger = Enlarger(task.facts, task.request, task.noise, self._compute, task.limits)

    def _options(self, in_flight: int) -> WorkOptions:
        return WorkOptions(
            max_pixels=self._task.max_pixels,
            reserve=self._reserve,
            in_flight=in_flight,
            alone=False,
            on_progress=self._note_share,
            on_notice=lambda text: self._tell(Notified(text)),
        )

    def _page(self, job: Job, name: str, content: bytes) -> Paged | Outcome:
        """Makes a page; returns it, or the outcome of its archive."""
        # Late: most folders have no archive.
        from waifu2x.flows.archive import upscale_page

        output, options = self._task.output, self._options(in_flight=1)
        try:
            return Paged(upscale_page(name, content, output, self._enlarger, options))
        except Exception as error:
            return outcome_of_error(job, output, error)

    def _compute(
        self, calls: Sequence[ChainCall], on_progress: Progress, on_recomputed: Callable[[], None]
    ) -> list[NDArray[Any]]:
        """Hands the calls of a picture over and waits for their results."""
        offered = []
        allocate = self._pool.array if self._pool else np.empty
        for call in calls:
            pixels = call.pixels
            if self._pool and not self._pool.holds(pixels):
                pixels = allocate(pixels.shape, pixels.dtype)
                pixels[...] = call.pixels
            out = allocate(call.shape, call.dtype)
            # The driver reports progress; this only finds the call's share of the file.
            self._told.share = 0.0
            on_progress(call.share)
            of_call = call.factor, call.noise, pixels, out, self._told.share
            offered.append((out, self._ask(Offered, *of_call)))
        made: list[Computed] = [_answer(answer) for _, answer in offered]
        for error in filter(None, (computed.error for computed in made)):
            raise error
        if any(computed.is_recomputed for computed in made):
            on_recomputed()
        return [out for out, _ in offered]

    def _ask(self, report: Callable[..., Report], *arguments: Any) -> queue.SimpleQueue[Any]:
        """Sends a report with a new number and these arguments; returns the queue of its answer.
        Raises StoppedError."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            if self._is_stopped:
                raise StoppedError
            number = next(self._numbers)
            self._waiting[number] = answer
        self._tell(report(number, *arguments))
        return answer

    def _note_share(self, part: float) -> None:
        self._told.share = part

    def _reserve(self, content: bytes) -> AbstractContextManager[Allocate | None]:
        """Waits for the memory that a file with that content needs until it has ended."""
        allocate = self._pool.array if self._pool else None
        size = needed_bytes(content, self._enlarger, self._task.in_flight)
        if size > self._allowance:
            _answer(self._ask(Looked, size))
        return nullcontext(allocate)


def _answer(waiting: queue.SimpleQueue[Any]) -> Any:
    """Waits for an answer. Raises StoppedError."""
    answer = waiting.get()
    if isinstance(answer, StoppedError):
        raise answer
    return answer
