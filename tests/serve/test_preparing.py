"""The time that networks take to be compiled is told, and counts for no speed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")

from tests.helpers.queues import added, listed
from waifu2x.backends.engine.engine import Engine, WorkClock
from waifu2x.networks import model_set
from waifu2x.serve.jobs import Remarks, ResultInfo
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.queue import Queue
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Returns the time that passes: its `now`."""
    passing = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("time.monotonic", lambda: passing.now)
    return passing


def test_an_engine_tells_that_it_compiles(
    time: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine("numpy") as engine:
        compiled = engine.backend.compile
        told: list[float | None] = []

        def compile_slowly(*arguments: object) -> object:
            time.now += 7.0
            told.append(engine.clock.standing())
            return compiled(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(engine.backend, "compile", compile_slowly)
        models = model_set.find("vgg_7/art").models(2, None)
        begun = engine.clock()
        network = engine.network(models)
        assert told == [7.0]
        time.now += 2.0
        assert (engine.clock.standing(), engine.clock() - begun) == (None, 2.0)
        engine.network(models).close()  # it is there already
        assert told == [7.0]
        network.close()


def test_a_clock_stands_still_until_all_is_compiled(time: SimpleNamespace) -> None:
    clock = WorkClock()
    with clock.stopped():
        time.now += 1.0
        with clock.stopped():
            time.now += 2.0
        assert (clock.standing(), clock()) == (3.0, 1000.0)
        time.now += 4.0
    time.now += 8.0
    assert (clock.standing(), clock()) == (None, 1008.0)


def test_speed_is_that_of_the_work(time: SimpleNamespace, tmp_path: Path) -> None:
    clock, spool = WorkClock(), Spool(tmp_path)
    store = Store(spool.database, print)
    queue = Queue(store, spool, ServiceLimits(), clock, clock.standing)
    for _ in range(2):
        added(queue, tmp_path, b"x")
    record = queue.take(0.0)
    assert record is not None
    time.now += 1.0  # it is decoded
    with clock.stopped():
        time.now += 19.0
        first, second = listed(queue)
        assert (first["preparing"], first["progress"], first["rate"]) == (19.0, 0.0, None)
        assert second["preparing"] is None  # it waits
    time.now += 1.0
    queue.advance(record, 0.25, 8_000_000)
    first, _ = listed(queue)
    assert (first["preparing"], first["rate"], first["seconds_left"]) == (None, 1.0, 6.0)
    with clock.stopped():  # another network, for somebody who compares models
        time.now += 2.0
        assert listed(queue)[0]["preparing"] is None
    queue.advance(record, 0.5, 8_000_000)
    assert (listed(queue)[0]["rate"], queue.seconds(record)) == (1.0, 4.0)
    made = ResultInfo("x-2x.png", 2, 2, 1, "png", queue.seconds(record))
    queue.finish(record, made, Remarks())
    assert queue.rate(record.settings.model) == 2.0
