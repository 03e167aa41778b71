"""Queues of a server without the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import SourceInfo
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.queue import Queue
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store


def queue_of(folder: Path, store: Store | None = None, **limits: int) -> Queue:
    """A queue in a folder, by a store of its own unless there is one."""
    spool = Spool(folder)
    return Queue(store or Store(spool.database, print), spool, ServiceLimits(**limits))


def listed(queue: Queue) -> list[dict[str, Any]]:
    """The jobs of a queue as clients see them, in the order of the list."""
    jobs: list[dict[str, Any]] = queue.changes(0, 10_000)["jobs"]
    return sorted(jobs, key=lambda job: int(job["number"]))


def added(queue: Queue, folder: Path, content: bytes) -> str:
    """The id of a new job of that queue, which waits: a file with that content."""
    identity, path = Spool(folder).new()
    (path / "source").write_bytes(content)
    info = SourceInfo(1, 1, len(content), "PNG", 1)
    queue.add(identity, "picture", "x.png", JobSettings(), info, None)
    return identity
