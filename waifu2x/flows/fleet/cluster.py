"""Workers of a Dask cluster, as workers of a fleet.

Tasks go to them in groups worth about a second, by what each worker was measured to do, and reports
come back when a group has ended. Each group is for one worker; a worker that the scheduler does not
know any more is lost, and the fleet decides what that means. A process of Dask keeps one workplace
open from group to group.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import pickle
import queue
import secrets
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x import __version__
from waifu2x.errors import ClusterError, Waifu2xError
from waifu2x.flows.fleet.messages import (
    Advanced,
    Broken,
    Done,
    Failed,
    Lost,
    Order,
    Report,
    Withdraw,
    Withdrawn,
)
from waifu2x.flows.fleet.process_worker import check_version
from waifu2x.flows.fleet.supervisor import Fleet, Hooks, Policy
from waifu2x.flows.fleet.task import Opening, Workplace
from waifu2x.system import stores
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from distributed import Client, Future

LOCAL_WORKERS = 2
"""Processes of this machine that form a local cluster."""
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""Seconds between two looks at the workers, or at whether a group is still wanted."""
PATIENCE_SECONDS = 60.0
"""Seconds without any worker after which the work is given up."""
_GROUPS = 2
"""Groups that a worker has; one of them waits."""


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
                preload="waifu2x.flows.fleet.cluster",
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


@dataclass
class RateEstimator:
    """Estimates the weight of tasks that a worker does in some time."""

    seconds: float = 1.0
    """The time that a group should take."""
    budget: float = 0.0
    """The weight of the next group, which has at least one task."""

    def learn(self, cost: float, seconds: float) -> None:
        """Learns that tasks of weight `cost` took `seconds`. No group is twice the previous one."""
        rate = cost / max(seconds, 1e-3)
        self.budget = min(rate * self.seconds, 2 * max(self.budget, cost))


def policy(noun: str, resume: str) -> Policy:
    """Returns what the loss of a worker means; `noun` names tasks, and `resume` says how to go
    on."""
    return Policy(
        noun,
        kind="worker",
        process="workers",
        error=ClusterError,
        patience=PATIENCE_SECONDS,
        resume=resume,
    )


@contextmanager
def fleet_of(
    client: Client, opening: Opening, policy: Policy, hooks: Hooks, seconds: float = 1.0
) -> Iterator[Fleet]:
    """Opens a fleet of all workers that a connected client knows, and of those that come. Groups of
    tasks are worth `seconds`; with 0, each task is a group. Raises ClusterError."""
    cluster = Cluster(client, opening, policy.resume, seconds)
    fleet = Fleet(cluster.workers.values(), policy, hooks)
    with closing(fleet), closing(cluster):
        fleet.open()
        cluster.watch(fleet)
        yield fleet


class Cluster:
    """The workers of a cluster for one fleet, and those that come later."""

    def __init__(self, client: Client, opening: Opening, resume: str, seconds: float) -> None:
        """`resume` says how to go on after the loss of the scheduler; the rest is as for
        `fleet_of`."""
        self.client = client
        self.name = f"waifu2x-{secrets.token_hex(8)}"
        self._resume = resume
        self._seconds = seconds
        content = pickle.dumps((opening, __version__))
        key = hashlib.blake2b(content, digest_size=16).hexdigest()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its size
            # The result of a task is sent once, and made again if its worker is lost.
            self.opening = client.submit(
                _kept, Sent(key, __version__, opening), key=f"{self.name}-opening"
            )
        self.workers = {address: self._worker(address) for address in self._addresses()}
        self._left = threading.Event()
        self._watcher: threading.Thread | None = None

    def watch(self, fleet: Fleet) -> None:
        """Lets workers that come later join a fleet, and tells of those that leave."""
        self._watcher = threading.Thread(
            target=self._watch, args=(fleet,), name="waifu2x-cluster", daemon=True
        )
        self._watcher.start()

    def close(self) -> None:
        """Ends the watch."""
        self._left.set()
        if self._watcher is not None:
            self._watcher.join()

    def lost(self) -> ClusterError:
        """Returns the error of a scheduler that is gone."""
        return ClusterError("lost the scheduler", self._resume)

    def _watch(self, fleet: Fleet) -> None:
        while not self._left.wait(_LOOK_SECONDS):
            try:
                found = self._addresses()
            except ClusterError as error:
                fleet.fail(error)
                return
            for address in found - self.workers.keys():
                self.workers[address] = self._worker(address)
                fleet.join(self.workers[address])
            for address in self.workers.keys() - found:
                self.workers.pop(address).leave("it has left the cluster")

    def _worker(self, address: str) -> DaskWorker:
        return DaskWorker(self, address, RateEstimator(self._seconds))

    def _addresses(self) -> set[str]:
        """Raises ClusterError if the scheduler is lost."""
        with suppress(OSError):
            if self.client.status == "running":
                return set(self.client.nthreads())
        raise self.lost()


