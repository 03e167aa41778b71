"""A driver that stays open for files of several batches, as long as their settings agree.

It does not know how files come to this process: a worker of a cluster uses it, and any process with
its own device may.
"""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from waifu2x.api import Upscaler
from waifu2x.flows.batch.driver import RunOptions, run
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores
from waifu2x.system.lazy_dataclass import dataclass

_LOOK_SECONDS = 0.5
"""Seconds between two looks at whether files are still wanted."""
ModelFiles = Mapping[str, bytes]
"""The files of a model that was not shipped, by their paths in a folder."""


@dataclass(frozen=True)
class SessionSettings:
    """Settings of all files of a batch. They can be sent to other processes."""

    arguments: Mapping[str, Any]
    """Arguments of an Upscaler. With files of a model, `model` is a path in their folder."""
    output: Output
    in_flight: InFlight | None
    max_pixels: int
    key: str
    """Identifies the settings above and the files of the model."""
    sharing: int = 1
    """Sessions that share the machine, each in its own process."""
    many: bool = False
    """Whether a GPU gets all its codec workers at the start."""


class CancelledError(Exception):
    """Ends the work on unwanted files."""


Answer = Outcome | tuple[Job, str] | BaseException
"""The outcome of a job, a notice about one, or the error that has ended the session."""


@dataclass(frozen=True)
class _Wanted:
    job: Job
    answer: Callable[[Answer], None]


class Session:
    """A `run` that waits for files while its device, workers and networks stay open."""

    def __init__(
        self,
        upscaler: Upscaler,
        settings: SessionSettings,
        *,
        on_begun: Callable[[Job], None] = lambda job: None,
        on_progress: Callable[[Job, float], None] = lambda job, part: None,
    ) -> None:
        """Calls `on_begun` when a worker takes a job, and `on_progress` with each further part."""
        self.upscaler = upscaler
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """None: there will be no more."""
        self._on_begun = on_begun
        self._on_progress = on_progress
        self._is_replaced = settings.output.existing == "overwrite"
        self._again: tempfile.TemporaryDirectory[str] | None = None
        """Holds files that are made again although their outputs stay."""
        self._lock = threading.Lock()
        self._waiting: dict[Job, list[_Wanted]] = {}
        """Requests for each job: several, if batches share a folder."""
        self._outcomes = run(
            self._given(),
            upscaler,
            settings.output,
            RunOptions(
                in_flight=settings.in_flight,
                sharing=settings.sharing,
                on_progress=self._go_on,
                on_notice=self._on_notice,
            ),
            many=settings.many,
            max_pixels=settings.max_pixels,
        )
        self.broken = False
        """Whether its device has failed, or it has ended."""
        self._end: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="waifu2x-session", daemon=True)
        self._thread.start()

    def submit(self, job: Job, answer: Callable[[Answer], None], *, repeated: bool = False) -> None:
        """Adds a job; `answer` gets notices and its outcome, or the error that ends the session,
        from any thread. `repeated`: a lost worker may have finished it. An existing output then
        stays unless it may be replaced: the file is made once more, in a temporary folder. Raises
        the error that has ended the session."""
        with self._lock:
            if self._end is not None:
                raise self._end
            given = job
            if repeated and not self._is_replaced and _exists(job.target):
                given = Job(job.source, self._thrown_away() / job.target.name)
            self._waiting.setdefault(given, []).append(_Wanted(job, answer))
        self._jobs.put(given)

    def make(
        self, jobs: Sequence[Job], is_wanted: Callable[[], bool], *, repeated: bool = False
    ) -> tuple[list[Outcome], list[tuple[Job, str]]]:
        """Makes jobs; returns their outcomes and notices. `repeated` is that of `submit`. Several
        threads may call it. Raises CancelledError once `is_wanted` returns False, and the error
        that ends the session."""
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        for job in jobs:
            self.submit(job, answers.put, repeated=repeated)
        outcomes: list[Outcome] = []
        notices: list[tuple[Job, str]] = []
        while len(outcomes) < len(jobs):
            try:
                answer = answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if not is_wanted():
                    raise CancelledError from None
                continue
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Outcome):
                outcomes.append(answer)
            else:
                notices.append(answer)
        return outcomes, notices

    def withdraw(self) -> list[Job]:
        """Removes the jobs that no worker has taken, and returns them."""
        withdrawn = []
        with suppress(queue.Empty):
            while (given := self._jobs.get_nowait()) is not None:
                withdrawn.append(self._wanted(given).job)
        return withdrawn

    def close(self) -> None:
        """Drops unfinished files."""
        self._ended.set()
        self._jobs.put(None)
        self._thread.join()
        self.throw_away()

    def throw_away(self) -> None:
        """Removes the temporary folder."""
        if self._again is not None:
            self._again.cleanup()

    def _thrown_away(self) -> Path:
        """Called with the lock."""
        self._again = self._again or tempfile.TemporaryDirectory(prefix="waifu2x-")
        return Path(tempfile.mkdtemp(dir=self._again.name))

    def _given(self) -> Iterator[Job | None]:
        while threading.main_thread().is_alive():
            try:
                job = self._jobs.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                yield None
                continue
            if job is None:
                return
            with self._lock:
                wanted = self._waiting[job][0].job
            self._on_begun(wanted)
            yield job

    def _tell(self) -> None:
        error: BaseException = CancelledError()
        try:
            with closing(self._outcomes):
                for outcome in self._outcomes:
                    self.broken |= outcome.device_failed
                    wanted = self._wanted(outcome.job)
                    wanted.answer(replace(outcome, job=wanted.job))
        except BaseException as raised:
            error = raised
        with self._lock:
            self.broken, self._end = True, error
            waiting = list(chain.from_iterable(self._waiting.values()))
        for each in waiting:
            each.answer(error)

    def _wanted(self, given: Job) -> _Wanted:
        with self._lock:
            waiting = self._waiting[given]
            wanted = waiting.pop(0)
            if not waiting:
                del self._waiting[given]
            return wanted

    def _go_on(self, given: Job, part: float) -> None:
        if self._ended.is_set():
            raise CancelledError
        with self._lock:
            waiting = self._waiting.get(given)
            job = waiting[0].job if waiting else None
        if job is not None:
            self._on_progress(job, part)

    def _on_notice(self, given: Job, text: str) -> None:
        with self._lock:
            wanted = self._waiting[given][0]
        wanted.answer((wanted.job, text))


