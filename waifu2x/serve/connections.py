"""Limits connections: how many there are, and how long each may take.

uvicorn waits forever for the header of a request, and counts requests instead of connections. Here
a connection that has not shown the token may be closed at any time, the oldest first, so a flood of
silent connections keeps no client out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from waifu2x.serve.limits import (
    CHUNK_SECONDS,
    HEADER_SECONDS,
    IDLE_SECONDS,
    MOST_UPLOADS,
    MOST_WAITING,
    MOST_WORKING,
)
from waifu2x.serve.security import API, HEADERS, Access, refuse

DOWNLOAD = "/download/"
"""Prefix of the addresses that need no token, since they cannot be guessed."""
_UPLOADS = ("/api/jobs", "/api/upscale")
"""Where files are sent to."""


class Connections:
    """Holds all connections of a server. Only its event loop may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        """Connections without a request, or with one without the token; the oldest first."""
        self._by_client: dict[Any, Connection] = {}
        self.working = 0
        """Requests with the token that are under way."""
        self.uploading = 0
        """Those of them that send files."""

    def add(self, connection: Connection) -> None:
        """Adds a new connection. If too many wait, the oldest is closed."""
        self._by_client[connection.client] = connection
        self.wait(connection)

    def wait(self, connection: Connection) -> None:
        """Marks a connection as idle."""
        self._waiting[connection] = None
        self._waiting.move_to_end(connection)
        while len(self._waiting) > MOST_WAITING:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.transport.abort()

    def remove(self, connection: Connection) -> None:
        """Forgets a closed connection."""
        self._waiting.pop(connection, None)
        if self._by_client.get(connection.client) is connection:
            del self._by_client[connection.client]

    def trust(self, scope: Scope) -> Connection | None:
        """Returns the connection of a trusted request, and lifts its time limit."""
        connection = self._by_client.get(scope["client"])
        if connection is not None:
            self._waiting.pop(connection, None)
            connection.end_timer()
        return connection


class Connection(H11Protocol):
    """A connection with time limits for the header of a request and for idleness."""

    registry: Connections
    """Set by the subclass that the server makes."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.registry.add(self)
        self._begin_timer(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_timer()
        self.registry.remove(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self.registry.wait(self)
            self._begin_timer(IDLE_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Answers malformed HTTP with the headers of every answer."""
        body = b"This is no HTTP."
        lines = [b"HTTP/1.1 400 Bad Request", b"content-type: text/plain", b"connection: close"]
        lines += [name + b": " + value for name, value in HEADERS]
        lines += [b"cache-control: no-store", b"content-disposition: attachment"]
        lines += [f"content-length: {len(body)}".encode(), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def end_timer(self) -> None:
        """Lifts the time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_timer(self, seconds: float) -> None:
        self.end_timer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)


class Patience:
    """Wraps an application: closes connections of clients that do not take their answer in time."""

    def __init__(self, app: Any, registry: Connections) -> None:
        self._app = app
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = self._registry.trust(scope) if scope["path"].startswith(API) else None
        is_upload = (
            connection is not None and scope["path"] in _UPLOADS and scope["method"] == "POST"
        )
        is_full = is_upload and self._registry.uploading >= MOST_UPLOADS
        if connection is not None and (is_full or self._registry.working >= MOST_WORKING):
            await refuse(send, 503, "Too many requests at a time: try again.")
            return

        async def patient(message: Message) -> None:
            nonlocal connection
            is_download = scope["path"].startswith(DOWNLOAD)
            if is_download and message["type"] == "http.response.start":
                # Only a valid address is answered with 200, and it is as good as the token.
                connection = self._registry.trust(scope) if message["status"] == 200 else None
            try:
                await asyncio.wait_for(send(message), CHUNK_SECONDS)
            except TimeoutError:
                if connection is not None:
                    connection.transport.abort()
                raise ConnectionAbortedError from None

        is_counted = connection is not None
        self._registry.working += is_counted
        self._registry.uploading += is_upload
        try:
            await self._app(scope, receive, patient)
        finally:
            self._registry.working -= is_counted
            self._registry.uploading -= is_upload
