"""Whether sdist and wheel come out the same, byte for byte, wherever and whenever they are built.

python -m release.build_twice FOLDER [--code]     FOLDER gets the files, if both builds agree

Each build has a copy of what git tracks, in another folder, written with another umask in another
order, under another time, time zone and language. Exits with 1, and the names of members that
differ, if the builds differ. With `--code`, each build compiles the machine code of a release for
some minutes, and the wheel carries it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from release import project


class Surroundings(NamedTuple):
    """The conditions of a build that must not show in its result."""

    folder: str
    umask: int
    modified: int
    """The time of each file, in seconds since 1970."""
    environment: Mapping[str, str]
    is_reversed: bool
    """Whether files are written in reverse order, which folders may list them in."""


_HERE = {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"}
_ELSEWHERE = {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}
BOTH = (
    Surroundings("a", 0o022, 1_000_000_000, _HERE, is_reversed=False),
    Surroundings("a longer name", 0o077, 1_700_000_001, _ELSEWHERE, is_reversed=True),
)


def build(root: Path, around: Surroundings, epoch: str, *, with_code: bool = False) -> list[Path]:
    """Builds a copy of the tree below `root`; returns its sdist and its wheel, which carries
    machine code if `with_code`.

    `epoch` is SOURCE_DATE_EPOCH. Raises CalledProcessError.
    """
    tree, out = root / around.folder / "tree", root / around.folder / "dist"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=project.ROOT, check=True, capture_output=True, text=True
    )
    names = sorted(filter(None, listed.stdout.split("\0")), reverse=around.is_reversed)
    before = os.umask(around.umask)
    try:
        for name in names:
            source, copy = project.ROOT / name, tree / name
            if source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(source.read_bytes())
                copy.chmod(copy.stat().st_mode | (source.stat().st_mode & 0o100))
                os.utime(copy, (around.modified, around.modified))
        commands = [["build", "--no-isolation", "-o", str(out)]]
        if with_code:
            # Both from the tree: the sdist has no machine code.
            commands = [["release.machine_code"], [*commands[0], "--sdist", "--wheel"]]
        for command in commands:
            subprocess.run(
                [sys.executable, "-m", *command],
                cwd=tree,
                env={**os.environ, **around.environment, "SOURCE_DATE_EPOCH": epoch},
                check=True,
                stdout=subprocess.DEVNULL,
            )
    finally:
        os.umask(before)
    return sorted(out.iterdir())


def differences(one: Path, other: Path) -> list[str]:
    """Lists the members of two sdists or wheels that differ; the file itself where none does."""
    if one.name == other.name and one.read_bytes() == other.read_bytes():
        return []
    first, second = _members(one), _members(other)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    return [f"{one.name}: {name}" for name in names] or [f"{one.name}: order, dates or packing"]


def _members(path: Path) -> dict[str, tuple[object, ...]]:
    """Maps names in an sdist or wheel to rights, date and content."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {
                each.filename: (each.external_attr, each.date_time, each.CRC)
                for each in wheel.infolist()
            }
    with tarfile.open(path) as sdist:
        return {
            each.name: (
                each.mode,
                each.mtime,
                each.uid,
                each.gid,
                each.uname,
                _content(sdist, each),
            )
            for each in sdist.getmembers()
        }


def _content(sdist: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = sdist.extractfile(member)
    return b"" if file is None else hashlib.sha256(file.read()).digest()


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--code", action="store_true")
    options = parser.parse_args(arguments)
    epoch = (
        os.environ.get("SOURCE_DATE_EPOCH")
        or subprocess.run(
            ["git", "log", "-1", "--format=%ct"],
            cwd=project.ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    with tempfile.TemporaryDirectory() as root:
        one, other = (build(Path(root), around, epoch, with_code=options.code) for around in BOTH)
        if len(one) != 2 or len(one) != len(other):
            found = [f"expected an sdist and a wheel, but got {one} and {other}"]
        else:
            found = [line for pair in zip(one, other, strict=True) for line in differences(*pair)]
        if found:
            print(*found, sep="\n", file=sys.stderr)
            return 1
        options.folder.mkdir(parents=True, exist_ok=True)
        for path in one:
            shutil.copy(path, options.folder)
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
