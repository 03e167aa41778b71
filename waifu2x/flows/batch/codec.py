"""The work of a codec worker: it reads, decodes and prepares files; finishes, encodes and writes
them.

The driver, which has the device, runs the networks. It tells a worker to make a file (Make) or a
page of an archive (MakePage). The worker hands each picture over as arrays (Offered), hears when
the results are there (Computed), and reports its Outcome or returns the page
(Paged). Each worker makes one file or page at a time.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress
from waifu2x.flows.batch.semaphore import needed_bytes
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
    allowance: int
    """Bytes of memory that need no permission."""
    task: CodecTask | None
    """None: as for the file or page before."""


class MakePage(NamedTuple):
    job: Job
    """The archive's."""
    name: str
    """For messages."""
    content: bytes
    """The page's file."""
    allowance: int
    task: CodecTask | None
    """As for Make."""


class Proceed(NamedTuple):
    """Permits the memory of a Looked."""

    number: int


class Computed(NamedTuple):
    """The results of an offer are written, or there was an error."""

    number: int
    error: Exception | None
    is_recomputed: bool
    """Whether the picture was computed again in wider numbers."""


Command = Make | MakePage | Proceed | Computed | None
"""None: there are no more files."""


# Reports to the driver:


class Up(NamedTuple):
    """The worker is ready for its first file."""


class Looked(NamedTuple):
    """The memory that the file needs by its header, in bytes. The worker waits for Proceed before
    it decodes."""

    number: int
    size: int


class Released(NamedTuple):
    """That memory is free again."""

    number: int


class OfferedCall(NamedTuple):
    """A network call of a picture."""

    factor: int
    noise: int | None
    """With `factor`, names the chain."""
    pixels: Any
    out: Any
    """The place of the result. Both are arrays, or SharedArray on their way from a process."""
    share: float
    """Its share of the work on the file."""


class Offered(NamedTuple):
    """A picture that is ready for networks."""

    number: int
    calls: Sequence[OfferedCall]
    dropped: Sequence[int]
    """Numbers of shared segments that were freed."""


class Notified(NamedTuple):
    """A notice about the file, for people."""

    text: str


class Paged(NamedTuple):
    """A finished page. A failed one is an Outcome of its archive."""

    page: ArchivePage


class Defect(NamedTuple):
    """An error of the program, not of a file."""

    error: Exception


class Died(NamedTuple):
    """The worker has ended, as the end of its connection shows."""

    why: str


Report = Up | Looked | Released | Offered | Notified | Outcome | Paged | Defect | Died


class Link(Protocol):
    """A worker's connection to the driver. Threads may share it."""

    def report(self, report: Report) -> None: ...

    @property
    def allocate(self) -> Allocate | None:
        """Returns a function that makes arrays visible to the driver; None: all are."""

    def holds(self, array: NDArray[Any]) -> bool:
        """Returns whether the driver sees an array."""

    def offer(self, number: int, calls: Sequence[OfferedCall]) -> None:
        """Hands over calls with arrays that the driver sees."""


class Codec:
    """Makes files and pages for the driver, one after the other."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._task: CodecTask
        self._enlarger: Enlarger
        """Set, as `_task`, with the first file."""
        self._jobs: queue.SimpleQueue[Make | MakePage | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Proceed | Computed | StoppedError]] = {}
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
        """Makes files and pages until there are no more. Raises what the link raises."""
        self._link.report(Up())
        while (make := self._jobs.get()) is not None:
            try:
                self._allowance = make.allowance
                if make.task is not None:
                    self._take(make.task)
                if isinstance(make, MakePage):
                    made: Outcome | Paged = self._page(make)
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
                self._link.report(Defect(error))
                continue
            self._link.report(made)

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
            on_notice=lambda text: self._link.report(Notified(text)),
        )

    def _page(self, make: MakePage) -> Paged | Outcome:
        """Makes a page; returns it, or the outcome of its archive."""
        # Late: most folders have no archive.
        from waifu2x.flows.archive import upscale_page

        output, options = self._task.output, self._options(in_flight=1)
        try:
            return Paged(upscale_page(make.name, make.content, output, self._enlarger, options))
        except Exception as error:
            return outcome_of_error(make.job, output, error)

    def _compute(
        self, calls: Sequence[ChainCall], on_progress: Progress, on_recomputed: Callable[[], None]
    ) -> list[NDArray[Any]]:
        """Hands the calls of a picture over and waits for their results."""
        offered = []
        allocate = self._link.allocate or np.empty
        for call in calls:
            pixels = call.pixels
            if not self._link.holds(pixels):
                pixels = allocate(pixels.shape, pixels.dtype)
                pixels[...] = call.pixels
            out = allocate(call.shape, call.dtype)
            # The driver reports progress; this only finds the call's share of the file.
            self._told.share = 0.0
            on_progress(call.share)
            offered.append(OfferedCall(call.factor, call.noise, pixels, out, self._told.share))
        computed = self._answered(lambda number: self._link.offer(number, offered))
        assert isinstance(computed, Computed)
        if computed.error is not None:
            raise computed.error
        if computed.is_recomputed:
            on_recomputed()
        return [call.out for call in offered]

    def _answered(self, report: Callable[[int], None]) -> Proceed | Computed:
        """Reports by a new number and returns the answer. Raises StoppedError."""
        waiting: queue.SimpleQueue[Proceed | Computed | StoppedError] = queue.SimpleQueue()
        with self._lock:
            if self._is_stopped:
                raise StoppedError
            number = next(self._numbers)
            self._waiting[number] = waiting
        report(number)
        answer = waiting.get()
        if isinstance(answer, StoppedError):
            raise answer
        return answer

    def _note_share(self, part: float) -> None:
        self._told.share = part

    @contextmanager
    def _reserve(self, content: bytes) -> Iterator[Allocate | None]:
        """Waits for the memory that a file with that content needs."""
        allocate = self._link.allocate
        size = needed_bytes(content, self._enlarger, self._task.in_flight)
        if size <= self._allowance:
            yield allocate
            return
        numbers: list[int] = []

        def look(number: int) -> None:
            numbers.append(number)
            self._link.report(Looked(number, size))

        self._answered(look)
        try:
            yield allocate
        finally:
            self._link.report(Released(*numbers))


OnReport = Callable[[Report], None]


class DirectLink:
    """The link of a worker that is a thread of the driver's process."""

    allocate = None

    def __init__(self, on_report: OnReport) -> None:
        self.report = on_report

    def holds(self, array: NDArray[Any]) -> bool:
        return True

    def offer(self, number: int, calls: Sequence[OfferedCall]) -> None:
        self.report(Offered(number, calls, ()))
