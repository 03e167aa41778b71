"""The page of `waifu2x serve` in a real browser, in front of a real server."""

from __future__ import annotations

import io
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.helpers.browsers import Window, axe_core, chromium
from tests.helpers.contents import noise
from tests.helpers.servers import Server

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytestmark = pytest.mark.matrix
FAST = "upconv_7/art"
"""NumPy computes it in a blink where a picture is tiny."""
HOSTILE = "<img src=x onerror=alert(1)>\"'&.png"
CARD = "[...document.querySelectorAll('.card')].find(e => e.card.job.name == arguments[0])"
STATE = f"({CARD})?.dataset.state"
SLIDE = (
    "const slider = document.getElementById('slider');"
    "slider.value = arguments[0]; slider.dispatchEvent(new Event('input'))"
)
COLUMNS, ROWS = 48, 32


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that compiles nothing."""
    with Server(tmp_path_factory.mktemp("cache")) as running:
        yield running


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the browser saves what is downloaded."""
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Any]:
    """Its driver."""
    with chromium(downloads) as driver:
        yield driver


@pytest.fixture
def page(request: pytest.FixtureRequest, server: Server, browser: Any) -> Iterator[Window]:
    """The page with an empty queue, and settings as at first."""
    clear(server)
    window = Window(browser, request.node.name.removeprefix("test_"))
    window.screen(1280, 900, False)
    browser.get("about:blank")
    opened(window, server)
    window.run("sessionStorage.removeItem('waifu2x-settings')")
    window.run("sessionStorage.removeItem('waifu2x-compared')")
    browser.refresh()
    choose(window, "model", FAST)
    yield window
    complaints = [each["message"] for each in browser.get_log("browser")]
    # A browser says itself that a server is away, or that it goes away.
    away = ("ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED")
    assert [each for each in complaints if not any(word in each for word in away)] == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    return axe_core(tmp_path_factory.mktemp("axe"))


def opened(window: Window, server: Server) -> None:
    """Goes to the address that the server printed."""
    window.driver.get(server.address)
    window.wait("document.getElementById('model').options.length")


def jobs_of(server: Server) -> list[dict[str, Any]]:
    """The first jobs that it has."""
    listed: list[dict[str, Any]] = server.ask("GET", "/api/jobs").data["jobs"]
    return listed


def result_of(server: Server, job: dict[str, Any]) -> bytes:
    """The file that was made."""
    return server.ask("GET", f"/api/jobs/{job['id']}/result").body


def clear(server: Server) -> None:
    """Removes all jobs."""
    while found := jobs_of(server):
        for job in found:
            server.ask("DELETE", f"/api/jobs/{job['id']}")


def choose(window: Window, name: str, value: str) -> None:
    """Chooses a value in the settings."""
    window.wait("document.getElementById('model').options.length")
    window.run(
        "const field = document.getElementById('settings').elements[arguments[0]];"
        "field.value = arguments[1];"
        "document.getElementById('settings').dispatchEvent(new Event('input', {bubbles: true}))",
        name,
        value,
    )


def picture(path: Path, seed: int = 0, columns: int = COLUMNS, rows: int = ROWS) -> Path:
    """A picture of noise, whose pixels are all different."""
    Image.fromarray(noise(rows, columns, 3, seed=seed)).save(path)
    return path


def drop(window: Window, *paths: Path) -> None:
    """Drops files from outside onto the page, as a hand does."""
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": 700, "y": 300, "data": data}
        window.driver.execute_cdp_cmd("Input.dispatchDragEvent", event)


def press(window: Window, action: str, name: str) -> None:
    """Presses a button of a card, as a hand does."""
    button = f"({CARD})?.querySelector('[data-action={action}]:not([hidden])')"
    window.wait(button, name).click()


def until(window: Window, state: str, *names: str) -> None:
    """Waits until the cards of these names are in that state."""
    for name in names:
        window.wait(f"{STATE} == '{state}'", name)


def saved(folder: Path, name: str) -> bytes:
    """What the browser has saved under that name."""
    end = time.monotonic() + 60
    while not (folder / name).exists():
        assert time.monotonic() < end, [path.name for path in folder.iterdir()]
        time.sleep(0.02)
    return (folder / name).read_bytes()


def look(window: Window, name: str) -> None:
    """Opens the view of a picture that is done."""
    press(window, "compare", name)
    window.wait("document.querySelectorAll('#stage .pane').length == 2")


