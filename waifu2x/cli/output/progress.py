"""Counts the progress of the work on one picture, or on many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.backends import Progress
from waifu2x.cli.output import report
from waifu2x.cli.output.drawing import shown
from waifu2x.cli.output.progress_line import Figures, rate_text
from waifu2x.errors import ImageError
from waifu2x.flows.jobs import is_archive

if TYPE_CHECKING:
    from waifu2x.flows.jobs import Job
    from waifu2x.flows.outcome import Outcome

_Hearers = tuple[
    Callable[["Job", float], None], Callable[["Outcome"], None], Callable[[Path, int], None]
]
_ALL = 1 - 1e-6
"""Parts add up to nearly 1."""


@contextmanager
def one_picture(name: str) -> Iterator[tuple[Callable[[int, int], None], Progress]]:
    """Shows the progress on a picture; gives functions for its result's rows and columns, and for
    parts of the work. `name` is for people."""
    counted = _OnePicture(name)
    with shown(counted.figures) as changed:

        def advance(part: float) -> None:
            counted.advance(part)
            changed()

        yield counted.begin, advance


class _OnePicture:
    def __init__(self, name: str) -> None:
        self._names = (name,)
        self._start = time.monotonic()
        self._pixels = 0
        self._done = 0.0
        self._lock = threading.Lock()

    def begin(self, height: int, width: int) -> None:
        with self._lock:
            self._start = time.monotonic()
            self._pixels = height * width

    def advance(self, part: float) -> None:
        with self._lock:
            self._done = min(1.0, self._done + part)

    def figures(self) -> Figures:
        with self._lock:
            done, pixels = self._done, self._pixels
            elapsed = max(time.monotonic() - self._start, 1e-9)
        if not pixels:
            return Figures(self._names, stage="preparing")
        if not done:
            return Figures(self._names, 0.0, stage=f"{pixels / 1e6:.1f} Mpixel")
        if done > _ALL:
            return Figures(self._names, 1.0, stage="writing")
        rate, left = done * pixels / elapsed / 1e6, elapsed * (1.0 - done) / done
        return Figures(self._names, done, rate=f"{rate:.2f} Mpixel/s", left=left)


@contextmanager
def many_pictures(
    jobs: Sequence[Job] | None,
) -> Iterator[_Hearers]:
    """Shows the progress on files; gives functions for parts of the work, for outcomes, and for
    how many pictures a file holds. `jobs` is None if they are not all known."""
    counted = _ManyPictures(None if jobs is None else len(jobs))
    if jobs is not None and not report.is_quiet() and (report.is_terminal() or report.is_verbose()):
        # In a thread: until it is done, an archive counts as a picture.
        threading.Thread(
            target=counted.count_pages, args=(jobs,), name="waifu2x-count", daemon=True
        ).start()
    with shown(counted.figures) as changed:

        def advance(job: Job, part: float) -> None:
            counted.advance(job, part)
            changed()

        def finish(outcome: Outcome) -> None:
            place = counted.finish(outcome)
            report.detail(f"[{place}] {report.text_line(outcome)}")

        yield advance, finish, counted.count


class _ManyPictures:
    """The progress on many files. Pages of an archive count as pictures, and frames of a film once
    its turn has come."""

    def __init__(self, files: int | None) -> None:
        self._files = files
        self._finished = 0
        """Files that have ended."""
        self._failed: set[Path] = set()
        self._begun: float | None = None
        self._lock = threading.Lock()
        self._parts: dict[Path, float] = {}
        """The finished part of each file under way, in the order in which they began."""
        self._pages: dict[Path, int] = {}
        """Pages of archives, and frames of films, that have not ended, as far as they are known."""
        self._ended = 0
        """Pictures of the files that have ended."""
        self._skipped = 0
        """Pictures that took no work."""

    def count_pages(self, jobs: Sequence[Job]) -> None:
        from waifu2x.flows.archive_pages import page_count

        for job in jobs:
            if is_archive(job.source):
                with suppress(ImageError):  # it is told when its turn comes
                    self.count(job.source, page_count(job.source))

    def count(self, source: Path, pictures: int) -> None:
        """Notes how many pictures a file holds."""
        with self._lock:
            self._pages[source] = max(1, pictures)

    def advance(self, job: Job, part: float) -> None:
        with self._lock:
            self._begun = self._begun or time.monotonic()
            self._parts[job.source] = self._parts.get(job.source, 0.0) + part

    def finish(self, outcome: Outcome) -> str:
        """Counts a file as ended; returns its place among all, for people."""
        source = outcome.job.source
        with self._lock:
            self._begun = self._begun or time.monotonic()
            self._finished += 1
            self._parts.pop(source, None)
            pictures = self._pages.pop(source, outcome.made.pictures if outcome.made else 1)
            self._ended += pictures
            self._skipped += pictures if outcome.status == "skipped" else 0
            if outcome.status == "failed":
                self._failed.add(source)
            else:
                self._failed.discard(source)
            if self._files is None:
                return f"{self._finished}"
            return f"{self._finished:{len(str(self._files))}}/{self._files}"

    def figures(self) -> Figures:
        with self._lock:
            names = [self._named(source, part) for source, part in self._parts.items()]
            worked = sum(part * self._pages.get(each, 1) for each, part in self._parts.items())
            done = self._ended + worked
            total = None
            if self._files is not None:
                total = self._ended + self._files - self._finished
                total += sum(self._pages.values()) - len(self._pages)
            elapsed = time.monotonic() - (self._begun or time.monotonic())
            made, failed = done - self._skipped, len(self._failed)
        counted = f"{int(done)} done" if total is None else f"{int(done)}/{total}"
        if total is not None and done > total * _ALL:
            return Figures(names, 1.0, counted, failed, stage="finishing")
        part = None if total is None else done / total
        if not (made > 0 and elapsed > 0):
            return Figures(names, part, counted, failed, stage="preparing")
        left = None if total is None else elapsed * (total - done) / made
        return Figures(names, part, counted, failed, rate_text(made / elapsed), left)

    def _named(self, source: Path, part: float) -> str:
        pages = self._pages.get(source)
        return f"{source.name} ({int(part * pages)}/{pages})" if pages else source.name
