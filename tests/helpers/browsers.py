"""Debian's chromium, headless, for tests of pages; and axe-core, which looks for what keeps people
out of them. Tests skip where they are missing.

WAIFU2X_SCREENSHOTS=FOLDER keeps pictures of what was seen, to be looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Window(NamedTuple):
    """A page in a browser."""

    driver: Any
    name: str
    """For names of screenshots."""

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object, seconds: float = 60) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + seconds
        while not (found := self.run(f"return {script}", *arguments)):
            assert time.monotonic() < end, script
            time.sleep(0.02)
        return found

    def settle(self) -> None:
        """Until what was asked for has been drawn."""
        self.run("return new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def keep(self, what: str) -> None:
        """A screenshot, if they are wanted."""
        folder = os.environ.get("WAIFU2X_SCREENSHOTS")
        if folder:
            self.driver.save_screenshot(str(Path(folder) / f"{self.name}-{what}.png"))

    def screen(self, width: int, height: int, dark: bool) -> None:
        """Gives the browser a screen of that size; phones are narrow."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = {"media": "", "features": [scheme]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def fits(self) -> bool:
        """Whether nothing is wider than the screen."""
        fitting: bool = self.run(
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
        return fitting

    def faults(self, axe: str) -> dict[str, list[str]]:
        """The faults that axe-core finds: for each rule, the beginnings of the elements."""
        # By the driver: the page itself lets no script in.
        found = self.driver.execute_async_script(
            axe + "; const done = arguments[0]; axe.run().then(done, e => done(String(e)));"
        )
        assert isinstance(found, dict), found
        assert len(found["passes"]) > 10
        return {
            each["id"]: [node["html"][:200] for node in each["nodes"]]
            for each in found["violations"]
        }


@contextmanager
def chromium(downloads: Path | None = None) -> Iterator[Any]:
    """A driver of a browser, which saves what is downloaded into a folder."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--force-color-profile=srgb")
    if downloads is not None:
        preferences = {
            "download.default_directory": str(downloads),
            # Nobody is there to allow a second one.
            "profile.default_content_setting_values.automatic_downloads": 1,
        }
        options.add_experimental_option("prefs", preferences)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=service.Service(programs[1]))
    try:
        yield driver
    finally:
        driver.quit()


def axe_core(folder: Path) -> str:
    """The source of axe-core, installed into a folder."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("apt-get install npm")
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "axe-core@4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"axe-core cannot be installed: {done.stderr.strip()[-200:]}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()
