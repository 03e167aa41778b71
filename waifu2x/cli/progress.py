"""How far the work is: a bar with rate and time left, on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from waifu2x.backends import Progress, ignore
from waifu2x.cli import report

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from waifu2x.flows.jobs import Job
    from waifu2x.flows.outcome import Outcome
    from waifu2x.flows.tally import Tally

_QUIET_SECONDS = 1.0
"""Work of one picture that takes no longer is not worth a bar, nor the time to load one."""
_ALL = 1 - 1e-6
"""Parts add up to nearly 1."""


@contextmanager
def one_picture() -> Iterator[tuple[Callable[[int, int], None], Progress]]:
    """What is told of the rows and columns of a result, and of the work on it."""
    if not sys.stderr.isatty():
        yield (lambda height, width: None), ignore
        return
    shown = _OnePicture()
    try:
        yield shown.begin, shown.advance
    finally:
        shown.end()


class _OnePicture:
    """A bar that appears by itself once the work has taken a while, whatever it is at."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._pixels = 0
        self._done = 0.0
        self._ended = False
        self._bar: Bar | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(_QUIET_SECONDS, self._show)
        self._timer.daemon = True
        self._timer.start()

    def begin(self, height: int, width: int) -> None:
        """Starts the clock: the work on a result of so many pixels begins."""
        self._start = time.monotonic()
        with self._lock:
            self._pixels = height * width
            self._update()

    def advance(self, part: float) -> None:
        """Counts a part of the work as done."""
        with self._lock:
            self._done = min(1.0, self._done + part)
            self._update()

    def end(self) -> None:
        """Takes the bar away."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def _show(self) -> None:
        from rich.progress import TextColumn

        with self._lock:
            if not self._ended:
                self._bar = _bar(TextColumn("{task.percentage:3.0f} %  {task.fields[text]}"))
                self._bar.add_task("", total=1.0, text="")
                self._update()
                self._bar.start()

    def _update(self) -> None:
        """Brings the figures up to date, where they are shown."""
        if self._bar is None:
            return
        elapsed = max(time.monotonic() - self._start, 1e-9)
        if not self._pixels:
            text = "preparing"
        elif not self._done:
            text = f"{self._pixels / 1e6:.1f} Mpixel"
        elif self._done > _ALL:
            text = "writing"
        else:
            rate = self._done * self._pixels / elapsed / 1e6
            left = elapsed * (1.0 - self._done) / self._done
            text = f"{rate:.2f} Mpixel/s  {_clock(left)} left"
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=self._done, text=text)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def many_pictures(
    total: int | None, tally: Tally
) -> Iterator[tuple[Callable[[Job, float], None], Callable[[Outcome], None]]]:
    """What is told of the work on pictures and how each ends: without a terminal, a line each.

    `total` is None where nobody knows it; `tally` is to have counted what is told.
    """
    finished = 0
    if not sys.stderr.isatty():
        width = len(str(total))

        def print_line(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            place = f"{finished}" if total is None else f"{finished:{width}}/{total}"
            report.tell(f"[{place}] {report.text_line(outcome)}")

        yield (lambda job, part: None), print_line
        return

    from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

    of_all = "" if total is None else f"/{total}"
    part_done = [] if total is None else [TextColumn("{task.percentage:3.0f} %")]
    time_left = [] if total is None else [TimeRemainingColumn()]
    columns: list[ProgressColumn] = [
        *part_done,
        TextColumn(f"{{task.fields[finished]}}{of_all} pictures"),
        TextColumn("{task.fields[failures]}", style="red"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        *time_left,
    ]
    parts: dict[Job, float] = {}
    with _bar(*columns) as progress:
        task = progress.add_task("", total=total, finished=0, failures="", rate="")

        def advance(job: Job, part: float) -> None:
            parts[job] = parts.get(job, 0.0) + part
            progress.advance(task, part)

        def finish(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            # Whatever was not reported while it ran: all of it, for a picture that failed.
            progress.advance(task, 1.0 - parts.pop(outcome.job, 0.0))
            rate = f"{tally.rate:.2f} Mpixel/s" if tally.pixels else ""
            failures = f"{len(tally.failed)} failed" if tally.failed else ""
            progress.update(task, finished=finished, failures=failures, rate=rate)

        yield advance, finish


def _bar(*columns: ProgressColumn) -> Bar:
    """A bar on stderr that vanishes when it ends."""
    from rich.console import Console
    from rich.progress import BarColumn
    from rich.progress import Progress as Bar

    # As wide as the figures leave room: these must not be cut off.
    bar, console = BarColumn(bar_width=None), Console(stderr=True)
    return Bar(bar, *columns, console=console, transient=True, expand=True)
