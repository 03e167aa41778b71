"""The work on many files by the workers of a Dask cluster.

Files are handed out in groups worth about a second, by what each worker was measured to do. Dask
runs a group again elsewhere if its worker is lost; `group.py` sees to it that what was finished by
then counts as done and is not touched.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waifu2x import __version__, catalogue, model_set, stores
from waifu2x.batch.outcome import Outcome
from waifu2x.errors import ClusterError, ModelError, OutputError
from waifu2x.files import reason
from waifu2x.pictures.write import EXISTS
from waifu2x.pipeline import Identity, Job, Note, Output, identities, may_write

if TYPE_CHECKING:
    from distributed import Client, Future

    from waifu2x.batch.group import Finished, Group, Settings, Weights

LOCAL = "local"
"""The address that means processes of this machine."""
_LOCAL_WORKERS = 2
_GROUP_SECONDS = 1.0
_FILE_BYTES = 1 << 14
"""What a file costs besides its bytes, in bytes."""
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""Between looks at whether there are new workers, or none."""
_PATIENCE_SECONDS = 60.0
"""Without any worker before it is an error: some come back."""


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address, whose workers all have this version of waifu2x.

    `LOCAL` starts two workers here. Raises ClusterError.
    """
    try:
        import dask

        # It logs what is told here in a line.
        dask.config.set({"logging": {"distributed": "critical", "distributed.client": "critical"}})
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ClusterError(stores.MISSING.format("--cluster needs")) from error
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if address == LOCAL:
        # Workers start processes of their own for codecs, as daemons may not.
        with (
            dask.config.set({"distributed.worker.daemon": False}),
            LocalCluster(
                n_workers=_LOCAL_WORKERS,
                threads_per_worker=1,
                memory_limit=None,
                dashboard_address=None,
                preload="waifu2x.batch.group",
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
            f"{address}: no scheduler answers: start one with `dask scheduler`, or look at the"
            " address"
        ) from error
    except (ValueError, TypeError, RuntimeError) as error:
        line = " ".join(str(error).split())
        raise ClusterError(f"{address}: not the address of a scheduler: {line}") from error
    with client:
        _check_workers(client, address)
        yield client


def _check_workers(client: Client, address: str) -> None:
    """Raises ClusterError where there are none, or one has another waifu2x."""
    # Dask asks for what is installed, older ones for the module.
    names = ["waifu2x-kernels", "waifu2x"]
    workers = client.get_versions(packages=names)["workers"]
    if not workers:
        raise ClusterError(
            f"{address}: this scheduler has no workers: start some with `dask worker {address}`"
        )
    for worker, found in sorted(workers.items()):
        version = next(filter(None, map(found["packages"].get, names)), None)
        if version != __version__:
            has = f"has waifu2x {version}, not {__version__}" if version else "lacks waifu2x"
            raise ClusterError(f"{address}: worker {worker} {has}: install {__version__} there")


def packed(model: str) -> tuple[str, dict[str, bytes] | None]:
    """A model as workers get it: the name of one that comes with waifu2x, or a path and its files.

    Raises ModelError.
    """
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
    stages: tuple[int, int, int, int],
    folders: tuple[Path, Path],
) -> tuple[Settings, Weights | None]:
    """What workers are told of a batch, with the arguments of an Upscaler. Raises ModelError."""
    from waifu2x.batch.group import Settings

    name, weights = packed(arguments["model"])
    arguments = {**arguments, "model": name}
    digest = hashlib.blake2b(repr(sorted(arguments.items())).encode(), digest_size=16)
    for path, content in sorted((weights or {}).items()):
        digest.update(f"{path} {len(content)} ".encode() + content)
    return Settings(arguments, digest.hexdigest(), output, stages, folders), weights


def run(
    client: Client,
    jobs: Sequence[Job],
    settings: Settings,
    weights: Weights | None,
    on_worker: Callable[[str, str], None] = lambda address, device: None,
    on_notice: Callable[[str], None] = lambda notice: None,
    on_note: Note = lambda job, note: None,
) -> Generator[Outcome]:
    """The outcome of each job as its group ends; what `batch.run.run` gives, by a cluster.

    `on_worker` is told of each worker with its first group, `on_notice` what there is to say of
    the cluster and of models, each once. Closing the iterator, or an interrupt, cancels the rest.
    Raises ClusterError if the cluster is lost; finished files stay then, too.
    """
    todo: list[Job] = []
    for job, outcome in _settled(jobs, settings):
        if outcome is None:
            todo.append(job)
        else:
            yield outcome
    if not todo:
        return
    deal = _Deal(client, todo, settings, weights, on_worker, on_notice, on_note)
    try:
        yield from deal.outcomes()
    finally:
        deal.cancel()


def _settled(jobs: Sequence[Job], settings: Settings) -> Iterator[tuple[Job, Outcome | None]]:
    """What can be said without any work, since an output is there, or is an input itself.

    It is said here, where all inputs are known; and after this, whatever a worker finds in the
    place of an output was not there when the batch began.
    """
    existing, target = settings.output.existing, settings.folders[1]
    sources = identities(jobs)
    listing = _bytes(target, [job.target for job in jobs]) if stores.is_url(target) else None
    for job in jobs:
        try:
            if listing is None:
                free = may_write(job, existing, sources)
            else:
                free = _may_upload(job, existing, sources, str(job.target) in listing)
        except OutputError as error:
            yield job, Outcome(job, "failed", 0.0, error=str(error))
        else:
            yield job, None if free else Outcome(job, "skipped", 0.0)


def _may_upload(job: Job, existing: str, sources: frozenset[Identity], there: bool) -> bool:
    """See `pipeline.may_write`, with one listing for all."""
    if str(job.target) in sources:
        raise OutputError(f"{job.target}: is an input itself: choose another output")
    if there and existing == "fail":
        raise OutputError(EXISTS.format(job.target))
    return not there or existing == "overwrite"


def _bytes(folder: Path, paths: Sequence[Path]) -> dict[str, int]:
    """How large the files of a folder are that are there, by their paths."""
    if stores.is_url(folder):
        deep = any(path.parent != folder for path in paths)
        return {str(folder / name): size for name, size in stores.listed(folder, deep).items()}
    found = {}
    for path in paths:
        with suppress(OSError):
            found[str(path)] = path.stat().st_size
    return found


@dataclass
class _Pace:
    """How much a worker gets at a time."""

    budget: float = 0.0
    """In bytes; less than a file costs means one file."""

    def learn(self, cost: float, seconds: float) -> None:
        """It took so long for that. One group does not more than double the next."""
        rate = cost / max(seconds, 1e-3)
        self.budget = min(rate * _GROUP_SECONDS, 2 * max(self.budget, cost))


@dataclass
class _Deal:
    """Who works on what."""

    client: Client
    jobs: Sequence[Job]
    settings: Settings
    weights: Weights | None
    on_worker: Callable[[str, str], None]
    on_notice: Callable[[str], None]
    on_note: Note
    waiting: deque[Job] = field(default_factory=deque)
    suspects: deque[Job] = field(default_factory=deque)
    """Those whose group lost one worker after the other, to be tried alone."""
    flying: dict[Future, tuple[Group, str]] = field(default_factory=dict)
    """Groups that are handed out, and for which worker they were measured."""
    ended: queue.SimpleQueue[Future] = field(default_factory=queue.SimpleQueue)
    paces: dict[str, _Pace] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Workers whose device has stopped working."""
    told: set[str] = field(default_factory=set)
    groups: int = 0

    def outcomes(self) -> Iterator[Outcome]:
        """All of them, as groups end."""
        sizes = _bytes(self.settings.folders[0], [job.source for job in self.jobs])
        self._costs = {job: _FILE_BYTES + sizes.get(str(job.source), 0) for job in self.jobs}
        self.waiting.extend(self.jobs)
        self._name = f"waifu2x-{hashlib.blake2b(repr(time.time_ns()).encode()).hexdigest()[:16]}"
        self._sent_weights = self._send_weights()
        last_seen = time.monotonic()
        while self.waiting or self.suspects or self.flying:
            workers = self._workers()
            if workers:
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > _PATIENCE_SECONDS:
                raise ClusterError(f"no workers for {_PATIENCE_SECONDS:.0f} seconds: {_RESUME}")
            else:
                self._say(f"no workers left: waiting {_PATIENCE_SECONDS:.0f} seconds for one")
            usable = [worker for worker in workers if worker not in self.broken]
            if workers and not usable:
                yield from self._not_begun()
            self._hand_out({worker: workers[worker] for worker in usable})
            try:
                future = self.ended.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            group, worker = self.flying.pop(future)
            yield from self._ended(future, group, worker)

    def cancel(self) -> None:
        """Nobody waits for what is left."""
        # A scheduler that is gone has forgotten it already.
        with suppress(Exception):
            self.client.cancel(list(self.flying), force=True)
            for group, _ in self.flying.values():
                self._forget(group)

    def _workers(self) -> dict[str, int]:
        """How many groups each works on at a time."""
        try:
            if self.client.status == "running":
                return dict(self.client.nthreads())
        except OSError:
            pass
        raise ClusterError(f"lost the scheduler: {_RESUME}")

    def _send_weights(self) -> Future | None:
        if self.weights is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is large
            # As the result of a task it is made again if a worker is lost.
            return self.client.submit(dict, self.weights, key=f"{self._name}-weights")

    def _hand_out(self, workers: Mapping[str, int]) -> None:
        """Gives every worker something to do, and something to do next."""
        busy = Counter(worker for _, worker in self.flying.values())
        for worker, threads in workers.items():
            for _ in range(threads + 1 - busy[worker]):
                if self.suspects:
                    self._send([self.suspects.popleft()], True, worker, workers)
                elif self.waiting:
                    self._send(self._take(worker), False, worker, workers)

    def _take(self, worker: str) -> list[Job]:
        budget = self.paces.setdefault(worker, _Pace()).budget
        jobs = [self.waiting.popleft()]
        cost = self._costs[jobs[0]]
        while self.waiting and cost + self._costs[self.waiting[0]] <= budget:
            jobs.append(self.waiting.popleft())
            cost += self._costs[jobs[-1]]
        return jobs

    def _send(
        self, jobs: Sequence[Job], repeated: bool, worker: str, usable: Mapping[str, int]
    ) -> None:
        from waifu2x.batch.group import Group, work_on

        self.groups += 1
        group = Group(f"{self._name}-{self.groups}", tuple(jobs), repeated)
        future = self.client.submit(
            work_on,
            group,
            self.settings,
            self._sent_weights,
            key=group.key,
            # A wish: if it is lost, any other. But nobody wants one whose device is broken.
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
            cost = sum(self._costs[job] for job in group.jobs)
            self.paces.setdefault(worker, _Pace()).learn(cost, finished.seconds)
        if finished.worker not in self.told:
            self.told.add(finished.worker)
            self.on_worker(finished.worker, finished.device)
        for note in finished.notes:
            self._say(note)
        for job, note in finished.job_notes:
            self.on_note(job, note)
        outcomes = finished.outcomes
        if any(outcome.device_failed for outcome in outcomes):
            yield from self._elsewhere(finished)
        else:
            yield from outcomes

    def _elsewhere(self, finished: Finished) -> Iterator[Outcome]:
        """A worker has no device any more: what failed there is for others."""
        if finished.worker not in self.broken:
            self.broken.add(finished.worker)
            error = next(each.error for each in finished.outcomes if each.device_failed)
            self._say(f"worker {finished.worker} gets no more files: {error}")
        for outcome in finished.outcomes:
            if outcome.status == "failed" and set(self._workers()) - self.broken:
                self.waiting.append(outcome.job)
            else:
                yield outcome

    def _not_begun(self) -> Iterator[Outcome]:
        for job in (*self.suspects, *self.waiting):
            error = f"{job.source}: not begun, since no worker had a device left that works"
            yield Outcome(job, "failed", 0.0, error=error)
        self.suspects.clear()
        self.waiting.clear()

    def _forget(self, group: Group) -> None:
        """The scheduler need not remember that it has begun."""
        from distributed import Event

        Event(group.key, client=self.client).clear()

    def _say(self, notice: str) -> None:
        if notice not in self.told:
            self.told.add(notice)
            self.on_notice(notice)


_RESUME = "what is finished stays: run again with --skip-existing"


def _deadly(job: Job) -> Outcome:
    error = (
        f"{job.source}: one worker after the other was lost on it: use a smaller scale, or workers"
        " with more memory"
    )
    return Outcome(job, "failed", 0.0, error=error)
