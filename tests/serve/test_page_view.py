"""Views of one picture on the page: before and after, and by several models."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers.browsers import Window
from tests.helpers.pages import (
    COLUMNS,
    FAST,
    ROWS,
    SLIDE,
    SLOW,
    drop,
    jobs_of,
    look,
    picture,
    press,
    result_of,
    until,
)
from tests.helpers.servers import Server

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytestmark = pytest.mark.matrix
OTHER = "upconv_7/photo"


def test_slider_zoom_and_pan(page: Window, page_server: Server, tmp_path: Path) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    chains = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
    drop(page, picture(tmp_path / "one.png"), picture(tmp_path / "two.png", 1))
    until(page, "done", "one.png", "two.png")
    look(page, "one.png")
    page.keep("fit")
    clip = "return getComputedStyle(document.querySelectorAll('.pane')[1]).clipPath"
    assert page.run(clip) == "inset(0px 0px 0px 50%)"
    # By keyboard, from where the focus is, and by dragging.
    assert page.run("return document.activeElement.id") == "slider"
    page.driver.switch_to.active_element.send_keys(keys.HOME)
    assert page.run(clip) == "inset(0px 0px 0px 0%)"
    page.driver.switch_to.active_element.send_keys(keys.END)
    assert page.run(clip) == "inset(0px 0px 0px 100%)"
    page.run(SLIDE, 60)
    handle = page.driver.find_element("css selector", ".handle")
    width = page.run("return document.getElementById('stage').clientWidth")
    chains(page.driver).drag_and_drop_by_offset(handle, -width // 4, 0).perform()
    assert abs(float(page.run("return document.getElementById('slider').value")) - 35) < 1
    percent = page.run("return document.getElementById('slider').value")
    assert page.run(clip) == f"inset(0px 0px 0px {percent}%)"

    # Pixel for pixel: what is on the screen is what is in the file.
    page.driver.find_element("id", "zoom-one").click()
    page.wait("document.getElementById('zoom').textContent == '100 %'")
    page.run(SLIDE, 0)
    page.run(
        "document.querySelectorAll('.pane-label, .handle').forEach(e => e.style.display = 'none')"
    )
    job = next(job for job in jobs_of(page_server) if job["name"] == "one.png")
    with Image.open(io.BytesIO(result_of(page_server, job))) as result:
        expected = np.asarray(result.convert("RGB"))
    box = page.run(
        "return document.querySelectorAll('.pane img')[1].getBoundingClientRect().toJSON()"
    )
    assert (box["width"], box["height"]) == (2 * COLUMNS, 2 * ROWS)
    with Image.open(io.BytesIO(page.driver.get_screenshot_as_png())) as shot:
        left, top = round(box["left"]), round(box["top"])
        part = shot.convert("RGB").crop((left, top, left + 2 * COLUMNS, top + 2 * ROWS))
        assert np.array_equal(np.asarray(part), expected)
    drawn = (
        "[...document.querySelectorAll('.pane img')].map(e => getComputedStyle(e).imageRendering)"
    )
    assert page.run(f"return {drawn}") == ["pixelated", "pixelated"]

    # Side by side, both move and grow alike.
    page.driver.find_element("id", "stage").send_keys("b")
    page.wait("!document.getElementById('stage').classList.contains('sliding')")
    page.driver.find_element("id", "stage").send_keys("++++++++")
    page.wait("document.getElementById('zoom').textContent == '1600 %'")
    places = (
        "return [...document.querySelectorAll('.pane')].map(e => {"
        "const i = e.querySelector('img').getBoundingClientRect(), p = e.getBoundingClientRect();"
        "return [i.left - p.left, i.top - p.top, i.width, i.height].map(Math.round) })"
    )
    page.settle()
    before, after = page.run(places)
    assert before == after
    assert before[2] == 16 * 2 * COLUMNS
    stage = page.driver.find_element("id", "stage")
    chains(page.driver).drag_and_drop_by_offset(stage, 30, 20).perform()
    page.driver.find_element("id", "stage").send_keys(keys.ARROW_RIGHT)
    page.settle()
    moved, also = page.run(places)
    assert moved == also
    assert [moved[0] - before[0], moved[1] - before[1]] == [30 - 60, 20]
    page.keep("beside")

    # The other picture, and back to the card that was pressed.
    page.driver.find_element("id", "stage").send_keys(keys.PAGE_DOWN)
    page.wait("document.getElementById('viewer-title').textContent == 'two.png'")
    page.driver.find_element("id", "close").click()
    assert not page.run("return document.getElementById('viewer').open")


def test_keys_and_back_in_the_view(page: Window, tmp_path: Path) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    drop(page, picture(tmp_path / "one.png"))
    until(page, "done", "one.png")
    look(page, "one.png")
    # The slider has the focus, and goes when the mode does: each key must find a way after it.
    page.wait("document.activeElement.id == 'slider'")
    sliding = "document.getElementById('stage').classList.contains('sliding')"
    for key, is_so in (("b", f"!{sliding}"), ("s", sliding), ("b", f"!{sliding}")):
        page.driver.switch_to.active_element.send_keys(key)
        page.wait(is_so)
    page.driver.switch_to.active_element.send_keys("1++++++++")
    page.wait("document.getElementById('zoom').textContent == '1600 %'")
    page.settle()
    place = "document.querySelector('.pane img').getBoundingClientRect().left"
    before = page.run(f"return {place}")
    page.driver.switch_to.active_element.send_keys(keys.ARROW_RIGHT)
    page.wait(f"{place} != arguments[0]", before)
    # Back closes the view and stays on the page; closed by hand, the view leaves no entry behind.
    is_open = "document.getElementById('viewer').open"
    address, length = page.run("return [location.href, history.length]")
    page.driver.back()
    page.wait(f"!{is_open}")
    for _ in range(2):
        look(page, "one.png")
        page.driver.find_element("id", "close").click()
        page.wait(f"!{is_open} && !history.state?.isOpen")
    assert page.run("return [location.href, history.length]") == [address, length]


def test_a_crop_hides_what_is_below_it(page: Window, tmp_path: Path) -> None:
    """A picture that can be seen through looks as it does without the source below."""
    pixels = np.full((32, 48, 4), (255, 0, 0, 128), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "red.png")
    drop(page, tmp_path / "red.png")
    until(page, "done", "red.png")
    look(page, "red.png")
    page.run(
        "for (const tick of document.querySelectorAll('#models input'))"
        "tick.checked = tick.value === arguments[0];"
        "document.querySelector('#modes input[value=models]').click()",
        FAST,
    )
    page.wait("document.querySelectorAll('.pane')[1]?.querySelectorAll('img').length == 2")
    page.settle()
    page.keep("transparent")
    boxes = page.run(
        "return [...document.querySelectorAll('.pane')].map(pane =>"
        " pane.querySelector('img').getBoundingClientRect().toJSON())"
    )
    with Image.open(io.BytesIO(page.driver.get_screenshot_as_png())) as shot:
        before, crop = (
            np.asarray(
                shot.convert("RGB").crop(
                    tuple(round(box[side]) for side in ("left", "top", "right", "bottom"))
                )
            ).reshape(-1, 3)
            for box in boxes
        )
    assert np.abs(np.median(before, 0) - np.median(crop, 0)).max() <= 8
    # The whole of it, without a line along an edge.
    assert np.abs(before.min(0).astype(int) - crop.min(0)).max() <= 8


def test_the_model_that_is_liked_is_used(page: Window, page_server: Server, tmp_path: Path) -> None:
    """For the picture that is looked at, with its other settings, and for further ones."""
    sent = page_server.send("one.png", picture(tmp_path / "one.png").read_bytes(), scale=3)
    until(page, "done", "one.png")
    look(page, "one.png")
    page.run(
        "for (const tick of document.querySelectorAll('#models input'))"
        "tick.checked = tick.value === arguments[0];"
        "document.querySelector('#modes input[value=models]').click()",
        OTHER,
    )
    about = page.wait("document.querySelectorAll('.pane-label small')[1]?.textContent")
    assert about == "noisy photos, quickly"
    page.keep("before")
    page.driver.find_elements("css selector", ".use")[1].click()
    about = "document.getElementById('viewer-about').textContent"
    page.wait(f"{about}.includes('→') && {about}.includes('{OTHER}')")
    page.wait("document.getElementById('stage').ariaBusy == 'false'")
    page.wait("document.querySelectorAll('#stage.sliding .pane').length == 2")
    page.driver.find_element("id", "close").click()
    done = page_server.job(sent["id"])
    assert (done["settings"]["model"], done["settings"]["noise"]) == (OTHER, "none")
    assert done["result"]["width"] == 3 * COLUMNS
    assert page.run("return document.getElementById('model').value") == OTHER


def test_a_crop_by_three_models_before_the_whole(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    slow = picture(tmp_path / "slow.png", 1, *SLOW)
    drop(page, slow)
    until(page, "working", "slow.png")
    press(page, "compare", "slow.png")
    page.wait("document.querySelectorAll('#stage .pane').length == 1")
    for _ in range(12):
        page.driver.find_element("id", "zoom-in").click()
    page.run("sessionStorage.setItem('waifu2x-compared', '[]')")
    chosen = [FAST, OTHER, "cunet/art"]
    page.run(
        "for (const tick of document.querySelectorAll('#models input'))"
        "tick.checked = arguments[0].includes(tick.value);"
        "document.querySelector('#modes input[value=models]').click()",
        chosen,
    )
    crops = "[...document.querySelectorAll('.pane')].map(e => e.querySelectorAll('img')[1])"
    page.wait(f"({crops}).filter(e => e?.naturalWidth).length == 3")
    page.keep("crops")
    assert page.run("return document.querySelectorAll('.pane').length") == 4
    labels = page.run(
        "return [...document.querySelectorAll('.pane-label')].map(e => e.textContent)"
    )
    assert labels[0] == "Before"
    assert sorted(label.split(":")[0] for label in labels[1:]) == sorted(chosen)
    # The crops lie on the part of the source that was seen, twice as fine.
    places = (
        "return [...document.querySelectorAll('.pane')].slice(1).map(e => {"
        "const [a, b] = e.querySelectorAll('img');"
        "const [p, q, r] = [a, b, e].map(i => i.getBoundingClientRect());"
        "return [b.naturalWidth, q.width / p.width * a.naturalWidth, q.left <= r.left + 1,"
        " q.right >= r.right - 1]})"
    )
    for natural, columns, covers_left, covers_right in page.run(places):
        assert natural == pytest.approx(2 * columns)
        assert columns < SLOW[0]
        assert (covers_left, covers_right) == (True, True)
    assert jobs_of(page_server)[0]["state"] == "working"
    page.driver.find_element("id", "close").click()
    press(page, "cancel", "slow.png")
    until(page, "cancelled", "slow.png")
