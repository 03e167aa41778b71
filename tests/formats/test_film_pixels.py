"""Pixel formats of films: each becomes planes that lose nothing, or a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av")
pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_reading import Found  # noqa: E402
from waifu2x.errors import ImageError  # noqa: E402
from waifu2x.formats.film.description import ChromaSiting  # noqa: E402
from waifu2x.formats.film.pixels import frame_pixels, pixel_format, planes_of  # noqa: E402

HEIGHT, WIDTH = 13, 23


def _frame(name: str, *planes: NDArray[Any]) -> Any:
    """A frame of a format whose planes in memory begin with these samples."""
    frame = av.VideoFrame(WIDTH, HEIGHT, name)
    for plane, samples in zip(frame.planes, planes, strict=True):
        whole = np.frombuffer(plane, samples.dtype)
        rows = whole[: plane.height * plane.line_size // whole.itemsize].reshape(plane.height, -1)
        rows[: samples.shape[0], : samples.shape[1]] = samples
    return frame


def _noise(seed: int, height: int, width: int, most: int = 256, kind: str = "u1") -> Any:
    return np.random.default_rng(seed).integers(0, most, (height, width)).astype(kind)


@pytest.mark.parametrize("name", sorted(av.video.format.names))
def test_a_format_has_planes_or_is_refused_with_a_way_out(name: str) -> None:
    refused = ""
    try:
        pixels = pixel_format(name, "film.mkv")
    except ImageError as error:
        refused = str(error)
    if refused:
        assert re.match(rf"film\.mkv: its pictures are {name}, .* -pix_fmt gbrp16le", refused)
        return
    frame = av.VideoFrame(WIDTH, HEIGHT, name)
    if name == "pal8":
        np.frombuffer(frame.planes[1], np.uint32)[:] = 0xFF000000
    for siting in ("left", "topleft", "center"):
        planes = planes_of(frame, frame_pixels(frame, "film.mkv"), siting=siting)
        assert [plane.shape for plane in planes] == list(pixels.shapes(HEIGHT, WIDTH))
        assert {plane.dtype.name for plane in planes} == {pixels.dtype}


@pytest.mark.parametrize(
    ("name", "made", "columns", "rows"),
    [
        ("yuv411p", "yuv422p", 4, 1),
        ("yuvj411p", "yuv422p", 4, 1),
        ("yuv410p", "yuv420p", 4, 4),
        ("yuv440p", "yuv444p", 1, 2),
        ("yuv440p10le", "yuv444p10le", 1, 2),
        ("yuv440p12be", "yuv444p12le", 1, 2),
    ],
)
@pytest.mark.parametrize("siting", ["left", "topleft", "center"])
def test_sparse_chroma_becomes_denser_where_it_lies(
    name: str, made: str, columns: int, rows: int, siting: ChromaSiting
) -> None:
    """By NumPy's interpolation between the places of samples; luma stays."""
    bits = int(name[7:9]) if len(name) > 8 else 8
    kind = ">u2" if name.endswith("be") else "<u2" if bits > 8 else "u1"
    luma = _noise(1, HEIGHT, WIDTH, 1 << bits, kind)
    size = -(-HEIGHT // rows), -(-WIDTH // columns)
    chroma = [_noise(seed, *size, 1 << bits, kind) for seed in (2, 3)]
    frame = _frame(name, luma, *chroma)
    pixels = frame_pixels(frame, "film")
    assert pixels.name == made
    planes = planes_of(frame, pixels, siting=siting)
    assert (planes[0] == luma).all()

    def dense(lines: NDArray[Any], had: int, has: int, *, between: bool) -> NDArray[Any]:
        if had == has:
            return lines
        first, then = ((had - 1) / 2, (has - 1) / 2) if between else (0, 0)
        length = 2 * lines.shape[-1]
        known = np.arange(lines.shape[-1]) * had + first
        return np.stack([np.interp(np.arange(length) * has + then, known, one) for one in lines])

    for samples, found in zip(chroma, planes[1:], strict=True):
        wanted = dense(samples, columns, pixels.columns, between=siting == "center")
        wanted = dense(wanted.T, rows, pixels.rows, between=siting != "topleft").T
        height, width = found.shape
        assert np.abs(found - wanted[:height, :width]).max() <= 1
    if (columns, siting) == (4, "left") and rows == 1:
        assert (planes[1][:, ::2] == chroma[0][:, : planes[1][:, ::2].shape[1]]).all()


@pytest.mark.parametrize(("name", "kind"), [("ya8", "u1"), ("ya16le", "<u2"), ("ya16be", ">u2")])
def test_grey_with_transparency(name: str, kind: str) -> None:
    most = 256 if kind == "u1" else 65536
    grey, alpha = (_noise(seed, HEIGHT, WIDTH, most, kind) for seed in (1, 2))
    both = np.stack([grey, alpha], -1).reshape(HEIGHT, -1).astype(kind)
    frame = _frame(name, both)
    pixels = frame_pixels(frame, "film")
    assert (pixels.planes, pixels.is_rgb, pixels.bits) == (4, True, 8 if most == 256 else 16)
    *colours, found = planes_of(frame, pixels)
    assert (found == alpha).all()
    assert all((plane == grey).all() for plane in colours)


@pytest.mark.parametrize("name", ["monob", "monow"])
def test_one_bit(name: str) -> None:
    bits = _noise(1, HEIGHT, WIDTH, 2)
    frame = _frame(name, np.packbits(bits, axis=1))
    (found,) = planes_of(frame, frame_pixels(frame, "film"))
    assert (found == 255 * (bits if name == "monob" else 1 - bits)).all()


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("rgb565le", ((11, 5), (5, 6), (0, 5))),
        ("bgr565be", ((0, 5), (5, 6), (11, 5))),
        ("rgb555le", ((10, 5), (5, 5), (0, 5))),
        ("rgb444le", ((8, 4), (4, 4), (0, 4))),
    ],
)
def test_few_bits_span_the_range(name: str, places: tuple[tuple[int, int], ...]) -> None:
    codes = _noise(1, HEIGHT, WIDTH, 65536, ">u2" if name.endswith("be") else "<u2")
    codes[0, :2] = 0, 65535
    frame = _frame(name, codes)
    green, blue, red = planes_of(frame, frame_pixels(frame, "film"))
    for found, (place, bits) in zip((red, green, blue), places, strict=True):
        most = (1 << bits) - 1
        wanted = (codes.astype(int) >> place & most) * 255 / most
        assert np.abs(found - wanted).max() <= 1
        assert (found[0, 0], found[0, 1]) == (0, 255)


