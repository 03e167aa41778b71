"""Films on the page, from the drop to the file."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'waifu2x-kernels[serve]'")
pytest.importorskip("av", reason="pip install 'waifu2x-kernels[video]'")
import av

from tests.helpers import films
from tests.helpers.browsers import Window
from tests.helpers.pages import CARD, COLUMNS, ROWS, choose, drop, press, saved, until
from tests.helpers.servers import Server

pytestmark = pytest.mark.matrix
PIXELS = (
    "const pane = document.querySelectorAll('#stage .pane')[arguments[0]];"
    "const image = pane.querySelector('img');"
    "const canvas = document.createElement('canvas');"
    "[canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];"
    "canvas.getContext('2d').drawImage(image, 0, 0);"
    "return canvas.toDataURL('image/png').split(',')[1]"
)
"""The picture of a pane, as a PNG in base64."""


def seen(page: Window, pane: int) -> Any:
    """Returns the picture of a pane, in its original size."""
    with Image.open(io.BytesIO(base64.b64decode(page.run(PIXELS, pane)))) as shown:
        return np.asarray(shown.convert("RGB"))


def frames_of(film: Any) -> list[Any]:
    """Returns the frames of a file, as the library that reads it converts them."""
    with av.open(film) as opened:
        return [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]


def turned_to(page: Window, number: int) -> None:
    """Moves the slider of frames, and waits for the frame of that number, from 1."""
    before = "[...document.querySelectorAll('#stage img')].map(each => each.src).join()"
    addresses = page.run(f"return {before}")
    page.run(
        "const slide = document.getElementById('page-slide');"
        "slide.value = arguments[0]; slide.dispatchEvent(new Event('input'))",
        number,
    )
    page.wait(
        f"document.getElementById('stage').ariaBusy == 'false' && {before} != arguments[0]",
        addresses,
    )
    assert page.run("return document.getElementById('page').value") == str(number)


def test_a_film_from_drop_to_file(
    page: Window, page_server: Server, downloads: Path, tmp_path: Path
) -> None:
    count = 50
    films.film(
        tmp_path / "in.mkv",
        container="matroska",
        codec="ffv1",
        times=range(0, 40 * count, 40),
        size=(ROWS, COLUMNS),
    )
    sources = frames_of(tmp_path / "in.mkv")
    choose(page, "tta", "8")  # so that it takes a while
    drop(page, tmp_path / "in.mkv")
    until(page, "working", "in.mkv")
    card = f"({CARD})"
    about = page.run(f"return {card}.querySelector('.about-file').textContent", "in.mkv")
    assert f"{COLUMNS}x{ROWS} MKV" in about
    assert f"{count} frames" in about
    page.wait(f"{card}.querySelector('img').naturalWidth > 0", "in.mkv")
    page.wait(f"/ of {count} frames/.test({card}.querySelector('.line').textContent)", "in.mkv")
    page.wait(f"{card}.querySelector('progress').value > 0", "in.mkv")
    page.keep("working")

    # Frames are seen while it is worked on.
    press(page, "compare", "in.mkv")
    page.wait("document.querySelectorAll('#stage .pane').length == 1")
    assert page.run("return document.getElementById('pages').textContent") == f"of {count}"
    for number in (41, 1, count):
        turned_to(page, number)
        assert np.abs(seen(page, 0).astype(int) - sources[number - 1]).mean() < 4
    page.keep("frame")
    page.driver.find_element("id", "close").click()

    press(page, "cancel", "in.mkv")
    until(page, "cancelled", "in.mkv")
    choose(page, "tta", "1")
    page.run("document.getElementById('film-settings').open = true")
    choose(page, "film_model", "upconv_7/photo")
    choose(page, "film_codec", "ffv1")
    page.keep("settings")
    press(page, "redo", "in.mkv")
    until(page, "done", "in.mkv")
    press(page, "compare", "in.mkv")
    page.wait("document.querySelectorAll('#stage .pane').length == 2")
    turned_to(page, 33)
    before, after = seen(page, 0), seen(page, 1)
    assert after.shape == (2 * ROWS, 2 * COLUMNS, 3)
    small = np.asarray(Image.fromarray(after).resize((COLUMNS, ROWS), Image.Resampling.BOX))
    assert np.abs(small.astype(int) - before).mean() < 8
    assert np.abs(before.astype(int) - sources[32]).mean() < 4
    page.keep("compare")
    page.driver.find_element("id", "viewer-download").click()
    line = page_server.ask("GET", "/api/jobs").data["jobs"][0]["command"]
    assert line == "waifu2x video -m upconv_7/photo -c ffv1 in.mkv in-2x.mkv"
    made = saved(downloads, "in-2x.mkv")
    with av.open(io.BytesIO(made)) as opened:
        assert opened.streams.video[0].codec_context.name == "ffv1"
    frames = frames_of(io.BytesIO(made))
    assert len(frames) == count
    assert np.abs(frames[32].astype(int) - after).mean() < 2