@contextmanager
def unpacked(
    arguments: Mapping[str, Any], model_files: ModelFiles | None
) -> Iterator[dict[str, Any]]:
    """Gives arguments of an Upscaler with the model's files in a temporary folder."""
    if model_files is None:
        yield dict(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="waifu2x-") as name:
        folder = Path(name)
        for path, content in model_files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        yield {**arguments, "model": str(folder / arguments["model"])}


def _exists(path: Path) -> bool:
    if not stores.is_url(path):
        return path.exists()
    try:
        stores.stat(path)
    except OSError:
        return False
    return True


class SessionHolder:
    """The session of this process, opened anew for other settings."""

    def __init__(self) -> None:
        self._freed = threading.Condition()
        self._users = 0
        self._key = ""
        self._session: Session | None = None
        self._held = ExitStack()

    @contextmanager
    def opened(
        self, settings: SessionSettings, model_files: ModelFiles | None
    ) -> Iterator[Session]:
        """Gives a session with these settings. Waits for the end of contexts with other settings.
        Raises Waifu2xError."""
        with self._freed:
            # A worker may have several threads with groups of several batches.
            self._freed.wait_for(lambda: not self._users or self._key == settings.key)
            if self._session is None or self._key != settings.key:
                self._close()
                self._session = self._open(settings, model_files)
                self._key = settings.key
            self._users += 1
            session = self._session
        sound = False
        try:
            yield session
            sound = not session.broken
        finally:
            with self._freed:
                self._users -= 1
                if not (sound or self._users):
                    self._close()
                self._freed.notify_all()

    def _open(self, settings: SessionSettings, model_files: ModelFiles | None) -> Session:
        arguments = self._held.enter_context(unpacked(settings.arguments, model_files))
        upscaler = self._held.enter_context(Upscaler(**arguments))
        session = Session(upscaler, settings)
        self._held.callback(session.close)
        return session

    def _close(self) -> None:
        self._session = None
        self._held.close()
