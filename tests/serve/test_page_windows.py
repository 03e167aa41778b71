"""The page in several windows, reloaded, and while the server is away."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browsers import Window
from tests.helpers.pages import (
    CARD,
    FAST,
    SLOW,
    STATE,
    archive,
    choose,
    drop,
    opened,
    picture,
    press,
    until,
)
from tests.helpers.servers import Listener, Server

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
from waifu2x.serve.events import MOST_LISTENERS

pytestmark = pytest.mark.matrix
WATCH = """{
window.asked = [];
window.streams = [];
window.quiet = 45_000;
const send = window.fetch;
window.fetch = (path, options = {}) => {
  asked.push(path);
  if (path === "api/events") {
    const stream = { after: options.headers["Last-Event-ID"] ?? null, isOpen: true };
    options.signal.addEventListener("abort", () => (stream.isOpen = false));
    streams.push(stream);
  }
  return send(path, options);
};
const later = window.setTimeout;
window.setTimeout = (action, wait) => later(action, wait === 45_000 ? quiet : wait);
}"""
"""Notes what a page asks for, and lets a test say how long it bears a silent window."""
OUT_OF_VIEW = "Object.defineProperty(Document.prototype, 'hidden', { get: () => true });"
"""So a window waits for its turn; one in view takes the stream away from others."""
LATE = """{
const send = window.fetch;
window.fetch = async (path, ...options) => {
  while (path.startsWith('api/jobs?') && !document.querySelector('.card')) {
    await new Promise(requestAnimationFrame);
  }
  return send(path, ...options);
};
}"""
"""Keeps the list back until an event has brought a card."""
ALONE = "Object.defineProperty(Navigator.prototype, 'locks', { value: undefined });"
"""As browsers are over plain HTTP, but for 127.0.0.1 and localhost."""
IS_LOADED = "document.getElementById('overall-text').textContent != 'Connecting…'"
RECEIVES = "streams.some(stream => stream.isOpen)"


@contextmanager
def windows(page: Window, server: Server, count: int, script: str) -> Iterator[list[str]]:
    """Opens windows of a server; they are watched, and run a script first."""
    first = page.driver.current_window_handle
    opened_ones: list[str] = []
    try:
        for _ in range(count):
            page.driver.switch_to.new_window("tab")
            opened_ones.append(page.driver.current_window_handle)
            source = {"source": WATCH + script}
            page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
            page.driver.get(server.address)
            page.wait(IS_LOADED)
        yield opened_ones
    finally:
        for each in set(opened_ones) & set(page.driver.window_handles):
            page.driver.switch_to.window(each)
            page.driver.close()
        page.driver.switch_to.window(first)


def in_each(page: Window, handles: list[str], script: str, *arguments: object) -> list[Any]:
    """Returns the value of an expression in each window, once it is true there."""
    found = []
    for each in handles:
        page.driver.switch_to.window(each)
        found.append(page.wait(script, *arguments))
    return found


def receiving(page: Window, handles: list[str]) -> str:
    """Returns the only window that holds a stream of events."""
    end = time.monotonic() + 60
    while True:
        found = []
        for each in handles:
            page.driver.switch_to.window(each)
            if page.run(f"return {RECEIVES}"):
                found.append(each)
        if len(found) == 1:
            return found[0]
        assert time.monotonic() < end, found


def test_eight_windows_follow_one_stream(page: Window, page_server: Server) -> None:
    page.driver.get("about:blank")  # it would be a ninth
    with windows(page, page_server, 8, OUT_OF_VIEW) as tabs:
        page_server.send("pages.cbz", archive(2000), model=FAST)
        progress = f"({CARD})?.card.job.progress"
        in_each(page, tabs, progress, "pages.cbz")
        # The window that receives goes: another one takes over, and asks for nothing twice.
        for _ in range(2):
            page.driver.switch_to.window(receiving(page, tabs))
            tabs.remove(page.driver.current_window_handle)
            far = page.run(f"return {progress}", "pages.cbz")
            page.driver.close()
            in_each(page, tabs, f"{progress} > {far}", "pages.cbz")
        page.driver.switch_to.window(receiving(page, tabs))
        assert page.run("return streams.at(-1).after") is not None
        press(page, "cancel", "pages.cbz")
        in_each(page, tabs, f"{STATE} == 'cancelled'", "pages.cbz")
        for lists in in_each(page, tabs, "asked.filter(path => path.startsWith('api/jobs?'))"):
            assert len(lists) == 1
        receiving(page, tabs)


def test_nothing_is_lost_between_two_streams(page: Window, page_server: Server) -> None:
    page.driver.get("about:blank")
    with windows(page, page_server, 2, OUT_OF_VIEW) as tabs:
        in_each(page, tabs, "quiet = 2000")
        gone = page_server.send("gone.txt", b"no picture")
        in_each(page, tabs, CARD, "gone.txt")
        # This holder of the lock says nothing, as a window that the browser has stopped.
        page.driver.execute_async_script(
            "const done = arguments[0];"
            "navigator.locks.query().then(({ held: [{ name }] }) => navigator.locks.request("
            "name, { steal: true }, () => { done(); return new Promise(() => {}); }))"
            ".catch(() => {});"
        )
        page_server.ask("DELETE", f"/api/jobs/{gone['id']}")
        page_server.send("new.txt", b"no picture")
        in_each(page, tabs, CARD, "new.txt")
        in_each(page, tabs, f"!({CARD})", "gone.txt")
        receiving(page, tabs)


def test_the_window_in_view_receives(page: Window, page_server: Server) -> None:
    with windows(page, page_server, 3, "") as tabs:
        for each in (tabs[2], tabs[0], tabs[1]):
            page.driver.switch_to.window(each)
            page.wait(RECEIVES)
        page_server.send("sent.txt", b"no picture")
        in_each(page, tabs, CARD, "sent.txt")
        for lists in in_each(page, tabs, "asked.filter(path => path.startsWith('api/jobs?'))"):
            assert len(lists) == 1


def test_an_event_comes_before_the_list(page: Window, page_server: Server) -> None:
    first = page.driver.current_window_handle
    names = [f"{number}.txt" for number in range(3)]
    for name in names[:2]:
        page_server.send(name, b"no picture")
    page.driver.switch_to.new_window("tab")
    try:
        source = {"source": LATE + WATCH}
        page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
        page.driver.get(page_server.address)
        page.wait("asked.some(path => path.startsWith('api/jobs?'))")
        page_server.send(names[2], b"no picture")
        order = "[...document.querySelectorAll('.card')].map(e => e.card.job.name)"
        page.wait(f"{order}.length == 3")
        page.wait(f"{order}.join() == arguments[0]", ",".join(names))
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)


def test_windows_that_can_share_nothing(page: Window, page_server: Server) -> None:
    with windows(page, page_server, 2, ALONE) as tabs:
        page_server.send("sent.txt", b"no picture")
        in_each(page, tabs, CARD, "sent.txt")
        assert in_each(page, tabs, RECEIVES) == [True, True]


def test_a_folder_and_a_reload_and_a_second_window(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    slow = picture(tree / "slow.png", 2, *SLOW)
    picture(tree / "deep/inner.png", 1)
    shutil.copy(slow, tree / "deep/er/last.png")
    (tree / "deep/read me.txt").write_text("no picture")
    drop(page, tree)
    page.wait("document.querySelectorAll('.card').length == 3")
    told = "1 file of the folder was not added: its name is not that of a picture or film."
    page.wait("document.getElementById('alert-text').textContent == arguments[0]", told)
    page.wait("!document.querySelector('[data-state=uploading]')")
    page.driver.refresh()
    shown = (
        "[...document.querySelectorAll('.card')].map(e => e.card.job.id + e.dataset.state).join()"
    )
    page.wait("document.querySelectorAll('.card').length == 3")
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("window")
    try:
        opened(page, page_server)
        page.wait("document.querySelectorAll('.card').length == 3")
        press(page, "cancel", "slow.png")
        until(page, "cancelled", "slow.png")
        press(page, "cancel", "last.png")
        until(page, "cancelled", "last.png")
        until(page, "done", "inner.png")
        here = page.run(f"return {shown}")
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)
    page.wait(f"{shown} == arguments[0]", here)


def test_pages_that_were_left_keep_no_connection(page: Window, page_server: Server) -> None:
    # A browser keeps some of them for the way back; it has six connections for a server.
    for _ in range(7):
        page.driver.get("about:blank")
        page.driver.get(page_server.address)
        # Before the browser forgets the oldest of them, after 40 s.
        page.wait("document.getElementById('model').options.length", seconds=30)
    page.driver.get("about:blank")
    sent = page_server.send("meanwhile.txt", b"no picture")
    page.driver.back()
    page.wait(f"({CARD})?.card.job.id == '{sent['id']}'", "meanwhile.txt")
    assert page.run("return document.getElementById('offline').hidden")


def test_a_page_without_a_stream_asks_now_and_then(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    page.driver.get("about:blank")
    listeners = [Listener(page_server) for _ in range(MOST_LISTENERS)]
    try:
        for listener in listeners:
            next(listener.events())
        opened(page, page_server)
        page.wait(IS_LOADED)
        for number in range(2):
            drop(page, picture(tmp_path / f"{number}.png", number))
            until(page, "done", f"{number}.png")
        sent = page_server.send("elsewhere.txt", b"no picture")
        page.wait(f"({CARD})?.card.job.id == '{sent['id']}'", "elsewhere.txt")
        page_server.ask("DELETE", f"/api/jobs/{sent['id']}")
        page.wait(f"!({CARD})", "elsewhere.txt")
        assert page.run("return document.getElementById('offline').hidden")
    finally:
        for listener in listeners:
            listener.close()


def test_a_server_that_is_killed_and_comes_back(page: Window, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    with Server(tmp_path / "cache") as first:
        opened(page, first)
        choose(page, "model", FAST)
        drop(page, picture(tmp_path / "before.png"))
        until(page, "done", "before.png")
        first.kill()
    banner = "document.getElementById('offline')"
    page.wait(f"!{banner}.hidden")
    assert "does not answer" in page.run(f"return {banner}.textContent")
    drop(page, picture(tmp_path / "meanwhile.png", 1))
    until(page, "uploading", "meanwhile.png")
    page.keep("away")
    with Server(tmp_path / "cache", "--port", str(first.port)) as second:
        page.wait(f"{banner}.hidden")
        until(page, "done", "before.png", "meanwhile.png")
        second.send("elsewhere.png", (tmp_path / "before.png").read_bytes(), model=FAST)
        until(page, "done", "elsewhere.png")
