"""`waifu2x serve` beside a warm engine and beside `batch`: latency, throughput, memory.

    python benchmarks/bench_serve.py [--count 100] [--queued 10000] [--model upconv_7/art]

Results are compared before anything is timed: the server's are those of `batch`, to the byte.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = 320, 240


class Client:
    """A client of a server, with a connection for each thread."""

    def __init__(self, address: str) -> None:
        rest, _, self._token = address.rpartition("/#")
        self._port = int(rest.rpartition(":")[2])
        self._own = threading.local()

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of an answer."""
        now = time.monotonic()
        if now - getattr(self._own, "used", 0.0) > 10:  # the server closes idle ones
            self._own.connection = http.client.HTTPConnection("127.0.0.1", self._port)
        self._own.used = now
        headers = {"Authorization": f"Bearer {self._token}"}
        self._own.connection.request(method, path, body, headers)
        response = self._own.connection.getresponse()
        found: bytes = response.read()
        assert response.status < 400, found
        return found

    def data(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The body of an answer that is JSON."""
        return json.loads(self.ask(method, path, body))


def pictures(folder: Path, count: int) -> list[Path]:
    """Pictures like drawings: areas, lines and some grain."""
    folder.mkdir()
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        areas = random.integers(0, 256, (SIZE[1] // 16, SIZE[0] // 16, 3))
        pixels = np.kron(areas, np.ones((16, 16, 1))) + random.normal(0, 3, (SIZE[1], SIZE[0], 1))
        paths.append(folder / f"{number:03}.png")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1])
    return paths


def memory(process: subprocess.Popen[str]) -> float:
    """MiB that a process has in memory."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def wait(client: Client) -> None:
    """Until nothing waits and nothing is under way."""
    while True:
        counts = client.data("GET", "/api/jobs?count=0")["counts"]
        if not (counts["waiting"] or counts["working"]):
            return
        time.sleep(0.2)  # a page listens to events instead: who asks often takes the cores


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--model", default="upconv_7/art")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = pictures(folder / "in", options.count)
        words = [sys.executable, "-m", "waifu2x", "serve", "--no-browser", "--port", "0"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            client = Client(server.stdout.readline().strip())
            for job in client.data("GET", "/api/jobs?count=500")["jobs"]:
                client.ask("DELETE", f"/api/jobs/{job['id']}")
            measure(client, server, paths, folder, options)
        finally:
            server.terminate()
            server.wait()


def measure(
    client: Client,
    server: subprocess.Popen[str],
    paths: list[Path],
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """All three measurements."""
    from waifu2x import Upscaler

    query = f"model={options.model}&noise=none"
    upscale = f"/api/upscale?name=x.png&{query}"
    content = paths[0].read_bytes()
    client.ask("POST", upscale, content)
    with Upscaler(2, model=options.model) as upscaler:
        upscaler.upscale_file(paths[0], folder / "warm.png")
        engine, served, seen = [], [], []
        for number in range(7):
            start = time.perf_counter()
            upscaler.upscale_file(paths[0], folder / f"engine-{number}.png")
            engine.append(time.perf_counter() - start)
            start = time.perf_counter()
            client.ask("POST", upscale, content)
            served.append(time.perf_counter() - start)
            start = time.perf_counter()
            job = client.data("POST", f"/api/jobs?name=x.png&{query}", content)["id"]
            while client.data("GET", f"/api/jobs/{job}")["state"] != "done":
                time.sleep(0.005)
            for view in ("source", "view"):
                client.ask("GET", f"/api/jobs/{job}/{view}")
            seen.append(time.perf_counter() - start)
    middle = [sorted(times)[len(times) // 2] for times in (engine, served, seen)]
    print(f"one picture of {SIZE[0]}x{SIZE[1]}: warm engine {middle[0]:.3f} s, POST and result")
    print(f"  {middle[1]:.3f} s, drop to slider {middle[2]:.3f} s")

    batch = [sys.executable, "-m", "waifu2x", "batch", "-m", options.model, "-n", "none", "--quiet"]
    batch += [str(folder / "in"), str(folder / "warmup")]
    subprocess.run(batch, check=True)  # what is compiled is there for both
    rates = []
    for turn in range(3):
        start = time.perf_counter()
        subprocess.run([*batch[:-1], str(folder / f"out-{turn}")], check=True)
        by_batch = time.perf_counter() - start
        start = time.perf_counter()
        with ThreadPoolExecutor(6) as pool:  # as many as a browser sends at a time
            sent = list(
                pool.map(
                    lambda path: client.data(
                        "POST", f"/api/jobs?name={path.name}&{query}", path.read_bytes()
                    )["id"],
                    paths,
                )
            )
        wait(client)
        by_server = time.perf_counter() - start
        rates.append((by_batch, by_server))
    for identity, path in zip(sent, paths, strict=True):
        made = client.ask("GET", f"/api/jobs/{identity}/result")
        assert made == (folder / "out-0" / path.name).read_bytes(), path
    count = len(paths)
    for by_batch, by_server in rates:
        print(
            f"{count} pictures: batch {by_batch:.2f} s (with its start), server {by_server:.2f} s:"
            f" {by_server / by_batch:.3f}"
        )

    small = folder / "small.png"
    Image.new("RGB", (2000, 1500)).save(small)
    before, jobs = memory(server), "/api/jobs"
    client.data("POST", f"/api/jobs?name=large.png&{query}&tta=8", small.read_bytes())
    begun = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda number: client.ask(
                    "POST", f"{jobs}?name={number}.png&{query}&tta=8", content
                ),
                range(options.queued),
            )
        )
    seconds = time.perf_counter() - begun
    after = memory(server)
    start = time.perf_counter()
    client.ask("GET", "/api/jobs?from=5000&count=200")
    listed = time.perf_counter() - start
    print(
        f"{options.queued} pictures queued in {seconds:.0f} s: server {before:.0f} MiB before,"
        f" {after:.0f} MiB after; 200 of them listed in {listed * 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()
