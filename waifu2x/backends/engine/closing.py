"""Closes what works for a caller, also when the caller's own function for progress asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from waifu2x.backends import Progress


class _Depth(threading.local):
    calls = 0
    """Callers' functions that this thread is in."""


_depth = _Depth()


def told(on_progress: Callable[[float], object]) -> Progress:
    """Returns a caller's function for progress as one in which `when_idle` waits for nothing."""

    def tell(part: float) -> None:
        _depth.calls += 1
        try:
            on_progress(part)
        finally:
            _depth.calls -= 1

    return tell


def when_idle(close: Callable[[], None]) -> None:
    """Calls `close`, which may wait for calls under way; in a caller's function another thread does
    so, since those wait for this function."""
    if _depth.calls:
        threading.Thread(target=close, name="waifu2x-close").start()
    else:
        close()
