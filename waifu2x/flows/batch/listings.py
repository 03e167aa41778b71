"""Finds the files that the folders of a batch hold before the work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from waifu2x.errors import ExistsError, OutputError
from waifu2x.flows.batch.plan import JobList
from waifu2x.flows.jobs import Existing, Identity, Job, may_write
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores
from waifu2x.system.files import clear_folder


class Listings:
    """The files in the two folders of a batch; URLs are listed once."""

    def __init__(
        self, folders: tuple[Path, Path], existing: Existing, sources: frozenset[Identity]
    ) -> None:
        """`folders` are those of inputs and outputs; `sources` are never replaced."""
        self._source, self._target = folders
        self._existing: Existing = existing
        self._sources = sources

    @cached_property
    def _inputs(self) -> dict[str, int]:
        return stores.listed(self._source, True)

    @cached_property
    def _outputs(self) -> dict[str, int]:
        return stores.listed(self._target, True)

    def bytes(self, job: Job) -> int:
        """Returns the bytes of a job's input; 0 if unknown."""
        if stores.is_url(job.source):
            return self._inputs.get(str(job.source).removeprefix(f"{self._source}/"), 0)
        try:
            return job.source.stat().st_size
        except OSError:
            return 0

    def settled(self, job: Job) -> Outcome | None:
        """Returns the outcome of a job that needs no work: its output exists, or is an input
        itself. It is asked before the work: an output that a worker finds later did not exist when
        the job began."""
        try:
            if not stores.is_url(job.target):
                free = may_write(job, self._existing, self._sources)
            else:
                free = self._may_upload(job)
        except OutputError as error:
            return Outcome(job, error=error.sentence)
        return None if free else Outcome(job)

    def _may_upload(self, job: Job) -> bool:
        """Returns whether a URL is free or may be replaced; False means skip. Raises
        OutputError."""
        if str(job.target) in self._sources:
            raise OutputError(f"{job.target}: it is an input itself", "choose another output")
        there = str(job.target).removeprefix(f"{self._target}/") in self._outputs
        if there and self._existing == "fail":
            raise ExistsError(job.target)
        return not there or self._existing == "overwrite"


def present(jobs: JobList) -> frozenset[str]:
    """Returns the names of targets that exist."""
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
    """Removes unfinished files of killed runs in the folders of targets; returns how many."""
    if stores.is_url(jobs.target):
        return 0  # uploads are whole or nothing
    return sum(clear_folder(jobs.target / folder) for folder in _folders(jobs))


def _folders(jobs: JobList) -> Iterable[str]:
    return dict.fromkeys(target.rpartition("/")[0] for _, target in jobs.names)
