"""Many jobs changed by one request, and what clients are told of that."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.helpers.contents import encode, noise
from tests.helpers.queues import added, listed, queue_of
from tests.helpers.servers import Server
from waifu2x.imaging.picture import Picture
from waifu2x.serve.job_results import JobResults
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import Remarks, ResultInfo
from waifu2x.serve.limits import MOST_IDS
from waifu2x.serve.queue import Queue, QueueFullError
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store

PNG = encode(Picture(noise(13, 17, 3)), "png")
MADE = ResultInfo("x-2x.png", 2, 2, 1, "png", 0.1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


def states(queue: Queue) -> list[str]:
    return [job["state"] for job in listed(queue)]


def test_cancel_retry_and_remove_all(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(7)]
    done, failed, working = (queue.take(0.0) for _ in range(3))
    assert done is not None
    assert failed is not None
    queue.finish(done, MADE, Remarks())
    queue.fail(failed, "It failed.")
    stopped: list[str] = []
    queue.on_cancelled.append(stopped.append)
    assert queue.cancel_all(None) == 5
    assert states(queue) == ["done", "failed"] + 5 * ["cancelled"]
    assert stopped == [ids[2]]
    assert working is not None
    assert not queue.is_wanted(working)
    assert queue.cancel_all(None) == 0
    assert queue.retry_all(None, lambda before: replace(before, scale="3")) == 6
    assert states(queue) == ["done"] + 6 * ["waiting"]
    assert [job["position"] for job in listed(queue)] == [None, 1, 2, 3, 4, 5, 6]
    assert {queue.get(each).settings.scale for each in ids[1:]} == {"3"}
    assert queue.get(ids[0]).settings.scale == "2"
    assert [queue.get(each).attempt for each in ids] == [0] + 6 * [1]
    queue.cancel(ids[3])
    assert queue.remove_all(None) == 2
    assert [job["id"] for job in listed(queue)] == [*ids[1:3], *ids[4:]]


def test_removal_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one first; unfinished jobs wait again, and what was under way comes to nothing."""
    store = Store(tmp_path / "queue.sqlite", print)
    queue, spool = queue_of(tmp_path, store, max_queue=6), Spool(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(6)]
    done, working = queue.take(0.0), queue.take(0.0)
    assert done is not None
    assert working is not None
    queue.finish(done, MADE, Remarks())
    queue.cancel(ids[4])
    before = listed(queue)
    queue.remove_all(ids[:2])
    queue.remove_all([ids[4], ids[3]])
    queue.remove(ids[5])
    assert not spool.of(ids[5]).exists()
    since = queue.changes(0)["version"]
    assert [job["id"] for job in listed(queue)] == [ids[2]]
    assert queue.changes(since)["restorable"] == 2
    JobResults(queue, spool, None).drop(working, spool.result(working, "png"))
    assert queue.restore_all(None) == 2
    assert {job["id"] for job in queue.changes(since)["jobs"]} == {ids[3], ids[4]}
    assert queue.restore_all([ids[0], ids[1], ids[5], ids[2]]) == 2
    found = listed(queue)
    assert [job["id"] for job in found] == ids[:5]
    assert states(queue) == ["done", "waiting", "waiting", "waiting", "cancelled"]
    assert (found[0]["result"], found[4]["settings"]) == (
        before[0]["result"],
        before[4]["settings"],
    )
    assert not queue.is_wanted(working)
    assert queue.restore_all(None) == 0
    assert store.size == sum(spool.size_of(identity) for identity in ids) == 5 * len(PNG)
    # There is room for as many as the queue may have.
    queue.remove_all(ids[:2])
    for _ in range(2):
        added(queue, tmp_path, PNG)
    added(queue, tmp_path, PNG)
    with pytest.raises(QueueFullError):
        queue.restore_all(None)
    assert queue.changes(0)["restorable"] == 2
    # After a while their files go.
    monkeypatch.setattr("time.monotonic", lambda: float("inf"))
    assert spool.of(ids[0]).exists()
    queue.take(0.0)
    assert not spool.of(ids[0]).exists()
    assert queue.restore_all(ids) == 0


