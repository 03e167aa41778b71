"""Animations and pages, frame by frame, and what becomes of transparency."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL
import pytest
import tifffile
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.contents import (
    Frames,
    adapt,
    decode_all,
    encode,
    encoded,
    identity_models,
    noise,
    ramp,
)
from waifu2x.api import Upscaler
from waifu2x.cli import cli
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.flows.upscaling import upscale_file
from waifu2x.formats import table
from waifu2x.formats.pillow.images import from_pil
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.imaging.picture import Picture

ANIMATIONS = ("gif", "png", "webp")
PALETTE = np.array([[0, 0, 0], [255, 0, 0], [0, 200, 0], [10, 20, 250]], np.uint8)
DURATIONS = (70.0, 120.0, 300.0)


def frames_of(count: int, seed: int = 0) -> list[NDArray[np.uint8]]:
    """Pictures of few colours, so that a GIF holds them exactly."""
    return [PALETTE[noise(7, 9, seed=seed + i) % 4] for i in range(count)]


def animation(pictures: Sequence[NDArray[np.uint8]], loop: int = 0, alpha: bool = False) -> Frames:
    def one(pixels: NDArray[np.uint8]) -> Picture:
        opacity = np.where(pixels[..., 0] == 255, 0, 255).astype(np.uint8) if alpha else None
        return Picture(pixels, opacity)

    return Frames(tuple(map(one, pictures)), DURATIONS[: len(pictures)], loop)


def seen(data: bytes) -> list[NDArray[np.uint8]]:
    """Frames as Pillow shows them, RGBA."""
    shown = []
    with Image.open(io.BytesIO(data)) as image:
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            shown.append(np.array(image.convert("RGBA")))
    return shown


@pytest.mark.parametrize("extension", ANIMATIONS)
@pytest.mark.parametrize("loop", [0, 1, 5])
@pytest.mark.parametrize("alpha", [False, True])
def test_animations_come_back(extension: str, loop: int, alpha: bool) -> None:
    pictures = frames_of(3)
    source = animation(pictures, loop, alpha)
    data = encode(source, extension)
    back = decode_all(data, "p")
    assert back.durations == DURATIONS
    assert back.loop == loop
    for frame, picture, shown in zip(back.pictures, source.pictures, seen(data), strict=True):
        opaque = np.ones((7, 9), bool) if picture.alpha is None else picture.alpha > 0
        assert (frame.pixels[opaque] == picture.pixels[opaque]).all()
        assert (shown[..., :3][opaque] == picture.pixels[opaque]).all()
        if alpha:
            assert frame.alpha is not None
            assert (frame.alpha == picture.alpha).all()
            assert (shown[..., 3] == picture.alpha).all()


def test_an_animated_avif() -> None:
    """Which loses something of its pictures, and shows them without end."""
    pictures = [np.full((16, 24, 3), level, np.uint8) for level in (10, 120, 240)]
    back = decode_all(encode(animation(pictures), "avif"), "p")
    assert (back.durations, back.loop) == (DURATIONS, 0)
    for frame, pixels in zip(back.pictures, pictures, strict=True):
        assert abs(frame.pixels.astype(int) - pixels).max() <= 3


def test_apng_is_what_libpng_with_animations_reads() -> None:
    pictures = frames_of(3)
    read = np.asarray(imagecodecs.apng_decode(encode(animation(pictures), "png")))
    assert (read[..., :3] == np.stack(pictures)).all()


def partial_gif() -> tuple[bytes, list[NDArray[np.uint8]]]:
    """Frames that are parts of the picture, one over the other, and disposed of in every way."""
    images = []
    for index in range(4):
        image = Image.new("RGBA", (12, 10))
        image.paste((255, 60 * index, 0, 255), (index * 2, index, index * 2 + 5, index + 4))
        images.append(image)
    data = encoded(images[0], "GIF", save_all=True, append_images=images[1:],
                   disposal=[1, 2, 3, 1], duration=[50, 60, 70, 80], loop=2)  # fmt: skip
    return data, seen(data)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    return tmp_path


def upscale(*arguments: str) -> str:
    """Messages of the program with networks that repeat pixels."""
    command = ["upscale", "-m", "identity", "--backend", "numpy", *arguments]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.parametrize("extension", ANIMATIONS)
def test_every_way_of_disposal(folder: Path, extension: str) -> None:
    data, shown = partial_gif()
    Path("a.gif").write_bytes(data)
    told = upscale("a.gif", f"b.{extension}")
    assert told == ""  # not that GIF holds 256 colours: this one is a GIF
    back = seen(Path(f"b.{extension}").read_bytes())
    assert len(back) == len(shown)
    for found, expected in zip(back, shown, strict=True):
        large = expected.repeat(2, 0).repeat(2, 1)
        visible = large[..., 3] > 0
        assert ((found[..., 3] > 0) == visible).all()
        assert (found[visible] == large[visible]).all()
    result = decode_all(Path(f"b.{extension}").read_bytes(), "p")
    assert (result.durations, result.loop) == ((50.0, 60.0, 70.0, 80.0), 3)


def test_frames_that_repeat_are_computed_once(folder: Path) -> None:
    pictures = frames_of(2)
    order = [pictures[0], pictures[1], pictures[0]]
    Path("a.png").write_bytes(encode(animation(order), "png"))
    calls = []
    with Upscaler(model="identity", backend="numpy") as upscaler:
        whole = upscaler.enlarger.picture

        def counted(picture: Picture, *arguments: Any, **options: Any) -> Picture:
            calls.append(picture)
            return whole(picture, *arguments, **options)

        upscaler.enlarger.picture = counted  # type: ignore[method-assign]
        parts: list[float] = []
        job = Job(Path("a.png"), Path("b.png"))
        output = Output("png", Quality(), "fail")
        upscale_file(job, output, lambda: upscaler.enlarger, WorkOptions(on_progress=parts.append))
    assert len(calls) == 2
    assert sum(parts) == pytest.approx(1)
    back = seen(Path("b.png").read_bytes())
    for found, expected in zip(back, order, strict=True):
        assert (found[..., :3] == expected.repeat(2, 0).repeat(2, 1)).all()


def test_a_picture_for_programs_without_animations_is_left_out() -> None:
    images = [Image.fromarray(pixels) for pixels in frames_of(3)]
    data = encoded(images[0], save_all=True, append_images=images[1:], default_image=True)
    back = decode_all(data, "p")
    assert len(back.pictures) == 2
    assert (back.pictures[0].pixels == np.asarray(images[1])).all()


def test_a_gif_of_one_picture_is_no_animation() -> None:
    back = decode_all(encoded(Image.fromarray(frames_of(1)[0]), "GIF"), "p")
    assert not back.durations
    assert not decode_all(encode(back, "gif"), "p").durations


@pytest.mark.parametrize(
    ("extension", "note"),
    [
        ("jpg", "JPEG holds one picture: only the first of 3 is kept"),
        ("tif", "TIFF holds no timing: the pictures become pages"),
    ],
)
def test_animations_in_other_formats(folder: Path, extension: str, note: str) -> None:
    pictures = frames_of(3)
    Path("a.png").write_bytes(encode(animation(pictures), "png"))
    assert upscale("a.png", f"b.{extension}") == f"a.png: {note}\n"
    result = decode_all(Path(f"b.{extension}").read_bytes(), "p")
    assert len(result.pictures) == (3 if extension == "tif" else 1)


def test_what_a_gif_cannot_hold_of_transparency_is_said(folder: Path) -> None:
    alpha = np.full((6, 6), 255, np.uint8)
    for value, told in (
        (0, ""),
        (100, "a.png: GIF holds pixels that are opaque or clear, none between\n"),
    ):
        alpha[0] = value
        pixels = np.dstack([noise(6, 6, 3), alpha])
        Path("a.png").write_bytes(encoded(Image.fromarray(pixels), "PNG"))
        assert upscale("a.png", "b.gif") == f"a.png: GIF holds 256 colours a picture\n{told}"
        Path("b.gif").unlink()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_pages(folder: Path, dtype: Any) -> None:
    """Pages differ in size and kind, and each has its own; a thumbnail between them is none."""
    pages = [noise(7, 9, 3, dtype=dtype), noise(5, 4, 1, dtype=dtype), noise(6, 6, 3, dtype=dtype)]
    with tifffile.TiffWriter("a.tif") as writer:
        for index, page in enumerate(pages):
            photometric = "rgb" if page.shape[-1] == 3 else "minisblack"
            writer.write(np.squeeze(page, -1) if page.shape[-1] == 1 else page,
                         photometric=photometric, metadata=None,
                         subfiletype=1 if index == 2 else 0)  # fmt: skip
    assert upscale("a.tif", "b.tif") == ""
    assert upscale("a.tif", "b.webp").startswith(
        "a.tif: WebP holds no pages: only the first of 2 is kept"
    )
    with tifffile.TiffFile("b.tif") as file:
        found = [np.atleast_3d(page.asarray()) for page in file.pages]
    assert len(found) == 2
    for page, expected in zip(found, pages, strict=False):
        assert page.dtype == dtype
        assert (page == expected.repeat(2, 0).repeat(2, 1)).all()
    assert "only the first of 2 is kept" in upscale("a.tif", "c.png")


def test_the_largest_of_an_icon(folder: Path) -> None:
    Image.fromarray(noise(32, 32, 4)).save("a.ico", sizes=[(16, 16), (32, 32)])
    upscale("a.ico", "b.png")
    with Image.open("b.png") as image:
        assert image.size == (64, 64)


def icon(side: int) -> bytes:
    """An icon of one picture of 32 bits, as Windows has it: without PNG, the mask behind."""
    pixels = noise(side, side, 4)
    mask = bytes(side * (-(-side // 32) * 4))
    header = struct.pack("<IiiHHIIiiII", 40, side, 2 * side, 1, 32, 0, 0, 0, 0, 0, 0)
    inner = header + pixels[::-1, :, [2, 1, 0, 3]].tobytes() + mask
    entry = struct.pack("<BBBBHHII", side, side, 0, 0, 1, 32, len(inner), 22)
    return b"\0\0\1\0\1\0" + entry + inner


@pytest.mark.parametrize("side", [16, 32, 48, 128])
def test_icons_are_not_taken_for_other_formats(side: int) -> None:
    """Some of their bytes are where a TGA has its depth."""
    (picture,) = decode_all(icon(side), "p").pictures
    expected = noise(side, side, 4)
    assert (picture.pixels == expected[..., :3]).all()
    assert picture.alpha is not None
    assert (picture.alpha == expected[..., 3]).all()


def tga(
    kind: int, name: bytes, palette: bytes, depth: int, samples: bytes, flags: int = 0x28
) -> bytes:
    """A TGA of 2x2 pixels, from the top, with colours of 32 bits in its palette."""
    count = len(palette) // 4
    header = (len(name), int(count > 0), kind, 0, count, 32, 0, 0, 2, 2, depth, flags)
    return struct.pack("<BBBHHBHHHHBB", *header) + name + palette + samples


@pytest.mark.parametrize("name", [b"", b"ten bytes.", b"eleven byte"])
def test_a_tga_with_a_name_in_it(name: bytes) -> None:
    """Its first byte is the length of the name: 10 is how a PCX begins."""
    pixels = noise(2, 2, 3)
    (picture,) = decode_all(tga(2, name, b"", 24, pixels[..., ::-1].tobytes()), "p").pictures
    assert (picture.pixels == pixels).all()


@pytest.mark.skipif(
    int(PIL.__version__.split(".")[0]) < 13, reason="Pillow before 13 refuses such a palette"
)
def test_a_palette_with_transparency_of_a_tga() -> None:
    palette = bytes((1, 2, 3, 255, 40, 50, 60, 128, 7, 8, 9, 0))
    (picture,) = decode_all(tga(1, b"", palette, 8, b"\0\1\2\1"), "p").pictures
    assert picture.alpha is not None
    assert picture.alpha.tolist() == [[255, 128], [0, 128]]
    assert picture.pixels.tolist() == [[[3, 2, 1], [60, 50, 40]], [[9, 8, 7], [60, 50, 40]]]


def test_a_palette_with_transparency() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([1, 2, 3, 4, 5, 6, 7, 200], "RGBA")
    image.putpixel((1, 0), 1)
    alpha = from_pil(image).alpha
    assert alpha is not None
    assert alpha.tolist() == [[4, 200]]


def test_a_gif_is_shown_as_often_as_it_says() -> None:
    """Its number of loops counts what comes after the first time."""
    images = [Image.fromarray(pixels) for pixels in frames_of(2)]
    for options, times in (({}, 1), ({"loop": 0}, 0), ({"loop": 1}, 2), ({"loop": 7}, 8)):
        data = encoded(images[0], "GIF", save_all=True, append_images=images[1:], **options)
        back = decode_all(data, "p")
        assert back.loop == times
        with Image.open(io.BytesIO(encode(back, "gif"))) as image:
            assert image.info.get("loop") == options.get("loop")
        with Image.open(io.BytesIO(encode(back, "png"))) as image:
            assert image.info["loop"] == times


@pytest.mark.parametrize("form", ["PCX", "SGI", "DDS", "TGA", "PPM", "JPEG2000", "BMP", "QOI"])
def test_further_formats_are_read(folder: Path, form: str) -> None:
    extension = {"JPEG2000": "jp2"}.get(form, form.lower())
    pixels = noise(8, 8, 3)
    Path(f"a.{extension}").write_bytes(encoded(Image.fromarray(pixels), form))
    upscale(f"a.{extension}", "b.png")
    with Image.open("b.png") as image:
        assert (np.asarray(image) == pixels.repeat(2, 0).repeat(2, 1)).all()


@pytest.mark.parametrize(
    ("data", "package"),
    [
        (b"\xff\x0a" + bytes(60), "pillow-jxl-plugin"),
        (b"\0\0\0\x18ftypheic" + bytes(60), "pillow-heif"),
    ],
)
def test_a_missing_plugin_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, data: bytes, package: str
) -> None:
    from waifu2x.errors import ImageError, OutputError

    for module in ("pillow_jxl", "pillow_heif"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ImageError, match=rf"needs a plugin; run `pip install {package}`$"):
        decode_all(data, "p")
    extension = "jxl" if "jxl" in package else "heic"
    with pytest.raises(OutputError, match=f"needs a plugin; run `pip install {package}`"):
        encode(Picture(ramp(3)), extension)


# Transparency.


def test_many_colours_in_a_gif() -> None:
    y, x = np.mgrid[0:48, 0:48]
    pixels = np.stack([y * 5, x * 5, y + x], axis=-1).astype(np.uint8)
    alpha = np.full((48, 48), 255, np.uint8)
    alpha[:10] = 100
    back = decode_all(encode(Picture(pixels, alpha), "gif"), "p").pictures[0]
    assert back.alpha is not None
    assert (back.alpha == np.where(alpha < 128, 0, 255)).all()
    visible = alpha == 255
    assert abs(back.pixels[visible].astype(int) - pixels[visible]).mean() < 6


@pytest.mark.parametrize("extension", ["jpg", "bmp", "ppm"])
@pytest.mark.parametrize(("name", "level"), [("white", 255), ("#808080", 128), ("black", 0)])
def test_background(folder: Path, extension: str, name: str, level: int) -> None:
    pixels, alpha = np.full((8, 8, 3), 200, np.uint8), np.zeros((8, 8), np.uint8)
    alpha[:, 4:] = 255
    alpha[:4, 4:] = 51
    Path("a.png").write_bytes(encode(Picture(pixels, alpha), "png"))
    told = upscale("--background", name, "a.png", f"b.{extension}")
    assert "holds no transparency: the picture is composed on #" in told
    assert told.count("\n") == 1
    result = decode_all(Path(f"b.{extension}").read_bytes(), "p").pictures[0].pixels.astype(int)
    assert abs(result[:, :6] - level).max() <= 3
    assert abs(result[:6, 10:] - (200 + 4 * level) / 5).max() <= 3
    assert abs(result[10:, 10:] - 200).max() <= 3


def test_a_grey_picture_on_a_background() -> None:
    grey = Picture(np.full((4, 4, 1), 100, np.uint8), np.zeros((4, 4), np.uint8))
    form = table.of("jpg")
    for background, planes in (((9, 9, 9), 1), ((9, 0, 200), 3)):
        fitted, _ = adapt(Frames((grey,)), form, OutputOptions(background=background))
        assert fitted.pictures[0].pixels.shape == (4, 4, planes)
        assert (fitted.pictures[0].pixels == background[:planes]).all()


def test_wrong_background(folder: Path) -> None:
    Path("a.png").write_bytes(encode(Picture(ramp(3)), "png"))
    result = CliRunner().invoke(cli, ["upscale", "--background", "nocolour", "a.png", "b.jpg"])
    assert result.exit_code == 2
    assert "expected a name like black, or #rrggbb" in result.stderr


@pytest.mark.parametrize("background", [0, 255])
def test_a_sprite_shows_no_halo(background: int) -> None:
    """A hard edge, scaled, on black and on white, is the opaque composition away from the edge."""
    y, x = np.mgrid[0:28, 0:28]
    inside = (y - 14) ** 2 + (x - 14) ** 2 < 81
    colours = np.where(inside[..., np.newaxis], [230, 120, 40], [90, 0, 250]).astype(np.uint8)
    alpha = np.where(inside, 255, 0).astype(np.uint8)
    with Upscaler(2, model="vgg_7") as upscaler:
        sprite = upscaler.enlarger.picture(Picture(colours, alpha))
        flat = np.where(inside[..., np.newaxis], colours, background).astype(np.uint8)
        opaque = upscaler.enlarger.picture(Picture(flat)).pixels.astype(int)
    assert sprite.alpha is not None
    share = sprite.alpha[..., np.newaxis] / 255
    composed = sprite.pixels * share + background * (1 - share)
    far_y, far_x = np.mgrid[0:56, 0:56]
    away = abs(np.hypot(far_y - 28.5, far_x - 28.5) - 18) > 7  # the networks' reach
    assert abs(composed - opaque)[away].max() <= 2


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_wholly_transparent(folder: Path, dtype: Any) -> None:
    picture = Picture(noise(6, 5, 3, dtype=dtype), np.zeros((6, 5), dtype))
    Path("a.png").write_bytes(encode(picture, "png"))
    assert upscale("a.png", "b.png") == ""
    result = decode_all(Path("b.png").read_bytes(), "p").pictures[0]
    assert result.alpha is not None
    assert not result.alpha.any()
    assert result.pixels.shape == (12, 10, 3)
