"""A running `waifu2x serve`, and a client that says exactly what a test wants it to say."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

_SECONDS = 60
"""How long anything may take, on a machine that does much else."""


def until(is_so: Callable[[], bool]) -> None:
    """Returns once something is so."""
    end = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def codec_processes(server: Server) -> list[int]:
    """The processes below a server that have anything to do with pictures."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
                command = (folder / "cmdline").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(text.rpartition(")")[2].split()[1]), command
    own = server.process.pid
    helper = [one for one, (parent, line) in parents.items() if parent == own and "fork" in line]
    return [one for one, (parent, _) in parents.items() if parent in helper]


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes

    @property
    def data(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


class Server:
    """A server in a process of its own, with a folder of its own. A context manager."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Starts it by the reference backend, which is quick for pictures of some pixels, on a free
        port."""
        self.folder = folder
        words = ["serve", "--no-browser", "--port", "0", "--backend", "numpy", *options]
        environment = {**os.environ, "WAIFU2X_CACHE_DIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "waifu2x", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        found = re.fullmatch(r"https?://([^/]+):(\d+)/#(\S+)", self.address)
        if found is None:
            self.process.kill()
            raise AssertionError(f"{self.address!r}: {self.process.communicate()[1]}")
        self.host, self.port, self.token = found[1], int(found[2]), found[3]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self) -> tuple[int, str]:
        """Ends it as Ctrl-C does; its exit code, and what it has said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=_SECONDS)
        return self.process.returncode, said

    def kill(self) -> None:
        """Ends it as a crash does."""
        self.process.kill()
        self.process.communicate()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = "",
        **query: Any,
    ) -> Answer:
        """The answer to a request; with the server's token unless another is given, or None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        shown = self.token if token == "" else token
        sent = dict(headers or {})
        if shown is not None:
            sent.setdefault("Authorization", f"Bearer {shown}")
        if query:
            path = f"{path}?{urlencode(query)}"
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def change(self, what: str, body: Any, **query: Any) -> int:
        """How many jobs a request for many has changed."""
        answer = self.ask("POST", f"/api/jobs/{what}", json.dumps(body), **query)
        assert answer.status == 200, answer
        changed: int = answer.data["changed"]
        return changed

    def send(self, name: str, content: bytes, **query: Any) -> dict[str, Any]:
        """The job that a file becomes."""
        query = {"name": name, "model": "vgg_7/art", "noise": "none", **query}
        answer = self.ask("POST", "/api/jobs", content, **query)
        assert answer.status == 201, answer
        job: dict[str, Any] = answer.data
        return job

    def job(self, identity: str) -> dict[str, Any]:
        """A job as it is now."""
        answer = self.ask("GET", f"/api/jobs/{identity}")
        assert answer.status == 200, answer
        job: dict[str, Any] = answer.data
        return job

    def ended(self, identity: str) -> dict[str, Any]:
        """A job once it is finished."""
        return self.until(identity, "done", "failed", "cancelled")

    def until(self, identity: str, *states: str) -> dict[str, Any]:
        """A job once it is in one of these states."""
        end = time.monotonic() + _SECONDS
        while (job := self.job(identity))["state"] not in states:
            assert time.monotonic() < end, job
            time.sleep(0.02)
        return job

    def gone(self, total: int) -> None:
        """Returns once there are `total` jobs: what removes others may still be at it."""
        until(lambda: self.ask("GET", "/api/jobs").data["total"] == total)
