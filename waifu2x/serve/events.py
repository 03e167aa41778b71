"""What happens, told to every client that listens: server-sent events.

Clients are told which jobs have changed, not how: whoever is slow gets the latest state of each job
once, so that no client takes more memory than there are jobs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waifu2x.serve.queue import Queue

MOST_LISTENERS = 64
_BETWEEN_SECONDS = 0.05
"""Between two messages of a client at least."""
_QUIET_SECONDS = 15.0
"""After so long without an event comes a comment, which keeps the connection open."""
_REMEMBERED = 4096
"""Removals that are remembered, for clients that were away."""
_MOST_MISSED = 1000
"""Jobs that are sent to a client that was away: if more have changed, it loads the list anew."""


class _Listener:
    """A client: what has changed since it was told."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        self.removed: list[str] = []
        self.told = asyncio.Event()


class Events:
    """All clients that listen. Whatever happens is told from any thread, by `job_changed` and
    `job_removed`; the rest is for the event loop."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[_Listener] = set()
        self._removed: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        self._known_from = queue.version
        """The version after which everything that has happened is known."""
        self._is_closed = False
        queue.on_changed, queue.on_removed = self._job_changed, self._job_removed

    def begin(self) -> None:
        """Takes the running event loop for its own."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Ends all streams."""
        self._is_closed = True
        for listener in self._listeners:
            listener.told.set()

    @property
    def is_full(self) -> bool:
        """Whether there are as many listeners as there may be."""
        return len(self._listeners) >= MOST_LISTENERS

    async def stream(self, last: int | None) -> AsyncIterator[bytes]:
        """The events of a client, of which the one before had that id, if there was one."""
        with self._listening() as listener:
            yield _event("counts", self._queue.shown_counts(), self._queue.version)
            for message in self._missed(last):
                yield message
            next_one = 0.0
            while not self._is_closed:
                try:
                    await asyncio.wait_for(listener.told.wait(), _QUIET_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                await asyncio.sleep(next_one - time.monotonic())
                next_one = time.monotonic() + _BETWEEN_SECONDS
                listener.told.clear()
                changed, listener.changed = listener.changed, {}
                removed, listener.removed = listener.removed, []
                for message in self._news(changed, removed):
                    yield message

    @contextmanager
    def _listening(self) -> Iterator[_Listener]:
        listener = _Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def _news(self, changed: Iterable[str], removed: Iterable[str]) -> Iterable[bytes]:
        version = self._queue.version
        for identity in changed:
            job = self._queue.shown(identity)
            if job is not None:
                yield _event("job", job, version)
        for identity in removed:
            yield _event("removed", {"id": identity}, version)
        yield _event("counts", self._queue.shown_counts(), version)

    def _missed(self, last: int | None) -> Iterable[bytes]:
        """What a client has missed that was told of version `last`."""
        if last is None:
            return []
        version = self._queue.version
        jobs = self._queue.changed_since(last, _MOST_MISSED + 1)
        forgotten = len(self._removed) == _REMEMBERED and last < self._removed[0][0]
        if last < self._known_from or last > version or forgotten or len(jobs) > _MOST_MISSED:
            return [_event("reset", {}, version)]
        removed = [identity for number, identity in self._removed if number > last]
        return [
            *(_event("job", job, version) for job in jobs),
            *(_event("removed", {"id": identity}, version) for identity in removed),
        ]

    def _job_changed(self, identity: str) -> None:
        self._in_loop(self._note_changed, identity)

    def _job_removed(self, identity: str, version: int) -> None:
        self._in_loop(self._note_removed, identity, version)

    def _in_loop(self, note: Any, *told: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(note, *told)

    def _note_changed(self, identity: str) -> None:
        for listener in self._listeners:
            listener.changed[identity] = None
            listener.told.set()

    def _note_removed(self, identity: str, version: int) -> None:
        self._removed.append((version, identity))
        for listener in self._listeners:
            listener.changed.pop(identity, None)
            listener.removed.append(identity)
            listener.told.set()


def _event(kind: str, data: Any, version: int) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {version}\nevent: {kind}\ndata: {text}\n\n".encode()
