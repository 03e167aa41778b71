"""The report of a batch in a real browser, headless: its layout, its search and its view, on narrow
and wide screens, in light and in dark.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from tests.helpers.browsers import Window, axe_core, chromium
from tests.helpers.contents import identity_models, noise
from waifu2x.cli import cli

pytestmark = pytest.mark.long
HOSTILE = "<img src=x onerror=alert(1)>\"'&.png"
SCREENS = [(360, 740), (1280, 900)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a folder with good, bad, tall, tiny and hostile files and an archive."""
    folder = tmp_path_factory.mktemp("report")
    identity_models(folder / "identity")
    (folder / "in").mkdir()
    examples = Path(__file__).parents[2] / "examples"
    shutil.copy(examples / "drawn.png", folder / "in/page10.png")
    shutil.copy(examples / "drawn.png", folder / "in/Page2 of the story.png")
    shutil.copy(examples / "photo.jpg", folder / f"in/{'very-long-name-' * 8}.jpg")
    Image.fromarray(noise(300, 20, 3)).save(folder / "in/tall.png")
    Image.fromarray(noise(2, 3, 3)).save(folder / "in/tiny.png")
    Image.new("RGB", (30, 30), "teal").save(folder / "in" / HOSTILE)
    (folder / "in/bad.png").write_text("no picture")
    with zipfile.ZipFile(folder / "in/book.cbz", "w") as book:
        for number in (1, 2, 10):
            content = io.BytesIO()
            Image.fromarray(noise(60, 40, 3, seed=number)).save(content, "PNG")
            book.writestr(f"{number}.png", content.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        options = ["-m", "identity", "--backend", "numpy", "--report", "page.html"]
        assert CliRunner().invoke(cli, ["batch", *options, "in", "out"]).exit_code == 1
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Its driver."""
    with chromium() as driver:
        yield driver


@pytest.fixture(params=[(*size, dark) for size in SCREENS for dark in (False, True)])
def opened(request: pytest.FixtureRequest, page: Path, browser: Any) -> Iterator[Window]:
    """The report on each screen. Complaints of the browser fail the test."""
    width, height, dark = request.param
    found = Window(browser, f"{width}-{'dark' if dark else 'light'}")
    found.screen(width, height, dark)
    found.driver.get(page.as_uri())
    yield found
    assert found.driver.get_log("browser") == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    return axe_core(tmp_path_factory.mktemp("axe"))


def names(opened: Window) -> list[str]:
    """Those of the pictures that are shown, in order."""
    found: list[str] = opened.run(
        "return [...document.querySelectorAll('figure:not([hidden]) .name')]"
        ".filter(each => each.offsetParent).map(each => each.textContent)"
    )
    return found


def test_layout(opened: Window) -> None:
    assert opened.fits()
    # Pictures load when they come into sight.
    count = opened.run("return document.querySelectorAll('.thumbnail').length")
    assert count == 9
    for number in range(count):
        image = f"document.querySelectorAll('.thumbnail')[{number}]"
        opened.run(f"{image}.scrollIntoView()")
        opened.wait(f"{image}.complete && {image}.naturalWidth > 0")
    opened.run("scrollTo(0, 0)")
    opened.keep("top")
    listed = names(opened)
    assert listed[0] == f"in/{HOSTILE}"
    assert listed[1:4] == ["1.png", "2.png", "10.png"]
    assert listed[4:6] == ["in/Page2 of the story.png", "in/page10.png"]
    failed = opened.run("return document.querySelector('.failed').innerText")
    assert failed.startswith("in/bad.png: not a picture")
    # Failures stand above what is done.
    tops = "[...document.querySelectorAll('.failed, #pictures')].map(e => e.offsetTop)"
    first, second = opened.run(f"return {tops}")
    assert first < second
    opened.run("document.querySelector('.settings').open = true")
    assert "identity" in opened.run("return document.querySelector('.settings').innerText")
    assert opened.fits()
    opened.keep("settings")


def test_light_and_dark(opened: Window) -> None:
    paper = opened.run("return getComputedStyle(document.documentElement).backgroundColor")
    level = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (level < 200) == ("dark" in opened.name), paper


def test_search(opened: Window) -> None:
    field = opened.driver.find_element("id", "search")
    field.send_keys("PAGE")
    assert names(opened) == ["in/Page2 of the story.png", "in/page10.png"]
    assert opened.run("return document.getElementById('found').textContent") == "2 of 9 shown"
    field.send_keys(" story")
    assert names(opened) == ["in/Page2 of the story.png"]
    opened.keep("search")
    field.clear()
    field.send_keys("book")
    assert names(opened) == ["1.png", "2.png", "10.png"]
    field.clear()
    field.send_keys("nowhere")
    assert names(opened) == []
    assert opened.fits()


def test_view_by_keyboard(opened: Window) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    search = opened.driver.find_element("id", "search")
    search.send_keys("page", keys.TAB)
    opened.driver.switch_to.active_element.send_keys(keys.ENTER)
    opened.wait("document.getElementById('view').open")
    title = "document.getElementById('title').textContent"
    assert opened.run(f"return {title}") == "in/Page2 of the story.png"
    opened.wait("[...document.querySelectorAll('#stage img')].every(e => e.naturalWidth == 480)")
    assert opened.fits()
    view = "document.getElementById('view')"
    assert opened.run(f"return {view}.scrollWidth <= {view}.clientWidth")
    # Both pictures lie on each other; the slider says how much of each is seen.
    boxes = (
        "[...document.querySelectorAll('#stage img')].map(e => e.getBoundingClientRect().toJSON())"
    )
    before, after = opened.run(f"return {boxes}")
    assert before == after
    assert after["width"] > 250
    clip = "getComputedStyle(document.querySelector('.after img')).clipPath"
    assert "50%" in opened.run(f"return {clip}")
    opened.keep("view")
    assert opened.run("return document.activeElement.id") == "slider"
    opened.driver.switch_to.active_element.send_keys(keys.HOME)
    assert opened.run(f"return {clip}") == "inset(0px 0px 0px 0%)"
    # The next one of those that were found, and round again.
    opened.driver.find_element("id", "next").send_keys(keys.ENTER)
    assert opened.run(f"return {title}") == "in/page10.png"
    opened.driver.find_element("id", "next").send_keys(keys.ENTER)
    assert opened.run(f"return {title}") == "in/Page2 of the story.png"
    opened.driver.find_element("id", "beside").send_keys(keys.SPACE)
    before, after = opened.run(f"return {boxes}")
    assert before["right"] <= after["left"]
    assert opened.run(f"return {clip}") == "none"
    opened.keep("beside")
    opened.driver.find_element("id", "beside").send_keys(keys.ESCAPE)
    assert not opened.run(f"return {view}.open")
    # Closing it gives the focus back.
    assert opened.run("return document.activeElement.tagName") == "SUMMARY"


def test_view_of_pictures_of_any_shape(opened: Window) -> None:
    for name in ("in/tall.png", "in/tiny.png", f"in/{'very-long-name-' * 8}.jpg"):
        opened.run(
            "[...document.querySelectorAll('figure')].find("
            "each => each.querySelector('.name').textContent == arguments[0])"
            ".querySelector('summary').click()",
            name,
        )
        opened.wait("document.querySelector('#stage img').naturalWidth > 0")
        box = opened.run("return document.getElementById('stage').getBoundingClientRect().toJSON()")
        # All of it is on the screen, and large enough to be looked at.
        assert 0 < box["height"] <= opened.run("return innerHeight")
        assert 0 < box["width"] <= opened.run("return innerWidth")
        assert max(box["width"], box["height"]) > 250
        opened.keep(f"shape-{Path(name).stem[:5]}")
        opened.driver.find_element("id", "close").click()


def test_nobody_is_kept_out(opened: Window, axe: str) -> None:
    for is_open in (False, True):
        if is_open:
            opened.run("document.querySelector('summary img').click()")
            opened.wait("document.getElementById('view').open")
        assert opened.faults(axe) == {}


def test_without_scripts_it_is_a_list_that_opens(page: Path, browser: Any) -> None:
    opened = Window(browser, "no-script")
    opened.screen(360, 740, False)
    driver = opened.driver
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(page.as_uri())
        assert not driver.find_element("id", "find").is_displayed()
        driver.find_elements("css selector", "figure:nth-of-type(5) summary")[0].click()
        opened.wait(
            "[...document.querySelectorAll('figure:nth-of-type(5) .pair img')]"
            ".every(e => e.naturalWidth > 0)"
        )
        assert opened.fits()
        opened.keep("open")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_print(page: Path, browser: Any) -> None:
    opened = Window(browser, "print")
    opened.screen(1280, 900, True)
    driver = opened.driver
    driver.get(page.as_uri())
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    paper = opened.run("return getComputedStyle(document.documentElement).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert not driver.find_element("id", "find").is_displayed()
    assert opened.run("return document.querySelectorAll('figure:not([hidden])').length") == 9
    opened.keep("page")


def test_ten_thousand_pictures_open_at_once(tmp_path: Path, browser: Any) -> None:
    from tests.helpers.outcomes import done
    from waifu2x.flows.batch.html_report import HtmlReport, preview_side
    from waifu2x.flows.jobs import Job
    from waifu2x.formats.preview import previews
    from waifu2x.imaging.picture import Picture
    from waifu2x.imaging.sizes import Part

    pixels = np.asarray(Image.open(Path(__file__).parents[2] / "examples/drawn.png").convert("RGB"))
    large = Picture(pixels.repeat(2, 0).repeat(2, 1))
    count = 10_000
    shown = previews(Picture(pixels), large, Part.of(*pixels.shape[:2]), preview_side(count))
    page = HtmlReport(tmp_path / "page.html", "many")
    for number in range(count):
        job = Job(tmp_path / f"{number}.png", tmp_path / f"out/{number}.png")
        page.add(done(job, 1.0, 320, 480, previews=(shown,)))
    page.finish(["all"], [])
    assert (tmp_path / "page.html").stat().st_size < 200e6
    opened = Window(browser, "many")
    opened.screen(1280, 900, False)
    driver = opened.driver
    driver.get((tmp_path / "page.html").as_uri())
    driver.find_element("id", "search").send_keys("/9999.png")
    assert [Path(name).name for name in names(opened)] == ["9999.png"]
    opened.keep("search")
