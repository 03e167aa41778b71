"""Pictures in files: what comes back, what is refused, and in which words."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, JpegImagePlugin

from tests.helpers.contents import decode, decode_all, encode, encoded, noise, opened, ramp
from waifu2x.errors import ImageError, OutputError
from waifu2x.formats import adapt, table
from waifu2x.formats.adapt import check_result
from waifu2x.formats.headers import jxl
from waifu2x.formats.pillow import images
from waifu2x.formats.read import first_picture
from waifu2x.formats.write import write_picture
from waifu2x.imaging.picture import Colours, Picture

Pixels = NDArray[np.uint8]
LOSSLESS = ("png", "bmp", "tif", "tiff", "webp", "ppm", "tga", "jp2", "qoi", "jxl")
LOSSY = ("jpg", "jpeg", "webp", "avif", "jp2", "jxl", "heic")
WITH_ALPHA = ("png", "webp", "tif", "tiff", "tga", "jp2", "qoi", "jxl")
WITHOUT_GREY = ("webp", "qoi")
"""Formats of LOSSLESS and WITH_ALPHA in which grey comes back as three equal planes."""
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


# Round trips.


@pytest.mark.parametrize("extension", LOSSLESS)
@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (7, 12)])
def test_lossless_round_trip(
    tmp_path: Path, extension: str, planes: int, size: tuple[int, int]
) -> None:
    pixels = noise(*size, planes)
    path = tmp_path / f"picture.{extension}"
    write_picture(Picture(pixels), path, extension)
    back = first_picture(path)
    assert back.alpha is None
    assert (back.colours == Colours()) == (extension != "jxl")  # which always has a profile
    assert back.pixels.dtype == np.uint8
    assert back.pixels.shape == (*size, 3 if extension in WITHOUT_GREY else planes)
    assert (back.pixels == pixels).all()
    assert (opened(path.read_bytes()) == pixels).all()


@pytest.mark.parametrize("extension", LOSSY)
@pytest.mark.parametrize("planes", [1, 3])
def test_lossy_round_trip(extension: str, planes: int) -> None:
    pixels = ramp(planes)
    back = decode(encode(Picture(pixels), extension, 90))
    assert back.pixels.shape[:2] == pixels.shape[:2]
    assert abs(back.pixels.astype(int) - pixels).mean() < 3
    if extension != "heic":  # whose grey ramp is exact
        assert not np.array_equal(back.pixels, np.broadcast_to(pixels, back.pixels.shape))


@pytest.mark.parametrize("extension", LOSSY)
def test_quality(extension: str) -> None:
    source = Picture(noise(32, 32, 3))
    sizes = [len(encode(source, extension, quality)) for quality in (1, 50, 95)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("extension", ["png", "tif", "webp", "jxl"])
def test_compression(extension: str) -> None:
    smooth = np.sin(np.indices((150, 200)) / 9).sum(0)[..., np.newaxis] * 60 + 128
    pixels = (smooth + noise(150, 200, 3) / 40).astype(np.uint8)
    files = {
        compression: encode(Picture(pixels), extension, compression=compression)
        for compression in get_args(table.Compression)
    }
    for content in files.values():
        assert (decode(content).pixels == pixels).all()
    sizes = {compression: len(content) for compression, content in files.items()}
    assert sizes["best"] < sizes["default"] <= sizes["fast"]


@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize(("quality", "subsampling"), [(60, 2), (85, 0), (97, 1)])
def test_jpeg_is_coded_like_the_input(planes: int, quality: int, subsampling: int) -> None:
    source = images.to_pil(Picture(noise(40, 48, planes)))
    data = encoded(source, "JPEG", quality=quality, subsampling=subsampling)
    result = encode(decode(data), "jpg", "like")
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(result)) as image:
        assert isinstance(before, JpegImagePlugin.JpegImageFile)
        assert isinstance(image, JpegImagePlugin.JpegImageFile)
        assert image.quantization == before.quantization
        assert JpegImagePlugin.get_sampling(image) == (subsampling if planes == 3 else -1)
    assert abs(len(result) / len(data) - 1) < 0.05
    # Without a JPEG to be like, as usual.
    pixels = Picture(ramp(3))
    assert encode(pixels, "jpg", "like") == encode(pixels, "jpg", None)


def test_jpeg_keeps_every_chroma_sample() -> None:
    with Image.open(io.BytesIO(encode(Picture(ramp(3)), "jpg", None))) as image:
        assert JpegImagePlugin.get_sampling(image) == 0  # 4:4:4


@pytest.mark.parametrize("extension", WITH_ALPHA)
@pytest.mark.parametrize("planes", [1, 3])
def test_alpha_round_trip(extension: str, planes: int) -> None:
    pixels, alpha = noise(9, 8, planes), noise(9, 8, seed=1)
    alpha[2:5] = 0  # the colours under transparent pixels stay too
    back = decode(encode(Picture(pixels, alpha), extension, None))
    assert back.alpha is not None
    assert (back.alpha == alpha).all()
    assert (back.pixels == pixels).all()


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "tif", "avif", "heic"])
def test_icc_profile_is_kept(extension: str) -> None:
    source = Picture(ramp(3), None, Colours(PROFILE))
    back = decode(encode(source, extension, None))
    assert back.colours.icc_profile == PROFILE


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16"])
def test_pil_round_trip(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(noise(5, 6, dtype=np.uint16))
    else:
        image = Image.fromarray(np.squeeze(noise(5, 6, len(mode)), axis=-1 if mode == "L" else ()))
    assert image.mode == mode
    if mode.startswith("RGB"):
        image.info["icc_profile"] = PROFILE
    back = images.to_pil(images.from_pil(image))
    assert back.mode == mode
    assert back.tobytes() == image.tobytes()
    assert back.info.get("icc_profile") == image.info.get("icc_profile")


# Kinds of pictures that become RGB or grey.


PALETTE = noise(4, 3, seed=2)
INDICES = np.arange(20, dtype=np.uint8).reshape(4, 5) % 4


def palette_image() -> Image.Image:
    image = Image.fromarray(INDICES)
    image.putpalette(PALETTE.tobytes())
    return image


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF"])
def test_palette(form: str) -> None:
    back = decode(encoded(palette_image(), form))
    assert back.alpha is None
    assert (back.pixels == PALETTE[INDICES]).all()


@pytest.mark.parametrize(
    ("transparency", "levels"),
    [(2, [255, 255, 0, 255]), (b"\x00\x40\xff", [0, 64, 255, 255])],
    ids=["index", "table"],
)
def test_palette_with_transparency(transparency: int | bytes, levels: list[int]) -> None:
    back = decode(encoded(palette_image(), transparency=transparency))
    assert (back.pixels == PALETTE[INDICES]).all()
    assert back.alpha is not None
    assert (back.alpha == np.array(levels)[INDICES]).all()


@pytest.mark.parametrize("planes", [1, 3])
def test_transparent_colour(planes: int) -> None:
    pixels = PALETTE[INDICES][..., :planes]
    key = tuple(map(int, PALETTE[1][:planes]))
    image = Image.fromarray(pixels if planes == 3 else pixels[..., 0])
    back = decode(encoded(image, transparency=key if planes == 3 else key[0]))
    assert (back.pixels == pixels).all()
    assert back.alpha is not None
    assert (back.alpha == np.where(INDICES == 1, 0, 255)).all()


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF"])
def test_one_bit(form: str) -> None:
    bits = noise(5, 11, seed=3) > 127
    back = decode(encoded(Image.fromarray(bits), form))
    assert back.alpha is None
    assert (back.pixels[..., 0] == np.where(bits, 255, 0)).all()


def test_one_bit_with_transparency() -> None:
    bits = noise(5, 11, seed=3) > 127
    back = decode(encoded(Image.fromarray(bits), transparency=0))
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
"""The turns that values of EXIF's orientation ask for."""


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_exif_orientation(orientation: int, form: str) -> None:
    pixels = noise(4, 7, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"exif": exif} | ({"lossless": True} if form == "WEBP" else {})
    back = decode(encoded(Image.fromarray(pixels), form, **options))
    assert np.array_equal(back.pixels, UPRIGHT[orientation](pixels))
    # And as a PIL image, before and after it is loaded.
    with Image.open(io.BytesIO(encoded(Image.fromarray(pixels), form, **options))) as image:
        for _ in range(2):
            back = images.from_pil(image)
            assert np.array_equal(back.pixels, UPRIGHT[orientation](pixels))


