"""Remarks about a job, on the cards of the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("av", reason="pip install 'waifu2x-kernels[video]'")

from tests.helpers import films
from tests.helpers.browsers import Window
from tests.helpers.contents import encode, noise
from tests.helpers.pages import CARD, FAST, press, until
from tests.helpers.servers import Server
from waifu2x.imaging.picture import Picture

pytestmark = pytest.mark.matrix
CONTRAST = (
    "const level = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(each => {"
    "const c = each / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 });"
    "return 0.2126 * r + 0.7152 * g + 0.0722 * b };"
    f"const card = ({CARD}), line = card.querySelector('.line');"
    "const both = [getComputedStyle(line).color, getComputedStyle(card).backgroundColor]"
    ".map(level);"
    "return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05)"
)
"""The contrast of a card's line by WCAG 2."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_card_says_what_was_lost(
    page: Window, page_server: Server, dark: bool, tmp_path: Path
) -> None:
    page.screen(1280, 900, dark)
    films.film(tmp_path / "in.mkv", size=(16, 24))
    content = (tmp_path / "in.mkv").read_bytes()
    page_server.send("short.mkv", content[: len(content) * 6 // 10], model=FAST)
    deep = encode(Picture(noise(9, 11, 3).astype(np.uint16) * 257), "png")
    page_server.send("deep.png", deep, model=FAST, format="jpg")
    until(page, "incomplete", "short.mkv")
    until(page, "done", "deep.png")
    # It is not counted as done, and found by a filter of its own.
    for place in ("overall-text", "live"):
        text = f"document.getElementById('{place}').textContent"
        page.wait(f"{text}.startsWith('1 of 2 done, 1 incomplete')")
    for state, shown in (("incomplete", "short.mkv"), ("done", "deep.png")):
        page.driver.find_element("css selector", f"#filter-{state} input").click()
        names = "[...document.querySelectorAll('.name')].map(e => e.textContent).join()"
        page.wait(f"{names} == '{shown}'")
    page.driver.find_element("css selector", "#filter-all input").click()
    page.wait("document.querySelectorAll('.card').length == 2")
    page.settle()
    page.keep("dark" if dark else "light")
    # A network that is compiled is said to be, second by second: numpy compiles nothing.
    page.run(
        f"const {{ job }} = ({CARD}).card; window.prepared = {{ ...job, state: 'working',"
        "progress: 0, preparing: 12.3 }; window.send = fetch;"
        "window.fetch = async (path, options) => { const answer = await send(path, options);"
        "if (!path.startsWith('api/jobs?')) return answer; const told = await answer.json();"
        "return new Response(JSON.stringify({ ...told, jobs: [prepared] })); }",
        "deep.png",
    )
    line = f"({CARD})?.querySelector('.line').textContent.replaceAll('\u00a0', ' ')"
    for seconds in (12, 13):
        page.run("prepared.preparing = arguments[0] + 0.3", seconds)
        told = f"Preparing {FAST} for this machine, once: compiling for {seconds} s"
        page.wait(f"{line} == '{told}'", "deep.png")
        assert not page.run(
            f"return ({CARD}).querySelector('progress').hasAttribute('value')", "deep.png"
        )
    page.run("window.fetch = send")
    page.driver.refresh()
    until(page, "done", "deep.png")
    jobs = {job["name"]: job for job in page_server.ask("GET", "/api/jobs").data["jobs"]}
    for name, state in (("short.mkv", "Incomplete"), ("deep.png", "Done")):
        job = jobs[name]
        (told,) = job["lost"] + job["notices"]
        told = told.removeprefix(f"{name}: ")
        told = told[0].upper() + told[1:]
        about, line = page.run(
            f"return ({CARD}).getAttribute('aria-describedby').split(' ')"
            ".map(id => document.getElementById(id).textContent)",
            name,
        )
        assert about.startswith(state)
        assert line == told
        assert page.run(
            f"const e = ({CARD}).querySelector('.line'); return e.scrollHeight <= e.clientHeight",
            name,
        ), "a part of it is hidden"
        assert page.run(CONTRAST, name) >= 4.5
        press(page, "compare", name)
        page.wait("document.getElementById('viewer-message').textContent == arguments[0]", told)
        page.driver.find_element("id", "close").click()