class DaskWorker:
    """A worker of a cluster. It cannot be started again: another one comes in its place."""

    can_restart = False

    def __init__(self, cluster: Cluster, address: str, rate: RateEstimator) -> None:
        self.name = f"worker {address}"
        self._cluster = cluster
        self._address = address
        self._rate = rate
        self._tell: Callable[[Report], None] = lambda report: None
        self._lock = threading.Lock()
        self._flying: dict[Future, float] = {}
        """Groups under way, with the weights of their tasks."""
        self._collected: list[Order] = []
        self._numbers = 0
        self._is_lost = False

    def start(self, tell: Callable[[Report], None]) -> None:
        """Opens the workplace there."""
        self._tell = tell
        self._submit(_open_place, weight=0.0)

    def has_room(self, waiting: float, rate: float) -> bool:
        """Returns whether there is room in the next group."""
        return len(self._flying) < _GROUPS

    def send(self, message: Order | Withdraw) -> None:
        """Adds an order to the next group, which goes when it is large enough."""
        if isinstance(message, Withdraw):
            withdrawn, self._collected = self._collected, []
            self._tell(Withdrawn([order.number for order in withdrawn]))
            return
        self._collected.append(message)
        if sum(order.weight for order in self._collected) >= self._rate.budget:
            self.flush()

    def flush(self) -> None:
        """Sends the next group, if it has a task."""
        if self._collected:
            orders, self._collected = self._collected, []
            self._submit(_do_orders, orders, weight=sum(order.weight for order in orders))

    def kill(self) -> None:
        """Ends the work on all groups."""
        self.leave("it was ended")

    def stop(self) -> None:
        """Does the same."""
        self.leave("it was ended")

    def close(self) -> None:
        """Does nothing: Dask ends cancelled groups."""

    def leave(self, why: str) -> None:
        """Cancels all groups; the worker does no more. Threads may call it."""
        with self._lock:
            was_lost, self._is_lost = self._is_lost, True
            flying = list(self._flying)
        if was_lost:
            return
        with suppress(Exception):  # a lost scheduler has forgotten them already
            self._cluster.client.cancel(flying, force=True)
        self._tell(Lost(why))

    def _submit(self, function: Callable[..., Any], *arguments: Any, weight: float) -> None:
        self._numbers += 1
        key = f"{self._cluster.name}-{self._address}-{self._numbers}"
        future = self._cluster.client.submit(
            function, key, self._cluster.opening, *arguments, key=key, workers=[self._address]
        )
        with self._lock:
            self._flying[future] = weight
        future.add_done_callback(self._ended)

    def _ended(self, future: Future) -> None:
        """Tells what a group has reported, in a thread of Dask's."""
        from distributed import KilledWorker

        try:
            reports, seconds = future.result()
        except KilledWorker:
            self.leave("it crashed")
            return
        except BaseException as error:
            if not self._is_lost:
                self._tell(Failed(self._explained(future, error)))
            return
        with self._lock:
            weight = self._flying.pop(future)
        if weight:
            self._rate.learn(weight, seconds)
        for report in reports:
            self._tell(report)

    def _explained(self, future: Future, error: BaseException) -> BaseException:
        if isinstance(error, Waifu2xError):
            return ClusterError(error.of(self.name).sentence)
        if isinstance(error, ImportError):
            return ClusterError(f"{self.name} lacks what it needs: {error}")
        return self._cluster.lost() if future.status in ("cancelled", "lost") else error


# On the workers.


