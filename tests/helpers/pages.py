"""The page of `waifu2x serve` as a hand uses it: drops, presses, and waits for what is shown."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.helpers.browsers import Window
from tests.helpers.contents import encode, noise
from tests.helpers.servers import Server
from waifu2x.imaging.picture import Picture

FAST = "upconv_7/art"
"""NumPy computes it in a blink where a picture is tiny."""
CARD = "[...document.querySelectorAll('.card')].find(e => e.card.job.name == arguments[0])"
"""The card of a file, by its name."""
STATE = f"({CARD})?.dataset.state"
SLIDE = (
    "const slider = document.getElementById('slider');"
    "slider.value = arguments[0]; slider.dispatchEvent(new Event('input'))"
)
"""Moves the border between before and after."""
COLUMNS, ROWS = 48, 32
SLOW = 1200, 900
"""Columns and rows of a picture that takes NumPy long enough to be looked at meanwhile."""


def opened(window: Window, server: Server) -> None:
    """Goes to the address that the server printed."""
    window.driver.get(server.address)
    window.wait("document.getElementById('model').options.length")


def jobs_of(server: Server) -> list[dict[str, Any]]:
    """The first jobs that it has, in the order of its list."""
    jobs: list[dict[str, Any]] = server.ask("GET", "/api/jobs").data["jobs"]
    return sorted(jobs, key=lambda job: int(job["number"]))


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
        "const told = field.tagName ? field : field[0];"  # buttons of one name are a list
        "told.dispatchEvent(new Event('input', {bubbles: true}))",
        name,
        value,
    )


def picture(path: Path, seed: int = 0, columns: int = COLUMNS, rows: int = ROWS) -> Path:
    """A picture of noise, whose pixels are all different."""
    Image.fromarray(noise(rows, columns, 3, seed=seed)).save(path)
    return path


def archive(count: int) -> bytes:
    """A ZIP archive of `count` pages."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for number in range(count):
            packed.writestr(f"{number}.png", encode(Picture(noise(24, 24, 3, seed=number)), "png"))
    return file.getvalue()


def drop(window: Window, *paths: Path) -> None:
    """Drops files from outside onto the page, as a hand does."""
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": 200, "y": 300, "data": data}
        window.driver.execute_cdp_cmd("Input.dispatchDragEvent", event)


def press(window: Window, action: str, name: str) -> None:
    """Presses a button of a card, as a hand does."""
    button = f"({CARD})?.querySelector('[data-action={action}]:not([hidden])')"
    errors = pytest.importorskip("selenium.common.exceptions")
    while True:
        try:
            window.wait(button, name).click()
            return
        except (errors.StaleElementReferenceException, errors.ElementClickInterceptedException):
            pass  # the list was drawn anew, or moved, between the look and the press


def until(window: Window, state: str, *names: str) -> None:
    """Waits until the cards of these names are in that state."""
    for name in names:
        window.wait(f"{STATE} == '{state}'", name)


def saved(folder: Path, name: str) -> bytes:
    """The file that the browser has saved under that name."""
    end = time.monotonic() + 60
    while not (folder / name).exists():
        assert time.monotonic() < end, [path.name for path in folder.iterdir()]
        time.sleep(0.02)
    return (folder / name).read_bytes()


def look(window: Window, name: str) -> None:
    """Opens the view of a picture that is done."""
    press(window, "compare", name)
    window.wait("document.querySelectorAll('#stage .pane').length == 2")
