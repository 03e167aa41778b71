"""The process that reads a film as a thread of this one: tests can change what it does."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from waifu2x.flows.film.reading import client, process
from waifu2x.flows.fleet.processes import ChildProcess


class _ChildThread:
    """Stands for a ChildProcess, with a connection that holds little."""

    def __init__(self, target: Any, *arguments: Any, name: str) -> None:
        assert target is process.read_film
        ends = socket.socketpair()
        for end in ends:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, 1)  # the least that the system allows
        self.connection, self._own = (Connection(end.detach()) for end in ends)
        self._thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
        self._sending = threading.Lock()
        self.pid = os.getpid()
        self.start = self._thread.start

    def _run(self, path: Path, signs: Any, start: Fraction) -> None:
        with ExitStack() as held, self._own:
            process.answer(self._own, path, signs, held, start)

    def kill(self) -> None:
        """It ends with its connection."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._own.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)

    def how_ended(self) -> str:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the reading of the film hangs"
        return "ended"

    def close(self) -> None:
        self.kill()
        self.how_ended()
        with self._sending:
            self.connection.close()

    send = ChildProcess.send
    receive = ChildProcess.receive


@contextmanager
def reading_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it lasts, films are read by threads of this process."""
    with monkeypatch.context() as patch:
        patch.setattr(client, "ChildProcess", _ChildThread)
        patch.setattr(process, "limit_memory", lambda size: None)
        yield
