"""A driver that stays open for files of several batches, as long as their settings agree: the
workplace of a worker has one."""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from waifu2x.api import Upscaler
from waifu2x.errors import ModelError
from waifu2x.flows.batch.driver import RunOptions, run
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.networks import catalogue, model_set
from waifu2x.system.files import reason
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
        from any thread. `repeated`: a lost worker may have finished it. Raises the error that has
        ended the session."""
        with self._lock:
            if self._end is not None:
                raise self._end
            given = replace(job, repeated=repeated)
            self._waiting.setdefault(given, []).append(_Wanted(job, answer))
        self._jobs.put(given)

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


def packed(model: str) -> tuple[str, dict[str, bytes] | None]:
    """Returns how workers find a model: the name of a shipped one, or a path and its files. Raises
    ModelError."""
    found = model_set.find(model)
    known = catalogue.entry(found.name)
    if known is not None and known.folder == found.folder:
        return found.name, None
    folder = found.folder.resolve()
    try:
        if folder.is_file():
            return folder.name, {folder.name: folder.read_bytes()}
        # Weights may lie beside the file that names them.
        stems = {path.stem for path in found.files.values()}
        files = [path for path in sorted(folder.iterdir()) if path.stem in stems]
        return folder.name, {f"{folder.name}/{path.name}": path.read_bytes() for path in files}
    except OSError as error:
        raise ModelError(f"{error.filename}: cannot read: {reason(error)}") from error


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