ORIENTATION_ONLY = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
"""EXIF that asks for a quarter turn."""


def test_orientation_of_a_palette_keeps_its_transparency() -> None:
    data = encoded(palette_image(), transparency=2, exif=b"Exif\0\0" + ORIENTATION_ONLY)
    back = decode(data)
    assert np.array_equal(back.pixels, UPRIGHT[6](PALETTE[INDICES]))
    assert back.alpha is not None
    assert np.array_equal(back.alpha, UPRIGHT[6](np.where(INDICES == 2, 0, 255)))


@pytest.mark.parametrize("form", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("exif", [b"garbagegarbage", b"Exif\0\0garbagegarbage"])
def test_broken_exif_leaves_the_picture_as_it_is(form: str, exif: bytes) -> None:
    options: dict[str, Any] = {"lossless": True} if form == "WEBP" else {}
    data = encoded(Image.fromarray(ramp(3)), form, exif=exif, **options)
    assert np.array_equal(decode(data).pixels, opened(data))
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(images.from_pil(image).pixels, opened(data))


def test_orientation_of_a_jpeg() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    back = decode(encoded(Image.fromarray(ramp(3)), "JPEG", exif=exif, quality=98))
    assert back.pixels.shape == (33, 24, 3)
    assert abs(back.pixels.astype(int) - UPRIGHT[6](ramp(3))).mean() < 3


def test_camera_jpeg_with_preview() -> None:
    preview = Image.new("RGB", (4, 4))
    data = encoded(Image.fromarray(ramp(3)), "MPO", save_all=True, append_images=[preview])
    assert decode(data).pixels.shape == ramp(3).shape


# Refused pictures.


RGB = Image.fromarray(noise(16, 16, 3))
DARK = Image.new("RGB", (8, 8))
DEEP = Image.fromarray(noise(40, 40).astype(np.uint16) * 257)
SIGNED = encoded(Image.fromarray(noise(4, 4).astype(np.int32)), "TIFF")
HIGH = encoded(Image.fromarray(np.array([[0, 4000]], np.float32)), "TIFF")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"Not a picture\n" * 9, "not a picture of a known format", id="text"),
        pytest.param(encoded(DEEP)[:-40], "damaged or cut off", id="cut-off-deep-png"),
        pytest.param(encoded(DEEP, "TIFF")[:-40], "damaged or cut off", id="cut-off-deep-tiff"),
        pytest.param(SIGNED, "32-bit signed samples are not supported", id="signed-tiff"),
        pytest.param(HIGH, "float samples from 0 to 4000", id="float-tiff"),
        pytest.param(encoded(RGB)[:400], "damaged or cut off", id="cut-off-png"),
        pytest.param(encoded(RGB, "JPEG")[:-200], "damaged or cut off", id="cut-off-jpeg"),
        pytest.param(encoded(RGB, "BMP")[:400], "damaged or cut off", id="cut-off-bmp"),
    ],
)
def test_refused_content(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    with pytest.raises(ImageError) as caught:
        first_picture(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent.png", "cannot read: no such file"), ("", "cannot read: is a directory")],
)
def test_unreadable_file(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        first_picture(tmp_path / name)


def test_too_many_pixels() -> None:
    """Refused by what the file declares, before anything is decoded."""
    one = encoded(Image.new("1", (2000, 1001)))
    three = encoded(
        RGB.resize((8, 8)), "GIF", save_all=True, append_images=[DARK, RGB.resize((8, 8))]
    )
    for data, most, what in ((one, 2_000_000, "2000x1001"), (three, 191, "3 pictures of 8x8")):
        with pytest.raises(ImageError) as caught:
            decode_all(data, "p", most)
        assert str(caught.value) == f"p: {what} pixels are more than --max-pixels {most} allows"
        decode_all(data, "p", most + 2000)


@pytest.mark.parametrize(
    "size", [(1, 1), (8, 8), (64, 256), (40, 30), (57, 600), (9000, 2), (3, 40_000), (320, 180)]
)
def test_a_jpeg_xl_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    width, height = size
    data = encode(Picture(np.zeros((height, width, 1), np.uint8)), "jxl")
    assert jxl.size(data) == size
    with pytest.raises(ImageError, match=f"p: {width}x{height} pixels are more than"):
        decode(data, "p", width * height - 1)


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "bmp", "tiff"])
def test_cut_off_anywhere(extension: str) -> None:
    pixels = noise(9, 8, 3)
    whole = encode(Picture(pixels), extension, None)
    refused = 0
    for length in range(len(whole)):
        try:
            back = decode(whole[:length])
        except ImageError:
            refused += 1
        else:  # nothing but checksums and end marks is missing
            assert (back.pixels == pixels).all()
    assert refused > len(whole) - 32


