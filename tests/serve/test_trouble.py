"""Trouble around a server: clients that leave, full disks, kills, restarts, a damaged queue."""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers import deadly_codecs
from tests.helpers.contents import decode, encode, noise
from tests.helpers.queues import added, listed, queue_of
from tests.helpers.servers import Server, until
from waifu2x.imaging.picture import Picture

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from waifu2x.errors import ImageError, OutputError
from waifu2x.serve.queue import DiskFullError, QueueFullError
from waifu2x.serve.reading import ReadingProcesses
from waifu2x.serve.spool import Spool, kept_result

PNG = encode(Picture(noise(13, 17, 3)), "png")
SLOW = encode(Picture(noise(56, 56, 3)), "png")
"""A picture that the reference backend takes seconds for, with TTA."""


def test_the_queue_survives_a_kill(tmp_path: Path) -> None:
    """Results stay; jobs that were under way or waited are made after the restart."""
    with Server(tmp_path) as first:
        done = first.ended(first.send("done.png", PNG)["id"])
        result = first.ask("GET", f"/api/jobs/{done['id']}/result").body
        working = [first.send("slow.png", SLOW, tta=8)["id"] for _ in range(2)]
        first.until(working[0], "working")
        waiting = first.send("waiting.png", PNG)["id"]
        bad = first.send("bad.png", b"no picture")["id"]
        token, version = first.token, first.job(working[0])["version"]
        first.kill()
    left = tmp_path / "serve" / "jobs" / "0123456789abcdef"
    left.mkdir()  # as of an upload that was under way
    with Server(tmp_path) as second:
        assert second.token == token
        assert not left.exists()
        assert second.job(done["id"])["state"] == "done"
        assert second.ask("GET", f"/api/jobs/{done['id']}/result").body == result
        assert second.job(bad)["state"] == "failed"
        for identity in working:
            assert second.job(identity)["version"] > version
            second.ask("POST", f"/api/jobs/{identity}/cancel")
        assert second.ended(waiting)["state"] == "done"


def test_a_damaged_queue_is_put_aside(tmp_path: Path) -> None:
    """Its results are kept."""
    with Server(tmp_path) as first:
        made = first.ended(first.send("in.png", PNG)["id"])["id"]
        result = first.ask("GET", f"/api/jobs/{made}/result").body
        first.stop()
    base = tmp_path / "serve" / "queue.sqlite"
    base.write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    with Server(tmp_path) as second:
        assert second.ask("GET", "/api/jobs").data["total"] == 0
        assert second.ended(second.send("in.png", PNG)["id"])["state"] == "done"
        code, said = second.stop()
    assert code == 0
    damaged, found = said.splitlines()
    assert "damaged" in damaged
    folder = tmp_path / "serve" / "found"
    assert found.endswith(f"{folder}: results of a queue that is lost were moved here: 1")
    assert (folder / f"{made}-0.png").read_bytes() == result
    assert (tmp_path / "serve" / "queue.damaged").exists()


