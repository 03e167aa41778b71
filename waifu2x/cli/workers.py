"""Who makes the files of a batch: this process, one for each of several devices, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from waifu2x.backends import device_numbers
from waifu2x.cli import report
from waifu2x.cli.options import arguments_of, describe, open_upscaler
from waifu2x.flows.jobs import ARCHIVES, Identity, Job, OnNotice, Output

# What imports NumPy is imported where it is used: completions and helps need not wait for it.
if TYPE_CHECKING:
    from waifu2x.flows.batch.devices import DeviceProcesses
    from waifu2x.flows.batch.driver import InFlight
    from waifu2x.flows.batch.listings import Listings
    from waifu2x.flows.batch.plan import JobList
    from waifu2x.flows.outcome import Outcome

_EACH = 8
"""Files for each of several devices from which on they get a process each."""
LOCAL = "local"
"""Stands for a cluster's address: processes of this machine."""

Work = Callable[
    [Iterable[Job | None], Callable[[Job, float], None], OnNotice], "Generator[Outcome, None, None]"
]
"""Makes outcomes of jobs, and tells of progress and of notices."""


@contextmanager
def here(
    many: bool,
    options: dict[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    sources: frozenset[Identity],
    *,
    verbose: bool,
) -> Iterator[Work]:
    """By this process and those that it starts."""
    from waifu2x.flows.batch.run import run

    with open_upscaler(**options) as upscaler:
        if verbose:
            report.tell(describe(upscaler))
        yield lambda jobs, on_progress, on_notice: run(
            jobs,
            upscaler,
            output,
            in_flight=in_flight,
            many=many,
            max_pixels=max_pixels,
            sources=sources,
            on_progress=on_progress,
            on_notice=on_notice,
        )


@contextmanager
def on_devices(
    many: bool,
    numbers: Sequence[int],
    folders: tuple[Path, Path],
    stopped: Event,
    options: dict[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    sources: frozenset[Identity],
    *,
    verbose: bool,
) -> Iterator[Work]:
    """By a process for each of several devices."""
    from waifu2x.flows.batch.devices import DeviceProcesses
    from waifu2x.flows.batch.listings import Listings
    from waifu2x.flows.batch.session import SessionSettings

    def tell_of(described: str) -> None:
        if verbose:
            report.tell(described)

    def settings(number: int, sharing: int) -> SessionSettings:
        own = {**arguments, "device": (number,)}
        return SessionSettings(own, output, share, max_pixels, "", sharing, many)

    from waifu2x.flows.batch.driver import InFlight

    arguments, parts = arguments_of(**options), len(numbers)
    share = in_flight
    if in_flight is not None:
        share = InFlight(-(-in_flight.pictures // parts), -(-in_flight.in_network // parts))
    processes = DeviceProcesses(
        [settings(number, parts) for number in numbers],
        [f"device {number}" for number in numbers],
        settings(numbers[0], 1) if arguments["backend"] == "auto" else None,
        on_device=tell_of,
        on_news=report.tell,
    )
    with closing(processes):
        processes.open()
        yield partial(_run_on, processes, Listings(folders, output.existing, sources), stopped)


def _run_on(
    processes: DeviceProcesses,
    listings: Listings,
    stopped: Event,
    jobs: Iterable[Job | None],
    on_progress: Callable[[Job, float], None],
    on_notice: OnNotice,
) -> Generator[Outcome, None, None]:
    return processes.run(jobs, listings, stopped, on_progress=on_progress, on_notice=on_notice)


def devices_of(options: dict[str, Any], count: int, watching: bool) -> Sequence[int]:
    """The numbers of the devices that get a process each for so many files; none where one process
    does it all: for one device, and for so few files that devices would have to share one."""
    from waifu2x.flows.batch import worker

    device = options["device"]
    if not (watching or count >= 2 * _EACH) or not worker.may_start_processes():
        return ()
    numbers = device_numbers(options["backend"]) if device == "all" else device
    return numbers if len(numbers) > 1 and (watching or count >= _EACH * len(numbers)) else ()


def archives_first(jobs: JobList) -> JobList:
    """The jobs in another order: one process makes all pages of an archive, and is not to begin
    with one when the others have nothing more to do."""
    from waifu2x.flows.batch.plan import JobList

    names = sorted(jobs.names, key=lambda names: not names[0].lower().endswith(ARCHIVES))
    return JobList(jobs.folder, jobs.target, names)


@contextmanager
def on_cluster(
    address: str,
    folders: tuple[Path, Path],
    options: dict[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    sources: frozenset[Identity],
    *,
    verbose: bool,
) -> Iterator[Work]:
    """By the workers of a cluster."""
    from waifu2x.flows.batch import cluster

    def tell_of(worker: str, device: str) -> None:
        if verbose:
            report.tell(f"worker {worker}: {device}")

    arguments, is_local = arguments_of(**options), address == LOCAL
    with cluster.connected(None if is_local else address) as client:
        sharing = cluster.LOCAL_WORKERS if is_local else 1
        settings, model_files = cluster.settings_of(
            arguments, output, in_flight, max_pixels, folders, sharing
        )
        yield lambda jobs, on_progress, on_notice: cluster.run(
            client,
            jobs,
            settings,
            model_files,
            sources=sources,
            on_worker=tell_of,
            on_news=report.tell,
            on_notice=on_notice,
        )


def nobody(
    jobs: Iterable[Job | None], on_progress: Callable[[Job, float], None], on_notice: OnNotice
) -> Generator[Outcome, None, None]:
    """Where nothing is left to do."""
    yield from ()
