"""The cards of the page, in a real browser, in front of a real server."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browsers import Window
from tests.helpers.pages import (
    CARD,
    COLUMNS,
    FAST,
    ROWS,
    SLOW,
    STATE,
    choose,
    drop,
    jobs_of,
    picture,
    press,
    result_of,
    saved,
    until,
)
from tests.helpers.servers import Server
from waifu2x.api.settings.uses import USES

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytestmark = pytest.mark.matrix
OTHER = "upconv_7/photo"
HOSTILE = "<img src=x onerror=alert(1)>\"'&.png"


def test_dropped_pictures_become_cards_with_progress(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    assert page.run("return location.hash") == ""
    assert page.run("return sessionStorage.getItem('waifu2x-token').length") > 20
    page.keep("empty")
    page.run(
        "window.seen = []; new MutationObserver(() => {"
        "for (const e of document.querySelectorAll('.card')) {"
        "const now = `${e.card.job.name} ${e.dataset.state}`;"
        "if (!seen.includes(now)) seen.push(now); } })"
        ".observe(document.getElementById('cards'),"
        "{subtree: true, childList: true, attributes: true})"
    )
    names = [f"{number}.png" for number in range(3)]
    # The largest comes first, and yet is the first to arrive.
    first = picture(tmp_path / names[0])
    with first.open("ab") as file:
        file.write(bytes(30 << 20))
    drop(page, first, *(picture(tmp_path / name, seed) for seed, name in enumerate(names[1:], 1)))
    until(page, "done", *names)
    assert [job["name"] for job in jobs_of(page_server)] == names
    page.keep("done")
    seen = page.run("return seen")
    for name in names:
        assert f"{name} working" in seen
        assert seen.index(f"{name} working") < seen.index(f"{name} done")
    assert (
        page.run("return [...document.querySelectorAll('.name')].map(e => e.textContent)") == names
    )
    about = page.run(f"return ({CARD}).querySelector('.about-file').textContent", names[0])
    assert f"{COLUMNS}x{ROWS} → {2 * COLUMNS}x{2 * ROWS} PNG" in about
    page.wait(f"({CARD}).querySelector('img').naturalWidth > 0", names[0])
    text = "document.getElementById('overall-text').textContent"
    assert page.wait(text) == "3 of 3 done"
    page.wait("document.getElementById('live').textContent == '3 of 3 done.'")


def test_one_click_tries_a_sample(page: Window, page_server: Server) -> None:
    choose(page, "size", "1")
    choose(page, "noise", "1")
    assert page.run("return document.querySelectorAll('.steps li').length") == 3
    page.driver.find_element("id", "sample").click()
    until(page, "done", "sample.png")
    (job,) = jobs_of(page_server)
    assert (job["source"]["width"], job["source"]["height"]) == (240, 160)
    # How fast it was is told at once; one picture needs no tools.
    page.wait("document.getElementById('about-model').innerText.includes('Mpixel/s')")
    assert page.run("return document.getElementById('tools').hidden")
    assert page.run("return document.getElementById('sample').getClientRects().length") == 0


def test_settings_are_those_of_the_command(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    command = "return document.getElementById('command').textContent.replace(/IN$/, 'in.png')"
    assert page.run(command) == f"waifu2x upscale -m {FAST} in.png"
    about = page.run("return document.getElementById('about-model').innerText")
    assert "drawings, quickly" in about
    assert "MIT" in about
    choose(page, "best_for", "speed")
    assert page.run("return document.getElementById('about-use').textContent") == (
        USES["speed"].about
    )
    assert page.run(command) == f"waifu2x upscale -m {USES['speed'].model} in.png"
    choose(page, "model", FAST)
    assert page.run("return document.getElementById('best-for').value") == ""
    for name, value in (
        ("noise", "1"), ("size", "times"), ("scale", "4/3"), ("tta", "2"), ("format", "jpg"),
        ("qualityKind", "number"), ("quality", "70"), ("depth", "8"), ("strength", "50"),
    ):  # fmt: skip
        choose(page, name, value)
    page.keep("chosen")
    drop(page, picture(tmp_path / "in.png"))
    until(page, "done", "in.png")
    (job,) = jobs_of(page_server)
    assert job["command"] == page.run(command)
    assert (job["result"]["width"], job["result"]["format"]) == (COLUMNS * 4 // 3, "jpg")
    # They outlive a reload; a job that is done is made again with what is chosen then, another
    # model as well.
    page.driver.refresh()
    page.wait("document.getElementById('command').textContent")
    assert page.run(command) == job["command"]
    choose(page, "size", "pixels")
    choose(page, "width", "60")
    choose(page, "tta", "1")
    choose(page, "strength", "100")
    choose(page, "format", "")
    choose(page, "depth", "auto")
    choose(page, "model", OTHER)
    assert "photos" in page.run("return document.getElementById('about-model').innerText")
    choose(page, "noise", "none")
    press(page, "redo", "in.png")
    page.wait(f"({CARD})?.card.job.result?.width == 60", "in.png")
    (again,) = jobs_of(page_server)
    assert again["id"] == job["id"]
    assert (
        again["command"]
        == page.run(command)
        == f"waifu2x upscale -n none -m {OTHER} --width 60 in.png"
    )


def test_cancel_retry_remove(page: Window, page_server: Server, tmp_path: Path) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    (tmp_path / HOSTILE).write_text("no picture")
    wide = picture(tmp_path / "wide.png", 1, 9000, 1)
    slow = picture(tmp_path / "slow.png", 2, *SLOW)
    choose(page, "format", "webp")
    drop(page, tmp_path / HOSTILE, wide, slow)
    page.wait(f"({CARD})?.card.job.progress > 0 && {STATE} == 'working'", "slow.png")
    drop(page, picture(tmp_path / "waits.png"))
    until(page, "failed", HOSTILE, "wide.png")
    # Names and sentences are text, even if they look like HTML.
    assert page.run(f"return ({CARD}).querySelector('.name').textContent", HOSTILE) == HOSTILE
    error = next(job["error"] for job in jobs_of(page_server) if job["name"] == HOSTILE)
    assert page.run(f"return ({CARD}).querySelector('.line').title", HOSTILE) == error
    said = page.run(f"return ({CARD}).querySelector('.line').textContent", HOSTILE)
    assert f"{HOSTILE}: {said[0].lower()}{said[1:]}" == error
    # A file that cannot be read is not offered to be tried again.
    offered = page.run(
        f"return [...({CARD}).querySelectorAll('.buttons button:not([hidden])')].length", HOSTILE
    )
    assert offered == 0
    assert page.run("return document.querySelectorAll('img[src=x]').length") == 0
    page.keep("failed")
    page.wait(f"['waiting', 'working'].includes({STATE})", "waits.png")  # it has arrived
    press(page, "cancel", "waits.png")
    until(page, "cancelled", "waits.png")
    press(page, "cancel", "slow.png")
    until(page, "cancelled", "slow.png")
    # Again as it was: it fails again. Again in another format: WebP alone is too narrow.
    version = next(job["version"] for job in jobs_of(page_server) if job["name"] == "wide.png")
    press(page, "retry", "wide.png")
    page.wait(f"({CARD}).card.job.version > {version + 1} && {STATE} == 'failed'", "wide.png")
    choose(page, "format", "png")
    press(page, "pick", "wide.png")
    page.driver.find_element("id", "selected-redo").click()
    until(page, "done", "wide.png")
    press(page, "retry", "waits.png")
    until(page, "done", "waits.png")
    page.driver.find_element("id", "select-shown").click()
    page.wait("document.getElementById('selected').textContent == '4 selected'")
    seen = f"({CARD})?.querySelector('img').naturalWidth > 0"  # nothing is asked for any more
    for name in ("wide.png", "slow.png", "waits.png"):
        page.wait(seen, name)
    # However many they are, it is one request.
    page.run(
        "window.asked = []; const send = fetch; window.fetch = (path, options) => {"
        "if (options.method !== 'GET') asked.push([path, options.method, options.body]);"
        "return send(path, options); }"
    )
    ids = [job["id"] for job in jobs_of(page_server)]
    page.driver.find_element("id", "selected-remove").click()
    page.wait("document.getElementById('list').hidden")
    ((path, method, body),) = page.run("return asked")
    assert (path, method) == ("api/jobs/remove", "POST")
    assert sorted(json.loads(body)["ids"]) == sorted(ids)
    assert jobs_of(page_server) == []
    # It can be undone, after a reload as well.
    page.driver.refresh()
    page.wait("document.getElementById('undo-text').textContent == '4 removed.'")
    page.keep("undo")
    page.driver.find_element("id", "undo-remove").click()
    until(page, "done", "wide.png", "waits.png")
    assert [job["id"] for job in jobs_of(page_server)] == ids
    page.wait("document.getElementById('undo').hidden")
    for name in ("wide.png", "slow.png", "waits.png"):
        page.wait(seen, name)
    page.run(f"({CARD}).focus()", "slow.png")
    page.driver.switch_to.active_element.send_keys(keys.DELETE)
    page.wait(f"!({CARD}) && !document.getElementById('undo').hidden", "slow.png")
    page.driver.switch_to.active_element.send_keys(keys.CONTROL, "z")
    until(page, "cancelled", "slow.png")
    names = "[...document.querySelectorAll('.name')].map(e => e.textContent)"
    assert page.run(f"return {names}") == [HOSTILE, "wide.png", "slow.png", "waits.png"]


def test_pictures_pass_a_large_file_that_is_sent(
    page: Window, page_server: Server, tmp_path: Path
) -> None:
    large = picture(tmp_path / "large.png")
    with large.open("ab") as file:
        file.truncate(65 << 20)  # nothing follows but zeros
    line = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000}
    page.driver.execute_cdp_cmd("Network.enable", {})
    try:
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", line)
        drop(page, large)
        page.wait(f"({CARD})?.card.job.progress > 0", "large.png")
        drop(page, picture(tmp_path / "one.png", 1), picture(tmp_path / "two.png", 2))
        until(page, "done", "one.png", "two.png")
        page.keep("sending")
        assert page.run(f"return {STATE}", "large.png") == "uploading"
        press(page, "cancel", "large.png")
        page.wait(f"!({CARD})", "large.png")
    finally:
        page.driver.execute_cdp_cmd("Network.disable", {})
    assert [job["name"] for job in jobs_of(page_server)] == ["one.png", "two.png"]


def test_download_one_and_all(
    page: Window, page_server: Server, downloads: Path, tmp_path: Path
) -> None:
    drop(page, picture(tmp_path / "one.png"), picture(tmp_path / "two.png", 1))
    until(page, "done", "one.png", "two.png")
    results = {job["result"]["name"]: result_of(page_server, job) for job in jobs_of(page_server)}
    press(page, "download", "one.png")
    assert saved(downloads, "one-2x.png") == results["one-2x.png"]
    page.driver.find_element("id", "download-all").click()
    with zipfile.ZipFile(io.BytesIO(saved(downloads, "waifu2x.zip"))) as packed:
        assert sorted(map(packed.read, packed.namelist())) == sorted(results.values())


def test_without_its_key_the_page_says_so(page: Window, page_server: Server) -> None:
    page.run("sessionStorage.clear()")
    page.driver.get(page_server.address.split("#")[0])
    page.wait("document.getElementById('offline').textContent.includes('open the address')")
    page.keep("no-key")


def test_many_cards_by_keyboard(page: Window, page_server: Server) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    for number in range(250):
        page_server.send(f"{number}.txt", b"no picture")
    count = "document.querySelectorAll('.card').length"
    page.wait("document.getElementById('filter-failed').textContent.includes('250')")
    assert 0 < page.run(f"return {count}") < 60
    place = "return [document.activeElement.ariaPosInSet, document.activeElement.ariaSetSize]"

    def after(key: str) -> Any:
        page.driver.switch_to.active_element.send_keys(key)
        return page.run(place)

    page.run("document.querySelector('.card[tabindex=\"0\"]').focus()")
    assert page.run(place) == ["1", "250"]
    columns = page.run(
        "const top = e => e.getBoundingClientRect().top;"
        "const all = [...document.querySelectorAll('.card')];"
        "return all.filter(e => top(e) == top(all[0])).length"
    )
    assert after(keys.ARROW_RIGHT) == ["2", "250"]
    assert after(keys.ARROW_DOWN) == [str(2 + columns), "250"]
    assert after(keys.END) == ["250", "250"]
    seen = page.run("return document.activeElement.getBoundingClientRect().toJSON()")
    assert 0 < seen["top"] < seen["bottom"] <= page.run("return innerHeight")
    assert 0 < page.run(f"return {count}") < 60
    order = page.run("return [...document.querySelectorAll('.card')].map(e => +e.ariaPosInSet)")
    assert order == sorted(order)
    # The focus stays on a card that is scrolled away, and goes to the next one if it is removed.
    page.run("scrollTo(0, 0)")
    page.wait("document.querySelector('.card').ariaPosInSet == 1")
    assert page.run(place) == ["250", "250"]
    assert after(keys.DELETE) in (["250", "250"], ["249", "249"])
    page.wait("document.activeElement.ariaPosInSet == 249")
    assert after(keys.HOME) == ["1", "249"]
    # By name.
    page.driver.find_element("id", "search").send_keys("99")
    names = "[...document.querySelectorAll('.name')].map(e => e.textContent)"
    page.wait(f"{names}.join() == '99.txt,199.txt'")
