"""Opens and closes all parts of a server together."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import OutputError, Waifu2xError
from waifu2x.flows.fleet import processes
from waifu2x.flows.jobs import is_archive
from waifu2x.formats.film import is_film
from waifu2x.serve import decoding
from waifu2x.serve.film_frames import probe_film
from waifu2x.serve.film_worker import FilmWorker
from waifu2x.serve.job_results import JobResults
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import COMMAND_LINE, Kind, SourceInfo, on_page
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.queue import Queue
from waifu2x.serve.reading import ReadingProcesses
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store
from waifu2x.serve.upscalers import Upscalers
from waifu2x.serve.views import Views
from waifu2x.serve.worker import Worker
from waifu2x.system.files import reason
from waifu2x.system.locks import HeldElsewhereError, locked

_log = logging.getLogger("waifu2x")


class Service:
    """The queue of this user and its workers. A context manager."""

    def __init__(
        self,
        folder: Path,
        limits: ServiceLimits,
        computing: dict[str, Any],
        output: Path | None = None,
    ) -> None:
        """`folder` is the server's own; `computing` are arguments of an Engine.

        Results are also written to the folder `output`. Raises Waifu2xError if the device cannot be
        used, or another server uses the folder.
        """
        self.limits = limits
        self.output = output
        self.defaults = JobSettings()
        """Settings of files for which a client asks for nothing else."""
        self._held = ExitStack()
        try:
            processes.prepare()
            self.spool = Spool(folder)
            try:
                self._held.enter_context(locked(self.spool.lock))
            except HeldElsewhereError as error:
                raise OutputError(
                    f"{folder}: another server has this queue ({error})",
                    "use its page, or set WAIFU2X_CACHE_DIR to another folder",
                ) from error
            if not self.spool.database.exists():
                self._save_results()
            try:
                store = Store(self.spool.database, self._damaged)
            except (OSError, sqlite3.Error) as error:
                told = reason(error) if isinstance(error, OSError) else str(error)
                raise OutputError(f"{self.spool.database}: cannot keep a queue: {told}") from error
            self._held.callback(store.close)
            self.reading = ReadingProcesses()
            self._held.callback(self.reading.close)
            self.upscalers = Upscalers(lambda: Engine(**computing), limits.max_pixels)
            self._held.callback(self.upscalers.close)
            clock, preparing = self.upscalers.clock, self.upscalers.preparing
            self.queue = Queue(store, self.spool, limits, clock, preparing)
            self.views = Views(self.spool, limits, self.reading, self.upscalers, self.queue.measure)
            self._results = results = JobResults(self.queue, self.spool, output)
            self._worker = Worker(self.queue, self.spool, self.upscalers, results)
            self._film_worker = FilmWorker(
                self.queue, self.spool, self.upscalers, results, limits, self._worker.is_idle
            )
        except BaseException:
            self._held.close()
            raise

    def start(self) -> None:
        self.reading.start()
        self._worker.start()
        self._held.callback(self._worker.close)
        self._film_worker.start()
        self._held.callback(self._film_worker.close)
        self._held.callback(self._results.close)

    def add(self, identity: str, path: Path, name: str, settings: JobSettings) -> dict[str, Any]:
        """Makes a job of an uploaded file and returns it as clients see it. An unreadable file
        makes a failed job. Raises QueueFullError."""
        kind: Kind = "picture"
        source: SourceInfo | None = None
        fault: str | None = None
        try:
            if is_film(path):
                kind, source = "film", probe_film(path, name, self.limits.max_pixels)
            else:
                file = decoding.SentFile(path, name, is_archive(path), self.limits.max_pixels)
                kind, source = self.reading.call(name, decoding.probe, file)
        except (Waifu2xError, OSError) as error:
            known = error.sentence if isinstance(error, Waifu2xError) else str(error)
            fault = on_page(known, COMMAND_LINE).replace(str(path), name)
        return self.queue.add(identity, kind, name, settings, source, fault)

    def _damaged(self, told: str) -> None:
        _log.warning("%s", told)
        self._save_results()

    def _save_results(self) -> None:
        """Saves the results of a lost queue: the next one knows none of its jobs."""
        try:
            moved = self.spool.save_results(self.limits.max_kept)
        except OSError as error:
            raise OutputError(
                f"{self.spool.folder}: cannot save the results of a queue that is lost: "
                f"{reason(error)}",
                "move its folder jobs elsewhere",
            ) from error
        if moved:
            _log.warning(
                "%s: results of a queue that is lost were moved here: %d", self.spool.found, moved
            )

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
