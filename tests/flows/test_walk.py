"""Folders hold other things than pictures, and names that only some file systems tell apart."""

from __future__ import annotations

import errno
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waifu2x.flows.batch.plan import Found, plan, walk
from waifu2x.flows.batch.subset import Shard, shard_of


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def found(folder: Path, recursive: bool = True, excluded: str = "nowhere") -> dict[str, Found]:
    return {each.path: each for each in walk(folder, recursive, folder / excluded)}


def targets(folder: Path) -> dict[str, str]:
    return dict(plan(folder, folder.parent / "out", "png", True).jobs.names)


def test_what_systems_leave_is_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "Thumbs.db", "desktop.ini", ".DS_Store", "._a.png")
    touch(
        tmp_path, "__MACOSX/a.png", "@eaDir/a.png/SYNOPHOTO.jpg", "lost+found/b.png", ".git/c.png"
    )
    assert set(found(tmp_path)) == {"a.png"}


def test_links(tmp_path: Path) -> None:
    """To folders: not followed. To files: files. To nothing, or in a circle: told when read."""
    touch(tmp_path, "sub/a.png")
    (tmp_path / "sub/up").symlink_to(tmp_path)
    (tmp_path / "folder.png").symlink_to(tmp_path / "sub")
    (tmp_path / "file.png").symlink_to(tmp_path / "sub/a.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "x.png").symlink_to(tmp_path / "y.png")
    (tmp_path / "y.png").symlink_to(tmp_path / "x.png")
    files = {path for path, each in found(tmp_path).items() if each.is_file}
    assert files == {"sub/a.png", "file.png", "gone.png", "x.png", "y.png"}
    assert {path for path, each in found(tmp_path).items() if not each.is_file} == {
        "sub/up",
        "folder.png",
    }


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    planned = plan(tmp_path, tmp_path / "out", "png", False)
    assert (len(planned.jobs), planned.passed_over) == (0, 1)


def test_a_folder_that_lies_in_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bind mounts make it: its identity is that of a folder above."""
    touch(tmp_path, "a.png", "inner/b.png")
    real = os.scandir

    def scandir(path: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return real(tmp_path if path.name == "inner" else path)

    stat = Path.stat
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(Path, "stat", lambda path: stat(tmp_path if "inner" in str(path) else path))
    assert set(found(tmp_path)) == {"a.png", "inner"}


def test_folders_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.png", "locked/b.png", "z/c.png")
    real = os.scandir

    def scandir(path: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if path.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    things = found(tmp_path)
    assert {path for path, each in things.items() if each.error is None} == {"a.png", "z/c.png"}
    assert isinstance(things["locked"].error, PermissionError)


def test_one_entry_that_nothing_is_known_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As network drives have them, where names come without kinds."""

    class Entry:
        name = "b.png"

        def is_dir(self, *, follow_symlinks: bool = True) -> bool:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        is_file = is_dir

    touch(tmp_path, "a.png")
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: nullcontext([*scan(path), Entry()]))
    assert set(found(tmp_path)) == {"a.png", "b.png"}


def test_folders_deeper_than_python_calls_itself(tmp_path: Path) -> None:
    limit, depth = sys.getrecursionlimit(), 200
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("a.png", os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert list(found(tmp_path)) == ["d/" * depth + "a.png"]
    finally:
        sys.setrecursionlimit(limit)
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe \xe4.png")
    touch(tmp_path / "in", name, "\u202eright to left.png", "new\nline.png")
    assert set(targets(tmp_path / "in")) == {name, "\u202eright to left.png", "new\nline.png"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.jpg", "a.JPG"], ["a.JPG.png", "a.jpg.2.png"]),
        (["A/x.png", "a/x.png"], ["A/x.png.png", "a/x.png.2.png"]),
        (["\u00e9.jpg", "e\u0301.jpg"], ["e\u0301.jpg.png", "\u00e9.jpg.2.png"]),
        (["a.jpg", "a.JPG", "a.jpg.2.gif"], ["a.JPG.png", "a.jpg.3.png", "a.jpg.2.png"]),
        (
            ["b.jpg", "b.JPG", "c.JPG", "c.jpg"],
            ["b.JPG.png", "b.jpg.2.png", "c.JPG.png", "c.jpg.2.png"],
        ),
        (["png", "a.b/c", "x.png"], ["x.png"]),
    ],
)
def test_names_that_are_one_to_some_file_systems(
    tmp_path: Path, names: list[str], expected: list[str]
) -> None:
    touch(tmp_path / "in", *names)
    assert sorted(targets(tmp_path / "in").values()) == sorted(expected)


NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), unique=True
)


@given(NAMES, st.integers(1, 9))
def test_parts_are_disjoint_and_complete(names: list[str], count: int) -> None:
    holders = [[n for n in range(1, count + 1) if Shard(n, count).holds(name)] for name in names]
    assert all(len(each) == 1 for each in holders)


def test_parts_are_the_same_everywhere() -> None:
    """By another program: `printf a.png | b2sum -l 64`, its last digit and 1 (of 16 parts)."""
    names = ["a.png", "sub/b.jpg", "ünï/画像 1.bmp", "\udcff.png", "u\u0308.png", "\u00fc.png"]
    assert [next(n for n in range(1, 17) if Shard(n, 16).holds(name)) for name in names] == [
        7, 3, 16, 4, 15, 15
    ]  # fmt: skip


def test_parts_are_about_as_large() -> None:
    names = [f"folder/{number:06}.png" for number in range(4000)]
    sizes = [sum(map(Shard(number, 4).holds, names)) for number in range(1, 5)]
    assert sum(sizes) == 4000
    # Five times the spread that a fair die would have.
    assert max(abs(size - 1000) for size in sizes) < 5 * 1000**0.5


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "-1/4", "1/4/2", " 1/4", "a/b", "¹/4"])
def test_parts_that_there_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="Expected a part like 3/16"):
        shard_of(text)


def test_names_do_not_depend_on_the_part(tmp_path: Path) -> None:
    touch(tmp_path / "in", *(f"{stem}.{type_}" for stem in "abcdefgh" for type_ in ("png", "jpg")))
    jobs = plan(tmp_path / "in", tmp_path / "out", "png", False).jobs
    parts = []
    for number in (1, 2, 3):
        part = Shard(number, 3)
        parts.append(jobs.where(lambda source, _, part=part: part.holds(source)).names)  # type: ignore[misc]
    assert sorted(name for part in parts for name in part) == sorted(jobs.names)
    assert all(part for part in parts)
    assert {target for _, target in jobs.names} == {
        f"{stem}.{type_}.png" for stem in "abcdefgh" for type_ in ("png", "jpg")
    }
