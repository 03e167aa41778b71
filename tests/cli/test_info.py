"""What `waifu2x info` says of files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image, ImageCms, PngImagePlugin

from waifu2x.cli import cli


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def info(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["info", *arguments])


def test_a_photo() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lying on its side
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = Image.new("RGB", (30, 20))
    image.save("a.jpg", exif=exif, icc_profile=profile, dpi=(300, 300))
    row = json.loads(info("--json", "a.jpg").stdout)
    assert (row["format"], row["width"], row["height"]) == ("JPEG", 20, 30)
    assert (row["colours"], row["bits"], row["transparent"]) == ("RGB", 8, False)
    assert "sRGB" in row["profile"]
    assert {"EXIF", "resolution"} <= set(row["metadata"])
    assert "profile" in row["kept"]
    assert "a.jpg: JPEG, 20x30, 8-bit RGB; quality 75 (4:2:0); profile sRGB" in info("a.jpg").stdout


def test_a_sprite() -> None:
    pixels = np.zeros((8, 9, 2), np.uint8)
    pixels[2:4, 2:4] = 255
    text = PngImagePlugin.PngInfo()
    text.add_text("Title", "A sprite")
    Image.fromarray(pixels).save("a.png", pnginfo=text)
    for extension, key in (("png", "kept"), ("jpg", "lost")):
        row = json.loads(info("--json", "-f", extension, "a.png").stdout)
        assert (row["colours"], row["transparent"]) == ("grey", True)
        assert row["metadata"] == ["text"]
        assert "transparency" in row[key]


def test_one_bad_file_does_not_hide_the_others() -> None:
    Image.new("L", (5, 6)).save("a.png")
    Path("b.png").write_bytes(b"no picture")
    result = info("b.png", "a.png", "c.png")
    assert result.exit_code == 1
    assert result.stdout == "a.png: PNG, 5x6, 8-bit grey\n"
    assert result.stderr.splitlines()[0].startswith("b.png: not a ")
    assert result.stderr.splitlines()[1].startswith("c.png: cannot read")
