"""A line of progress at the end of a terminal, below all messages.

It is one line in any width, with the cursor at its beginning: if the terminal is made narrower, the
line may break in two, and all of it is still behind the cursor.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, TextIO, cast

from waifu2x.cli.output import report
from waifu2x.cli.output.progress_line import Figures

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

_QUIET_SECONDS = 1.0
"""Work that ends sooner is not worth a line, nor the time to load what draws it."""
_TIMES_A_SECOND = 5
_LINE_SECONDS = 30.0
"""Between two lines of progress where nothing is drawn."""
_ERASE = "\r\x1b[J"
"""Control sequences: to the beginning of the line, and clear from there on."""
_SHOW_CURSOR = "\x1b[?25h"
_LOCK_SECONDS = 0.2
"""How long an immediate end waits for a line that is being drawn."""


@contextmanager
def shown(figures: Callable[[], Figures]) -> Iterator[Callable[[], None]]:
    """Shows figures during the context, from the first second on; gives a function for changes.

    They are drawn on a terminal; elsewhere, with --verbose, a line tells of them now and then. Any
    thread may call both functions.
    """
    global _drawing
    if report.is_quiet() or not (_can_draw() or report.is_verbose()):
        yield lambda: None
        return
    if not _can_draw():
        yield _Logged(figures).changed
        return
    _drawing = drawing = _Drawing(figures)
    try:
        yield lambda: None
    except KeyboardInterrupt:
        drawing.end()
        clear_line()  # removes the terminal's ^C
        raise
    finally:
        drawing.end()
        _drawing = None


def erase() -> None:
    """Clears the line for good: the process ends at once. Any thread may call it."""
    if _drawing is not None:
        _drawing.erase()


def clear_line() -> None:
    """Clears the line until it is drawn again; a handler of signals may call it."""
    if _drawing is not None:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), _ERASE.encode())


def _can_draw() -> bool:
    return report.is_terminal() and os.environ.get("TERM") != "dumb"


class _Logged:
    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures
        self._lock = threading.Lock()
        self._since = time.monotonic()

    def changed(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now - self._since < _LINE_SECONDS:
                return
            self._since = now
        report.detail(self._figures().text())


class _Drawing:
    """A line that appears by itself once the work has taken a while."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures
        self._lock = threading.Lock()
        self._has_ended = False
        self._live: Live | None = None
        self._screen = _Screen(sys.stderr)
        self._timer = threading.Timer(_QUIET_SECONDS, self._show)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._has_ended = True
            report.write_by(None)
            live, self._live = self._live, None
        if live is not None:
            with suppress(OSError):  # the terminal may be gone
                live.stop()

    def erase(self) -> None:
        """Removes the line without waiting long for other threads."""
        self._screen.close(_ERASE + (_SHOW_CURSOR if self._live is not None else ""))

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._has_ended:
                return
            console = Console(file=cast("IO[str]", self._screen), highlight=False)
            self._live = Live(
                _Line(self._figures),
                console=console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                refresh_per_second=_TIMES_A_SECOND,
            )
            with suppress(OSError):
                self._live.start()
            report.write_by(lambda line: _print_above(console, line))


_drawing: _Drawing | None = None
"""The line that is drawn now."""


def _print_above(console: Console, line: str) -> None:
    from rich.text import Text

    console.print(Text(line), soft_wrap=True)


class _Line:
    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.control import Control
        from rich.segment import ControlType, Segment

        # The control code is for terminals without escape sequences.
        yield Segment("\x1b[J", None, [(ControlType.ERASE_IN_LINE, 2)])
        # Nothing in the last column: some terminals begin a new line there.
        yield self._figures().line(options.max_width - 1, ascii_only=options.ascii_only)
        yield Control((ControlType.CARRIAGE_RETURN,))


class _Screen:
    """Standard error as a file that can be closed for good, from any thread."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._is_closed = False
        self.encoding = file.encoding

    def write(self, text: str) -> int:
        with self._lock:
            return len(text) if self._is_closed else self._file.write(text)

    def flush(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._file.flush()

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self, last: str) -> None:
        is_free = self._lock.acquire(timeout=_LOCK_SECONDS)
        self._is_closed = True
        with suppress(OSError):
            self._file.write(last)
            self._file.flush()
        if is_free:
            self._lock.release()