# Pictures that cannot be written.


@pytest.mark.parametrize("extension", ["jpg", "bmp", "ppm"])
def test_opaque_alpha_is_no_transparency(extension: str) -> None:
    opaque = Picture(ramp(3), np.full((24, 33), 255, np.uint8))
    assert not opaque.transparent
    assert encode(opaque, extension) == encode(Picture(ramp(3)), extension)
    # Where the format has transparency, its plane is kept.
    assert decode(encode(opaque, "png")).alpha is not None


def test_transparent() -> None:
    assert not Picture(ramp(3)).transparent
    for dtype, peak in ((np.uint8, 255), (np.uint16, 65535), (np.float32, 1.0)):
        pixels, alpha = ramp(3).astype(dtype), np.full((24, 33), peak, dtype)
        assert not Picture(pixels, alpha).transparent
        alpha[3, 4] = peak * 0.99
        assert Picture(pixels, alpha).transparent


@pytest.mark.parametrize("extension", ["jpg", "webp", "tif", "png", "ppm"])
def test_no_memory_for_the_file(monkeypatch: pytest.MonkeyPatch, extension: str) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "save", fail)
    monkeypatch.setattr("tifffile.TiffWriter.write", fail)
    monkeypatch.setattr(np, "ascontiguousarray", fail)
    monkeypatch.setattr("waifu2x.formats.png.write.up", fail)
    with pytest.raises(OutputError, match=r"^p: not enough memory .* use a smaller scale$"):
        encode(Picture(ramp(3)), extension)


