"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from waifu2x.system import files
from waifu2x.system.files import is_temporary, reason, remove_abandoned, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def disk_full(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(descriptor: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("content", [b"", b"\r\n\x00\x1a\xff", bytes(1 << 20)])
def test_writes_and_replaces(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "result.png"
    for data in (content, b"second", content):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert names(tmp_path) == ["result.png"]


@pytest.mark.parametrize("has_links", [True, False])
def test_what_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """With an error, and without; also where the file system has no hard links."""
    if not has_links:
        monkeypatch.setattr(os, "link", disk_full)
    path = tmp_path / "result.png"
    write_atomically(path, b"first", replace=None)
    write_atomically(path, b"second", replace=None)
    with pytest.raises(FileExistsError):
        write_atomically(path, b"third", replace=False)
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["result.png"]


@pytest.mark.parametrize("before", [b"old content", None])
def test_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    path = tmp_path / "result.png"
    if before is not None:
        path.write_bytes(before)
    present = names(tmp_path)
    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, b"new content")
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == present
    assert before is None or path.read_bytes() == before


def test_interruption_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.png"
    path.write_bytes(b"old content")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new content")
    assert names(tmp_path) == ["result.png"]
    assert path.read_bytes() == b"old content"


def test_the_old_content_stands_until_the_new_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.png"
    path.write_bytes(b"old content")
    seen: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(path.read_bytes()))
    write_atomically(path, b"new content")
    assert seen == [b"old content"]
    assert path.read_bytes() == b"new content"


def test_follows_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "target.png", tmp_path / "link.png"
    target.write_bytes(b"old content")
    link.symlink_to(Path("real") / "target.png")
    write_atomically(link, b"new content")
    assert link.is_symlink()
    assert target.read_bytes() == b"new content"
    assert names(tmp_path / "real") == ["target.png"]


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    # From Python 3.13 on such a link is replaced.
    refused = pytest.raises(OSError, match=os.strerror(errno.ELOOP))
    with refused if sys.version_info < (3, 13) else nullcontext():
        write_atomically(tmp_path / "a", b"content")
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_mode_honours_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    path = tmp_path / "result.png"
    previous = os.umask(mask)
    try:
        write_atomically(path, b"content")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".png")
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("absent/result.png", FileNotFoundError),
        ("file/result.png", NotADirectoryError),
        ("folder", IsADirectoryError),
    ],
)
def test_impossible_places(tmp_path: Path, name: str, kind: type[OSError]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(kind):
        write_atomically(tmp_path / name, b"content")
    assert names(tmp_path) == ["file", "folder"]
    assert names(tmp_path / "folder") == []


def test_reason() -> None:
    assert reason(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == "no space left on device"
    assert reason(OSError("Something Else")) == "something else"


UNFINISHED = """
import sys, time
from pathlib import Path
from waifu2x.system.files import writing
with writing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("open", flush=True)
    time.sleep(600)
"""


def temporaries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_temporary(path.name))


def test_only_what_a_killed_program_left_is_removed(tmp_path: Path) -> None:
    """A program that is still writing is another process here, as a second run would be."""
    command = [sys.executable, "-c", UNFINISHED, str(tmp_path / "result.png")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        (left,) = temporaries(tmp_path)
        assert not remove_abandoned(left)
        assert left.read_bytes() == b"half"
    finally:
        process.kill()
        process.communicate()
    assert temporaries(tmp_path) == [left]
    assert remove_abandoned(left)
    assert names(tmp_path) == []


def test_what_other_machines_left_is_removed_after_a_day(tmp_path: Path) -> None:
    """Their locks may not be seen here."""
    foreign = tmp_path / f".waifu2x-00000000-{'0' * 12}.part"
    foreign.touch()
    assert not remove_abandoned(foreign)
    yesterday = time.time() - 90000
    os.utime(foreign, (yesterday, yesterday))
    assert remove_abandoned(foreign)


@pytest.mark.parametrize(
    "name",
    ["a.part", ".waifu2x.part", f".waifu2x-00000000-{'0' * 12}.part.png", ".waifu2x-x-y.part"],
)
def test_nothing_else_is_removed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    os.utime(path, (0, 0))
    assert not remove_abandoned(path)
    assert not remove_abandoned(tmp_path / f".waifu2x-00000000-{'1' * 12}.part")  # is not there
    assert names(tmp_path) == [name]


def test_a_file_that_was_taken_for_abandoned_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program comes between the making of a file and its lock, once."""
    real, removed = files.lock, list[Path]()

    def lock(file: IO[bytes]) -> bool | None:
        if not removed:
            removed.extend(temporaries(tmp_path))
            assert remove_abandoned_by(real, removed[0])
        return real(file)

    monkeypatch.setattr(files, "lock", lock)
    write_atomically(tmp_path / "result.png", b"content")
    assert len(removed) == 1
    assert names(tmp_path) == ["result.png"]


def remove_abandoned_by(lock: Callable[[IO[bytes]], bool | None], path: Path) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "lock", lock)
        return remove_abandoned(path)


@pytest.mark.skipif(sys.platform != "linux", reason="no such advice elsewhere")
def test_a_large_file_goes_to_the_disk_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def advise(file: int, start: int, length: int, advice: int) -> None:
        told.append(os.fstat(file).st_size)
        raise OSError(errno.EINVAL, "no such advice")

    monkeypatch.setattr(files, "_WRITTEN_BACK", 100_000)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    content = os.urandom(1000) * 350
    with files.writing(tmp_path / "large") as file:
        for start in range(0, len(content), 10_000):
            file.write(content[start : start + 10_000])
    assert (tmp_path / "large").read_bytes() == content
    assert len(told) == 3
    assert all(later - earlier >= 100_000 for earlier, later in pairwise([0, *told]))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed here")
def test_what_is_no_file_is_closed_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match=r"Is a directory|not a regular file"):
            files.open_regular(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
