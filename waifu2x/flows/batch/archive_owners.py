"""The owners of archives: each archive of a batch is read and written by its own thread.

Codec workers make its pages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from waifu2x.backends import Progress
from waifu2x.flows.batch.assignments import Assignment, FileRequest, WantedPage
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import STOPPED, Outcome, outcome_of_error

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage

_ARCHIVES = 2
"""Archives under way: while the last pages of one are made, those of the next begin."""


class ArchiveOwners:
    """The owners of the archives under way. It shares its lock with a driver."""

    def __init__(
        self,
        add: Callable[[Assignment], None],
        changed: threading.Condition,
        stopped: threading.Event,
        *,
        in_flight: int,
        on_progress: Callable[[Job, float], None],
        on_ended: Callable[[Outcome], None],
        on_defect: Callable[[BaseException], None],
    ) -> None:
        """Gives workers the pages of archives by `add`, which raises StoppedError, at most
        `in_flight` of each at a time. Calls `on_ended` with outcomes, while it holds the lock, and
        `on_defect` with errors of the program."""
        self.owners: dict[threading.Thread, Job] = {}
        """Owners and their archives."""
        self._add = add
        self._changed = changed
        self._stopped = stopped
        self._in_flight = in_flight
        self._on_progress = on_progress
        self._on_ended = on_ended
        self._on_defect = on_defect

    def begin(self, job: Job, request: FileRequest) -> None:
        """Starts the owner of an archive, after waiting for its turn."""
        owner = threading.Thread(
            target=self._own, args=(job, request), name="waifu2x-archive", daemon=True
        )
        with self._changed:
            self._changed.wait_for(lambda: len(self.owners) < _ARCHIVES or self._stopped.is_set())
            if not self._stopped.is_set():
                owner.start()
                self.owners[owner] = job

    def _own(self, job: Job, request: FileRequest) -> None:
        try:
            outcome = self._archived(job, request)
        except BaseException as error:
            self._on_defect(error)
            return
        with self._changed:
            del self.owners[threading.current_thread()]
            self._on_ended(outcome)

    def _archived(self, job: Job, request: FileRequest) -> Outcome:
        # Late: most folders have no archive.
        from waifu2x.flows.archive import upscale_archive

        def report(part: float) -> None:
            if self._stopped.is_set():
                raise StoppedError
            try:
                self._on_progress(job, part)
            except StoppedError:  # the archive is unwanted
                raise
            except BaseException as error:  # not the archive's
                self._on_defect(error)
                raise StoppedError from error

        output = request.task.output.again(job)
        make_page = partial(self._made_page, job, request)
        try:
            made = upscale_archive(
                job, output, make_page, on_progress=report, in_flight=self._in_flight
            )
        except StoppedError:
            return Outcome(job, error=STOPPED)
        except Exception as error:
            return outcome_of_error(job, output, error)
        return Outcome(job, made)

    def _made_page(
        self, job: Job, request: FileRequest, name: str, content: bytes, on_progress: Progress
    ) -> ArchivePage:
        """Has a worker make a page, and returns it. Raises FailedError, StoppedError."""
        page = WantedPage(name, content)
        self._add(Assignment(job, request, page, on_progress))
        answer = page.answer.get()
        if isinstance(answer, Exception):
            raise answer
        return answer
