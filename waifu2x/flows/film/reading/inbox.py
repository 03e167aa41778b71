"""Waits for messages of another process: often, and so without what each wait would set up."""

from __future__ import annotations

import select
from collections.abc import Callable
from multiprocessing.connection import Connection


def inbox(connection: Connection) -> Callable[[float], bool]:
    """A function that waits for so many seconds at most, and says whether there is a message, or
    the end of the connection. Raises OSError once it is closed."""
    if not hasattr(select, "poll"):
        return connection.poll
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)

    def poll(seconds: float) -> bool:
        connection.fileno()  # a number that is used again would be another's
        return bool(waiting.poll(seconds * 1000))

    return poll
