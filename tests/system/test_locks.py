"""Locks name their holder, and no process that has ended."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from waifu2x.system.locks import HeldElsewhereError, locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a locked file cannot be read")
ROOT = Path(__file__).parents[2]
_HOLD = """
import sys
from pathlib import Path
from waifu2x.system.locks import locked
with locked(Path(sys.argv[1]), shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another(path: Path, how: str) -> Iterator[int]:
    """Lets another process hold the lock; gives its number. It ends with the block."""
    command = [sys.executable, "-c", _HOLD, str(path), how]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, **streams) as process:  # type: ignore[call-overload]
        assert process.stdout.readline().strip() == b"held"
        try:
            yield process.pid
        finally:
            process.stdin.close()


def _refused(path: Path, *, shared: bool = False) -> str:
    with pytest.raises(HeldElsewhereError) as found, locked(path, shared=shared):
        pass
    return str(found.value)


@pytest.mark.parametrize("how", ["alone", "shared"])
def test_the_holder_is_named(tmp_path: Path, how: str) -> None:
    lock = tmp_path / "lock"
    with held_by_another(lock, how) as number:
        assert _refused(lock) == f"{platform.node()}, process {number}"
    with locked(lock):
        assert _refused(lock, shared=True) == f"{platform.node()}, process {os.getpid()}"
    assert lock.read_bytes() == b""


def test_one_that_has_ended_is_not_named(tmp_path: Path) -> None:
    """It was killed, and has left its name; somebody else holds the lock now."""
    lock = tmp_path / "lock"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with locked(lock, shared=True):
        lock.write_text(f"{platform.node()}, process {ended.pid}")
        assert _refused(lock) == "another process"
        lock.write_text(f"elsewhere, process {ended.pid}")
        assert _refused(lock) == f"elsewhere, process {ended.pid}"
        for odd in ("", f"{platform.node()}, process x", f"{platform.node()}, process {10**30}"):
            lock.write_text(odd)
            assert _refused(lock) == "another process"


def test_of_shared_ones_the_last_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(lock, shared=True), held_by_another(lock, "shared") as number:
        assert _refused(lock) == f"{platform.node()}, process {number}"
    with locked(lock) as has_locks:
        assert has_locks


def test_what_goes_wrong_within_passes_through(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError, match="nobody reads"), locked(tmp_path / "lock"):
        raise BrokenPipeError("nobody reads")
    with locked(tmp_path / "lock") as has_locks:
        assert has_locks