def test_results_of_a_lost_queue_are_kept_within_the_limit(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    jobs = [spool.new() for _ in range(4)]
    for at, (_, folder) in enumerate(jobs):
        for name in ("source", "thumbnail.jpg", "source-0.png", "result-0-0.png"):
            (folder / name).write_bytes(b"other")
        (folder / "result-0.mkv.parts").mkdir()
        (folder / "result-0.png").write_bytes(bytes(100))
        os.utime(folder / "result-0.png", (at, at))
    (jobs[1][1] / "result-3.webp").write_bytes(bytes(100))
    assert spool.save_results(1000) == 5
    kept = {f"{identity}-0.png" for identity, _ in jobs} | {f"{jobs[1][0]}-3.webp"}
    assert {path.name for path in spool.found.iterdir()} == kept
    if sys.platform != "win32":
        assert spool.found.stat().st_mode & 0o077 == 0
    # Those of before count, and the oldest go.
    _, folder = spool.new()
    (folder / "result-0.png").write_bytes(bytes(100))
    (folder / "result-1.png").symlink_to(tmp_path / "token")
    assert spool.save_results(400) == 1
    assert {path.name for path in spool.found.iterdir()} == {
        f"{jobs[2][0]}-0.png", f"{jobs[3][0]}-0.png", f"{jobs[1][0]}-3.webp", f"{folder.name}-0.png"
    }  # fmt: skip
    assert spool.save_results(400) == 0


def test_a_queue_that_somebody_removed_lets_no_result_go(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "serve")
    identity, folder = spool.new()
    (folder / "result-0.png").write_bytes(PNG)
    with Server(tmp_path) as server:
        _, said = server.stop()
    assert "results of a queue that is lost were moved here: 1" in said
    assert (spool.found / f"{identity}-0.png").read_bytes() == PNG
    assert not folder.exists()


@pytest.mark.matrix
def test_one_server_at_a_time(tmp_path: Path) -> None:
    with Server(tmp_path), pytest.raises(AssertionError, match="another server has this queue"):
        Server(tmp_path)


@pytest.mark.matrix
def test_cancelled_while_it_is_worked_on(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        slow = server.send("slow.png", SLOW, tta=8)["id"]
        server.until(slow, "working")
        assert server.ask("POST", f"/api/jobs/{slow}/cancel").data["state"] == "cancelled"
        assert server.ended(server.send("in.png", PNG)["id"])["state"] == "done"
        assert server.job(slow)["state"] == "cancelled"
        again = server.ask("POST", f"/api/jobs/{slow}/retry", tta=1, format="bmp").data
        assert again["state"] == "waiting"
        assert server.ask("DELETE", f"/api/jobs/{slow}").status == 204
        until(lambda: not (tmp_path / "serve" / "jobs" / slow).exists())


def test_a_file_that_kills_its_reader_is_an_error() -> None:
    reading = ReadingProcesses()
    with closing(reading):
        with pytest.raises(ImageError, match=r"x\.png: it crashed 3 .*: its process ended"):
            reading.call("x.png", os._exit, 3)
        assert reading.call("x.png", len, "abc") == 3  # another one is there
        with pytest.raises(ImageError, match="ValueError"):
            reading.call("x.png", int, "abc")
    with pytest.raises(ImageError, match="the server is ending"):
        reading.call("x.png", len, "abc")


def test_a_file_whose_reader_is_killed_is_read_again(tmp_path: Path) -> None:
    with closing(ReadingProcesses()) as reading:
        assert reading.call("x.png", deadly_codecs.dies_once, tmp_path / "died") == "made"


@pytest.mark.matrix
def test_clients_that_leave_before_the_end(tmp_path: Path) -> None:
    """A download, and a script that waits for its result."""
    with Server(tmp_path) as server:
        done = server.ended(
            server.send("in.png", SLOW, scale="1", noise="0", model="vgg_7/art")["id"]
        )
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        headers = {"Authorization": f"Bearer {server.token}"}
        connection.request("GET", f"/api/jobs/{done['id']}/result", headers=headers)
        response = connection.getresponse()
        response.read(10)
        response.close()
        connection.close()
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/api/upscale?name=x.png&tta=8", SLOW, headers)
        until(lambda: server.ask("GET", "/api/jobs").data["total"] == 2)
        connection.close()
        until(lambda: server.ask("GET", "/api/jobs").data["total"] == 1)
        assert server.ended(server.send("in.png", PNG)["id"])["state"] == "done"


@pytest.mark.matrix
def test_results_are_written_beside_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "in.png").write_bytes(b"mine")
    with Server(tmp_path / "server", "-o", str(output)) as server:
        for expected in ("in-2.png", "in-3.png"):
            job = server.ended(server.send("in.png", PNG)["id"])
            assert job["result"]["name"] == expected
            assert decode((output / expected).read_bytes()).pixels.shape == (26, 34, 3)
    assert (output / "in.png").read_bytes() == b"mine"
    assert len(list(output.iterdir())) == 3


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(tmp_path / "serve")
    free = SimpleNamespace(free=10 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    with pytest.raises(DiskFullError, match="The disk is full \\(10 MiB free\\)"):
        queue.make_room(1 << 20)
    free.free = 1 << 40
    queue.make_room(1 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="has no /dev/full")
def test_a_disk_that_fills_up_while_a_result_is_kept(tmp_path: Path) -> None:
    made = tmp_path / "made.png"
    made.write_bytes(PNG)
    (tmp_path / "output").write_bytes(b"")
    with pytest.raises(OutputError, match="cannot write"):
        kept_result(made, tmp_path / "output", "in.png")


def test_a_full_queue_lets_the_oldest_finished_go(tmp_path: Path) -> None:
    queue = queue_of(tmp_path / "serve", max_queue=3)
    first, second, third = (added(queue, tmp_path / "serve", PNG) for _ in range(3))
    with pytest.raises(QueueFullError):
        added(queue, tmp_path / "serve", PNG)
    queue.cancel(second)
    fourth = added(queue, tmp_path / "serve", PNG)
    assert [job["id"] for job in listed(queue)] == [first, third, fourth]
    assert not Spool(tmp_path / "serve").of(second).exists()
    assert [job["position"] for job in listed(queue)] == [1, 2, 3]


def test_jobs_are_taken_once_and_in_their_turn(tmp_path: Path) -> None:
    queue = queue_of(tmp_path / "serve")
    identities = [added(queue, tmp_path / "serve", PNG) for _ in range(40)]
    taken: list[str] = []

    def take() -> None:
        while (record := queue.take(0.0)) is not None:
            taken.append(record.id)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(identities)
    assert queue.changes(0)["counts"]["working"] == 40
