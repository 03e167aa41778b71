"""Open files that go to another process."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle


def send_descriptor(connection: Connection, descriptor: int, process: int) -> None:
    """Gives a process, by its number, an open file. Raises OSError."""
    if sys.platform == "win32":
        import msvcrt

        descriptor = msvcrt.get_osfhandle(descriptor)
    send_handle(connection, descriptor, process)


def receive_descriptor(connection: Connection) -> int:
    """An open file that was sent; who gets it closes it. Raises OSError."""
    received = recv_handle(connection)
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.open_osfhandle(received, 0)
    return received
