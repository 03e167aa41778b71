"""The page of `waifu2x serve` in chromium: how long it keeps a browser busy.

    python -m benchmarks.bench_page [--cards 10000] [--size 960x540] [--backend cpu]

A queue of many pictures is scrolled, slowly, by screens and by jumps, and searched, while the
server is idle: the longest task and the longest time between two frames, on three screens. Then all
are selected and removed. Then a picture is dropped while the view of it is awaited: from the drop
until the slider stands between two decoded pictures, and in turn with the same file through a warm
Upscaler of this process. At last, crops by other models: the first one by each, and the next.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tests.helpers.browsers import Window, chromium
from tests.helpers.servers import Server
from waifu2x.api import Upscaler
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import JobRecord, SourceInfo
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store

EXAMPLE = Path(__file__).parents[1] / "examples/drawn.png"
TASKS = (
    "window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries()"
    ".map(task => task.duration))).observe({type: 'longtask'})"
)
SCROLL = """
const done = arguments[0], frames = [], height = document.documentElement.scrollHeight;
let last = performance.now();
const step = (now) => {
  frames.push(now - last);
  last = now;
  const count = frames.length;
  if (count === 300) done(Math.max(...frames));
  else {
    const jump = count % 2 ? height / 3 : -height / 4;
    scrollBy(0, count < 100 ? 60 : count < 200 ? innerHeight : jump);
    requestAnimationFrame(step);
  }
};
requestAnimationFrame(step);
"""
DROPPED = """
window.begun = null;
addEventListener('drop', () => { begun = performance.now(); }, {capture: true});
window.opened = new Promise(resolve => {
  const look = () => {
    const cards = begun === null ? [] : [...document.querySelectorAll('.card')];
    const card = cards.find(e => e.card.job.name === 'new.png');
    const view = document.getElementById('viewer');
    if (card && !view.open && !card.card.open.disabled) card.card.open.click();
    const images = document.querySelectorAll('#stage.sliding .pane img');
    if (images.length === 2 && [...images].every(e => e.complete)) {
      requestAnimationFrame(() => resolve(performance.now() - begun));
    } else setTimeout(look, 10);
  };
  look();
});
"""


def fill(folder: Path, count: int) -> None:
    """Makes a queue of `count` cancelled pictures in a folder."""
    (folder / "serve").mkdir(mode=0o700)
    spool = Spool(folder / "serve")
    store = Store(spool.database, print)
    source = SourceInfo(240, 160, EXAMPLE.stat().st_size, "PNG", 1)
    for number in range(count):
        identity, _ = spool.new()
        record = JobRecord(
            identity, store.next_number(), store.next_turn(), store.next_version(), "picture",
            "cancelled", f"page {number:05}.png", JobSettings(), time.time(), source=source,
        )  # fmt: skip
        spool.source(record).symlink_to(EXAMPLE)
        store.put(record)
    store.close()


def many(driver: Any, count: int, folder: Path) -> None:
    """Prints how the page bears many cards."""
    fill(folder, count)
    with Server(folder) as server:
        for width, height in ((360, 740), (1280, 900), (2560, 1440)):
            window = Window(driver, "many")
            window.screen(width, height, False)
            driver.get("about:blank")
            begun = time.perf_counter()
            driver.get(server.address)
            window.run(TASKS)
            text = "document.getElementById('filter-cancelled')?.textContent"
            window.wait(f"{text} == {told(count)!r}")
            loaded = time.perf_counter() - begun
            time.sleep(2)  # thumbnails come in
            loading = longest(window)
            frame = driver.execute_async_script(SCROLL)
            time.sleep(1)
            scrolling = longest(window)
            driver.find_element("id", "search").send_keys("0999")
            window.settle()
            time.sleep(1)
            cards = window.run("return document.querySelectorAll('.card').length")
            print(
                f"{count} cards at {width}x{height}: all known after {loaded:.2f} s; longest task"
                f" while loading {loading}, scrolling {scrolling}, searching {longest(window)};"
                f" longest time between two frames {frame:.0f} ms; {cards} cards found"
            )


def removed(driver: Any, count: int, folder: Path) -> None:
    """Prints how long it takes to select and remove all."""
    with Server(folder) as server:
        window = Window(driver, "removed")
        window.screen(1280, 900, False)
        driver.get("about:blank")
        driver.get(server.address)
        window.wait(f"document.getElementById('filter-cancelled')?.textContent == {told(count)!r}")
        time.sleep(1)
        window.run(TASKS)
        begun = time.perf_counter()
        driver.find_element("id", "select-shown").click()
        window.wait(f"document.getElementById('selected').textContent == '{count:,} selected'")
        selected = time.perf_counter() - begun
        selecting = longest(window)
        driver.find_element("id", "selected-remove").click()
        window.wait("document.getElementById('list').hidden")
        seconds = time.perf_counter() - begun - selected
        left = server.ask("GET", "/api/jobs").data["total"]
        print(
            f"{count} cards: selected after {selected:.2f} s, longest task {selecting}; removed"
            f" {seconds:.2f} s later, longest task {longest(window)}; {left} left"
        )


def told(count: int) -> str:
    """The label of the filter that shows all of them."""
    return f"Cancelled {count:,}"


def longest(window: Window) -> str:
    """The longest task since the last call; browsers tell of those above 50 ms."""
    tasks = window.run("return tasks.splice(0)")
    return f"{max(tasks):.0f} ms" if tasks else "below 50 ms"


def dropped(driver: Any, picture: Path, folder: Path, backend: str) -> None:
    """Prints how long one picture takes from drop to slider, and from file to file here."""
    with (
        Server(folder, "--backend", backend) as server,
        Upscaler(2, noise="auto", backend=backend) as upscaler,
    ):
        found, seconds, warm = [], [], []
        for _ in range(9):
            window = Window(driver, "drop")
            window.screen(1280, 900, False)
            driver.get("about:blank")
            driver.get(server.address)
            window.wait("document.getElementById('model').options.length")
            window.run(DROPPED)
            data = {"items": [], "files": [str(picture)], "dragOperationsMask": 1}
            for kind in ("dragEnter", "dragOver", "drop"):
                event = {"type": kind, "x": 700, "y": 300, "data": data}
                driver.execute_cdp_cmd("Input.dispatchDragEvent", event)
            found.append(window.run("return opened") / 1000)
            for job in server.ask("GET", "/api/jobs").data["jobs"]:
                seconds.append(job["result"]["seconds"])
                server.ask("DELETE", f"/api/jobs/{job['id']}")
            begun = time.perf_counter()
            upscaler.upscale_file(picture, folder / "warm.png", overwrite=True)
            warm.append(time.perf_counter() - begun)
    print(f"drop to slider: {show(found)}")
    print(f"of that, the job: {show(seconds)}")
    print(f"a warm Upscaler, file to file: {show(warm)}")
    above = [one - other for one, other in zip(found, warm, strict=True)]
    print(f"drop to slider above it: {show(above)}")


def crops(picture: Path, folder: Path, backend: str) -> None:
    """Prints how long the first two crops of 512x512 pixels by each of some models take: by a
    server whose cache is empty, and by one that finds what the first has compiled."""
    for cache in ("empty", "filled"):
        with Server(folder, "--backend", backend) as server:
            identity = server.ended(server.send(picture.name, picture.read_bytes())["id"])["id"]
            for model in ("upconv_7/art", "cunet/art"):
                found = []
                for _ in range(2):
                    begun = time.perf_counter()
                    answer = server.ask(
                        "GET", f"/api/jobs/{identity}/crop", model=model, noise="none", scale=2,
                        x=0, y=0, width=512, height=512,
                    )  # fmt: skip
                    found.append(time.perf_counter() - begun)
                    assert answer.status == 200, answer.body
                print(f"a crop by {model}, cache {cache}: {found[0]:.2f} s, then {found[1]:.2f} s")


def show(seconds: Sequence[float]) -> str:
    """The middle of all but the first, which warms up."""
    each = ", ".join(f"{value:.2f}" for value in seconds)
    return f"{statistics.median(seconds[1:]):.2f} s (median without the first of {each})"


def main() -> None:
    """Runs all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cards", type=int, default=10_000)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--backend", default="cpu")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as name, chromium() as driver:
        driver.set_script_timeout(280)  # the first one compiles
        folder = Path(name)
        picture = folder / "new.png"
        with Image.open(EXAMPLE) as example:
            example.convert("RGB").resize((width, height), Image.Resampling.LANCZOS).save(picture)
        for part in ("many", "drop", "crops"):
            (folder / part).mkdir(mode=0o700)
        if arguments.cards:
            many(driver, arguments.cards, folder / "many")
            removed(driver, arguments.cards, folder / "many")
        dropped(driver, picture, folder / "drop", arguments.backend)
        crops(picture, folder / "crops", arguments.backend)


if __name__ == "__main__":
    main()
