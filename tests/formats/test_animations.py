"""Animations as they are written, frame by frame."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import GifImagePlugin, Image

from tests.helpers.contents import Frames, decode_all, encode, noise
from waifu2x.errors import OutputError
from waifu2x.formats import tiff
from waifu2x.formats.pillow.animations import CodedAnimation
from waifu2x.formats.png.write import PngWriter
from waifu2x.formats.table import Quality, of
from waifu2x.formats.write import ContentSink
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed
from waifu2x.system.stopwatch import Stopwatch

BLACK, RED = (0, 0, 0), (255, 0, 0)


def seen(data: bytes) -> list[NDArray[np.uint8]]:
    """Frames as Pillow shows them, RGBA, all 0 where they are transparent."""
    shown = []
    with Image.open(io.BytesIO(data)) as image:
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            pixels = np.array(image.convert("RGBA"))
            shown.append(np.where(pixels[..., 3:] > 0, pixels, 0).astype(np.uint8))
    return shown


def total(data: bytes) -> list[int]:
    """Milliseconds of each frame."""
    with Image.open(io.BytesIO(data)) as image:
        durations = []
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            durations.append(int(image.info["duration"]))
        return durations


def sprite(left: int, colour: tuple[int, int, int]) -> Picture:
    """A square on a transparent ground."""
    pixels, alpha = np.zeros((12, 12, 3), np.uint8), np.zeros((12, 12), np.uint8)
    pixels[4:8, left : left + 4] = colour
    alpha[4:8, left : left + 4] = 255
    return Picture(pixels, alpha)


def test_black_at_the_edge_of_a_transparent_gif() -> None:
    """Transparent pixels have a colour in the palette, too: black."""
    pictures = [sprite(0, RED), sprite(4, BLACK), sprite(8, RED), sprite(2, BLACK)]
    pictures[2].pixels[4:8, 11] = BLACK
    data = encode(Frames(tuple(pictures), (50.0,) * 4), "gif")
    for shown, picture in zip(seen(data), pictures, strict=True):
        assert picture.alpha is not None
        assert (shown[..., 3] == picture.alpha).all()
        assert (shown[..., :3] == picture.pixels).all()


def test_a_frame_without_anything_in_it() -> None:
    empty = Picture(np.zeros((12, 12, 3), np.uint8), np.zeros((12, 12), np.uint8))
    data = encode(Frames((sprite(0, RED), empty, sprite(3, RED)), (50.0,) * 3), "gif")
    first, second, third = seen(data)
    assert (second == 0).all()
    assert first.any()
    assert third.any()


def test_frames_of_a_gif_that_repeat_are_shown_longer() -> None:
    one, other = (Picture(np.full((9, 9, 3), level, np.uint8)) for level in (10, 200))
    data = encode(Frames((one, one, other, other, one), (100.0, 50.0, 30.0, 20.0, 10.0)), "gif")
    assert total(data) == [150, 50, 10]
    assert [int(shown[0, 0, 0]) for shown in seen(data)] == [10, 200, 10]
    assert total(encode(Frames((one, one), (70.0, 80.0)), "gif")) == [150]


def test_longer_than_a_gif_can_say() -> None:
    """A frame is shown at most 655.35 seconds; what repeats takes several."""
    one, other = (Picture(np.full((9, 9, 3), level, np.uint8)) for level in (10, 200))
    data = encode(Frames((one, one, other), (400_000.0, 400_000.0, 700_000.0)), "gif")
    assert total(data) == [400_000, 400_000, 655_350]
    assert [int(shown[0, 0, 0]) for shown in seen(data)] == [10, 10, 200]


def test_a_later_frame_beyond_the_canvas_is_cut_off() -> None:
    small, large = (Image.fromarray(noise(side, side)) for side in (6, 9))
    head, _ = GifImagePlugin.getheader(small.copy())
    frames = [GifImagePlugin.getdata(image.copy(), duration=50) for image in (small, large)]
    data = b"".join([*head, *frames[0], *frames[1], b";"])
    back = decode_all(data)
    assert [picture.pixels.shape for picture in back.pictures] == [(6, 6, 1)] * 2
    assert (back.pictures[1].pixels[..., 0] == np.asarray(large)[:6, :6]).all()
    for extension in ("gif", "png", "webp"):
        assert len(seen(encode(back, extension))) == 2


def test_a_grey_frame_before_one_with_colours() -> None:
    """Pillow has the first as grey, and what follows in colours: all frames of a file are alike."""
    grey = Image.fromarray(noise(7, 7))
    colours = Image.fromarray(noise(7, 7, 3)).quantize(8)
    file = io.BytesIO()
    grey.save(file, "GIF", save_all=True, append_images=[colours, grey], optimize=False)
    back = decode_all(file.getvalue())
    assert [picture.pixels.shape for picture in back.pictures] == [(7, 7, 3)] * 3
    assert (back.pictures[0].pixels == np.asarray(grey)[..., np.newaxis]).all()
    for found, shown in zip(back.pictures, seen(encode(back, "png")), strict=True):
        assert (shown[..., :3] == found.pixels).all()
    file = io.BytesIO()
    grey.save(
        file,
        "GIF",
        save_all=True,
        append_images=[Image.fromarray(noise(7, 7, seed=1))],
        optimize=False,
    )
    assert [one.pixels.shape for one in decode_all(file.getvalue()).pictures] == [(7, 7, 1)] * 2


def test_an_animation_whose_length_only_its_end_tells() -> None:
    pictures = [Picture(noise(5, 4, 3, seed=seed)) for seed in range(3)]
    file = io.BytesIO()
    writer = PngWriter(Header((Extent(5, 4, 60),), None, animated=True, loop=2), file)
    for picture in pictures:
        writer.add(Timed(picture, 40.0))
    writer.finish()
    back = decode_all(file.getvalue())
    assert (back.durations, back.loop) == ((40.0,) * 3, 2)
    for found, picture in zip(back.pictures, pictures, strict=True):
        assert (found.pixels == picture.pixels).all()


@pytest.mark.parametrize("limit", [50_000, 5_000])
def test_a_tiff_of_many_pages_has_offsets_as_wide_as_it_needs(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """As the header tells, since the first page does not."""
    monkeypatch.setattr(tiff, "_BIG", limit)
    pages = tuple(Picture(noise(20, 30, 3, seed=seed)) for seed in range(10))
    data = encode(Frames(pages), "tif")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        assert file.is_bigtiff == (limit < 10 * 20 * 30 * 3)
        assert len(file.pages) == 10
    for found, page in zip(decode_all(data).pictures, pages, strict=True):
        assert (found.pixels == page.pixels).all()


def encoders() -> list[str]:
    """The threads of encoders that are at work."""
    return [thread.name for thread in threading.enumerate() if thread.name == "waifu2x-encode"]


def test_an_encoder_that_fails_is_a_sentence() -> None:
    """It fails in its own thread, while further frames come."""
    wide = Picture(np.zeros((1, 20_000, 3), np.uint8))
    header = Header((Extent(1, 20_000, 60_000),), 40, animated=True)
    sink = ContentSink(io.BytesIO(), "webp", Quality(), "p", Stopwatch())
    sink.open(header)

    def encode_all() -> None:
        for _ in range(40):
            sink.add(Timed(wide, 50.0))
        sink.close()

    with pytest.raises(OutputError, match=r"^p: cannot encode as WebP: "):
        encode_all()
    sink.abort()
    assert encoders() == []


@pytest.mark.parametrize("frames", [0, 1, 2, 5])
def test_an_encoder_that_is_not_wanted_any_more_ends(frames: int) -> None:
    header = Header((Extent(8, 8, 192),), 40, animated=True)
    writer = CodedAnimation(header, of("webp"), Quality(), "p", io.BytesIO())
    for seed in range(frames):
        writer.add(Timed(Picture(noise(8, 8, 3, seed=seed)), 50.0))
    writer.abort()
    assert encoders() == []
