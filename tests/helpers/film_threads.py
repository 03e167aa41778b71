"""The process that reads a film as a thread of this one: tests can change what it does."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from waifu2x.flows.film.reading import client, process


class _Thread:
    """Stands for a process, as its starter sees it."""

    exitcode = 0

    def __init__(self, target: Any, args: tuple[Any, ...], name: str, daemon: bool) -> None:
        assert target is process.read_film
        # The other end is closed here as soon as it is the process's.
        own = Connection(os.dup(args[0].fileno()))
        self._thread = threading.Thread(target=self._run, args=args[1:], name=name, daemon=True)
        self._own = own
        self.pid = os.getpid()

    def _run(self, path: Path, signs: Any, start: Fraction) -> None:
        with ExitStack() as held, self._own:
            process.answer(self._own, path, signs, held, start)

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        """It ends with its connection."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._own.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the reading of the film hangs"


class _Context:
    """Starts threads as if they were processes, whose connections hold little."""

    Process = _Thread

    def RawArray(self, kind: str, size: int) -> Any:  # noqa: N802
        return get_context().RawArray(kind, size)

    def Pipe(self) -> tuple[Connection, Connection]:  # noqa: N802
        ends = socket.socketpair()
        for end in ends:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, 1)  # the least that the system allows
        ours, theirs = (Connection(end.detach()) for end in ends)
        return ours, theirs


@contextmanager
def reading_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it lasts, films are read by threads of this process."""
    with monkeypatch.context() as patch:
        patch.setattr(client, "start_context", _Context)
        patch.setattr(process, "limit_memory", lambda size: None)
        yield
