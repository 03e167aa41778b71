"""The page in several windows, reloaded, and while the server is away."""

from __future__ import annotations

import shutil
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
from tests.helpers.servers import Server

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytestmark = pytest.mark.matrix
LATE = """{
const send = window.fetch;
window.fetch = async (path, ...options) => {
  const answer = await send(path, ...options);
  if (path.startsWith('api/jobs?') && !window.release) {
    await new Promise(released => (window.release = released));
  }
  return answer;
};
}"""
"""Keeps the first answer to what has changed back until the test lets it go."""
IS_LOADED = "document.getElementById('overall-text').textContent != 'Connecting…'"


@contextmanager
def windows(page: Window, server: Server, count: int) -> Iterator[list[str]]:
    """Opens windows of a server."""
    first = page.driver.current_window_handle
    opened_ones: list[str] = []
    try:
        for _ in range(count):
            page.driver.switch_to.new_window("tab")
            opened_ones.append(page.driver.current_window_handle)
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


def test_eight_windows_follow_the_queue(page: Window, page_server: Server) -> None:
    """Although a browser has six connections for a server."""
    page.driver.get("about:blank")  # it would be a ninth
    with windows(page, page_server, 8) as tabs:
        page_server.send("pages.cbz", archive(2000), model=FAST)
        gone = page_server.send("gone.txt", b"no picture")
        progress = f"({CARD})?.card.job.progress"
        in_each(page, tabs, progress, "pages.cbz")
        far = page.run(f"return {progress}", "pages.cbz")
        in_each(page, tabs, f"{progress} > {far}", "pages.cbz")
        page_server.ask("DELETE", f"/api/jobs/{gone['id']}")
        press(page, "cancel", "pages.cbz")
        in_each(page, tabs, f"{STATE} == 'cancelled'", "pages.cbz")
        in_each(page, tabs, f"!({CARD})", "gone.txt")


def test_an_answer_that_comes_late_takes_nothing_away(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    """Not a picture that was sent meanwhile, nor its place."""
    first = page.driver.current_window_handle
    names = [f"{number}.txt" for number in range(2)]
    for name in names:
        page_server.send(name, b"no picture")
    page.driver.switch_to.new_window("tab")
    try:
        page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LATE})
        opened(page, page_server)
        page.wait("Boolean(window.release)")
        drop(page, picture(tmp_path / "new.png"))
        page.wait(f"({CARD})?.card.job.local === undefined", "new.png")
        page.run("window.release()")
        order = "[...document.querySelectorAll('.card')].map(e => e.card.job.name)"
        page.wait(f"{order}.length == 3")
        page.wait(f"{order}.join() == arguments[0]", ",".join([*names, "new.png"]))
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)


def test_a_folder_and_a_reload_and_a_second_window(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    slow = picture(tree / "slow.png", 2, *SLOW)
    picture(tree / "deep/inner.png", 1)
    shutil.copy(slow, tree / "deep/er/last.png")
    (tree / "deep/read me.txt").write_text("no picture")
    films = pytest.importorskip("tests.helpers.films")
    films.film(tree / "deep/clip.mkv", size=(16, 24))
    drop(page, tree)
    page.wait("document.querySelectorAll('.card').length == 4")
    told = "1 file of the folder was not added: its name is not that of a picture or film."
    page.wait("document.getElementById('alert-text').textContent == arguments[0]", told)
    page.wait("!document.querySelector('[data-state=uploading]')")
    page.driver.refresh()
    shown = (
        "[...document.querySelectorAll('.card')].map(e => e.card.job.id + e.dataset.state).join()"
    )
    page.wait("document.querySelectorAll('.card').length == 4")
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("window")
    try:
        opened(page, page_server)
        page.wait("document.querySelectorAll('.card').length == 4")
        press(page, "cancel", "slow.png")
        until(page, "cancelled", "slow.png")
        press(page, "cancel", "last.png")
        until(page, "cancelled", "last.png")
        until(page, "done", "inner.png", "clip.mkv")
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
