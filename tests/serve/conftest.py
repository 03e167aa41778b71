"""A server and a browser that has its page open, for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import pages
from tests.helpers.browsers import Window, axe_core, chromium
from tests.helpers.servers import Server


@pytest.fixture(scope="module")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs a server that compiles nothing."""
    with Server(tmp_path_factory.mktemp("cache")) as running:
        yield running


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder where the browser saves downloads."""
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Any]:
    """Its driver."""
    with chromium(downloads) as driver:
        yield driver


@pytest.fixture
def page(request: pytest.FixtureRequest, page_server: Server, browser: Any) -> Iterator[Window]:
    """Opens the page with an empty queue and default settings."""
    window = Window(browser, request.node.name.removeprefix("test_"))
    window.screen(1280, 900, False)
    browser.get("about:blank")
    pages.clear(page_server)
    pages.opened(window, page_server)
    window.run("sessionStorage.removeItem('waifu2x-settings')")
    window.run("sessionStorage.removeItem('waifu2x-compared')")
    browser.refresh()
    pages.choose(window, "model", pages.FAST)
    yield window
    complaints = [each["message"] for each in browser.get_log("browser")]
    # A browser says itself that a server is away.
    assert [each for each in complaints if "ERR_CONNECTION" not in each] == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the source of axe-core."""
    return axe_core(tmp_path_factory.mktemp("axe"))
