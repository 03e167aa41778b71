"""Files for a driver, and what it makes of them."""

from __future__ import annotations

import multiprocessing
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.helpers.contents import encode, noise
from waifu2x.api import Upscaler
from waifu2x.flows.batch.assignments import FileRequest
from waifu2x.flows.batch.driver import DeviceDriver, RunOptions
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

PNG = Output("png", Quality(), "fail")
IN_PROCESSES = InFlight(4, 2)


def processes() -> list[Any]:
    """The codec processes of this one."""
    return [child for child in multiprocessing.active_children() if "worker" in child.name]


def pictures(folder: Path, *contents: Picture) -> list[Job]:
    """Jobs for a folder of these pictures, named by their numbers."""
    folder.mkdir()
    for number, picture in enumerate(contents):
        (folder / f"{number}.png").write_bytes(encode(picture, "png"))
    return jobs_of(folder)


def jobs_of(folder: Path) -> list[Job]:
    """Jobs for all files of a folder."""
    return list(plan(folder, folder.parent / "out", "png", False).jobs)


def small(count: int) -> list[Picture]:
    """Pictures, each of its own size."""
    return [Picture(noise(5 + number, 7, 3, seed=number)) for number in range(count)]


def comic(path: Path, count: int, *, bad: tuple[int, ...] = (), size: int = 7) -> None:
    """An archive of pages, each of its own size and after a file that is none."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(count):
            content = encode(Picture(noise(size + number, 7, 3, seed=number)), "png")
            archive.writestr(f"{number}.txt", str(number))
            archive.writestr(f"{number}.png", content[:50] if number in bad else content)


def by_name(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """Outcomes by the names of their sources."""
    return {outcome.job.source.name: outcome for outcome in outcomes}


def outcomes_of(driver: DeviceDriver) -> Iterator[Outcome]:
    """Yields the outcomes of a driver that has started, and stops it."""
    try:
        while (ended := driver.ended.get(timeout=60)) is not None:
            assert isinstance(ended, Outcome), ended
            yield ended
    finally:
        driver.stop()


def driver_of(
    jobs: Iterable[Job | None], upscaler: Upscaler, in_flight: InFlight | None = None
) -> DeviceDriver:
    """A driver that is not started."""
    request = FileRequest(upscaler, PNG, 10**6, 1)
    return DeviceDriver(jobs, upscaler.engine, lambda job: request, RunOptions(in_flight=in_flight))
