"""Tests that need tools of the system: certificates, and a disk that is really full."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.contents import encode, noise
from tests.helpers.servers import Server
from waifu2x.imaging.picture import Picture

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PNG = encode(Picture(noise(13, 17, 3)), "png")
SLOW = encode(Picture(noise(64, 64, 3)), "png")
"""A picture that the reference backend takes seconds for, with TTA."""
_SECONDS = 45
"""Longer than our limit for a handshake, shorter than that of asyncio."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Makes a certificate for 127.0.0.1 with its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    path, key = tmp_path / "own.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=own"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    subprocess.run([openssl, *words.split(), *names], check=True, capture_output=True)
    path.write_bytes(key.read_bytes() + path.read_bytes())
    return path


@pytest.mark.matrix
def test_tls(tmp_path: Path, certificate: Path) -> None:
    with Server(tmp_path / "server", "--certfile", str(certificate)) as server:
        assert server.address.startswith("https://127.0.0.1:")
        silent = socket.create_connection(("127.0.0.1", server.port), timeout=_SECONDS)
        silent.sendall(b"\x16\x03\x01")  # a handshake begins, and that is all
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, timeout=60, context=context
        )
        origin = server.address.partition("/#")[0]
        headers = {"Authorization": f"Bearer {server.token}", "Origin": origin}
        connection.request("POST", "/api/upscale?name=a.png&model=vgg_7/art", PNG, headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()[1:4]) == (200, b"PNG")
        connection.request("GET", "/api/jobs")
        assert connection.getresponse().status == 401
        connection.close()
        # Clients without TLS get nothing, and silent ones are closed.
        with pytest.raises((http.client.HTTPException, OSError)):
            server.ask("GET", "/")
        with silent, contextlib.suppress(ConnectionError):
            assert silent.recv(1000) == b""


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    with pytest.raises(AssertionError, match=r"bad\.pem: cannot be used for TLS") as raised:
        Server(tmp_path / "server", "--certfile", str(bad))
    assert "Traceback" not in str(raised.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Makes a folder of 280 MiB: 24 more than a server leaves free."""
    if sys.platform != "linux" or os.getuid():
        pytest.skip("only root can mount a disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=280m", "none", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Fills a disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))


NO_ROOM = r"{}: (cannot write: no space left on device|no space on the disk for the result, )"
"""Found while a result is written, or before its encoder begins."""


@pytest.mark.matrix
def test_a_disk_that_is_full(small_disk: Path) -> None:
    with Server(small_disk) as server:
        slow = server.send("slow.png", SLOW, tta=8)["id"]
        server.until(slow, "working")
        after = server.send("after.png", PNG)["id"]
        large = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        large.putrequest("POST", "/api/jobs?name=large.png")
        large.putheader("Authorization", f"Bearer {server.token}")
        large.putheader("Content-Length", str(8 << 20))
        large.endheaders(bytes(2 << 20))
        end = time.monotonic() + 60
        while sum(1 for _ in (small_disk / "serve" / "jobs").iterdir()) < 3:
            assert time.monotonic() < end
            time.sleep(0.02)
        fill(small_disk / "others")
        with contextlib.suppress(ConnectionError):  # it is told before it has sent all
            large.send(bytes(6 << 20))
        answer = large.getresponse()
        assert answer.status == 507
        assert b"The disk is full" in answer.read()
        fill(small_disk / "more")  # what had arrived of the large one has been removed
        assert server.ask("POST", "/api/jobs?name=x.png", PNG).status == 507
        # The server answers, and goes on as soon as there is room.
        assert server.ask("GET", "/api/jobs").status == 200
        assert server.process.stderr is not None
        errors, said = server.process.stderr.fileno(), b""
        while b"the queue cannot be written" not in said:
            assert select.select([errors], [], [], 300)[0], said
            said += os.read(errors, 1 << 12)
        assert server.job(slow)["state"] == "working"
        (small_disk / "others").unlink()
        # Their results were written while the disk was full, or when there was room again.
        for job, name in ((slow, "slow.png"), (after, "after.png")):
            ended = server.ended(job)
            assert (ended["state"] == "done") == (ended["error"] is None)
            assert ended["error"] is None or re.match(NO_ROOM.format(name), ended["error"])
        assert server.ended(server.send("in.png", PNG)["id"])["state"] == "done"
