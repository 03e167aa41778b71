"""The table of formats is true, and what it says a format lacks never goes without a line."""

from __future__ import annotations

from pathlib import Path

import imagecodecs
import numpy as np
import pytest

from tests.formats.test_metadata import SAID
from tests.helpers.contents import Frames, adapt, decode_all, encode, noise, ramp
from waifu2x.formats import table
from waifu2x.formats.description import describe
from waifu2x.formats.table import Format, OutputOptions
from waifu2x.imaging.picture import Colours, Picture

WRITABLE = tuple(form for form in table.FORMATS if form.writable)
EVERYWHERE = pytest.mark.parametrize("form", WRITABLE, ids=lambda form: form.extensions[0])
WIDE = imagecodecs.cms_profile("adobergb")
TOLD = {"transparency": "holds no transparency", "profile": "holds no colour profile"}
"""Notices by what is lost; the others have its name."""


@pytest.fixture(autouse=True)
def plugin(form: Format) -> None:
    if form.plugin is not None:
        pytest.importorskip(form.plugin[0])


def back(picture: Picture, form: Format) -> tuple[Picture, list[str]]:
    """A picture as its file gives it again, and what was said of it."""
    _, notices = adapt(Frames((picture,)), form, OutputOptions())
    return decode_all(encode(picture, form.extensions[0])).pictures[0], notices


@EVERYWHERE
def test_transparency(form: Format) -> None:
    opacity = np.repeat(np.arange(33) % 2 * 255, 24).reshape(33, 24).T.astype(np.uint8)
    found, notices = back(Picture(ramp(3), opacity), form)
    assert found.transparent == form.alpha
    assert any("transparency" in notice for notice in notices) != form.alpha


@EVERYWHERE
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_depths(form: Format, bits: int) -> None:
    samples = noise(24, 33, 3).astype(np.float32) / 255 if bits == 32 else None
    if samples is None:
        samples = noise(24, 33, 3, dtype=np.uint8 if bits == 8 else np.uint16)
    found, notices = back(Picture(samples), form)
    held = max(depth for depth in form.depths if depth <= bits)
    assert found.depth == held
    assert any("bits a sample" in notice for notice in notices) == (held < bits)


@EVERYWHERE
def test_grey(form: Format) -> None:
    found, _ = back(Picture(ramp(1)), form)
    assert found.pixels.shape[-1] == (1 if form.grey else 3)


@EVERYWHERE
@pytest.mark.parametrize("kind", ["animation", "pages"])
def test_several_pictures(form: Format, kind: str) -> None:
    pictures = Picture(ramp(3)), Picture(ramp(3)[::-1].copy())
    frames = Frames(pictures, (100.0, 200.0) if kind == "animation" else ())
    kept, notices = adapt(frames, form, OutputOptions())
    # An animation becomes pages, but not the other way round.
    assert len(kept.pictures) == (2 if form.frames in ("pages", kind) else 1)
    told = [notice for notice in notices if "colours a picture" not in notice]
    assert bool(told) == (form.frames != kind)
    if form.frames in ("pages", kind):
        found = decode_all(encode(frames, form.extensions[0]))
        assert len(found.pictures) == 2
        assert bool(found.durations) == (form.frames == "animation")


@EVERYWHERE
def test_a_loss_is_said_as_info_says_it(form: Format, tmp_path: Path) -> None:
    """A file with all of it at once."""
    pixels = noise(24, 33, 3, dtype=np.uint16)
    opacity = noise(24, 33, seed=1, dtype=np.uint16)
    picture = Picture(pixels, opacity, Colours(WIDE), SAID)
    path = tmp_path / "a.png"
    path.write_bytes(encode(picture, "png"))
    found = describe(path, form.extensions[0])
    assert {"EXIF", "XMP", "IPTC", "resolution", "text", "profile", "transparency", "16 bits"} == {
        *found.kept,
        *found.lost,
    }
    (read,) = decode_all(path.read_bytes()).pictures
    _, notices = adapt(Frames((read,)), form, OutputOptions())
    told = " and ".join(notices)
    for kind in found.lost:
        assert TOLD.get(kind, kind.removesuffix(" bits")) in told
    result = tmp_path / f"b.{form.extensions[0]}"
    result.write_bytes(encode(read, form.extensions[0]))
    again = describe(result, form.extensions[0])
    assert {*found.kept} <= {*again.kept}
