"""Compiles entry points in processes of their own, on all cores.

Numba's work is Python code, and LLVM's holds a lock: threads would take turns. The processes are
plain ones of this interpreter, which import nothing of the program's `__main__`, and end when this
process does. Wherever they cannot be had, or their code has another key, nothing comes back, and
the caller compiles by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from waifu2x.system.machine import core_count

if TYPE_CHECKING:
    import subprocess

_MOST = 8
"""The most processes: each takes 150 MiB of memory."""
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from waifu2x.backends.cpu.compile.builders import serve
serve()
"""
_MOST_BYTES = 1 << 26
"""More bytes than the code of an entry point has."""
_SIZE = struct.Struct("<Q")


class _Order(NamedTuple):
    """An entry point to be compiled."""

    module: str
    name: str
    key: str
    made: Future[bytes | None]
    """Its symbol and object code; None if the caller must compile it."""


_lock = threading.Lock()
_orders: deque[_Order] = deque()
_running = 0
"""The threads that give orders to processes."""


def can_build() -> bool:
    """Returns whether other processes can compile: this interpreter's program is Python, not a
    program that embeds it, which would start itself again."""
    name = Path(sys.executable or "").name.lower()
    return name.startswith("python") and not getattr(sys, "frozen", False) and core_count() > 1


def build(wanted: Sequence[tuple[str, str, str]]) -> list[Future[bytes | None]]:
    """Begins to compile entry points, given by module, name and key, in this order; returns what
    each becomes."""
    global _running
    orders = [_Order(*one, Future()) for one in wanted]
    with _lock:
        _orders.extend(orders)
        threads = min(len(_orders), min(core_count(), _MOST) - _running)
        for _ in range(threads):
            # A daemon: the end of the program does not wait for code that nobody needs any more.
            threading.Thread(target=_oversee, name="waifu2x-compile", daemon=True).start()
            _running += 1
    return [order.made for order in orders]


def _oversee() -> None:
    """Gives orders to a process until there are none left."""
    import subprocess  # for the one run that compiles

    process = None
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    while (order := _next()) is not None:
        made = None
        if process is not None:
            try:
                made = _asked(process, order) or None
            except (OSError, struct.error):
                process.kill()
                process.communicate()
                process = None
        order.made.set_result(made)
    if process is not None:
        process.communicate()


def _next() -> _Order | None:
    """Returns the next order; None if there is none, and this thread ends."""
    global _running
    with _lock:
        if _orders:
            return _orders.popleft()
        _running -= 1
        return None


def _asked(process: subprocess.Popen[bytes], order: _Order) -> bytes:
    """Returns what a process makes of an order; empty if it cannot. Raises OSError or struct.error
    if it has ended, or answers something else."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(order[:3]).encode() + b"\n")
    process.stdin.flush()
    (size,) = _SIZE.unpack(process.stdout.read(_SIZE.size))
    made = process.stdout.read(min(size, _MOST_BYTES))
    if len(made) != size:
        raise OSError("a process that compiles has ended")
    return made


def serve() -> None:
    """Compiles what the lines of stdin ask for, and writes it to stdout, after its size; nothing
    for code that fails or whose key here is another."""
    # Libraries may print, and results go to stdout.
    out: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from waifu2x.backends.cpu.compile.compiled import Compiled

    for line in sys.stdin.buffer:
        module, name, key = json.loads(line)
        made = b""
        # The caller compiles it again, and says what is wrong.
        with contextlib.suppress(Exception):
            code = Compiled(module, name)
            if code.key() == key:
                made = code.compiled()
        out.write(_SIZE.pack(len(made)) + made)
        out.flush()
