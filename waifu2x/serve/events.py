"""Tells clients what happens to jobs, by server-sent events.

Clients are told which jobs have changed, not how: a slow client gets the latest state of each job
once, so it takes no more memory than there are jobs. The last message of a batch has an id: a
client that loses some of them asks for the whole batch again.
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
"""The most open streams: another client gets what it missed, and must reconnect."""
_AGAIN_SECONDS = 5
"""How long it waits before it reconnects."""
_BETWEEN_SECONDS = 0.05
"""The least time between two messages to a client."""
_QUIET_SECONDS = 15.0
"""Time without an event after which a comment keeps the connection open."""
_REMEMBERED = 4096
"""Removals that are remembered for clients that reconnect."""
MOST_TOLD = 1000
"""The most jobs that one message names: if more have changed, clients reload the list."""


class _Listener:
    """A client: what has changed since its last message."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        self.removed: dict[str, None] = {}
        self.is_behind = False
        """Whether it has to reload the list."""
        self.told = asyncio.Event()

    def note(self, changed: Sequence[str], removed: Sequence[str]) -> None:
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
        """Returns changed ids, removed ids and whether it is behind; then forgets them."""
        taken = list(self.changed), list(self.removed), self.is_behind
        self.told.clear()
        self.changed.clear()
        self.removed.clear()
        self.is_behind = False
        return taken


class Events:
    """All listening clients. `Queue` reports changes from any thread; the rest is for the event
    loop."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[_Listener] = set()
        self._removed: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        self._known_from = self._version = queue.version
        """The version since which all changes are known, and the latest version."""
        self._is_closed = False
        queue.on_changed = lambda ids, version: self._in_loop(ids, (), version)
        queue.on_removed = lambda ids, version: self._in_loop((), ids, version)

    def begin(self) -> None:
        """Attaches to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._is_closed = True
        for listener in self._listeners:
            listener.told.set()

    async def stream(self, last: int | None) -> AsyncIterator[bytes]:
        """Streams the events after id `last`, or all from now on if it is None. If there are too
        many listeners, sends what the client missed, asks it to retry later, and ends."""
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
        """Returns what a client has missed since version `last`, and the counts."""
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

    def _in_loop(self, *told: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note, *told)

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
