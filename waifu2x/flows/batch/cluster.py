"""Makes many files by the workers of a Dask cluster.

Files are handed out in groups worth about a second, by what each worker was measured to do. Dask
runs a group again elsewhere if its worker is lost; `group.py` sees to it that what was finished by
then counts as done and is not touched.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import secrets
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waifu2x import __version__
from waifu2x.errors import ClusterError, ModelError
from waifu2x.flows.batch.listings import Listings
from waifu2x.flows.jobs import Identity, InFlight, Job, OnNotice, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.networks import catalogue, model_set
from waifu2x.system import stores
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from distributed import Client, Future

    from waifu2x.flows.batch.cluster_worker import Finished, Group, Settings
    from waifu2x.flows.batch.session import ModelFiles

LOCAL_WORKERS = 2
"""Processes of this machine that form a local cluster."""
_GROUP_SECONDS = 1.0
_FILE_BYTES = 1 << 14
"""Bytes added to the size of each file for its fixed costs."""
_SETTLED_AT_ONCE = 1000
"""Outcomes without work that are collected before they are yielded."""
_CONNECT_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""Seconds between two looks at the workers."""
PATIENCE_SECONDS = 60.0
"""Seconds without any worker after which a batch or film is given up."""


@contextmanager
def connected(address: str | None) -> Iterator[Client]:
    """Connects to the Dask scheduler at an address, all of whose workers have this version of
    waifu2x. None starts two local workers. Raises ClusterError."""
    try:
        import dask

        # Errors that it logs become one line here.
        dask.config.set({"logging": {"distributed": "critical", "distributed.client": "critical"}})
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ClusterError("--cluster needs more packages", stores.INSTALL) from error
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if address is None:
        # Workers start processes for codecs, which daemons may not.
        with (
            dask.config.set({"distributed.worker.daemon": False}),
            LocalCluster(
                n_workers=LOCAL_WORKERS,
                threads_per_worker=1,
                memory_limit=None,
                dashboard_address=":0",  # any free port
                preload="waifu2x.flows.batch.cluster_worker",
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        client = Client(
            address, timeout=_CONNECT_SECONDS, set_as_default=False, name="waifu2x-batch"
        )
    except OSError as error:
        raise ClusterError(
            f"{address}: no scheduler answers",
            "start one with `dask scheduler`, or look at the address",
        ) from error
    except (ValueError, TypeError, RuntimeError, AssertionError) as error:
        line = " ".join(str(error).split()) or "it answers in another way than one"
        raise ClusterError(f"{address}: not the address of a scheduler: {line}") from error
    try:
        _check_workers(client, address)
        yield client
    finally:
        # Dask asserts that the client is closed then, which fails, harmlessly, if the connection
        # ends at the same moment.
        with suppress(AssertionError):
            client.close()


def _check_workers(client: Client, address: str) -> None:
    """Raises ClusterError if there are no workers, or one has another version of waifu2x."""
    # Dask takes names of distributions, older versions those of modules.
    names = ["waifu2x-kernels", "waifu2x"]
    workers = client.get_versions(packages=names)["workers"]
    if not workers:
        raise ClusterError(
            f"{address}: this scheduler has no workers", f"start some with `dask worker {address}`"
        )
    for worker, found in sorted(workers.items()):
        version = next(filter(None, map(found["packages"].get, names)), None)
        if version != __version__:
            has = f"has waifu2x {version}, not {__version__}" if version else "lacks waifu2x"
            raise ClusterError(f"{address}: worker {worker} {has}", f"install {__version__} there")


def workers_of(client: Client, resume: str) -> dict[str, int]:
    """Returns the addresses of workers, and their numbers of threads. Raises ClusterError if the
    scheduler is lost; `resume` says how to go on."""
    try:
        if client.status == "running":
            return dict(client.nthreads())
    except OSError:
        pass
    raise ClusterError(f"lost the scheduler: {resume}")


def packed(model: str) -> tuple[str, dict[str, bytes] | None]:
    """Returns how workers find a model: the name of a shipped one, or a path and its files. Raises
    ModelError."""
    found = model_set.find(model)
    known = catalogue.entry(found.name)
    if known is not None and known.folder == found.folder:
        return found.name, None
    folder = found.folder.resolve()
    try:
        if folder.is_file():
            return folder.name, {folder.name: folder.read_bytes()}
        # Weights may lie beside the file that names them.
        stems = {path.stem for path in found.files.values()}
        files = [path for path in sorted(folder.iterdir()) if path.stem in stems]
        return folder.name, {f"{folder.name}/{path.name}": path.read_bytes() for path in files}
    except OSError as error:
        raise ModelError(f"{error.filename}: cannot read: {reason(error)}") from error


def settings_of(
    arguments: Mapping[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    folders: tuple[Path, Path],
    sharing: int = 1,
) -> tuple[Settings, ModelFiles | None]:
    """Returns the settings of a batch for workers, and files of its model. `arguments` are those of
    an Upscaler. Raises ModelError."""
    from waifu2x.flows.batch.cluster_worker import Settings
    from waifu2x.flows.batch.session import SessionSettings

    name, model_files = packed(arguments["model"])
    arguments = {**arguments, "model": name}
    different = repr((sorted(arguments.items()), output, in_flight, max_pixels))
    digest = hashlib.blake2b(different.encode(), digest_size=16)
    for path, content in sorted((model_files or {}).items()):
        digest.update(f"{path} {len(content)} ".encode() + content)
    key = digest.hexdigest()
    session = SessionSettings(arguments, output, in_flight, max_pixels, key, sharing)
    return Settings(session, folders), model_files


@dataclass
class _RateEstimator:
    """Estimates the bytes of files that a worker makes in a second."""

    budget: float = 0.0
    """Bytes of the next group, which has at least one file."""

    def learn(self, cost: float, seconds: float) -> None:
        """Learns that files of `cost` bytes took `seconds`. No group is twice the previous one."""
        rate = cost / max(seconds, 1e-3)
        self.budget = min(rate * _GROUP_SECONDS, 2 * max(self.budget, cost))


@dataclass
class ClusterRun:
    """Makes files by a cluster: hands groups of them to workers and collects the outcomes."""

    client: Client
    jobs: Iterator[Job | None]
    settings: Settings
    model_files: ModelFiles | None
    sources: frozenset[Identity] = frozenset()
    """Inputs, which are never replaced."""
    on_worker: Callable[[str, str], None] = lambda address, device: None
    """Called with each worker at its first group."""
    on_news: Callable[[str], None] = lambda notice: None
    """Called with messages about cluster and models, each once."""
    on_notice: OnNotice = lambda job, notice: None
    ahead: deque[tuple[Job, int]] = field(default_factory=deque)
    """Jobs taken from the list but not handed out, with their costs in bytes."""
    suspects: deque[Job] = field(default_factory=deque)
    """Jobs whose group has lost several workers; each is tried alone."""
    flying: dict[Future, tuple[Group, str]] = field(default_factory=dict)
    """Groups under way, and the worker that each was meant for."""
    ended: queue.SimpleQueue[Future] = field(default_factory=queue.SimpleQueue)
    rates: dict[str, _RateEstimator] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    settled: list[Outcome] = field(default_factory=list)
    groups: int = 0
    exhausted: bool = False

    def outcomes(self) -> Generator[Outcome]:
        """Yields the outcome of each job as its group ends. Closing the iterator, or an interrupt,
        cancels the rest. Raises ClusterError if the cluster is lost; finished files stay."""
        try:
            yield from self._outcomes()
        finally:
            self._cancel()

    def _outcomes(self) -> Iterator[Outcome]:
        self._name = f"waifu2x-{secrets.token_hex(8)}"
        self._listings = Listings(
            self.settings.folders, self.settings.session.output.existing, self.sources
        )
        self._sent_files = self._send_files()
        last_seen = time.monotonic()
        while not self.exhausted or self.ahead or self.suspects or self.flying:
            workers = workers_of(self.client, _RESUME)
            if workers:
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > PATIENCE_SECONDS:
                raise ClusterError(f"no workers for {PATIENCE_SECONDS:.0f} seconds: {_RESUME}")
            else:
                self._say(f"no workers left: waiting {PATIENCE_SECONDS:.0f} seconds for one")
            usable = [worker for worker in workers if worker not in self.broken]
            if workers and not usable:
                yield from self._not_begun()
            self._hand_out({worker: workers[worker] for worker in usable})
            more = bool(self.settled)
            yield from self.settled
            self.settled.clear()
            if workers and not self.flying:
                continue  # the iterator of jobs has waited
            try:
                future = self.ended.get(timeout=0 if more else LOOK_SECONDS)
            except queue.Empty:
                continue
            group, worker = self.flying.pop(future)
            yield from self._ended(future, group, worker)

    def _cancel(self) -> None:
        # A lost scheduler has forgotten them already.
        with suppress(Exception):
            self.client.cancel(list(self.flying), force=True)
            for group, _ in self.flying.values():
                self._forget(group)

    def _send_files(self) -> Future | None:
        if self.model_files is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its size
            # The result of a task is made again if its worker is lost.
            return self.client.submit(dict, self.model_files, key=f"{self._name}-model")

    def _hand_out(self, workers: Mapping[str, int]) -> None:
        """Keeps each worker busy, with one group more in waiting."""
        busy = Counter(worker for _, worker in self.flying.values())
        for worker, threads in workers.items():
            for _ in range(threads + 1 - busy[worker]):
                if self.suspects:
                    self._send([self.suspects.popleft()], True, worker, workers)
                elif jobs := self._take(worker):
                    self._send(jobs, False, worker, workers)

    def _take(self, worker: str) -> list[Job]:
        """Returns the next group for a worker: at least one file, if there is one now."""
        budget = self.rates.setdefault(worker, _RateEstimator()).budget
        jobs: list[Job] = []
        cost = 0
        while (following := self._next()) is not None:
            if jobs and cost + following[1] > budget:
                self.ahead.appendleft(following)
                break
            jobs.append(following[0])
            cost += following[1]
        return jobs

    def _next(self) -> tuple[Job, int] | None:
        """Returns the next file that needs work, and its cost in bytes; None if there
        is none now."""
        if self.ahead:
            return self.ahead.popleft()
        for job in self.jobs:
            if job is None:
                return None
            outcome = self._listings.settled(job)
            if outcome is None:
                return job, self._cost(job)
            self.settled.append(outcome)
            if len(self.settled) >= _SETTLED_AT_ONCE:
                return None
        self.exhausted = True
        return None

    def _cost(self, job: Job) -> int:
        return _FILE_BYTES + self._listings.bytes(job)

    def _send(
        self, jobs: Sequence[Job], repeated: bool, worker: str, usable: Mapping[str, int]
    ) -> None:
        from waifu2x.flows.batch.cluster_worker import Group, work_on

        self.groups += 1
        group = Group(f"{self._name}-{self.groups}", tuple(jobs), repeated)
        future = self.client.submit(
            work_on,
            group,
            self.settings,
            self._sent_files,
            key=group.key,
            # A preference, but never for a worker with a broken device.
            workers=list(usable) if self.broken else [worker],
            allow_other_workers=not self.broken,
        )
        self.flying[future] = group, worker
        future.add_done_callback(self.ended.put)

    def _ended(self, future: Future, group: Group, worker: str) -> Iterator[Outcome]:
        from distributed import KilledWorker

        try:
            finished: Finished = future.result()
        except KilledWorker:
            if len(group.jobs) > 1:
                self.suspects.extend(group.jobs)
            else:
                yield _deadly(group.jobs[0])
            return
        except ImportError as error:
            raise ClusterError(f"a worker lacks what it needs: {error}") from error
        except ClusterError:
            raise
        except BaseException as error:
            if future.status in ("cancelled", "lost"):
                raise ClusterError(f"lost the scheduler: {_RESUME}") from error
            raise
        finally:
            with suppress(OSError):
                self._forget(group)
        if finished.worker == worker:
            cost = sum(map(self._cost, group.jobs))
            self.rates.setdefault(worker, _RateEstimator()).learn(cost, finished.seconds)
        if finished.worker not in self.told:
            self.told.add(finished.worker)
            self.on_worker(finished.worker, finished.device)
        for note in finished.notices:
            self._say(note)
        for job, note in finished.job_notices:
            self.on_notice(job, note)
        outcomes = finished.outcomes
        if any(outcome.device_failed for outcome in outcomes):
            yield from self._elsewhere(finished)
        else:
            yield from outcomes

    def _elsewhere(self, finished: Finished) -> Iterator[Outcome]:
        """Gives up a worker with a broken device, and repeats its failed files elsewhere."""
        if finished.worker not in self.broken:
            self.broken.add(finished.worker)
            error = next(each.error for each in finished.outcomes if each.device_failed)
            self._say(f"worker {finished.worker} gets no more files: {error}")
        for outcome in finished.outcomes:
            if outcome.status == "failed" and set(workers_of(self.client, _RESUME)) - self.broken:
                self.ahead.append((outcome.job, self._cost(outcome.job)))
            else:
                yield outcome

    def _not_begun(self) -> Iterator[Outcome]:
        """Yields the outcomes of the rest, after all devices have failed."""
        rest = (job for job in self.jobs if job is not None)
        for job in (*self.suspects, *(job for job, _ in self.ahead), *rest):
            error = f"{job.source}: not begun, since no worker had a device left that works"
            yield Outcome(job, error=error)
        self.suspects.clear()
        self.ahead.clear()
        self.exhausted = True

    def _forget(self, group: Group) -> None:
        from distributed import Event

        Event(group.key, client=self.client).clear()

    def _say(self, notice: str) -> None:
        if notice not in self.told:
            self.told.add(notice)
            self.on_news(notice)


_RESUME = "what is finished stays: run again with --skip-existing"


def _deadly(job: Job) -> Outcome:
    error = (
        f"{job.source}: it crashed several workers in a row: use a smaller scale, or workers"
        " with more memory"
    )
    return Outcome(job, error=error)
