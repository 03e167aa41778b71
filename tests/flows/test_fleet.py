"""The supervisor of workers: what it hands out, and what a loss means. Workers are objects here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from waifu2x.errors import BackendError, ClusterError, DeviceError, ImageError
from waifu2x.flows.fleet.messages import (
    Begun,
    Broken,
    Done,
    Failed,
    Lost,
    Noticed,
    Opened,
    Order,
    Report,
    Withdraw,
    Withdrawn,
)
from waifu2x.flows.fleet.supervisor import Fleet, Hooks, Policy, Settled
from waifu2x.flows.fleet.task import Left


class Number:
    """A task that a worker squares."""

    weight = 1.0
    folder: Path | None = None

    def __init__(self, number: int) -> None:
        self.key = self.work = number

    def left(self) -> Left:
        return Left([self])

    def done(self, outcome: int) -> int:
        return outcome

    def failed(self, why: str, *, is_blamed: bool) -> str:
        if why == "fatal":
            raise ImageError(why)
        return f"{self.work}: {why}"


class Squarer:
    """A worker whose lives go on until an order ends one. Reports come while it is called."""

    can_restart = True

    def __init__(
        self,
        name: str,
        do: Callable[[Order], Report | None],
        opened: Callable[[int], Report] = lambda life: Opened("a squarer"),
        ahead: int = 1,
    ) -> None:
        """`do` returns the report about an order; None leaves it waiting."""
        self.name = name
        self.lives = 0
        self.sent: list[Order] = []
        self._do = do
        self._opened = opened
        self._ahead = ahead
        self._is_alive = False
        self._tell: Callable[[Report], None] = lambda report: None

    def start(self, tell: Callable[[Report], None]) -> None:
        self.lives += 1
        self._tell, self._is_alive = tell, True
        self._report(self._opened(self.lives))

    def has_room(self, waiting: float, rate: float) -> bool:
        return waiting < self._ahead

    def send(self, message: Order | Withdraw) -> None:
        if isinstance(message, Withdraw):
            self._tell(Withdrawn([order.number for order in self.sent]))
            return
        self.sent.append(message)
        if self._is_alive and (report := self._do(message)) is not None:
            self._report(report)

    def _report(self, report: Report) -> None:
        self._is_alive = self._is_alive and not isinstance(report, Lost)
        self._tell(report)

    def flush(self) -> None:
        pass

    def kill(self) -> None:
        if self._is_alive:
            self._report(Lost("was killed"))

    stop = kill

    def close(self) -> None:
        assert not self._is_alive


def squared(order: Order) -> Report:
    return Done(order.number, order.work**2)


def dies_on(*deadly: int) -> Callable[[Order], Report]:
    return lambda order: Lost("its process died") if order.work in deadly else squared(order)


class Ran:
    """The outcomes and the news of a run."""

    def __init__(self, *workers: Squarer, tasks: int = 10, last: Squarer | None = None) -> None:
        self.news: list[str] = []
        fleet = Fleet(workers, hooks=Hooks(on_news=self.news.append), last=last)
        with closing(fleet):
            fleet.open()
            self.found = list(fleet.run(map(Number, range(tasks))))


SQUARES = {number**2 for number in range(10)}


def test_all_workers_do_what_one_does() -> None:
    ran = Ran(Squarer("a", squared), Squarer("b", squared))
    assert sorted(ran.found) == sorted(SQUARES)


def test_a_lost_worker_is_replaced_and_its_task_done_again() -> None:
    died: list[int] = []

    def dies_once(order: Order) -> Report:
        if order.work == 3 and not died:
            died.append(3)
            return Lost("its process was killed")
        return squared(order)

    workers = [Squarer("a", dies_once), Squarer("b", dies_once)]
    ran = Ran(*workers)
    assert sorted(ran.found) == sorted(SQUARES)
    (told,) = ran.news
    assert told.endswith(": its process was killed: goes on in another process")
    (again,) = [each for worker in workers for each in worker.sent[1:] if each.repeated]
    assert again.work == 3


def test_reports_after_a_loss_count_no_more() -> None:
    """Another worker may have the task by then."""

    class Late(Squarer):
        can_restart = False

        def _report(self, report: Report) -> None:
            super()._report(report)
            if isinstance(report, Lost):
                number = self.sent[-1].number
                for late in (Begun(number), Noticed(number, "late"), Done(number, -1)):
                    self._tell(late)
                self._tell(Withdrawn([number]))

    notices: list[str] = []
    fleet = Fleet([Late("late", dies_on(3)), Squarer("other", squared)])
    fleet.hooks = Hooks(on_notice=lambda task, text: notices.append(text))
    with closing(fleet):
        fleet.open()
        outcomes = list(fleet.run(map(Number, range(6))))
    assert sorted(outcomes) == [0, 1, 4, 9, 16, 25]
    assert not notices


def test_a_task_on_which_three_are_lost_is_to_blame() -> None:
    worker = Squarer("a", dies_on(4))
    ran = Ran(worker)
    assert {each for each in ran.found if isinstance(each, int)} == SQUARES - {16}
    assert "4: crashed 3 worker processes in a row: its process died" in ran.found
    assert worker.lives == 4
    assert worker.sent[-1].work == 4  # the others come before its last try


def test_a_source_that_never_ends_delays_no_last_try() -> None:
    """As a folder that is watched: the last try comes when there is no other task."""
    fleet = Fleet([Squarer("a", dies_on(1))])
    found: list[Any] = []

    def watched() -> Iterator[Number | None]:
        yield from map(Number, range(3))
        for _ in range(100_000):
            if len(found) == 3:
                return
            yield None
        raise AssertionError("the last try waits for the end")

    with closing(fleet):
        fleet.open()
        for outcome in fleet.run(watched()):
            found.append(outcome)
    assert sorted(map(str, found)) == [
        "0",
        "1: crashed 3 worker processes in a row: its process died",
        "4",
    ]


def test_tasks_of_a_lost_worker_are_done_one_by_one() -> None:
    """The last first, which shows whether the worker works."""
    died: list[int] = []

    def dies_once(order: Order) -> Report | None:
        if order.work < 4 and not died:
            if order.work == 3:
                died.append(3)
                return Lost("its process was killed")
            return None
        return squared(order)

    worker = Squarer("a", dies_once, ahead=4)
    assert set(Ran(worker).found) == SQUARES
    assert [order.work for order in worker.sent][:8] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert [order.repeated for order in worker.sent][:9] == [False] * 4 + [True] * 4 + [False]


def test_a_worker_that_finishes_nothing_is_given_up() -> None:
    """Tasks are not to blame for a device that has failed."""
    broken = Squarer("a", lambda order: Broken("the device fell off the bus"))
    ran = Ran(broken, Squarer("b", squared))
    assert sorted(ran.found) == sorted(SQUARES)
    assert broken.lives <= 2
    ran = Ran(Squarer("a", lambda order: Broken("the device fell off the bus")), tasks=3)
    assert ran.found == [f"{number}: no device is left that works" for number in range(3)]
    assert ran.news == [
        "a: the device fell off the bus: goes on in another process",
        "a: the device fell off the bus: gets no more files",
    ]


def test_the_last_worker_does_what_is_left() -> None:
    ran = Ran(Squarer("a", dies_on(*range(2, 10))), last=Squarer("the rest", squared))
    assert sorted(ran.found) == sorted(SQUARES)
    assert ran.news[-1] == "a: its process died: gets no more files"


def refuses(life: int) -> Report:
    return Failed(DeviceError("no device"))


@pytest.mark.parametrize(
    ("opened", "said"),
    [
        (refuses, "no device"),
        (lambda life: Lost("its process died"), "no device is left that works, see above"),
        (lambda life: Failed(RuntimeError("a defect")), "a defect"),
    ],
    ids=("refuses", "dies", "defect"),
)
def test_a_fleet_that_cannot_be_opened(opened: Any, said: str) -> None:
    with pytest.raises((BackendError, RuntimeError), match=said):
        Ran(Squarer("a", squared, opened))


def test_a_worker_that_dies_at_its_start_leaves_the_others() -> None:
    odd = Squarer("a", squared, lambda life: Lost("its process died"))
    ran = Ran(odd, Squarer("b", squared))
    assert sorted(ran.found) == sorted(SQUARES)
    assert ran.news[-1] == "a: its process died: gets no more files"


def test_a_worker_that_cannot_be_opened_again_is_given_up() -> None:
    odd = Squarer("a", dies_on(*range(10)), lambda life: Opened("") if life == 1 else refuses(life))
    ran = Ran(odd, Squarer("b", squared))
    assert sorted(ran.found) == sorted(SQUARES)
    assert odd.lives <= 2


def test_all_workers_compute_in_the_same() -> None:
    with pytest.raises(BackendError, match="b computes in fp16, not fp32 as others do"):
        Ran(
            Squarer("a", squared, lambda life: Opened("", "fp32")),
            Squarer("b", squared, lambda life: Opened("", "fp16")),
        )
    changes = Squarer("a", dies_on(0), lambda life: Opened("", "fp32" if life == 1 else "fp16"))
    ran = Ran(changes, tasks=1)
    assert ran.found == ["0: no device is left that works"]
    assert ran.news[-1] == "a: it computes in fp16, not fp32 as others do: gets no more files"


def test_an_error_that_is_no_tasks_ends_all() -> None:
    with pytest.raises(ImageError, match="the disk is full"):
        Ran(Squarer("a", lambda order: Failed(ImageError("the disk is full"))))


def test_what_a_source_may_yield() -> None:
    """Outcomes that need no worker, and that there is nothing now; its errors end the work."""
    fleet = Fleet([Squarer("a", squared)])

    def odd() -> Iterator[Number | None]:
        yield Number(1)
        raise ImageError("cannot be listed")

    with closing(fleet):
        fleet.open()
        source = [None, Settled("skipped"), None, Number(3), None, Settled("skipped")]
        assert sorted(map(str, fleet.run(source))) == ["9", "skipped", "skipped"]
        assert list(fleet.run([])) == []  # it can be used again
        with pytest.raises(ImageError, match="cannot be listed"):
            list(fleet.run(odd()))


def test_what_is_left_of_a_task_is_done(tmp_path: Path) -> None:
    """And unfinished files of a lost worker do not stay."""
    died: list[int] = []

    class Halves(Number):
        folder = tmp_path

        def left(self) -> Left:
            return Left([Number(2), Number(3)], has_made=True)

    def dies_once(order: Order) -> Report:
        if not died:
            died.append(1)
            return Lost("its process was killed")
        return squared(order)

    fleet = Fleet([Squarer("a", dies_once)])
    with closing(fleet):
        fleet.open()
        assert sorted(fleet.run([Halves(1)])) == [4, 9]


class Guest(Squarer):
    """A worker that cannot be started again, as those of a cluster."""

    can_restart = False


def test_workers_leave_and_others_come() -> None:
    fleet = Fleet([Guest("a", dies_on(2))], Policy(patience=60.0, error=ClusterError))
    with closing(fleet):
        fleet.open()
        found = []
        for outcome in fleet.run(map(Number, range(4))):
            found.append(outcome)
            if outcome == 1:  # the worker is lost with the next one
                fleet.join(Guest("b", squared))
                fleet.join(Guest("c", squared, lambda life: Failed(DeviceError("no device"))))
        assert sorted(found) == [0, 1, 4, 9]


def test_patience_ends() -> None:
    policy = Policy(kind="worker", patience=0.0, resume="run again", error=ClusterError)
    fleet = Fleet([Guest("a", dies_on(0))], policy)
    with closing(fleet):
        fleet.open()
        with pytest.raises(ClusterError, match="no workers for 0 seconds; run again"):
            list(fleet.run([Number(0)]))
    fleet = Fleet([Guest("a", lambda order: Broken("no device"))], policy)
    with closing(fleet):
        fleet.open()
        assert list(fleet.run([Number(0)])) == ["0: no worker is left that works"]


def test_an_error_from_elsewhere_ends_all() -> None:
    fleet = Fleet([Squarer("a", lambda order: None)])
    with closing(fleet):
        fleet.open()
        fleet.fail(ClusterError("lost the scheduler"))
        with pytest.raises(ClusterError, match="lost the scheduler"):
            list(fleet.run([Number(0)]))
