"""Pictures in files: what comes back, what is refused, and in which words."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, JpegImagePlugin

from waifu2x import memory, picture
from waifu2x.errors import ImageError, OutputError
from waifu2x.picture import EXTENSIONS, LOSSY, Picture

Pixels = NDArray[np.uint8]
LOSSLESS = ("png", "bmp", "tif", "tiff", "webp")
WITH_ALPHA = ("png", "webp", "tif", "tiff")
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def noise(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def ramp(planes: int) -> Pixels:
    """A smooth picture, which lossy formats keep well."""
    y, x = np.mgrid[0:24, 0:33]
    channels = [y * 5 + x * 3, 255 - x * 7, y * 10]
    return np.stack(channels[:planes], axis=-1).astype(np.uint8)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def opened(data: bytes) -> Pixels:
    """(H, W, planes) as Pillow reads them."""
    with Image.open(io.BytesIO(data)) as image:
        return np.atleast_3d(np.asarray(image))


# Round trips.


@pytest.mark.parametrize("extension", LOSSLESS)
@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (7, 12)])
def test_lossless_round_trip(
    tmp_path: Path, extension: str, planes: int, size: tuple[int, int]
) -> None:
    pixels = noise(*size, planes)
    path = tmp_path / f"picture.{extension}"
    picture.write(Picture(pixels), path, extension, None)
    back = picture.read(path)
    assert back.alpha is None
    assert back.icc_profile is None
    assert back.pixels.dtype == np.uint8
    # WebP has no grey: there it comes back as three equal planes.
    assert back.pixels.shape == (*size, 3 if extension == "webp" else planes)
    assert (back.pixels == pixels).all()
    assert (opened(path.read_bytes()) == pixels).all()


@pytest.mark.parametrize("extension", LOSSY)
@pytest.mark.parametrize("planes", [1, 3])
def test_lossy_round_trip(extension: str, planes: int) -> None:
    pixels = ramp(planes)
    back = picture.decode(picture.encode(Picture(pixels), extension, 90, "p"), "p")
    assert back.pixels.shape[:2] == pixels.shape[:2]
    assert abs(back.pixels.astype(int) - pixels).mean() < 3
    assert not np.array_equal(back.pixels, np.broadcast_to(pixels, back.pixels.shape))


@pytest.mark.parametrize("extension", LOSSY)
def test_quality(extension: str) -> None:
    source = Picture(noise(32, 32, 3))
    sizes = [len(picture.encode(source, extension, quality, "p")) for quality in (1, 50, 95)]
    assert sizes == sorted(set(sizes))


def test_jpeg_keeps_every_chroma_sample() -> None:
    with Image.open(io.BytesIO(picture.encode(Picture(ramp(3)), "jpg", None, "p"))) as image:
        assert JpegImagePlugin.get_sampling(image) == 0  # 4:4:4


@pytest.mark.parametrize("extension", WITH_ALPHA)
@pytest.mark.parametrize("planes", [1, 3])
def test_alpha_round_trip(extension: str, planes: int) -> None:
    pixels, alpha = noise(9, 8, planes), noise(9, 8, seed=1)
    alpha[2:5] = 0  # the colours under transparent pixels stay too
    back = picture.decode(picture.encode(Picture(pixels, alpha), extension, None, "p"), "p")
    assert back.alpha is not None
    assert (back.alpha == alpha).all()
    assert (back.pixels == pixels).all()


@pytest.mark.parametrize("extension", [e for e in EXTENSIONS if e != "bmp"])
def test_icc_profile_is_kept(extension: str) -> None:
    source = Picture(ramp(3), None, PROFILE)
    back = picture.decode(picture.encode(source, extension, None, "p"), "p")
    assert back.icc_profile == PROFILE


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_pil_round_trip(mode: str) -> None:
    image = Image.fromarray(np.squeeze(noise(5, 6, len(mode)), axis=-1 if mode == "L" else ()))
    assert image.mode == mode
    image.info["icc_profile"] = PROFILE
    back = picture.to_pil(picture.from_pil(image))
    assert back.mode == mode
    assert back.tobytes() == image.tobytes()
    assert back.info["icc_profile"] == PROFILE


# Kinds of pictures that become RGB or grey.


PALETTE = noise(4, 3, seed=2)
INDICES = np.arange(20, dtype=np.uint8).reshape(4, 5) % 4


def palette_image() -> Image.Image:
    image = Image.fromarray(INDICES)
    image.putpalette(PALETTE.tobytes())
    return image


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF"])
def test_palette(form: str) -> None:
    back = picture.decode(encoded(palette_image(), form), "p")
    assert back.alpha is None
    assert (back.pixels == PALETTE[INDICES]).all()


@pytest.mark.parametrize(
    ("transparency", "levels"),
    [(2, [255, 255, 0, 255]), (b"\x00\x40\xff", [0, 64, 255, 255])],
    ids=["index", "table"],
)
def test_palette_with_transparency(transparency: int | bytes, levels: list[int]) -> None:
    back = picture.decode(encoded(palette_image(), transparency=transparency), "p")
    assert (back.pixels == PALETTE[INDICES]).all()
    assert back.alpha is not None
    assert (back.alpha == np.array(levels)[INDICES]).all()


@pytest.mark.parametrize("planes", [1, 3])
def test_transparent_colour(planes: int) -> None:
    pixels = PALETTE[INDICES][..., :planes]
    key = tuple(map(int, PALETTE[1][:planes]))
    image = Image.fromarray(pixels if planes == 3 else pixels[..., 0])
    back = picture.decode(encoded(image, transparency=key if planes == 3 else key[0]), "p")
    assert (back.pixels == pixels).all()
    assert back.alpha is not None
    assert (back.alpha == np.where(INDICES == 1, 0, 255)).all()


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF"])
def test_one_bit(form: str) -> None:
    bits = noise(5, 11, seed=3) > 127
    back = picture.decode(encoded(Image.fromarray(bits), form), "p")
    assert back.alpha is None
    assert (back.pixels[..., 0] == np.where(bits, 255, 0)).all()


def test_one_bit_with_transparency() -> None:
    bits = noise(5, 11, seed=3) > 127
    back = picture.decode(encoded(Image.fromarray(bits), transparency=0), "p")
    assert back.alpha is not None
    assert (back.alpha == np.where(bits, 255, 0)).all()
    assert (back.pixels[..., 0] == np.where(bits, 255, 0)).all()


UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.swapaxes(0, 1),
    6: lambda p: p[::-1].swapaxes(0, 1),  # stored lying on its left side
    7: lambda p: p[::-1, ::-1].swapaxes(0, 1),
    8: lambda p: p[:, ::-1].swapaxes(0, 1),
}
"""What the values of EXIF's orientation ask for."""


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_exif_orientation(orientation: int, form: str) -> None:
    pixels = noise(4, 7, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"exif": exif} | ({"lossless": True} if form == "WEBP" else {})
    back = picture.decode(encoded(Image.fromarray(pixels), form, **options), "p")
    assert np.array_equal(back.pixels, UPRIGHT[orientation](pixels))
    # And as a PIL image, before and after it is loaded.
    with Image.open(io.BytesIO(encoded(Image.fromarray(pixels), form, **options))) as image:
        for _ in range(2):
            back = picture.from_pil(image)
            assert np.array_equal(back.pixels, UPRIGHT[orientation](pixels))


