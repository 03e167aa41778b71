"""Makes the files of a batch: in this process, in one for each of several devices, or on a
cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from waifu2x.api.settings.kinds import LOCAL
from waifu2x.backends import device_numbers
from waifu2x.cli.options.arguments import describe, opened
from waifu2x.cli.output import report
from waifu2x.flows.jobs import ARCHIVES_READ, Identity, InFlight, Job, OnNotice, Output
from waifu2x.formats import film
from waifu2x.system.lazy_dataclass import dataclass

# Imports of NumPy come late: completions and helps need not wait for it.
if TYPE_CHECKING:
    from waifu2x.flows.batch.listings import Listings
    from waifu2x.flows.batch.plan import JobList
    from waifu2x.flows.fleet.supervisor import Fleet, Hooks
    from waifu2x.flows.outcome import Outcome

_MANY = 50
"""Pictures, those of archives included, from which processes may be worth it: starting them takes
as long as opening a device."""
_EACH = 8
"""Files for each of several devices from which they get a process each."""


@dataclass(frozen=True)
class FileWork:
    """The work on files, wherever it is done."""

    arguments: Mapping[str, Any]
    """Those of an Upscaler."""
    output: Output
    folders: tuple[Path, Path]
    """The folders of inputs and outputs."""
    max_pixels: int
    in_flight: InFlight | None = None
    sources: frozenset[Identity] = frozenset()
    """Files that are never replaced."""
    many: bool = False
    """Whether there are enough pictures for codecs to use processes."""
    stopped: Event = field(default_factory=Event)
    """Set once no more files are to be begun."""


OnProgress = Callable[[Job, float], None]
"""Called with a file and the further part of it that is done."""
Runner = Callable[[Iterable[Job | None], OnProgress, OnNotice], "Generator[Outcome, None, None]"]
"""Yields outcomes of jobs, and reports progress and notices."""
MakeFilm = Callable[[Job, OnProgress], "Outcome"]
"""Makes a film, and reports progress."""


def runner_of(
    work: FileWork,
    jobs: JobList,
    address: str | None,
    make_film: MakeFilm | None = None,
    *,
    watching: bool,
) -> tuple[JobList, AbstractContextManager[Runner]]:
    """Returns the jobs in the best order, and their runner; starts the processes that it needs.
    With `address`, a cluster runs them; with `watching`, more jobs will come. Without `make_film`
    no job is a film."""
    pictures = jobs.where(lambda source, _: not film.is_film(source))
    open_pictures: Callable[[], AbstractContextManager[Runner]]
    if address is not None:
        open_pictures = partial(_on_cluster, work, address)
    else:
        from waifu2x.flows.fleet import processes

        numbers = devices_of(work.arguments, len(pictures), watching=watching)
        open_pictures = partial(_on_devices, work, numbers) if numbers else partial(_here, work)
        if numbers:
            processes.prepare("waifu2x.flows.batch.by_fleet")
            jobs = jobs if watching else archives_first(jobs)
        elif work.many:
            processes.prepare()
    if make_film is None:
        return jobs, open_pictures()
    begins = watching or bool(pictures)
    return films_last(jobs), _in_turn(open_pictures, make_film, begins_with_pictures=begins)


def is_many(jobs: JobList) -> bool:
    """Returns whether there are enough pictures for codecs to use processes; an archive always
    is."""
    return sum(not film.is_film(source) for source, _ in jobs.names) >= _MANY or any(
        source.lower().endswith(ARCHIVES_READ) for source, _ in jobs.names
    )


def devices_of(arguments: Mapping[str, Any], count: int, *, watching: bool) -> Sequence[int]:
    """Returns the numbers of the devices that get a process each for `count` files.

    Empty if one process does it all: for one device, and for so few files that devices would have
    to share one.
    """
    from waifu2x.flows.fleet import processes

    device = arguments["device"]
    if not (watching or count >= 2 * _EACH) or not processes.may_start_processes():
        return ()
    numbers = device_numbers(arguments["backend"]) if device == "all" else device
    return numbers if len(numbers) > 1 and (watching or count >= _EACH * len(numbers)) else ()


def archives_first(jobs: JobList) -> JobList:
    """Returns the jobs with archives first: one process makes all pages of an archive, and should
    not begin with it when the others have nothing more to do."""
    from waifu2x.flows.batch.plan import JobList

    names = sorted(jobs.names, key=lambda names: not names[0].lower().endswith(ARCHIVES_READ))
    return JobList(jobs.folder, jobs.target, names)


def films_last(jobs: JobList) -> JobList:
    """Returns the jobs with films last: no picture waits for hours of a film."""
    from waifu2x.flows.batch.plan import JobList

    names = sorted(jobs.names, key=lambda names: film.is_film(names[0]))
    return JobList(jobs.folder, jobs.target, names)


@contextmanager
def _in_turn(
    open_pictures: Callable[[], AbstractContextManager[Runner]],
    make_film: MakeFilm,
    *,
    begins_with_pictures: bool,
) -> Iterator[Runner]:
    """By the runner of pictures, and by `make_film` for films. Pictures between two films have a
    runner of their own, so that a film gets devices and memory for itself."""
    with ExitStack() as opened:
        first = opened.enter_context(open_pictures()) if begins_with_pictures else None

        def run(
            jobs: Iterable[Job | None], on_progress: OnProgress, on_notice: OnNotice
        ) -> Generator[Outcome]:
            compute, left = first, iter(jobs)
            while True:
                found: list[Job] = []
                pictures = _until_film(left, found.append)
                begin = next(filter(None, pictures), None)
                if begin is not None:
                    compute = compute or opened.enter_context(open_pictures())
                    yield from compute(chain([begin], pictures), on_progress, on_notice)
                if not found:
                    return
                opened.close()
                compute = None
                yield make_film(found[0], on_progress)

        yield run


def _until_film(jobs: Iterator[Job | None], on_film: Callable[[Job], None]) -> Iterator[Job | None]:
    """Yields jobs up to the next film, for which it calls `on_film`."""
    for job in jobs:
        if job is not None and film.is_film(job.source):
            on_film(job)
            return
        yield job


@contextmanager
def _here(work: FileWork) -> Iterator[Runner]:
    """By this process and those that it starts."""
    from waifu2x.flows.batch.driver import RunOptions, run

    with opened(work.arguments) as upscaler:
        report.detail(describe(upscaler))
        yield lambda jobs, on_progress, on_notice: run(
            jobs,
            upscaler,
            work.output,
            RunOptions(
                in_flight=work.in_flight,
                sources=work.sources,
                on_progress=on_progress,
                on_notice=on_notice,
            ),
            many=work.many,
            max_pixels=work.max_pixels,
        )


@contextmanager
def _on_devices(work: FileWork, numbers: Sequence[int]) -> Iterator[Runner]:
    from waifu2x.flows.batch.by_fleet import AHEAD, SessionOpening, names_of
    from waifu2x.flows.batch.session import SessionSettings
    from waifu2x.flows.fleet.process_worker import ProcessWorker
    from waifu2x.flows.fleet.supervisor import DEVICES, Fleet

    def worker(name: str, number: int, sharing: int, *, fallback: bool = False) -> ProcessWorker:
        own = {**work.arguments, "device": (number,)}
        settings = SessionSettings(own, work.output, share, work.max_pixels, sharing, work.many)
        return ProcessWorker(name, SessionOpening(settings, fallback=fallback), AHEAD)

    share, parts = work.in_flight, len(numbers)
    if share is not None:
        share = InFlight(-(-share.pictures // parts), -(-share.in_network // parts))
    is_auto = work.arguments["backend"] == "auto"
    workers = [worker(f"device {number}", number, parts) for number in numbers]
    last = worker("the rest", numbers[0], 1, fallback=True) if is_auto else None
    with closing(Fleet(workers, DEVICES, _hooks(), last)) as fleet:
        fleet.open()
        yield _by(fleet, work, lambda listings: names_of)


@contextmanager
def _on_cluster(work: FileWork, address: str) -> Iterator[Runner]:
    from waifu2x.flows.batch.by_fleet import SessionOpening, bytes_of
    from waifu2x.flows.batch.session import SessionSettings, packed
    from waifu2x.flows.fleet import cluster

    is_local = address == LOCAL
    sharing = cluster.LOCAL_WORKERS if is_local else 1
    name, model_files = packed(work.arguments["model"])
    arguments = {**work.arguments, "model": name}
    settings = SessionSettings(arguments, work.output, work.in_flight, work.max_pixels, sharing)
    opening = SessionOpening(settings, model_files, fallback=True, folders=work.folders)
    policy = cluster.policy("files", "what is finished stays: run again with --skip-existing")
    with (
        cluster.connected(None if is_local else address) as client,
        cluster.fleet_of(client, opening, policy, _hooks()) as fleet,
    ):
        yield _by(fleet, work, bytes_of)


def _hooks() -> Hooks:
    from waifu2x.flows.fleet.supervisor import Hooks

    return Hooks(
        on_opened=lambda name, opened: report.detail(f"{name}: {opened.described}"),
        on_news=report.tell,
    )


def _by(
    fleet: Fleet, work: FileWork, weigher: Callable[[Listings], Callable[[Job], float]]
) -> Runner:
    """Returns the runner of a fleet, whose tasks are weighed by what `weigher` returns."""
    from waifu2x.flows.batch.by_fleet import file_tasks
    from waifu2x.flows.batch.listings import Listings

    listings = Listings(work.folders, work.output.existing, work.sources)

    def run(
        jobs: Iterable[Job | None], on_progress: OnProgress, on_notice: OnNotice
    ) -> Generator[Outcome]:
        fleet.hooks = replace(
            fleet.hooks,
            on_progress=lambda task, part: on_progress(task.job, part),
            on_notice=lambda task, text: on_notice(task.job, text),
        )
        return fleet.run(file_tasks(jobs, listings, weigher(listings)), work.stopped)

    return run


def nobody(
    jobs: Iterable[Job | None], on_progress: OnProgress, on_notice: OnNotice
) -> Generator[Outcome, None, None]:
    """Runs no jobs."""
    yield from ()
