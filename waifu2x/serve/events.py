"""What happens, told to every client that listens: server-sent events.

Clients are told which jobs have changed, not how: whoever is slow gets the latest state of each job
once, so that no client takes more memory than there are jobs. The last message of those that leave
together has an id: a client that loses some of them asks for all of them again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waifu2x.serve.queue import Queue

MOST_LISTENERS = 64
"""Streams that go on: beyond them a client is told what it has missed, and comes again."""
_AGAIN_SECONDS = 5
"""After which it does."""
_BETWEEN_SECONDS = 0.05
"""Between two messages of a client at least."""
_QUIET_SECONDS = 15.0
"""After so long without an event comes a comment, which keeps the connection open."""
_REMEMBERED = 4096
"""Removals that are remembered, for clients that were away."""
MOST_TOLD = 1000
"""Jobs that a client is told of one by one: if more have changed, it loads the list anew."""


class _Listener:
    """A client: what has changed since it was told."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        self.removed: dict[str, None] = {}
        self.is_behind = False
        """Whether it has to load the list anew."""
        self.told = asyncio.Event()

    def note(self, changed: Sequence[str], removed: Sequence[str]) -> None:
        """Some jobs have changed, and some are gone."""
        self.told.set()
        if max(len(changed), len(removed)) > MOST_TOLD:
            self.is_behind = True
        if self.is_behind:
            self.changed.clear()
            self.removed.clear()
            return
        self.changed.update(dict.fromkeys(changed))
        for identity in removed:
            self.changed.pop(identity, None)
            self.removed[identity] = None

    def taken(self) -> tuple[list[str], list[str], bool]:
        """What has changed and what is gone since the last call, and whether it is behind."""
        taken = list(self.changed), list(self.removed), self.is_behind
        self.told.clear()
        self.changed.clear()
        self.removed.clear()
        self.is_behind = False
        return taken


class Events:
    """All clients that listen. Whatever happens is told from any thread, by `jobs_changed` and
    `jobs_removed`; the rest is for the event loop."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[_Listener] = set()
        self._removed: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        self._known_from = self._version = queue.version
        """The version after which everything that has happened is known, and that of what was
        noted last."""
        self._is_closed = False
        queue.on_changed, queue.on_removed = self._jobs_changed, self._jobs_removed

    def begin(self) -> None:
        """Takes the running event loop for its own."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Ends all streams."""
        self._is_closed = True
        for listener in self._listeners:
            listener.told.set()

    async def stream(self, last: int | None) -> AsyncIterator[bytes]:
        """The events of a client, of which the one before had that id, if there was one. The stream
        ends at once, and says when to come again, if there are as many as there may be."""
        if len(self._listeners) >= MOST_LISTENERS:
            yield f"retry: {1000 * _AGAIN_SECONDS}\n\n".encode()
            for message in await self._first(last):
                yield message
            return
        with self._listening() as listener:
            for message in await self._first(last):
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
                for message in await run_in_threadpool(
                    self._news, self._version, *listener.taken()
                ):
                    yield message

    async def _first(self, last: int | None) -> list[bytes]:
        """What a client is told first."""
        version, removed = self._version, list(self._removed)
        return await run_in_threadpool(self._missed, last, version, removed)

    @contextmanager
    def _listening(self) -> Iterator[_Listener]:
        listener = _Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def _news(
        self, version: int, changed: Sequence[str], removed: Sequence[str], is_behind: bool
    ) -> list[bytes]:
        messages = [_event("job", job) for job in self._queue.shown_of(changed)]
        if removed:
            messages.append(_event("removed", {"ids": removed}))
        if is_behind:
            messages.append(_event("reset", {}))
        return [*messages, _event("counts", self._queue.shown_counts(), version)]

    def _missed(
        self, last: int | None, version: int, removed: Sequence[tuple[int, str]]
    ) -> list[bytes]:
        """What a client is told first: what it has missed if it was told of version `last`."""
        messages = []
        if last is not None:
            jobs = self._queue.changed_since(last, MOST_TOLD + 1)
            if not self._known_from <= last <= version or len(jobs) > MOST_TOLD:
                messages = [_event("reset", {})]
            else:
                messages = [_event("job", job) for job in jobs]
                ids = [identity for number, identity in removed if number > last]
                if ids:
                    messages.append(_event("removed", {"ids": ids}))
        return [*messages, _event("counts", self._queue.shown_counts(), version)]

    def _jobs_changed(self, ids: Sequence[str], version: int) -> None:
        self._in_loop(self._note, ids, (), version)

    def _jobs_removed(self, ids: Sequence[str], version: int) -> None:
        self._in_loop(self._note, (), ids, version)

    def _in_loop(self, note: Any, *told: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(note, *told)

    def _note(self, changed: Sequence[str], removed: Sequence[str], version: int) -> None:
        self._version = max(self._version, version)
        if len(removed) > MOST_TOLD:
            self._removed.clear()
            self._known_from = version
        else:
            for identity in removed:
                if len(self._removed) == _REMEMBERED:
                    self._known_from = self._removed[0][0]
                self._removed.append((version, identity))
        for listener in self._listeners:
            listener.note(changed, removed)


def _event(kind: str, data: Any, version: int | None = None) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    named = "" if version is None else f"id: {version}\n"
    return f"{named}event: {kind}\ndata: {text}\n\n".encode()
