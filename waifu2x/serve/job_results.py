"""Records how jobs end, with their results."""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from waifu2x.errors import Waifu2xError
from waifu2x.serve import names
from waifu2x.serve.jobs import COMMAND_LINE, JobRecord, Remarks, ResultInfo, on_page
from waifu2x.serve.queue import Queue
from waifu2x.serve.spool import Spool, kept_result

_AGAIN_SECONDS = 2.0
"""Between two attempts to record the end of a job."""
_log = logging.getLogger("waifu2x")


class JobResults:
    """Ends jobs. Threads may share it."""

    def __init__(self, queue: Queue, spool: Spool, output: Path | None) -> None:
        """Results are also written to the folder `output`, if there is one."""
        self._queue = queue
        self._spool = spool
        self._output = output
        self._stopped = threading.Event()

    def close(self) -> None:
        """Ends all waiting: a job whose end was not recorded is made again at the next start."""
        self._stopped.set()

    def keep(self, record: JobRecord, made: Path, size: tuple[int, int], remarks: Remarks) -> None:
        """Ends a job with its result, the file `made` whose pictures have `size`, width and
        height."""
        width, height = size
        seconds = round(self._queue.seconds(record), 3)
        scale = Fraction(width, record.source.width) if record.source else None
        extension = made.suffix[1:]
        name = names.of_result(record.name, extension, scale)
        try:
            if self._output is not None:
                plain = names.of_result(record.name, extension, None)
                name = kept_result(made, self._output, plain).name
            length = made.stat().st_size
        except (Waifu2xError, OSError) as error:
            self.fail(record, error.sentence if isinstance(error, Waifu2xError) else str(error))
            return
        result = ResultInfo(name, width, height, length, extension, seconds)
        self._written(lambda: self._queue.finish(record, result, remarks))

    def fail(self, record: JobRecord, error: str) -> None:
        """Ends a job with an error, in which the client's name of the file replaces paths of
        the job's folder."""
        path = re.escape(str(self._spool.of(record.id))) + r"(?:[\\/][\w.-]*\w)*"
        told = re.sub(path, lambda _: record.name, on_page(error, COMMAND_LINE))
        self._written(lambda: self._queue.fail(record, told))

    def drop(self, record: JobRecord, made: Path) -> None:
        """Removes the result of a cancelled job."""
        if self._queue.is_gone(record.id):
            self._spool.remove(record.id)
        else:
            made.unlink(missing_ok=True)

    def _written(self, write: Callable[[], None]) -> None:
        """Retries `write` until the queue is written: the work waits while the disk is full."""
        is_told = False
        while not self._stopped.is_set():
            try:
                write()
            except sqlite3.Error as error:
                if not is_told:
                    _log.error("the queue cannot be written: %s; the work waits", error)
                is_told = True
                self._stopped.wait(_AGAIN_SECONDS)
            else:
                return