@pytest.mark.parametrize(("extension", "largest"), [("webp", 16383), ("jpg", 65500)])
def test_largest_sides(extension: str, largest: int) -> None:
    form = table.of(extension)
    for height, width in ((1, largest + 1), (largest + 1, 1)):
        with pytest.raises(OutputError, match=f"at most {largest} pixels a side.*png or tiff"):
            check_result(form, (height, width, 3), 1, "p")
        with pytest.raises(OutputError, match="p: cannot encode as"):
            encode(Picture(np.zeros((height, width, 3), np.uint8)), extension)
    # A picture that the check lets through can be written.
    check_result(form, (1, largest, 3), 1, "p")
    widest = Picture(np.zeros((1, largest, 3), np.uint8))
    assert decode(encode(widest, extension)).pixels.shape == (1, largest, 3)


@pytest.mark.parametrize("name", ["absent/picture.png", "folder"])
def test_unwritable_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError) as caught:
        write_picture(Picture(ramp(3)), tmp_path / name, "png", replace=True)
    assert str(caught.value).startswith(f"{tmp_path / name}: cannot write: ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_same_format() -> None:
    assert table.same("jpg", "jpeg")
    assert table.same("tif", "tiff")
    assert not table.same("jpg", "png")
    assert len({form.name for form in table.FORMATS if form.writable}) == 13


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
            decode_all(bytes(damaged), "damaged.tif")
        except ImageError:
            refused += 1
    assert refused > 0
    assert capfd.readouterr().err == ""


def test_a_format_that_counts_bytes_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapt, "available_memory", lambda: 1 << 40)
    check_result(table.of("bmp"), (30_000, 40_000, 3), 1, "p")
    with pytest.raises(OutputError, match=r"^p: BMP holds at most 4 GiB, .*; choose png or tiff$"):
        check_result(table.of("bmp"), (48_000, 48_000, 3), 1, "p")
    for extension in ("png", "tif"):
        check_result(table.of(extension), (48_000, 48_000, 3), 1, "p")


def test_results_larger_than_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    large, png = (48_000, 48_000, 3), table.of("png")
    monkeypatch.setattr(adapt, "available_memory", lambda: 7 << 30)
    check_result(png, large, 1, "p")
    for form, shape, itemsize, at_once, size in (
        (png, large, 2, 1, "12.9"),
        (png, large, 1, 2, "12.9"),
        (table.of("tga"), large, 1, 1, "15.0"),  # Pillow's own copy has four bytes to a pixel
        (table.of("tif"), (48_000, 48_000, 4), 1, 1, "17.2"),
    ):
        with pytest.raises(
            OutputError, match=f"^p: the .* of 48000x48000 pixels takes? {size} GiB"
        ):
            check_result(form, shape, itemsize, "p", at_once)
    monkeypatch.setattr(adapt, "available_memory", lambda: None)
    check_result(png, large, 2, "p", 2)