@pytest.mark.parametrize("limit", ["max_kept", "disk"])
def test_removed_jobs_make_room(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, spool = queue_of(tmp_path, max_kept=3 * len(PNG)), Spool(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(2)]
    queue.remove_all(ids[:1])
    queue.make_room(len(PNG))
    assert spool.of(ids[0]).exists()
    if limit == "disk":

        def usage(folder: Path) -> SimpleNamespace:
            return SimpleNamespace(free=1 << (20 if spool.of(ids[0]).exists() else 40))

        monkeypatch.setattr(shutil, "disk_usage", usage)
        queue.make_room(len(PNG))
    else:
        queue.make_room(len(PNG) + 1)
    assert not spool.of(ids[0]).exists()
    assert [job["id"] for job in listed(queue)] == ids[1:]


def test_some_by_their_ids(tmp_path: Path) -> None:
    """Unknown ones and those in another state stay as they are."""
    queue = queue_of(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(4)]
    bad, _ = Spool(tmp_path).new()
    queue.add(bad, "picture", "bad.png", JobSettings(), None, "bad.png: not a picture")
    asked = [ids[2], "0123", bad, ids[0]]
    assert queue.cancel_all(asked) == 2
    assert states(queue) == ["cancelled", "waiting", "cancelled", "waiting", "failed"]
    assert queue.retry_all([*asked, ids[1]], lambda before: before) == 2
    assert states(queue) == 4 * ["waiting"] + ["failed"]
    assert [job["position"] for job in listed(queue)] == [3, 1, 4, 2, None]
    assert queue.retry_all(None, lambda before: before) == 0  # it cannot be read
    # A removed job is cancelled first, in any state.
    working = queue.take(0.0)
    assert working is not None
    stopped: list[str] = []
    queue.on_cancelled.append(stopped.append)
    assert queue.remove_all([working.id, ids[0], bad, "0123"]) == 3
    assert stopped == [working.id]
    assert [job["id"] for job in listed(queue)] == ids[2:]


def test_what_is_asked_for_makes_no_sense_for_some(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(3)]
    queue.cancel_all(ids)
    asked: list[JobSettings] = []

    def settings(before: JobSettings) -> JobSettings | None:
        asked.append(before)
        return None

    assert queue.retry_all(ids, settings) == 0
    assert states(queue) == 3 * ["cancelled"]
    assert len(asked) == 1  # once for all equal ones


def test_all_of_it_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    ids = [added(queue, tmp_path, PNG) for _ in range(4)]
    version = queue.changes(0)["version"]
    base = store._base

    class Failing:
        """A connection that fails after the change, before it is there."""

        executemany = base.executemany

        def execute(self, statement: str, *values: Any) -> Any:
            if statement == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return base.execute(statement, *values)

    monkeypatch.setattr(store, "_base", Failing())
    with pytest.raises(sqlite3.OperationalError):
        queue.cancel_all(None)
    monkeypatch.setattr(store, "_base", base)
    assert states(queue) == 4 * ["waiting"]
    told = queue.changes(version)
    assert (told["counts"]["waiting"], told["jobs"]) == (4, [])
    assert queue.cancel_all(ids) == 4
    store.close()
    again = Store(tmp_path / "queue.sqlite", print)
    assert again.version > store.version
    assert [record.state for record in again.find()] == 4 * ["cancelled"]


def test_a_full_disk_is_emptied_by_removing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even that jobs go can be written before their files went."""
    store = Store(tmp_path / "queue.sqlite", print)
    queue, spool = queue_of(tmp_path, store), Spool(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(3)]
    queue.cancel_all(ids[:2])
    remove = store.remove

    def full(*chosen: Any) -> None:
        if any(spool.of(job.id).exists() for job in chosen if job.state == "cancelled"):
            raise sqlite3.OperationalError("database or disk is full")
        remove(*chosen)

    monkeypatch.setattr(store, "remove", full)
    assert queue.remove_all(None) == 2
    assert [job["id"] for job in listed(queue)] == ids[2:]
    assert spool.of(ids[2]).exists()


def test_what_is_counted_stays_true(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    ids = [added(queue, tmp_path, PNG * (1 + number % 3)) for number in range(12)]
    steps = itertools.cycle(
        (
            lambda: queue.take(0.0),
            lambda: queue.cancel_all(ids[::3]),
            lambda: queue.retry_all(ids[::2], lambda before: before),
            lambda: queue.remove_all(ids[:2]),
            lambda: queue.take(0.0),
            lambda: queue.retry_all(None, lambda before: before),
            lambda: ids.append(added(queue, tmp_path, PNG)),
        )
    )
    for step in itertools.islice(steps, 28):
        step()  # type: ignore[no-untyped-call]
        del ids[: len(ids) - 12]
        there, told = listed(queue), queue.changes(0)
        assert told["total"] == len(there)
        found = [job["state"] for job in there]
        assert told["counts"] == {state: found.count(state) for state in told["counts"]}
        places = [job["position"] for job in there if job["state"] == "waiting"]
        assert sorted(places) == list(range(1, len(places) + 1))
        assert store.size == sum(Spool(tmp_path).size_of(job["id"]) for job in there)
    before = store.size, store.counts
    store.close()
    again = Store(tmp_path / "queue.sqlite", print)
    assert (again.size, again.counts) == before


def test_requests_for_many(server: Server) -> None:
    ids = [server.ended(server.send("in.png", PNG)["id"])["id"] for _ in range(3)]
    assert server.change("cancel", {"ids": ids}) == 0
    assert server.change("retry", {"ids": ids[:2]}, scale="3", format="bmp") == 2
    for identity in ids[:2]:
        done = server.ended(identity)
        assert (done["state"], done["result"]["name"]) == ("done", "in-3x.bmp")
    assert server.change("retry", {"all": True}) == 0  # none has failed
    assert server.change("remove", {"ids": ids[:1]}) == 1
    assert server.change("remove", {"all": True}) == 2
    server.gone(0)
    assert server.change("restore", {"all": True}) == 2
    assert server.change("restore", {"ids": ids[:2]}) == 1
    assert server.ask("GET", f"/api/jobs/{ids[0]}/result").status == 200
    for identity in ids:
        assert server.ask("DELETE", f"/api/jobs/{identity}").status == 204
    assert server.change("restore", {"ids": ids}) == 0


@pytest.mark.parametrize("what", ["cancel", "remove", "restore", "retry"])
def test_requests_that_make_no_sense(server: Server, what: str) -> None:
    many = json.dumps({"ids": ["0"] * (MOST_IDS + 1)})
    for body in ("", "[]", "{}", '{"ids": []}', '{"ids": [1]}', '{"ids": ["../x"]}', many):
        assert server.ask("POST", f"/api/jobs/{what}", body).status == 400, body[:20]
    assert server.change(what, {"ids": ["0123456789abcdef"] * MOST_IDS}) == 0
    if what == "retry":
        assert server.ask("POST", "/api/jobs/retry", '{"all": true}', model="no").status == 400
    assert server.ask("POST", f"/api/jobs/{what}", '{"all": true}', token=None).status == 401


def test_clients_are_told_what_has_changed_since(tmp_path: Path) -> None:
    """A client that asks again and again has what there is, whatever happens between two parts."""
    queue = queue_of(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(11)]
    known: dict[str, str] = {}
    since, asked = 0, 0

    def ask(since: int) -> int:
        while True:
            nonlocal asked
            asked += 1
            told = queue.changes(since, 3)
            for identity in told["removed"]:
                known.pop(identity, None)
            known.update({job["id"]: job["state"] for job in told["jobs"]})
            since = told["version"]
            if not told["more"]:
                return since

    since = ask(since)
    assert known == dict.fromkeys(ids, "waiting")
    queue.cancel_all(ids[2:])
    first = queue.changes(since, 3)
    assert (len(first["jobs"]), first["more"], first["begins"]) == (3, True, False)
    queue.remove_all(ids[4:6])
    queue.retry_all(ids[6:8], lambda before: before)
    record = queue.take(0.0)
    assert record is not None
    queue.advance(record, 0.25, 100)
    since = ask(since)
    assert known == {job["id"]: job["state"] for job in listed(queue)}
    told = queue.changes(since)
    # Jobs under way are told each time, others only once.
    assert [(job["id"], job["progress"]) for job in told["jobs"]] == [(record.id, 0.25)]
    assert (told["removed"], told["version"]) == ([], since)


def test_a_version_that_is_not_known_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waifu2x.serve.queue._REMEMBERED", 2)
    queue = queue_of(tmp_path)
    ids = [added(queue, tmp_path, PNG) for _ in range(5)]
    since = queue.changes(0)["version"]
    for at in range(3):
        assert not queue.changes(since)["begins"]
        queue.remove(ids[at])
    for unknown in (since, 0, since + 10**9):
        told = queue.changes(unknown)
        assert (told["begins"], told["removed"]) == (True, [])
        assert [job["id"] for job in told["jobs"]] == ids[3:]