def test_dropped_pictures_become_cards_with_progress(
    page: Window, server: Server, tmp_path: Path
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
    assert [job["name"] for job in jobs_of(server)] == names
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


def test_settings_are_those_of_the_command(page: Window, server: Server, tmp_path: Path) -> None:
    command = "return document.getElementById('command').textContent.replace(/IN$/, 'in.png')"
    assert page.run(command) == f"waifu2x upscale -m {FAST} in.png"
    about = page.run("return document.getElementById('about-model').innerText")
    assert "drawings, quickly" in about
    assert "MIT" in about
    for name, value in (
        ("noise", "1"), ("size", "times"), ("scale", "4/3"), ("tta", "2"), ("format", "jpg"),
        ("qualityKind", "number"), ("quality", "70"), ("depth", "8"),
    ):  # fmt: skip
        choose(page, name, value)
    page.keep("chosen")
    drop(page, picture(tmp_path / "in.png"))
    until(page, "done", "in.png")
    (job,) = jobs_of(server)
    assert job["command"] == page.run(command)
    assert (job["result"]["width"], job["result"]["format"]) == (COLUMNS * 4 // 3, "jpg")
    # They outlive a reload; a job that is done is made again with what is chosen then.
    page.driver.refresh()
    page.wait("document.getElementById('command').textContent")
    assert page.run(command) == job["command"]
    choose(page, "size", "pixels")
    choose(page, "width", "60")
    choose(page, "tta", "1")
    choose(page, "format", "")
    choose(page, "depth", "auto")
    choose(page, "noise", "none")
    press(page, "redo", "in.png")
    page.wait(f"({CARD})?.card.job.result?.width == 60", "in.png")
    (again,) = jobs_of(server)
    assert again["id"] == job["id"]
    assert (
        again["command"]
        == page.run(command)
        == f"waifu2x upscale -m {FAST} -n none --width 60 in.png"
    )


def test_slider_zoom_and_pan(page: Window, server: Server, tmp_path: Path) -> None:
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
    job = next(job for job in jobs_of(server) if job["name"] == "one.png")
    with Image.open(io.BytesIO(result_of(server, job))) as result:
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


def test_a_crop_by_three_models_before_the_whole(
    page: Window, server: Server, tmp_path: Path
) -> None:
    slow = picture(tmp_path / "slow.png", 1, 400, 300)
    drop(page, slow)
    until(page, "working", "slow.png")
    press(page, "compare", "slow.png")
    page.wait("document.querySelectorAll('#stage .pane').length == 1")
    for _ in range(12):
        page.driver.find_element("id", "zoom-in").click()
    page.run("sessionStorage.setItem('waifu2x-compared', '[]')")
    chosen = [FAST, "upconv_7/photo", "cunet/art"]
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
    # What lies on the source is what was seen of it, twice as fine.
    places = (
        "return [...document.querySelectorAll('.pane')].slice(1).map(e => {"
        "const [a, b] = e.querySelectorAll('img');"
        "const [p, q, r] = [a, b, e].map(i => i.getBoundingClientRect());"
        "return [b.naturalWidth, q.width / p.width * a.naturalWidth, q.left <= r.left + 1,"
        " q.right >= r.right - 1]})"
    )
    for natural, columns, covers_left, covers_right in page.run(places):
        assert natural == pytest.approx(2 * columns)
        assert columns < 400
        assert (covers_left, covers_right) == (True, True)
    assert jobs_of(server)[0]["state"] == "working"
    page.driver.find_element("id", "close").click()
    press(page, "cancel", "slow.png")
    until(page, "cancelled", "slow.png")


def test_cancel_retry_remove(page: Window, server: Server, tmp_path: Path) -> None:
    (tmp_path / HOSTILE).write_text("no picture")
    wide = picture(tmp_path / "wide.png", 1, 9000, 1)
    slow = picture(tmp_path / "slow.png", 2, 400, 300)
    choose(page, "format", "webp")
    drop(page, tmp_path / HOSTILE, wide, slow, picture(tmp_path / "waits.png"))
    until(page, "failed", HOSTILE, "wide.png")
    # Names and sentences are text, whatever they look like.
    assert page.run(f"return ({CARD}).querySelector('.name').textContent", HOSTILE) == HOSTILE
    error = next(job["error"] for job in jobs_of(server) if job["name"] == HOSTILE)
    assert page.run(f"return ({CARD}).querySelector('.line').title", HOSTILE) == error
    said = page.run(f"return ({CARD}).querySelector('.line').textContent", HOSTILE)
    assert f"{HOSTILE}: {said}" == error
    assert page.run("return document.querySelectorAll('img[src=x]').length") == 0
    page.keep("failed")
    press(page, "cancel", "waits.png")
    until(page, "cancelled", "waits.png")
    press(page, "cancel", "slow.png")
    until(page, "cancelled", "slow.png")
    # Again as it was: it fails again. Again in another format: WebP alone is too narrow.
    version = next(job["version"] for job in jobs_of(server) if job["name"] == "wide.png")
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
    page.driver.find_element("id", "selected-remove").click()
    page.wait("document.getElementById('list').hidden")
    assert jobs_of(server) == []


def test_download_one_and_all(
    page: Window, server: Server, downloads: Path, tmp_path: Path
) -> None:
    drop(page, picture(tmp_path / "one.png"), picture(tmp_path / "two.png", 1))
    until(page, "done", "one.png", "two.png")
    results = {job["result"]["name"]: result_of(server, job) for job in jobs_of(server)}
    press(page, "download", "one.png")
    assert saved(downloads, "one-2x.png") == results["one-2x.png"]
    page.driver.find_element("id", "download-all").click()
    with zipfile.ZipFile(io.BytesIO(saved(downloads, "waifu2x.zip"))) as packed:
        assert sorted(map(packed.read, packed.namelist())) == sorted(results.values())


def test_a_folder_and_a_reload_and_a_second_window(
    page: Window, server: Server, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    slow = picture(tree / "slow.png", 2, 400, 300)
    picture(tree / "deep/inner.png", 1)
    shutil.copy(slow, tree / "deep/er/last.png")
    (tree / "deep/read me.txt").write_text("no picture")
    drop(page, tree)
    page.wait("document.querySelectorAll('.card').length == 3")
    told = "1 file passed over: not pictures by their names."
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
        opened(page, server)
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


def test_pages_that_were_left_keep_no_connection(page: Window, server: Server) -> None:
    # A browser keeps some of them for the way back; it has six connections for a server.
    for _ in range(7):
        page.driver.get("about:blank")
        page.driver.get(server.address)
        # Before the browser forgets the oldest of them, after 40 s.
        page.wait("document.getElementById('model').options.length", seconds=30)
    page.driver.get("about:blank")
    sent = server.send("meanwhile.txt", b"no picture")
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


def test_without_its_key_the_page_says_so(page: Window, server: Server) -> None:
    page.run("sessionStorage.clear()")
    page.driver.get(server.address.split("#")[0])
    page.wait("document.getElementById('offline').textContent.includes('open the address')")
    page.keep("no-key")


def test_many_cards_by_keyboard(page: Window, server: Server) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    for number in range(250):
        server.send(f"{number}.txt", b"no picture")
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
    page.driver.find_element("id", "search").send_keys("24")
    names = "[...document.querySelectorAll('.name')].map(e => e.textContent)"
    found = page.wait(f"{names}.every(name => name.includes('24')) && {names}")
    assert sorted(found) == sorted(f"{n}.txt" for n in range(249) if "24" in str(n))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nobody_is_kept_out(
    page: Window, server: Server, axe: str, dark: bool, tmp_path: Path
) -> None:
    page.screen(1280, 900, dark)
    assert page.faults(axe) == {}
    server.send("bad.png", b"no picture")
    drop(page, picture(tmp_path / "one.png"))
    until(page, "done", "one.png")
    for size in ((360, 740), (1280, 900), (2560, 1440)):
        page.screen(*size, dark)
        page.wait(f"innerWidth == {size[0]}")
        assert page.fits()
        page.keep(f"{size[0]}-list")
        assert page.faults(axe) == {}
        look(page, "one.png")
        assert page.fits()
        assert page.run(
            "const v = document.getElementById('viewer'); return v.scrollWidth <= v.clientWidth"
        )
        page.keep(f"{size[0]}-view")
        assert page.faults(axe) == {}
        page.driver.find_element("id", "close").click()
    level = page.run("return getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, level.removeprefix("rgb(").removesuffix(")").split(","))) < 200) == dark
