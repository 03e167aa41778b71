"""Who cannot see well or has no mouse, and every size of a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.browsers import Window
from tests.helpers.pages import FAST, archive, choose, drop, look, picture, press, until
from tests.helpers.servers import Server

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytestmark = pytest.mark.matrix


SIZES = ((360, 740), (1280, 900), (2560, 1440))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nobody_is_kept_out(
    page: Window, page_server: Server, axe: str, dark: bool, tmp_path: Path
) -> None:
    page.screen(1280, 900, dark)
    assert page.faults(axe) == {}
    page_server.send("bad.png", b"no picture")
    page_server.send("pages.cbz", archive(3), model=FAST)
    drop(page, picture(tmp_path / "one.png"))
    until(page, "done", "one.png", "pages.cbz")
    press(page, "pick", "one.png")

    def check(what: str, width: int) -> None:
        page.settle()
        page.keep(f"{width}-{what}")
        assert page.fits(), (what, width)
        assert page.faults(axe) == {}, (what, width)

    def check_view(what: str, width: int) -> None:
        check(what, width)
        assert page.run(
            "const v = document.getElementById('viewer'); return v.scrollWidth <= v.clientWidth"
        ), (what, width)

    for width, height in SIZES:
        page.screen(width, height, dark)
        page.wait(f"innerWidth == {width}")
        check("list", width)
        for name, value in (
            ("size", "pixels"),
            ("width", "1920"),
            ("height", "1080"),
            ("format", "webp"),
            ("qualityKind", "number"),
            ("depth", "8"),
        ):
            choose(page, name, value)
        page.run(
            "for (const id of ['settings-box', 'film-settings'])"
            "document.getElementById(id).open = true"
        )
        check("settings", width)
        page.run("document.getElementById('settings-box').open = innerWidth >= 960; scrollTo(0, 0)")
        look(page, "one.png")
        check_view("slider", width)
        page.driver.find_element("id", "stage").send_keys("b")
        page.wait("!document.getElementById('stage').classList.contains('sliding')")
        check_view("beside", width)
        page.driver.find_element("id", "stage").send_keys("m")
        page.wait("document.querySelectorAll('.pane').length == 4")
        page.wait("document.querySelectorAll('.pane img').length == 7")
        check_view("models", width)
        page.driver.find_element("id", "stage").send_keys("s")
        page.driver.find_element("id", "close").click()
        look(page, "pages.cbz")
        check_view("pages", width)
        page.driver.find_element("id", "close").click()
    level = page.run("return getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, level.removeprefix("rgb(").removesuffix(")").split(","))) < 200) == dark
