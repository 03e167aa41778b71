"""The supervisor of workers: hands tasks out, collects outcomes, and decides what a loss means.

Each worker takes tasks as it has room, so a faster one does more. If one is lost, its successor
does the tasks under way again, one by one, since one of them may be to blame. One thread decides
everything; workers, and the thread that asks for tasks, only send it events.
"""

from __future__ import annotations

import itertools
import queue
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from waifu2x.errors import BackendError, Waifu2xError
from waifu2x.flows.fleet.messages import (
    Advanced,
    Begun,
    Broken,
    Done,
    Failed,
    Logged,
    Lost,
    Noticed,
    Opened,
    Order,
    Report,
    Withdraw,
    Withdrawn,
)
from waifu2x.flows.fleet.task import Task
from waifu2x.system.files import clear_folder
from waifu2x.system.lazy_dataclass import dataclass

_COLLECT_SECONDS = 0.02
"""The longest wait of a collected task for the next one."""


class State(Enum):
    """The state of a worker."""

    STARTING = "starting"
    READY = "ready"
    """It has no task."""
    BUSY = "busy"
    LOST = "lost"
    """It has ended, and is not started again."""


class FleetWorker(Protocol):
    """Does tasks elsewhere. The supervisor's thread calls it."""

    name: str
    can_restart: bool

    def start(self, tell: Callable[[Report], None]) -> None:
        """Begins a life; `tell` gets its reports from any thread, and Lost or Failed at its end."""

    def has_room(self, waiting: float, rate: float) -> bool:
        """Returns whether it takes a task more, with that weight waiting in it and that weight done
        in a second."""

    def send(self, message: Order | Withdraw) -> None:
        """Sends a message; a lost worker ignores it."""

    def flush(self) -> None:
        """Sends what it was given, if it collects."""

    def kill(self) -> None:
        """Ends it at once; Lost follows."""

    def stop(self) -> None:
        """Begins to end it at once; nothing unfinished stays."""

    def close(self) -> None:
        """Waits for its end after `stop`."""


@dataclass(frozen=True)
class Policy:
    """Decides what the loss of a worker means, and names things in messages."""

    noun: str = "files"
    """The things that workers are given, for people."""
    kind: str = "device"
    """A worker, for people."""
    process: str = "worker processes"
    """Things that a task ends which is to blame, for people."""
    error: type[Waifu2xError] = BackendError
    tries: int = 3
    """Workers lost on a task after which the task is to blame."""
    patience: float = 0.0
    """Seconds that a fleet waits for another worker after all have left."""
    resume: str = ""
    """How to go on after the loss of all workers, for people."""
    fruitless: int = 2
    """Consecutive lives of a worker without a finished task after which it is given up."""

    def blame(self, tries: int, why: str) -> str:
        """Returns a clause about a task on which that many workers were lost."""
        return f"crashed {tries} {self.process} in a row: {why}"


DEVICES = Policy()


@dataclass(frozen=True)
class Hooks:
    """Those who hear of the work, by the thread that runs the fleet."""

    on_opened: Callable[[str, Opened], None] = lambda name, opened: None
    on_progress: Callable[[Any, Any], None] = lambda task, part: None
    on_notice: Callable[[Any, str], None] = lambda task, text: None
    on_news: Callable[[str], None] = lambda text: None
    """Called with messages about workers, each once."""


SILENT = Hooks()


@dataclass(frozen=True)
class Settled:
    """An outcome that needs no worker; a source of tasks may yield it in their place."""

    outcome: Any


@dataclass(eq=False)
class _Assigned:
    task: Task
    is_alone: bool
    """Whether a worker was lost on it, so that this one has nothing else."""
    is_waiting: bool = True


@dataclass(eq=False)
class _Supervised:
    """A worker, and its present life."""

    worker: FleetWorker
    state: State = State.STARTING
    was_ready: bool = False
    """Whether it was ready in any life."""
    lives: int = 0
    fruitless: int = 0
    """Consecutive lives without a finished task."""
    since: float = 0.0
    tasks: dict[int, _Assigned] = field(default_factory=dict)
    done: float = 0.0
    """The weight of its finished tasks in this life."""
    has_made: bool = False
    """Whether this life has finished a task, or a part of one."""
    fault: str = ""
    """Why this life has to end."""

    @property
    def has_room(self) -> bool:
        if self.state not in (State.READY, State.BUSY) or self.fault:
            return False
        if any(assigned.is_alone for assigned in self.tasks.values()):
            return False
        waiting = sum(each.task.weight for each in self.tasks.values() if each.is_waiting)
        return self.worker.has_room(waiting, self.done / max(time.monotonic() - self.since, 1e-3))


