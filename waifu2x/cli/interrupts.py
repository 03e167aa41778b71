"""Ends the program soon after a signal, even during long compiled code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from waifu2x.cli.output.drawing import erase
from waifu2x.system.files import remove_unfinished

_GRACE_SECONDS = 0.5
"""How long the work may take to end by itself, which tells more and leaves less behind."""


@contextmanager
def heard_at_once(
    last_words: Callable[[], None] = lambda: None, *, gently: bool = False
) -> Iterator[None]:
    """Lets SIGINT, SIGTERM and SIGHUP end the block soon, without a half-made file.

    Python runs handlers of signals in the main thread, between its own instructions. Decoding,
    encoding or computing a part of a large picture is one instruction, and may take many seconds.
    So a thread gets signals from the system, and ends the program, after `last_words`, if the main
    thread has not ended the work by then. With `gently`, the first signal ends nothing. Only for
    the main thread; on Windows it does nothing.
    """
    if sys.platform == "win32":
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    ended = threading.Event()
    thread = threading.Thread(
        target=_listen,
        args=(reader, ended, last_words, int(gently)),
        name="waifu2x-signals",
        daemon=True,
    )
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)


def _listen(
    reader: int, ended: threading.Event, last_words: Callable[[], None], gentle: int
) -> None:
    """Reads the numbers of signals until the pipe is closed, and ignores the first `gentle`
    ones."""
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    while received := os.read(reader, 1):
        if received[0] not in numbers:
            continue
        if gentle:
            gentle -= 1
        elif not ended.wait(_GRACE_SECONDS):
            _end(received[0], last_words)


def _end(number: int, last_words: Callable[[], None]) -> None:
    """Ends the program as the signal's handler would have done."""
    try:
        erase()
        last_words()
        if number == signal.SIGINT:
            sys.stderr.write("Interrupted.\n")
        sys.stderr.flush()
    finally:  # the terminal may be gone
        remove_unfinished()
        os._exit(128 + number)
