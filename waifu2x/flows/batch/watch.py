"""Watches a folder: finds new pictures when they are complete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from waifu2x.flows.batch.plan import JobList, Plan
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.system.lazy_dataclass import dataclass

SETTLED = 2.0
"""Seconds without a change after which a file counts as complete."""
_PAUSE = 1.0
"""Seconds between two looks at a folder."""
_SHARE = 0.1
"""The most of the time that looking takes."""

_State = tuple[int, int, int]
"""Size, time of change in ns, inode."""


@dataclass(slots=True)
class _Seen:
    state: _State
    since: float
    """When it was first seen in this state."""
    given: bool = False
    """Whether it was yielded in this state."""


class Arrivals:
    """Finds the complete files that are new in a folder since the last look. A file is complete
    when size and time of change have stayed for SETTLED seconds: nothing else works on every system
    and network drive. One that was renamed into the folder waits as long."""

    def __init__(
        self,
        look: Callable[[], Plan],
        is_wanted: Callable[[str, str], bool] = lambda source, target: True,
        done: frozenset[str] = frozenset(),
        on_unreadable: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        """`look` plans the folder as it is now; `is_wanted` decides by the names of source and
        target; `done` names targets made before the first look. `on_unreadable` is called once for
        each unreadable folder."""
        self._look = look
        self._is_wanted = is_wanted
        self._done = done
        self._on_unreadable = on_unreadable
        self._seen: dict[str, _Seen] | None = None
        self._told: set[str] = set()

    def whole(self, now: float, today: float) -> JobList:
        """Returns the complete files that are new or changed. `now` is monotonic, `today` the time
        of files, both in seconds. At the first look, files older than SETTLED are complete."""
        plan = self._look()
        first, before = self._seen is None, self._seen or {}
        seen: dict[str, _Seen] = {}

        def is_due(source: str, target: str) -> bool:
            try:
                status = (plan.jobs.folder / source).stat()
            except OSError:
                return False  # gone again
            state = status.st_size, status.st_mtime_ns, status.st_ino
            known = before.get(source)
            if known is None or known.state != state:
                old = first and today - status.st_mtime >= SETTLED
                known = _Seen(state, now - SETTLED if old else now, first and target in self._done)
            seen[source] = known
            due = not known.given and now - known.since >= SETTLED
            known.given |= due
            return due

        jobs = plan.jobs.where(self._is_wanted).where(is_due)
        for outcome in plan.unreadable:
            if str(outcome.job.source) not in self._told:
                self._on_unreadable(outcome)
        self._told = {str(outcome.job.source) for outcome in plan.unreadable}
        # Files of a folder that is unreadable for now are not new afterwards.
        self._seen = {**before, **seen} if plan.unreadable else seen
        return jobs


def watch(arrivals: Arrivals, stopped: threading.Event) -> Iterator[Job | None]:
    """Yields jobs as their files arrive, and None between looks, until `stopped` is set."""
    while not stopped.is_set():
        start = time.monotonic()
        jobs = arrivals.whole(start, time.time())
        looking = time.monotonic() - start
        yield from jobs
        stopped.wait(max(_PAUSE, looking / _SHARE))
        yield None
