"""`waifu2x serve` beside a warm engine and beside `batch`: latency, throughput, memory.

    python benchmarks/bench_serve.py [--count 100] [--queued 10000] [--model upconv_7/art]

Results are compared before anything is timed: the server's are those of `batch`, to the byte.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = 320, 240
EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = "drawn.png", "photo.jpg", "cat.jpg"
FORMATS = "png", "jpg", "png", "webp"
FINISHED = ("done", "failed", "cancelled")


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

    def finished(self) -> int:
        """How many jobs are finished."""
        counts = self.data("GET", "/api/jobs")["counts"]
        return sum(counts[state] for state in FINISHED)

    def data(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The body of an answer that is JSON."""
        return json.loads(self.ask(method, path, body))


def pictures(folder: Path, count: int) -> list[Path]:
    """Parts of drawings and photos, of several sizes and formats; the first a PNG of `SIZE`."""
    folder.mkdir()
    random = np.random.default_rng(0)
    sources = [Image.open(EXAMPLES / name).convert("RGB") for name in NAMES]
    paths = []
    for number in range(count):
        source = sources[number % len(sources)]
        wide, high = (int(side) for side in random.integers(160, 481, 2)) if number else SIZE
        left = int(random.integers(0, source.width // 2))
        upper = int(random.integers(0, source.height // 2))
        part = source.crop((left, upper, left + source.width // 2, upper + source.height // 2))
        extension = FORMATS[number // len(sources) % len(FORMATS)]
        paths.append(folder / f"{number:03}.{extension}")
        part.resize((wide, high), Image.Resampling.LANCZOS).save(paths[-1], quality=90)
    return paths


def memory(process: subprocess.Popen[str]) -> float:
    """MiB that a process has in memory, the least of ten seconds: what it takes to compute comes
    and goes."""
    found = []
    for _ in range(200):
        text = Path(f"/proc/{process.pid}/status").read_text()
        found.append(int(text.partition("VmRSS:")[2].split()[0]) / 1024)
        time.sleep(0.05)
    return min(found)


class Following:
    """A client that asks what has changed, as a page does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._finished = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, finished: int) -> None:
        """Waits until `finished` jobs are finished."""
        with self._changed:
            self._changed.wait_for(lambda: self._finished >= finished)

    def _follow(self) -> None:
        since = 0
        while True:
            told = self._client.data("GET", f"/api/jobs?since={since}")
            since = told["version"]
            with self._changed:
                self._finished = sum(told["counts"][one] for one in FINISHED)
                self._changed.notify_all()
            if not told["more"]:
                time.sleep(0.15)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """Starts a server with a new folder, and a client."""
    words = [sys.executable, "-m", "waifu2x", "serve", "--no-browser", "--port", "0", *options]
    environment = {**os.environ, "WAIFU2X_CACHE_DIR": str(folder)}
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        yield server, Client(server.stdout.readline().strip())
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="pictures beside batch; 0: none")
    parser.add_argument("--turns", type=int, default=3, help="how often")
    parser.add_argument(
        "--queued", type=int, default=10_000, help="jobs of the long queue; 0: none"
    )
    parser.add_argument("--model", default="upconv_7/art")
    parser.add_argument("--cache", type=Path, help="folder of what is compiled, and of the queue")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.count:
            paths = pictures(folder / "in", options.count)
            cache = options.cache or folder / "cache"
            os.environ["WAIFU2X_CACHE_DIR"] = str(cache)
            with running(cache) as (_, client):
                measure(client, paths, folder, options)
        if options.queued:
            with running(folder / "queue", "--backend", "numpy") as (server, client):
                measure_queue(client, server, options.queued)


def measure(
    client: Client,
    paths: list[Path],
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """One picture, and many."""
    from waifu2x import Upscaler

    query = f"model={options.model}&noise=none&format=png"
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
    rates, following, finished = [], Following(client), client.finished()
    for turn in range(options.turns):
        start = time.perf_counter()
        subprocess.run([*batch[:-1], str(folder / f"out-{turn}")], check=True)
        by_batch = time.perf_counter() - start
        finished += len(paths)
        start = time.perf_counter()
        with ThreadPoolExecutor(6) as pool:  # the connections of a browser
            sent = list(
                pool.map(
                    lambda path: client.data(
                        "POST", f"/api/jobs?name={path.name}&{query}", path.read_bytes()
                    )["id"],
                    paths,
                )
            )
        following.wait(finished)
        by_server = time.perf_counter() - start
        rates.append((by_batch, by_server))
    for identity, path in zip(sent, paths, strict=True):
        made = client.ask("GET", f"/api/jobs/{identity}/result")
        assert made == (folder / "out-0" / f"{path.stem}.png").read_bytes(), path
    count = len(paths)
    for by_batch, by_server in rates:
        print(
            f"{count} pictures: batch {by_batch:.2f} s (with its start), server {by_server:.2f} s:"
            f" {by_server / by_batch:.3f}"
        )


def measure_queue(client: Client, server: subprocess.Popen[str], most: int) -> None:
    """Memory, and times of an upload, with a longer and longer queue that is not worked down."""
    random = np.random.default_rng(1)
    small = encoded(random.integers(0, 256, (10, 10, 3)))
    query = "model=cunet/art&noise=none&tta=8"
    # The memory that each of them takes to be computed is there when the first is done.
    client.ask("POST", f"/api/upscale?name=slow.png&scale=16&{query}", small)
    for number in range(50):
        client.ask("POST", f"/api/jobs?name=slow-{number}.png&scale=16&{query}", small)
    Following(client)
    sent, times = 50, []
    print(f"computing: server {memory(server):.1f} MiB", flush=True)
    for count in (100, 1000, 3000, 10_000, 20_000):
        if count > most:
            break
        while sent < count:
            start = time.perf_counter()
            client.ask("POST", f"/api/jobs?name={sent}.png&{query}", small)
            times.append(time.perf_counter() - start)
            sent += 1
        latest = sorted(times[-90:])
        start = time.perf_counter()
        client.ask("GET", "/api/jobs")
        listed = time.perf_counter() - start
        print(
            f"{count} jobs: server {memory(server):.1f} MiB; an upload"
            f" {latest[len(latest) // 2] * 1000:.2f} ms (median of 90);"
            f" the first 200 listed in {listed * 1000:.1f} ms",
            flush=True,
        )
    for what, count in {"cancel": sent, "retry": sent, "remove": 0}.items():
        if what == "remove":
            client.data("POST", "/api/jobs/cancel", b'{"all": true}')
        longest, stop = [0.0], threading.Event()
        asking = threading.Thread(target=ask_often, args=(client, longest, stop))
        asking.start()
        start = time.perf_counter()
        changed = client.data("POST", f"/api/jobs/{what}", b'{"all": true}')["changed"]
        seconds = time.perf_counter() - start
        stop.set()
        asking.join()
        print(
            f"{what} of {changed} jobs: {seconds * 1000:.0f} ms, meanwhile another answer took"
            f" {longest[0] * 1000:.0f} ms at most",
            flush=True,
        )
        assert changed >= count - 50, changed
    print(f"an empty queue: server {memory(server):.1f} MiB")


def ask_often(client: Client, longest: list[float], stop: threading.Event) -> None:
    """Asks for something that needs no queue, and notes how long that took at most."""
    while not stop.is_set():
        start = time.perf_counter()
        client.ask("GET", "/api/openapi.json")
        longest[0] = max(longest[0], time.perf_counter() - start)
        time.sleep(0.002)


def encoded(pixels: Any) -> bytes:
    """A PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main()
