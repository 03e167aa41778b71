"""A driver that stays: files of one batch after the other, until other settings come.

Nothing here is about how files come to this process, or outcomes from it: a cluster's worker uses
it, and any process may that has a device of its own.
"""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from waifu2x.api import Upscaler
from waifu2x.flows.batch.driver import InFlight
from waifu2x.flows.batch.run import run
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.system.lazy_dataclass import dataclass

_LOOK_SECONDS = 0.5
"""Between looks at whether anybody still waits."""
ModelFiles = Mapping[str, bytes]
"""The files of a model that did not come with waifu2x, by their paths in a folder."""


@dataclass(frozen=True)
class SessionSettings:
    """What is the same for all files of a batch. It can be sent to other processes."""

    arguments: Mapping[str, Any]
    """Arguments of an Upscaler. With files of a model, `model` is a path in their folder."""
    output: Output
    in_flight: InFlight | None
    max_pixels: int
    key: str
    """Different where anything above is, or the files of the model: a session is kept by it."""
    sharing: int = 1
    """How many sessions share the machine, each in a process of its own."""


class CancelledError(Exception):
    """Ends the work on files that nobody waits for."""


_Answers = queue.SimpleQueue[Outcome | tuple[Job, str] | BaseException]


class Session:
    """A `run` that waits for files: its device, its codec workers and its networks stay open."""

    def __init__(self, upscaler: Upscaler, settings: SessionSettings) -> None:
        self.upscaler = upscaler
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """None: there will be no more."""
        self._lock = threading.Lock()
        self._waiting: dict[Job, list[_Answers]] = {}
        """Who is to be told of a job: several, where batches share a folder."""
        self._outcomes = run(
            self._given(),
            upscaler,
            settings.output,
            in_flight=settings.in_flight,
            max_pixels=settings.max_pixels,
            sharing=settings.sharing,
            on_progress=self._go_on,
            on_notice=self._on_notice,
        )
        self.broken = False
        """Whether its device has stopped working, or it has ended: nothing more comes of it."""
        self._end: BaseException | None = None
        """What has ended it."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="waifu2x-session", daemon=True)
        self._thread.start()

    def make(
        self, jobs: Sequence[Job], is_wanted: Callable[[], bool]
    ) -> tuple[list[Outcome], list[tuple[Job, str]]]:
        """The outcomes of jobs, and notices about them. Several threads may call it.

        Raises CancelledError once `is_wanted`, which is asked again and again, says no.
        """
        answers: _Answers = queue.SimpleQueue()
        with self._lock:
            if self._end is not None:
                raise self._end
            for job in jobs:
                self._waiting.setdefault(job, []).append(answers)
        for job in jobs:
            self._jobs.put(job)
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
                self.broken |= answer.device_failed
            else:
                notices.append(answer)
        return outcomes, notices

    def close(self) -> None:
        """Drops what is not finished."""
        self._ended.set()
        self._jobs.put(None)
        self._thread.join()

    def _given(self) -> Iterator[Job | None]:
        while threading.main_thread().is_alive():
            try:
                job = self._jobs.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                yield None
                continue
            if job is None:
                return
            yield job

    def _tell(self) -> None:
        error: BaseException = CancelledError()
        try:
            with closing(self._outcomes):
                for outcome in self._outcomes:
                    self._answers_of(outcome.job).put(outcome)
        except BaseException as raised:
            error = raised
        with self._lock:
            self.broken, self._end = True, error
            for answers in chain.from_iterable(self._waiting.values()):
                answers.put(error)

    def _answers_of(self, job: Job) -> _Answers:
        with self._lock:
            waiting = self._waiting[job]
            answers = waiting.pop(0)
            if not waiting:
                del self._waiting[job]
            return answers

    def _go_on(self, job: Job, part: float) -> None:
        if self._ended.is_set():
            raise CancelledError

    def _on_notice(self, job: Job, text: str) -> None:
        with self._lock:
            self._waiting[job][0].put((job, text))


class SessionHolder:
    """The session of this process: one at a time, opened anew for other settings."""

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
        """A session with these settings, for as long as the context lasts.

        Waits for the end of contexts with other settings. Raises Waifu2xError.
        """
        with self._freed:
            # A worker may have several threads, and these the groups of several batches.
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
        arguments = dict(settings.arguments)
        if model_files is not None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="waifu2x-")))
            for name, content in model_files.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
            arguments["model"] = str(folder / arguments["model"])
        upscaler = self._held.enter_context(Upscaler(**arguments))
        session = Session(upscaler, settings)
        self._held.callback(session.close)
        return session

    def _close(self) -> None:
        self._session = None
        self._held.close()
