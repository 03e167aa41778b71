"""The output of `waifu2x info`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image, ImageCms, PngImagePlugin

from waifu2x.cli import cli
from waifu2x.cli.commands import info as command


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
    assert result.stdout == "a.png: PNG, 5x6, 8-bit grey; enlarged 2x: 10x12\n"
    assert result.stderr.splitlines()[0].startswith("b.png: not a ")
    assert result.stderr.splitlines()[1].startswith("c.png: cannot read")


@pytest.mark.parametrize("name", ["a.png", "a.gif", "a.bmp", "a.tif", "a.pcx"])
def test_a_palette_is_said_to_be_one(name: str) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
    Image.fromarray(colours).quantize(16).save(name)
    row = json.loads(info("--json", name).stdout)
    assert (row["colours"], row["palette"], row["bits"]) == ("RGB", True, 8)
    assert ", 7x6, 8-bit RGB from a palette" in info(name).stdout
    Image.fromarray(colours).save("plain.png")
    assert json.loads(info("--json", "plain.png").stdout)["palette"] is False


def test_a_palette_of_an_animation() -> None:
    frames = [Image.new("P", (4, 3), colour) for colour in (1, 2)]
    for frame in frames:
        frame.putpalette([0, 0, 0, 250, 0, 0, 0, 0, 250])
    frames[0].save("a.gif", save_all=True, append_images=frames[1:], duration=50)
    row = json.loads(info("--json", "a.gif").stdout)
    assert (row["palette"], row["pictures"]) == (True, 2)


def test_what_becomes_of_a_jpeg() -> None:
    image = Image.effect_noise((40, 20), 60).convert("RGB")
    for quality, said in ((40, "level 2"), (75, "level 1"), (98, "no noise removal")):
        image.save("a.jpg", quality=quality)
        text = info("a.jpg").stdout
        assert f"quality {quality} (4:2:0)" in text
        assert "enlarged 2x: 80x40" in text
        assert f"-n auto: {said}" in text
    row = json.loads(info("--json", "a.jpg").stdout)
    assert (row["enlarged"], row["noise_level"], row["jpeg"]["quality"]) == ([80, 40], None, 98)


def test_archives() -> None:
    with zipfile.ZipFile("book.cbz", "w") as book:
        for name in ("1.png", "2.jpg", "about.xml"):
            book.writestr(name, b"")
    assert info("book.cbz").stdout == "book.cbz: archive, 2 pictures\n"
    assert json.loads(info("--json", "book.cbz").stdout)["pictures"] == 2
    Path("bad.cbz").write_bytes(b"no archive")
    result = info("bad.cbz", "gone.zip")
    assert result.stderr.splitlines() == [
        "bad.cbz: not an archive, or damaged: File is not a zip file",
        "gone.zip: cannot read: no such file or directory",
    ]


def test_a_line_goes_on_indented_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("Title", "A sprite")
    Image.new("RGBA", (9, 9)).save("a.png", pnginfo=text, dpi=(300, 300))
    monkeypatch.setenv("COLUMNS", "60")
    plain = info("a.png").stdout
    assert plain.count("\n") == 1
    monkeypatch.setattr(command, "_is_terminal", lambda: True)
    lines = info("a.png").stdout.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("    ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == plain.strip()
