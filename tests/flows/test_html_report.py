"""A report on a batch shows its pictures in order, with details and settings."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.contents import identity_models, noise
from tests.helpers.outcomes import done
from waifu2x.cli import cli
from waifu2x.flows.batch.html_report import HtmlReport, preview_side
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.preview import Preview, preview, previews
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sizes import Part


def made_of(name: str, *shown: Preview) -> Outcome:
    return done(Job(Path(name), Path("out") / name), 0.5, 4, 6, previews=shown)


def opened(jpeg: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(jpeg)) as image:
        return np.asarray(image)


def test_pictures_and_pages_are_in_order_of_their_names(tmp_path: Path) -> None:
    page = HtmlReport(tmp_path / "page.html", "a title")
    small = preview(Picture(noise(4, 6, 3)), 480)
    for name in ("page10.png", "Page2.png", "b.png"):
        page.add(made_of(name, small))
    page.add(made_of("c.cbz", *(small._replace(name=f"{number}.png") for number in (9, 10, 11))))
    page.add(made_of("a.png"))  # a page without a picture
    page.finish(["all is well"], [])
    text = (tmp_path / "page.html").read_text()
    names = re.findall(r'<bdi class="name">(.*?)</bdi>', text)
    assert names == ["a.png", "b.png", "9.png", "10.png", "11.png", "Page2.png", "page10.png"]
    assert text.count('in <a href="') == 3
    assert text.index("all is well") < text.index("a.png")


def test_nothing_but_its_own_script_and_style_may_run(tmp_path: Path) -> None:
    page = HtmlReport(tmp_path / "page.html", "t", [("-m", "<script>evil()</script>")])
    page.finish([], [])
    text = (tmp_path / "page.html").read_text()
    (policy,) = re.findall(r'Security-Policy" content="(.*?)"', text)
    allowed = dict(part.split(maxsplit=1) for part in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "data:"
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[directive] == f"'sha256-{digest}'"
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", text)


def test_a_large_batch_has_small_previews() -> None:
    assert preview_side(None) == preview_side(1) > preview_side(2000) > preview_side(100_000)


def test_details_are_the_same_place_before_and_after() -> None:
    """A source of noise with one place of contrast, doubled by repeating pixels."""
    pixels = np.full((300, 500, 3), 90, np.uint8)
    pixels[200:240, 380:430] = noise(40, 50, 1).repeat(3, axis=-1)
    large = pixels.repeat(2, 0).repeat(2, 1)
    shown = previews(Picture(pixels), Picture(large), Part.of(300, 500), 128)
    assert (shown.height, shown.width) == (600, 1000)
    before, after = opened(shown.before).astype(float), opened(shown.after).astype(float)
    assert before.shape == after.shape == (128, 128, 3)
    # Where the contrast is, and as much of it as can be there.
    assert after.std() > 0.6 * large[400:480, 760:860].std()
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.8


def test_details_of_a_cropped_result_are_of_what_it_shows() -> None:
    """A middle column of a wide source, which is a ramp from left to right."""
    ramp = np.linspace(0, 255, 400).astype(np.uint8)
    pixels = np.broadcast_to(ramp[None, :, None], (100, 400, 3))
    part = Part(Fraction(150), Fraction(0), Fraction(100), Fraction(100))
    result = pixels[:, 150:250].repeat(2, 0).repeat(2, 1)
    shown = previews(Picture(pixels), Picture(result), part, 480)
    before, after = opened(shown.before).astype(float), opened(shown.after).astype(float)
    assert before.shape == after.shape == (200, 200, 3)
    np.testing.assert_allclose(before[50, :, 0], after[50, :, 0], atol=4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 900, 3), (700, 2, 1)])
def test_details_of_pictures_of_any_size(shape: tuple[int, int, int]) -> None:
    pixels = noise(*shape, dtype=np.uint16)
    alpha = noise(*shape[:2], seed=1, dtype=np.uint16)
    result = Picture(pixels.repeat(2, 0).repeat(2, 1), alpha.repeat(2, 0).repeat(2, 1))
    shown = previews(Picture(pixels, alpha), result, Part.of(*shape[:2]), 100)
    size = min(100, 2 * shape[0]), min(100, 2 * shape[1])
    assert opened(shown.before).shape[:2] == opened(shown.after).shape[:2] == size


def test_pages_of_archives_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    Path("in").mkdir()
    with zipfile.ZipFile("in/book.cbz", "w") as book:
        for number, colour in ((2, "red"), (10, "blue")):
            content = io.BytesIO()
            Image.new("RGB", (9, 6), colour).save(content, "PNG")
            book.writestr(f"{number}.png", content.getvalue())
    options = ["-m", "identity", "--backend", "numpy", "-s", "1.5", "--report", "page.html"]
    result = CliRunner().invoke(cli, ["batch", *options, "in", "out"])
    assert result.exit_code == 0, result.output
    text = Path("page.html").read_text()
    assert re.findall(r'<bdi class="name">(.*?)</bdi>', text) == ["2.png", "10.png"]
    found = re.findall(r'alt="(.*?)"[^>]*base64,(.*?)"', text)
    assert [alt for alt, _ in found] == [
        *("Compare 2.png", "2.png, before", "2.png, after"),
        *("Compare 10.png", "10.png, before", "10.png, after"),
    ]
    for (alt, data), levels in zip(found, [(255, 0, 0)] * 3 + [(0, 0, 255)] * 3, strict=True):
        pixels = opened(base64.b64decode(data))
        assert pixels.shape == (9, 14, 3), alt  # 13.5, rounded up
        assert abs(pixels.astype(int) - levels).max() < 8, alt
    said = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert (said["--model"], said["--scale"], said["--backend"]) == ("identity", "1.5", "numpy")
    assert "--report" not in said
