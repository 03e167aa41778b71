"""Finds what is in output folders before the work, without a look at each file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from waifu2x.flows.batch.plan import JobList
from waifu2x.system import stores
from waifu2x.system.files import is_temporary, remove_abandoned


def present(jobs: JobList) -> frozenset[str]:
    """Which targets are files already, by their names."""
    found: set[str] = set()
    wanted = {target for _, target in jobs.names}
    if stores.is_url(jobs.target):
        deep = any("/" in target for target in wanted)
        return frozenset(wanted & stores.listed(jobs.target, deep).keys())
    for folder in _folders(jobs):
        start = f"{folder}/" if folder else ""
        with suppress(OSError), os.scandir(jobs.target / folder) as entries:
            for entry in entries:
                name = start + entry.name
                if name in wanted and entry.is_file():
                    found.add(name)
    return frozenset(found)


def sweep(jobs: JobList) -> int:
    """Removes what killed runs left in the folders of targets; how many files."""
    removed = 0
    if stores.is_url(jobs.target):
        return 0  # uploads are whole or nothing
    for folder in _folders(jobs):
        with suppress(OSError), os.scandir(jobs.target / folder) as entries:
            left = [entry.path for entry in entries if is_temporary(entry.name)]
            removed += sum(remove_abandoned(Path(path)) for path in left)
    return removed


def _folders(jobs: JobList) -> Iterable[str]:
    """In which targets are, by their names."""
    return dict.fromkeys(target.rpartition("/")[0] for _, target in jobs.names)
