"""Programs in a terminal: a pseudo-terminal, and an emulator that says what is on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import pyte

import waifu2x

_SOURCES = str(Path(waifu2x.__file__).parent.parent)
_SECONDS = 120.0
"""How long anything is waited for."""


class Terminal:
    """A Python program whose output is a terminal, and the terminal's screen."""

    def __init__(
        self,
        arguments: Sequence[str],
        columns: int = 80,
        rows: int = 24,
        *,
        environment: dict[str, str] | None = None,
        stdout: int | None = None,
    ) -> None:
        """`arguments` are those of Python; `environment` is added to this one's. Its standard input
        is a pipe, for `say`; `stdout` is a file's number in the place of the terminal."""
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        """All that the program has written."""
        self._master, theirs = pty.openpty()
        self._set_size(columns, rows)
        own = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
        own |= {"TERM": "xterm-256color", "PYTHONPATH": _SOURCES, **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env=own,
            preexec_fn=_lead,
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.hang_up()

    def resize(self, columns: int, rows: int = 24) -> None:
        """Gives the window another size."""
        self._set_size(columns, rows)
        self.screen.resize(rows, columns)

    def hang_up(self) -> None:
        """Closes the window."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def say(self, line: str) -> None:
        """Writes a line to the program's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def type(self, keys: bytes) -> None:
        """Types something."""
        os.write(self._master, keys)

    def until(self, condition: Callable[[], bool]) -> None:
        """Reads what the program writes until a condition holds."""
        deadline = time.monotonic() + _SECONDS
        while not condition():
            assert self._read(), f"ended before: {self.lines}"
            assert time.monotonic() < deadline, self.lines

    def end(self) -> int:
        """Closes standard input and reads to the end; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self._read():
            pass
        return self.process.wait(_SECONDS)

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without the empty ones at the end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n").split("\n")

    def _read(self) -> bool:
        """Whether the program may write more."""
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # as Linux has it, where all other ends are closed
            return False
        self.written += data
        self._stream.feed(data)
        return bool(data)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _lead() -> None:
    """Makes the terminal the one whose keys are signals for this process."""
    os.setsid()
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