@pytest.mark.parametrize("name", ["yuv420p10", "yuv444p12", "gray16", "gray10", "gbrp14"])
def test_big_endian_samples_are_those_of_little_endian(name: str) -> None:
    bits = int(re.findall(r"\d+$", name)[0])
    pixels = pixel_format(f"{name}le", "film")
    planes = [_noise(1, *shape, 1 << bits, ">u2") for shape in pixels.shapes(HEIGHT, WIDTH)]
    frame = _frame(f"{name}be", *planes)
    assert frame_pixels(frame, "film") == pixels
    for found, wanted in zip(planes_of(frame, pixels), planes, strict=True):
        assert (found == wanted).all()


# Palettes, by Pillow.


def _picture(opacity: int) -> Image.Image:
    picture = Image.new("RGBA", (16, 12), (200, 40, 40, opacity))
    picture.paste((40, 200, 40, 255), (4, 4, 12, 8))
    return picture.quantize(16)


def _planes(picture: Image.Image, planes: int) -> list[NDArray[np.uint8]]:
    pixels = np.asarray(picture.convert("RGBA"))
    return [pixels[..., place] for place in (1, 2, 0, 3)[:planes]]


@pytest.mark.parametrize(("opacity", "planes"), [(0, 4), (128, 4), (255, 3)])
def test_transparency_of_palettes(opacity: int, planes: int, tmp_path: Path) -> None:
    for number in (1, 2):
        _picture(opacity).save(tmp_path / f"{number}.png")
    found = Found(tmp_path / "%d.png")
    assert found.film.pictures.pixels.planes == planes
    for plane, wanted in zip(
        found.planes[1], _planes(Image.open(tmp_path / "2.png"), planes), strict=True
    ):
        assert (plane == wanted).all()


def test_a_palette_may_stop_being_transparent(tmp_path: Path) -> None:
    for number, opacity in ((1, 0), (2, 255), (3, 100)):
        _picture(opacity).save(tmp_path / f"{number}.png")
    found = Found(tmp_path / "%d.png")
    assert [planes[3].min() for planes in found.planes] == [0, 255, 100]
    assert found.ending.changes == ()


def test_transparency_that_begins_later_is_not_dropped(tmp_path: Path) -> None:
    for number, opacity in ((1, 255), (2, 0)):
        _picture(opacity).save(tmp_path / f"{number}.png")
    with pytest.raises(ImageError, match=r"change from 16x12 gbrp to 16x12 pal8 at 0\.04 s"):
        Found(tmp_path / "%d.png")