class _Exhausted:
    """There are no more tasks."""


class _Stop:
    """The supervisor has to end."""


class _Joined:
    """A worker has come."""


_Event = Report | Withdraw | Task | Settled | BaseException | _Exhausted | _Stop | _Joined | None


class Fleet:
    """Workers that do tasks. One thread opens, runs and closes it."""

    def __init__(
        self,
        workers: Iterable[FleetWorker],
        policy: Policy = DEVICES,
        hooks: Hooks = SILENT,
        last: FleetWorker | None = None,
    ) -> None:
        """`last` is a worker that is started once all others have been given up."""
        self.hooks = hooks
        self._members = [_Supervised(worker) for worker in workers]
        self.policy = policy
        self._last = last
        self._told: set[str] = set()
        self._numbers = itertools.count(secrets.randbits(48))  # workers may have several fleets
        self._tries: Counter[Hashable] = Counter()
        self._events: queue.SimpleQueue[tuple[_Supervised | None, _Event]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[Any] | BaseException | None] = queue.SimpleQueue()
        self._given: deque[Task] = deque()
        """New tasks for which there is no room yet."""
        self._suspects: deque[Task] = deque()
        """Tasks on which one worker was lost; another does each alone."""
        self._late: deque[Task] = deque()
        """Tasks that were done alone when a worker was lost; they come last."""
        self._is_exhausted = self._is_asked = self._is_idle = False
        """`_is_idle`: there was no task when the source was last asked."""
        self._asked = threading.Semaphore(0)
        self._is_running = self._is_closed = False
        self._thread: threading.Thread | None = None
        self.opened: Opened | None = None
        """The report of the first worker that was ready."""

    @property
    def workers(self) -> list[FleetWorker]:
        """Returns the workers, those that were given up among them."""
        return [member.worker for member in self._members]

    def open(self) -> None:
        """Starts all workers, and waits until each is ready or given up. Raises Waifu2xError, also
        if none is ready, and any other error that a worker has reported."""
        for member in self._members:
            self._start(member)
        while any(member.state is State.STARTING for member in self._members):
            self._handle(*self._events.get())
        if not any(member.was_ready for member in self._members):
            raise self.policy.error(f"{self._none_left}, see above")

    def run(
        self, tasks: Iterable[Task | Settled | None], stopped: threading.Event | None = None
    ) -> Generator[Any]:
        """Yields the outcomes of tasks as they end. `tasks` is asked when a worker has room; None
        means that there is no task now. Once `stopped` is set, tasks that wait in workers are
        withdrawn. Raises what `Task.failed` raises, and errors that workers report. After an error,
        and if it is closed early, the fleet is closed: nothing unfinished stays."""
        self._is_exhausted = self._is_asked = self._is_idle = False
        self._is_running = True
        feeder = threading.Thread(
            target=self._feed, args=(iter(tasks),), name="waifu2x-tasks", daemon=True
        )
        self._thread = threading.Thread(
            target=self._supervise, name="waifu2x-supervisor", daemon=True
        )
        is_told = False
        try:
            feeder.start()
            self._thread.start()
            while (ended := self._outcomes.get()) is not None:
                if isinstance(ended, BaseException):
                    raise ended
                yield ended[0]
                if stopped is not None and stopped.is_set() and not is_told:
                    is_told = True
                    self._events.put((None, Withdraw()))
            self._thread.join()
        except BaseException:
            self.close()
            raise

    def join(self, worker: FleetWorker) -> None:
        """Adds a worker, from any thread."""
        self._events.put((_Supervised(worker), _Joined()))

    def fail(self, error: BaseException) -> None:
        """Ends the work with an error, from any thread."""
        self._events.put((None, Failed(error)))

    def close(self) -> None:
        """Ends all workers at once, and waits for that."""
        self._is_closed = True
        self._asked.release()  # the feeder ends, unless its iterator blocks
        if self._thread is not None and self._thread.ident is not None:
            self._events.put((None, _Stop()))
            self._thread.join()
        for member in self._members:
            member.worker.stop()
        for member in self._members:
            member.worker.close()
        _clear(each.task for member in self._members for each in member.tasks.values())

    # The feeder's thread asks for tasks, since their iterator may block.

    def _feed(self, tasks: Iterator[Task | Settled | None]) -> None:
        try:
            self._asked.acquire()
            for task in tasks:
                if self._is_closed:
                    return
                if isinstance(task, Settled):
                    self._outcomes.put((task.outcome,))
                    continue
                self._events.put((None, task))
                self._asked.acquire()
            self._events.put((None, _Exhausted()))
        except BaseException as error:
            self._events.put((None, Failed(error)))

    # The supervisor's thread.

    def _supervise(self) -> None:
        try:
            while True:
                self._hand_out()
                if self._is_exhausted and not self._is_unfinished:
                    self._outcomes.put(None)
                    return
                member, event = self._next_event()
                if isinstance(event, _Stop):
                    return
                self._handle(member, event)
        except BaseException as error:
            self._outcomes.put(error)

    def _next_event(self) -> tuple[_Supervised | None, _Event]:
        """Waits for an event. Raises an error if there are no workers for too long."""
        if self._is_asked:  # while tasks come at once, workers may collect them
            with suppress(queue.Empty):
                return self._events.get(timeout=_COLLECT_SECONDS)
        for member in self._members:
            member.worker.flush()
        if self._members:
            return self._events.get()
        patience = f"{self.policy.patience:.0f} seconds"
        self._say(f"no {self.policy.kind}s left: waiting {patience} for one")
        try:
            return self._events.get(timeout=self.policy.patience)
        except queue.Empty:
            error = f"no {self.policy.kind}s for {patience}"
            raise self.policy.error(error, self.policy.resume) from None

    @property
    def _is_unfinished(self) -> bool:
        waiting = self._given or self._suspects or self._late
        return bool(waiting or any(member.tasks for member in self._members))

    @property
    def _none_left(self) -> str:
        return f"no {self.policy.kind} is left that works"

    def _hand_out(self) -> None:
        """Gives tasks to workers with room, and asks for more."""
        if self._members and all(member.state is State.LOST for member in self._members):
            self._give_up()
            return
        is_wanted = False
        for member in sorted(self._members, key=lambda member: len(member.tasks)):
            while member.has_room:
                waiting = self._waiting_for(member)
                if waiting:
                    self._assign(member, waiting)
                    continue
                is_wanted |= waiting is self._given
                break
        if is_wanted and not self._is_exhausted:
            self._ask()

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._asked.release()

    def _waiting_for(self, member: _Supervised) -> deque[Task] | None:
        """Returns the queue from which a worker with room takes its next task; None if it has to
        finish others before."""
        is_free = not member.tasks
        if self._suspects and self._tries_suspects(member):
            return self._suspects if is_free else None
        if self._late and (self._is_exhausted or self._is_idle) and not self._given:
            return self._late if is_free else None
        return self._given

    def _tries_suspects(self, member: _Supervised) -> bool:
        """Returns whether a worker does what others were lost on: the successors of those, unless
        there are none or no other work is left."""
        return (
            member.lives > 1
            or self._is_exhausted
            or not any(each.lives > 1 and each.state is not State.LOST for each in self._members)
        )

    def _assign(self, member: _Supervised, waiting: deque[Task]) -> None:
        # The last suspect was hardly begun: it shows whether the worker works.
        task = waiting.pop() if waiting is self._suspects else waiting.popleft()
        is_alone = waiting is not self._given
        number = next(self._numbers)
        member.tasks[number] = _Assigned(task, is_alone)
        member.state = State.BUSY
        member.worker.send(Order(number, task.work, is_alone, task.weight))

    def _give_up(self) -> None:
        """Fails all tasks, since no worker is left."""
        for waiting in (self._suspects, self._late, self._given):
            while waiting:
                self._fail(waiting.popleft(), self._none_left, is_blamed=False)
        if not self._is_exhausted:
            self._ask()

    def _fail(self, task: Task, why: str, *, is_blamed: bool) -> None:
        self._outcomes.put((task.failed(why, is_blamed=is_blamed),))

    def _handle(self, member: _Supervised | None, event: _Event) -> None:
        if isinstance(event, Failed):
            self._fall(member, event.error)
        elif member is None:
            self._handle_given(event)
        elif isinstance(event, _Joined):
            self._members.append(member)
            self._start(member)
        elif isinstance(event, (Begun, Noticed, Done)):
            # A worker may send reports on tasks that were taken from it when it was lost.
            if (assigned := member.tasks.get(event.number)) is not None:
                self._handle_task(member, assigned, event)
        elif isinstance(event, Advanced):
            for number, part in event.parts.items():
                if number in member.tasks:
                    self.hooks.on_progress(member.tasks[number].task, part)
        elif isinstance(event, Logged):
            self._say(event.text)
        elif isinstance(event, Opened):
            self._greet(member, event)
        elif isinstance(event, Withdrawn):
            for number in event.numbers:
                self._take_back(member, number)
        elif isinstance(event, Broken):
            self._end(member, event.fault)
        elif isinstance(event, Lost):
            self._bury(member, event.why)

    def _handle_task(
        self, member: _Supervised, assigned: _Assigned, report: Begun | Noticed | Done
    ) -> None:
        if isinstance(report, Begun):
            assigned.is_waiting = False
        elif isinstance(report, Noticed):
            self.hooks.on_notice(assigned.task, report.text)
        else:
            member.done += assigned.task.weight
            member.has_made = True
            self._take_back(member, report.number)
            self._outcomes.put((assigned.task.done(report.outcome),))

    def _take_back(self, member: _Supervised, number: int) -> None:
        """Takes a task from a worker, unless it was taken when that was lost."""
        if member.tasks.pop(number, None) is not None:
            member.state = State.BUSY if member.tasks else State.READY

    def _handle_given(self, event: _Event) -> None:
        """Handles what the feeder or the user has sent."""
        if isinstance(event, Withdraw):
            for member in self._members:
                member.worker.send(event)
            return
        self._is_asked = False
        self._is_idle = event is None
        if isinstance(event, _Exhausted):
            self._is_exhausted = True
        elif event is not None:
            self._given.append(event)  # type: ignore[arg-type]

    def _greet(self, member: _Supervised, opened: Opened) -> None:
        """Notes that a worker is ready. Raises BackendError for one that does not go with the
        others, if that is so from the beginning."""
        if self.opened is None:
            self.opened = opened
        if opened.arithmetic != self.opened.arithmetic:
            computes = f"computes in {opened.arithmetic}, not {self.opened.arithmetic} as others do"
            if not self._is_running:
                raise self.policy.error(
                    f"{member.worker.name} {computes}", "choose by --backend and --precision"
                )
            self._end(member, f"it {computes}")
            return
        member.state, member.was_ready = State.READY, True
        member.since = time.monotonic()
        self.hooks.on_opened(member.worker.name, opened)
        for notice in opened.notices:
            self._say(notice)

    def _fall(self, member: _Supervised | None, error: BaseException) -> None:
        """Ends the life of a worker that could not be opened during the work. Raises any other
        error."""
        is_known = isinstance(error, Waifu2xError) and self._is_running
        if member is None or not is_known or member.state is not State.STARTING:
            raise error
        self._end(member, str(error))

    def _end(self, member: _Supervised, fault: str) -> None:
        """Ends a life; its tasks are done elsewhere."""
        if not member.fault:
            member.fault = fault
            member.worker.kill()

    def _start(self, member: _Supervised) -> None:
        member.state = State.STARTING
        member.lives += 1
        member.done, member.has_made, member.fault = 0.0, False, ""
        member.worker.start(lambda report: self._events.put((member, report)))

    def _bury(self, member: _Supervised, why: str) -> None:
        """Handles the end of a life: what it had to do is done again, and another one follows."""
        is_crash, why = not member.fault, member.fault or why
        tasks, member.tasks = list(member.tasks.values()), {}
        _clear(assigned.task for assigned in tasks)
        found: list[tuple[Task, bool]] = []
        for assigned in tasks:
            left = assigned.task.left()
            member.has_made |= left.has_made
            found += [(task, assigned.is_alone) for task in left.tasks]
        member.fruitless = 0 if member.has_made else member.fruitless + 1
        cannot_open = bool(member.fault) and member.state is State.STARTING
        is_gone = cannot_open or member.fruitless >= self.policy.fruitless
        is_gone |= not member.worker.can_restart
        for task, was_alone in found:
            self._suspect(task, why, is_crash=is_crash, was_alone=was_alone)
        if not self._is_exhausted or self._is_unfinished:
            goes_on = (
                f"gets no more {self.policy.noun}" if is_gone else "goes on in another process"
            )
            self._say(f"{member.worker.name}: {why}: {goes_on}")
        if not is_gone:
            self._start(member)
            return
        member.state = State.LOST
        if not (member.worker.can_restart or member.fault):
            self._members.remove(member)  # it is not there any more
        if self._last is not None and all(each.state is State.LOST for each in self._members):
            last, self._last = _Supervised(self._last, was_ready=True, lives=1), None
            self._members.append(last)
            self._start(last)

    def _suspect(self, task: Task, why: str, *, is_crash: bool, was_alone: bool) -> None:
        """Decides about a task of a lost worker."""
        tries = 0
        if is_crash:  # and not a device that has failed, which is nobody's fault
            self._tries[task.key] += 1
            tries = self._tries[task.key]
        if tries >= self.policy.tries:
            self._fail(task, self.policy.blame(tries, why), is_blamed=True)
        else:
            (self._late if was_alone else self._suspects).append(task)

    def _say(self, notice: str) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self.hooks.on_news(notice)


def _clear(tasks: Iterable[Task]) -> None:
    """Removes what lost workers have left unfinished."""
    for folder in {task.folder for task in tasks} - {None}:
        assert folder is not None
        clear_folder(folder)
