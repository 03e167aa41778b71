"""How much of the disk jobs take, counted as it happens."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from tests.helpers.queues import added, listed, queue_of
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store
from waifu2x.serve.views import Views


def test_parts_of_a_film_are_counted_and_make_others_go(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue, spool = queue_of(tmp_path, store, max_kept=1000), Spool(tmp_path)
    old, film = added(queue, tmp_path, bytes(300)), added(queue, tmp_path, bytes(100))
    queue.cancel(old)
    assert store.size == 400
    parts = spool.of(film) / "result-0.mkv.parts"
    parts.mkdir()
    (parts / "part-0.mkv").write_bytes(bytes(500))
    queue.measure(film)
    assert store.size == 900
    queue.make_room(100)
    assert queue.changes(0)["total"] == 2
    queue.make_room(101)
    assert [job["id"] for job in listed(queue)] == [film]
    assert store.size == 600


def test_a_full_disk_hinders_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    identity = added(queue, tmp_path, bytes(10))
    (Spool(tmp_path).of(identity) / "more").write_bytes(bytes(10))

    def full(record: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "put", full)
        queue.measure(identity)
    assert store.size == 10
    queue.measure(identity)
    assert store.size == 20
    queue.measure("0123456789abcdef")


def test_what_grew_before_a_crash_is_counted_after_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    identities = [added(queue, tmp_path, bytes(10)) for _ in range(2)]
    assert queue.take(0.0) is not None
    (Spool(tmp_path).of(identities[0]) / "result-0.mkv").write_bytes(bytes(50))
    store.close()
    store = Store(tmp_path / "queue.sqlite", print)
    assert store.size == 20
    queue = queue_of(tmp_path, store)
    assert store.size == 70
    assert [job["state"] for job in listed(queue)] == ["waiting", "waiting"]


@pytest.mark.parametrize(
    "lacking",
    [{1: "size", 2: "remarks"}, {2: "remarks"}, {3: ""}],
    ids=["version 1", "version 2", "version 3"],
)
def test_a_queue_of_an_earlier_version_is_upgraded(lacking: dict[int, str], tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue = queue_of(tmp_path, store)
    identities = [added(queue, tmp_path, bytes(10)) for _ in range(3)]
    store.close()
    base = sqlite3.connect(tmp_path / "queue.sqlite")
    for column in filter(None, lacking.values()):
        base.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
    # Jobs that changed together had one version.
    base.executescript(f"UPDATE jobs SET version = 1; PRAGMA user_version = {min(lacking)};")
    base.close()
    said: list[str] = []
    store = Store(tmp_path / "queue.sqlite", said.append)
    queue = queue_of(tmp_path, store)
    found = listed(queue)
    assert [(job["id"], job["lost"], job["notices"]) for job in found] == [
        (identity, [], []) for identity in identities
    ]
    assert (store.size, said) == (30, [])
    assert len({record.version for record in store.find()}) == 3


def test_views_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite", print)
    queue, spool = queue_of(tmp_path, store), Spool(tmp_path)
    identity = added(queue, tmp_path, bytes(10))

    class Reading:
        """Writes ten bytes for any call."""

        def call(self, *arguments: Any) -> None:
            target = arguments[-1]
            target.write_bytes(bytes(10))

    reading: Any = Reading()
    upscalers: Any = None
    views = Views(spool, ServiceLimits(), reading, upscalers, queue.measure)
    for size in (20, 20):
        views.thumbnail(queue.get(identity))
        assert store.size == size
    views.source(queue.get(identity), 0)
    assert store.size == 30
    # An archive or a film with very many keeps only those that were looked at last.
    (spool.of(identity) / "result-0.png").write_bytes(bytes(10))
    for page in range(1, 40):
        views.source(queue.get(identity), page)
        views.source(queue.get(identity), 0)
    left = {path.name for path in spool.of(identity).iterdir()}
    assert left == {"source", "thumbnail.jpg", "result-0.png", "source-0.png"} | {
        f"source-{page}.png" for page in range(9, 40)
    }
    assert store.size == 10 * len(left)