def dask_setup(worker: object) -> None:
    """Makes a worker ignore SIGINT; Dask calls it where this module is preloaded. The workers of
    `--cluster local` share a terminal with their client, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Sent(NamedTuple):
    """An opening on its way."""

    key: str
    """The same for the same opening."""
    version: str
    opening: Opening


def _kept(opening: Sent) -> Sent:
    return opening


def _open_place(key: str, opening: Sent) -> tuple[Sequence[Report], float]:
    check_version(opening.version, "it")
    with _HELD.opened(opening) as held:
        return [held.place.opened], 0.0


def _do_orders(key: str, opening: Sent, orders: Sequence[Order]) -> tuple[Sequence[Report], float]:
    """Does the tasks of a group; returns the reports on them, and the seconds that they took."""
    from distributed import get_worker

    tasks = get_worker().state.tasks

    def is_wanted() -> bool:
        # A worker notes here that the client has cancelled a task, or is gone.
        task = tasks.get(key)
        return task is not None and task.state != "cancelled"

    with _HELD.opened(opening) as held:
        begun = time.monotonic()
        reports = held.done(key, orders, is_wanted)
        return reports, time.monotonic() - begun


class UnwantedError(Exception):
    """Ends a group that nobody wants any more."""


class _HeldPlace:
    """A workplace that is open in this process."""

    def __init__(self, stack: ExitStack, opening: Opening) -> None:
        self._lock = threading.Lock()
        self._groups: dict[int, _Group] = {}
        """The groups of tasks under way, by their numbers."""
        self._begun: set[str] = set()
        self.is_sound = True
        self.place: Workplace = stack.enter_context(opening.opened(self._tell))

    def done(
        self, key: str, orders: Sequence[Order], is_wanted: Callable[[], bool]
    ) -> Sequence[Report]:
        """Does tasks; returns the reports on them. A group that Dask gives twice to this process
        may have been finished in part. Raises UnwantedError."""
        group = _Group(is_wanted)
        with self._lock:
            is_again = key in self._begun
            self._begun.add(key)
            for order in orders:
                self._groups[order.number] = group
        try:
            for order in orders:
                self.place.begin(replace(order, repeated=order.repeated or is_again))
            group.is_begun = True
            return group.reports(len(orders))
        except BaseException:
            self.is_sound = False
            raise
        finally:
            with self._lock:
                for order in orders:
                    self._groups.pop(order.number, None)

    def _tell(self, report: Report) -> None:
        """Takes a report to its group. Raises UnwantedError."""
        if isinstance(report, Advanced):
            for number, part in report.parts.items():
                if group := self._groups.get(number):
                    group.add(Advanced({number: part}))
        elif isinstance(report, (Broken, Failed)):
            self.is_sound = False
            with self._lock:
                groups = set(self._groups.values())
            for group in groups:
                group.add(report)
        elif group := self._groups.get(getattr(report, "number", -1)):
            group.add(report)


class _Group:
    """Reports on the tasks of a group."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._found: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._looked = time.monotonic()
        self.is_begun = False
        """Whether all tasks were given to the workplace, whose threads may work for others, too."""

    def add(self, report: Report) -> None:
        """Adds a report. Raises UnwantedError while a task is begun, which may be all of it."""
        self._found.put(report)
        if not self.is_begun and time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            if not self._is_wanted():
                raise UnwantedError

    def reports(self, left: int) -> Sequence[Report]:
        """Waits until `left` tasks are done, or none can be; returns all reports."""
        found: list[Report] = []
        while left:
            try:
                found.append(self._found.get(timeout=_LOOK_SECONDS))
            except queue.Empty:
                if not self._is_wanted():
                    raise UnwantedError from None
                continue
            if isinstance(found[-1], (Broken, Failed)):
                break
            left -= isinstance(found[-1], Done)
        return found


class _Holder:
    """The workplace of this process, opened anew for other openings."""

    def __init__(self) -> None:
        self._freed = threading.Condition()
        self._users = 0
        self._key = ""
        self._held: _HeldPlace | None = None
        self._stack = ExitStack()

    @contextmanager
    def opened(self, sent: Sent) -> Iterator[_HeldPlace]:
        """Gives the workplace of an opening. Waits for the end of contexts with other openings: a
        worker may have several threads with groups of several fleets. Raises Waifu2xError."""
        with self._freed:
            self._freed.wait_for(lambda: not self._users or self._key == sent.key)
            if self._held is None or self._key != sent.key or not self._held.is_sound:
                self._close()
                self._held = _HeldPlace(self._stack, sent.opening)
                self._key = sent.key
                atexit.register(self._close_idle)
            self._users += 1
            held = self._held
        try:
            yield held
        finally:
            with self._freed:
                self._users -= 1
                if not (held.is_sound or self._users):
                    self._close()
                self._freed.notify_all()

    def _close(self) -> None:
        atexit.unregister(self._close_idle)
        self._held = None
        self._stack.close()

    def _close_idle(self) -> None:
        """Closes the workplace before Python takes down the modules that it needs for that."""
        with self._freed:
            if not self._users:
                self._close()


_HELD = _Holder()
