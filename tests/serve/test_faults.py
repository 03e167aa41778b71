"""One file that goes wrong: its card says so, and the rest goes on. By one server for all."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.contents import encode, noise
from tests.helpers.servers import Server, codec_processes, until
from waifu2x.imaging.picture import Picture

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PNG = encode(Picture(noise(13, 17, 3)), "png")
SLOW = encode(Picture(noise(56, 56, 3)), "png")
"""A picture that the reference backend takes seconds for, with TTA."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        # A test limits the size of files, and CPython does not see that a .pyc was cut.
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        started = Server(tmp_path_factory.mktemp("server"))
    with started as running:
        yield running


def jobs_of(server: Server) -> Path:
    return server.folder / "serve" / "jobs"


def test_a_client_that_leaves_in_the_middle_of_a_file(server: Server) -> None:
    """Its file is removed."""
    before = set(jobs_of(server).iterdir())
    total = server.ask("GET", "/api/jobs").data["total"]
    head = (
        "POST /api/jobs?name=x.png HTTP/1.1\r\nContent-Length: 1000000\r\n"
        f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head.encode() + bytes(70_000))
        until(lambda: set(jobs_of(server).iterdir()) != before)
    until(lambda: set(jobs_of(server).iterdir()) == before)
    assert server.ask("GET", "/api/jobs").data["total"] == total
    assert server.ended(server.send("in.png", PNG)["id"])["state"] == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_picture_whose_process_is_killed_is_made_again(server: Server) -> None:
    slow = server.send("slow.png", SLOW, tta=8)["id"]
    until(lambda: server.job(slow)["progress"] > 0)
    after = server.send("in.png", PNG)["id"]
    for number in codec_processes(server):
        os.kill(number, signal.SIGKILL)
    # The other one may have had one of those processes.
    for identity in (slow, after):
        assert server.ended(identity)["state"] == "done"
    for _ in range(4):
        assert server.ended(server.send("in.png", PNG)["id"])["state"] == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
def test_a_disk_that_is_full_for_one_file(server: Server) -> None:
    """Files beyond a limit of size find no room, as on a full disk."""
    import resource

    def limit(processes: list[int], size: int) -> None:
        for number in processes:
            resource.prlimit(number, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    server.ended(server.send("in.png", PNG)["id"])  # all processes are there
    limit([server.process.pid, *codec_processes(server)], 4 << 20)
    try:
        answer = server.ask("POST", "/api/jobs?name=large.png", bytes(5 << 20))
        assert answer.status == 507, answer
        assert answer.data["error"].startswith(("The disk is full", "The file cannot be kept"))
        limit(codec_processes(server), 1000)
        failed = server.ended(server.send("in.png", PNG)["id"])
        assert failed["state"] == "failed"
        assert failed["error"].startswith("in.png: ")
        assert str(server.folder) not in failed["error"]
    finally:
        limit([server.process.pid, *codec_processes(server)], resource.RLIM_INFINITY)
    server.ask("POST", f"/api/jobs/{failed['id']}/retry")
    assert server.ended(failed["id"])["state"] == "done"