ORIENTATION_ONLY = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
"""EXIF that asks for a quarter turn."""


def test_orientation_of_a_palette_keeps_its_transparency() -> None:
    data = encoded(palette_image(), transparency=2, exif=b"Exif\0\0" + ORIENTATION_ONLY)
    back = picture.decode(data, "p")
    assert np.array_equal(back.pixels, UPRIGHT[6](PALETTE[INDICES]))
    assert back.alpha is not None
    assert np.array_equal(back.alpha, UPRIGHT[6](np.where(INDICES == 2, 0, 255)))


@pytest.mark.parametrize("form", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("exif", [b"garbagegarbage", b"Exif\0\0garbagegarbage"])
def test_broken_exif_leaves_the_picture_as_it_is(form: str, exif: bytes) -> None:
    options: dict[str, Any] = {"lossless": True} if form == "WEBP" else {}
    data = encoded(Image.fromarray(ramp(3)), form, exif=exif, **options)
    assert np.array_equal(picture.decode(data, "p").pixels, opened(data))
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(picture.from_pil(image).pixels, opened(data))


def test_orientation_of_a_jpeg() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    back = picture.decode(encoded(Image.fromarray(ramp(3)), "JPEG", exif=exif, quality=98), "p")
    assert back.pixels.shape == (33, 24, 3)
    assert abs(back.pixels.astype(int) - UPRIGHT[6](ramp(3))).mean() < 3


def test_camera_jpeg_with_preview() -> None:
    preview = Image.new("RGB", (4, 4))
    data = encoded(Image.fromarray(ramp(3)), "MPO", save_all=True, append_images=[preview])
    assert picture.decode(data, "p").pixels.shape == ramp(3).shape


# What is refused.


def deep_rgb_png() -> bytes:
    """Pillow writes none: two pixels, 16 bits per sample, RGB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    rows = zlib.compress(b"\x00" + bytes(range(12)))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def frames(form: str) -> bytes:
    images = [Image.fromarray(noise(8, 8, 3, seed=seed)) for seed in range(3)]
    return encoded(images[0], form, save_all=True, append_images=images[1:])


RGB = Image.fromarray(noise(16, 16, 3))
DEEP = Image.fromarray(noise(4, 4).astype(np.uint16) * 257)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"Not a picture\n" * 9, "not a PNG, JPEG, WebP, BMP or TIFF", id="text"),
        pytest.param(encoded(RGB, "GIF"), "not a PNG, JPEG, WebP, BMP or TIFF", id="gif"),
        pytest.param(encoded(DEEP), "more than 8 bits per sample", id="16-bit-grey-png"),
        pytest.param(deep_rgb_png(), "more than 8 bits per sample", id="16-bit-rgb-png"),
        pytest.param(encoded(DEEP, "TIFF"), "more than 8 bits per sample", id="16-bit-tiff"),
        pytest.param(encoded(RGB.convert("F"), "TIFF"), "more than 8 bits", id="float-tiff"),
        pytest.param(encoded(RGB.convert("CMYK"), "JPEG"), "CMYK pictures", id="cmyk-jpeg"),
        pytest.param(encoded(RGB.convert("CMYK"), "TIFF"), "CMYK pictures", id="cmyk-tiff"),
        pytest.param(encoded(RGB.convert("LAB"), "TIFF"), "LAB pictures", id="lab-tiff"),
        pytest.param(frames("PNG"), "3 frames or pages", id="animated-png"),
        pytest.param(frames("WEBP"), "3 frames or pages", id="animated-webp"),
        pytest.param(frames("TIFF"), "3 frames or pages", id="tiff-pages"),
        pytest.param(encoded(RGB)[:400], "damaged or cut off", id="cut-off-png"),
        pytest.param(encoded(RGB, "JPEG")[:-200], "damaged or cut off", id="cut-off-jpeg"),
        pytest.param(encoded(RGB, "BMP")[:400], "damaged or cut off", id="cut-off-bmp"),
    ],
)
def test_refused_content(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    with pytest.raises(ImageError) as caught:
        picture.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent.png", "cannot read: no such file"), ("", "cannot read: is a directory")],
)
def test_unreadable_file(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        picture.read(tmp_path / name)


def test_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)
    data = encoded(Image.new("1", (2000, 1001)))
    with pytest.raises(ImageError) as caught:
        picture.decode(data, "p")
    assert str(caught.value) == (
        "p: has more than 2 megapixels, the most that is read: cut it into parts"
    )


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "bmp", "tiff"])
def test_cut_off_anywhere(extension: str) -> None:
    pixels = noise(9, 8, 3)
    whole = picture.encode(Picture(pixels), extension, None, "p")
    refused = 0
    for length in range(len(whole)):
        try:
            back = picture.decode(whole[:length], "p")
        except ImageError:
            refused += 1
        else:  # nothing but checksums and end marks is missing
            assert (back.pixels == pixels).all()
    assert refused > len(whole) - 32


# What cannot be written.


@pytest.mark.parametrize("extension", ["jpg", "jpeg", "bmp"])
def test_no_alpha_in_jpeg_and_bmp(extension: str) -> None:
    with pytest.raises(OutputError, match=r"p: \w+ has no transparency, .* png, webp or tiff"):
        picture.check_output(extension, (9, 9, 4), True, "p")
    picture.check_output(extension, (9, 9, 3), False, "p")


def test_jpeg_refuses_to_encode_alpha() -> None:
    with pytest.raises(OutputError, match="p: cannot encode as JPEG"):
        picture.encode(Picture(ramp(3), noise(24, 33)), "jpg", None, "p")


@pytest.mark.parametrize("extension", ["jpg", "jpeg", "bmp"])
def test_opaque_alpha_is_no_transparency(extension: str) -> None:
    opaque = Picture(ramp(3), np.full((24, 33), 255, np.uint8), PROFILE)
    assert not opaque.transparent
    data = picture.encode(opaque, extension, None, "p")
    assert data == picture.encode(Picture(ramp(3), None, PROFILE), extension, None, "p")
    # Where the format has transparency, its plane is kept.
    assert picture.decode(picture.encode(opaque, "png", None, "p"), "p").alpha is not None


def test_transparent() -> None:
    assert not Picture(ramp(3)).transparent
    for dtype, peak in ((np.uint8, 255), (np.uint16, 65535), (np.float32, 1.0)):
        pixels, alpha = ramp(3).astype(dtype), np.full((24, 33), peak, dtype)
        assert not Picture(pixels, alpha).transparent
        alpha[3, 4] = peak * 0.99
        assert Picture(pixels, alpha).transparent


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_no_memory_for_the_file(monkeypatch: pytest.MonkeyPatch, extension: str) -> None:
    def save(*arguments: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "save", save)
    with pytest.raises(OutputError, match=r"^p: not enough memory .* use a smaller scale$"):
        picture.encode(Picture(ramp(3)), extension, None, "p")


@pytest.mark.parametrize("extension", WITH_ALPHA)
def test_alpha_elsewhere(extension: str) -> None:
    picture.check_output(extension, (9, 9, 4), True, "p")


@pytest.mark.parametrize(
    ("extension", "largest"), [("webp", 16383), ("jpg", 65500), ("jpeg", 65500)]
)
def test_largest_sides(extension: str, largest: int) -> None:
    for height, width in ((1, largest + 1), (largest + 1, 1)):
        with pytest.raises(OutputError, match=f"at most {largest} pixels a side.*png or tiff"):
            picture.check_output(extension, (height, width, 3), False, "p")
        with pytest.raises(OutputError, match="p: cannot encode as"):
            picture.encode(Picture(np.zeros((height, width, 3), np.uint8)), extension, None, "p")
    # What the check lets through can be written.
    picture.check_output(extension, (1, largest, 3), False, "p")
    widest = Picture(np.zeros((1, largest, 3), np.uint8))
    data = picture.encode(widest, extension, None, "p")
    assert picture.decode(data, "p").pixels.shape == (1, largest, 3)


@pytest.mark.parametrize("name", ["absent/picture.png", "folder"])
def test_unwritable_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError) as caught:
        picture.write(Picture(ramp(3)), tmp_path / name, "png", None, replace=True)
    assert str(caught.value).startswith(f"{tmp_path / name}: cannot write: ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_same_format() -> None:
    groups = [{"png"}, {"jpg", "jpeg"}, {"webp"}, {"bmp"}, {"tif", "tiff"}]
    for one in EXTENSIONS:
        for other in EXTENSIONS:
            together = any({one, other} <= group for group in groups)
            assert picture.same_format(one, other) == together


def test_libtiff_does_not_write_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "TIFF", compression="tiff_lzw")
    refused = 0
    for place in range(8, 4000, 97):
        damaged = bytearray(stream.getvalue())
        damaged[place] ^= 0x55
        damaged[place * 7 % len(damaged)] ^= 0xFF
        try:
            picture.decode(bytes(damaged), "damaged.tif")
        except ImageError:
            refused += 1
    assert refused > 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("extension", ["bmp", "tif", "tiff"])
def test_formats_that_count_bytes_in_32_bits(
    monkeypatch: pytest.MonkeyPatch, extension: str
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1 << 40)
    picture.check_output(extension, (30_000, 40_000, 3), False, "p")
    with pytest.raises(OutputError, match=r"^p: \w+ holds at most 4 GiB, .*: choose png$"):
        picture.check_output(extension, (48_000, 48_000, 3), False, "p")
    picture.check_output("png", (48_000, 48_000, 3), False, "p")


def test_results_larger_than_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 15 << 30)
    with pytest.raises(OutputError, match=r"^p: the result of 48000x48000 pixels takes 15\.0 GiB"):
        picture.check_output("png", (48_000, 48_000, 3), False, "p")
    picture.check_output("png", (48_000, 48_000, 1), False, "p")
    monkeypatch.setattr(memory, "available", lambda: None)
    picture.check_output("png", (48_000, 48_000, 3), False, "p")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"machine": "MemTotal:  9 kB\nMemAvailable:    7 kB\nSwapFree: 2 kB\n"}, 9 << 10),
        ({"machine": "MemAvailable: 7 kB\n", "max": "5000\n", "stat": "anon 1000\nfile 9\n"}, 4000),
        ({"machine": "MemAvailable: 7 kB\n", "max": "max\n", "stat": "anon 1000\n"}, 7 << 10),
    ],
)
def test_free_memory_is_what_machine_and_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int | None
) -> None:
    for name, content in files.items():
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(memory, "_MACHINE", tmp_path / "memory.machine")
    monkeypatch.setattr(memory, "_GROUPS", (tmp_path / "memory.max",))
    assert memory.available() == expected
