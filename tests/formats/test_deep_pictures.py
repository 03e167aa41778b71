"""More than 8 bits a sample: PNG, TIFF and PNM, read by others and by us, through the program."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.contents import (
    Frames,
    adapt,
    decode,
    decode_all,
    drawn,
    encode,
    encoded,
    identity_models,
    noise,
)
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.formats import read
from waifu2x.formats.table import OutputOptions, of
from waifu2x.imaging.picture import Picture, with_alpha


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("alpha", [False, True])
def test_tiff_is_what_libtiff_reads(dtype: Any, planes: int, alpha: bool) -> None:
    picture = drawn(planes, alpha, (70, 51), np.uint16)
    if dtype == np.float32:
        opacity = None if picture.alpha is None else (picture.alpha / 65535).astype(dtype)
        picture = Picture((picture.pixels / 65535).astype(dtype), opacity)
    elif dtype == np.uint8:
        picture = drawn(planes, alpha, (70, 51), dtype)
    data = encode(picture, "tif")
    read = np.atleast_3d(imagecodecs.tiff_decode(data))
    assert read.dtype == dtype
    assert (read == with_alpha(picture)).all()
    back = decode(data)
    assert back.pixels.dtype == dtype
    assert (with_alpha(back) == with_alpha(picture)).all()


def many_bits(form: str, bits: int, samples: NDArray[Any]) -> bytes:
    """Returns a lossless file of samples of `bits` bits."""
    if form == "avif":
        return bytes(imagecodecs.avif_encode(samples, level=100, speed=10, bitspersample=bits))
    pytest.importorskip("pillow_jxl")
    return bytes(imagecodecs.jpegxl_encode(samples, lossless=True, effort=1, bitspersample=bits))


@pytest.mark.parametrize("planes", [1, 3, 4])
@pytest.mark.parametrize(
    ("form", "bits"),
    [("avif", 10), ("avif", 12), ("jxl", 9), ("jxl", 10), ("jxl", 12), ("jxl", 16)],
)
def test_what_has_many_bits_is_read_in_full(form: str, bits: int, planes: int) -> None:
    picture = with_alpha(drawn(3 if planes == 4 else planes, planes == 4, (37, 52), np.uint16))
    samples = picture >> np.uint16(16 - bits)
    frames = decode_all(many_bits(form, bits, samples), "p", 10_000)
    assert frames.pictures[0].pixels.dtype == np.uint16
    assert frames.notices == ()
    found = with_alpha(frames.pictures[0])
    np.testing.assert_array_equal(found, np.rint(samples * (65535 / (2**bits - 1))))


@pytest.mark.parametrize("mode", ["RGB;16", "RGBA;16"])
def test_heif_of_ten_bits_is_read_in_full(mode: str) -> None:
    heif = pytest.importorskip("pillow_heif")
    planes = mode.index(";")
    ramp = np.linspace(0, 65535, 37 * 52).reshape(37, 52, 1).repeat(planes, 2).astype(np.uint16)
    file = io.BytesIO()
    heif.from_bytes(mode, (52, 37), ramp.tobytes()).save(file, quality=100)
    frames = decode_all(file.getvalue(), "p", 10_000)
    found = with_alpha(frames.pictures[0])
    assert frames.notices == ()
    assert found.dtype == np.uint16
    assert found.max() > 65_400
    assert len(np.unique(found)) > 600
    assert np.abs(found.astype(float) - ramp).max() < 260


@pytest.mark.parametrize(
    "result",
    [np.zeros((37, 52, 3), np.uint16), np.zeros((52, 37, 3), np.uint16), RuntimeError("no codec")],
    ids=["another picture", "another size", "no codec"],
)
def test_what_cannot_be_read_in_full_is_read_as_8_bits(
    result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = drawn(3, False, (37, 52), np.uint16).pixels >> np.uint16(6)
    data = many_bits("avif", 10, samples)

    def decoded(data: bytes) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(imagecodecs, "avif_decode", decoded)
    frames = decode_all(data, "p", 10_000)
    assert frames.notices == ("its 10 bits a sample are read as 8",)
    assert frames.pictures[0].pixels.dtype == np.uint8
    assert np.abs(frames.pictures[0].pixels - samples / 1023 * 255).max() <= 1.5


def test_a_deep_avif_takes_more_memory_and_an_ordinary_one_does_not() -> None:
    samples = drawn(3, False, (37, 52), np.uint16).pixels
    for bits, size in ((10, 2), (12, 2), (8, 1)):
        shallow = (samples >> np.uint16(16 - bits)).astype(np.uint8 if bits == 8 else np.uint16)
        extent = read.extent(many_bits("avif", bits, shallow))
        assert extent is not None
        assert extent.nbytes == samples.size * size
        assert decode(many_bits("avif", bits, shallow)).pixels.itemsize == size


@pytest.mark.parametrize("planes", [1, 3])
def test_pnm_of_sixteen_bits(planes: int) -> None:
    picture = drawn(planes, False, (7, 12), np.uint16)
    data = encode(picture, "ppm")
    assert (decode(data).pixels == picture.pixels).all()
    if planes == 1:
        with Image.open(io.BytesIO(data)) as image:
            assert (np.asarray(image) == picture.pixels[..., 0]).all()


TIFFS: dict[str, dict[str, Any]] = {
    "big-endian": {"byteorder": ">"},
    "bigtiff": {"bigtiff": True},
    "tiles": {"tile": (16, 32)},
    "planes-apart": {"planarconfig": "separate"},
    "lzw": {"compression": "lzw", "predictor": True},
    "zstd": {"compression": "zstd"},
}


@pytest.mark.parametrize("kind", TIFFS)
def test_kinds_of_tiff(kind: str) -> None:
    pixels = noise(40, 50, 3, dtype=np.uint16)
    stream = io.BytesIO()
    options = dict(TIFFS[kind])
    apart = options.get("planarconfig") == "separate"
    stored = np.moveaxis(pixels, -1, 0) if apart else pixels
    tifffile.imwrite(stream, stored, photometric="rgb", metadata=None, **options)
    assert (decode(stream.getvalue()).pixels == pixels).all()


def test_tiff_whose_zero_is_white() -> None:
    pixels = noise(4, 5, dtype=np.uint16)
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, photometric="miniswhite")
    assert (decode(stream.getvalue()).pixels[..., 0] == 65535 - pixels).all()


def test_premultiplied_tiff() -> None:
    colour = np.full((4, 5, 3), 40_000, np.uint16)
    alpha = np.linspace(0, 65535, 20).astype(np.uint16).reshape(4, 5)
    stored = np.rint(colour * (alpha[..., np.newaxis] / 65535)).astype(np.uint16)
    stream = io.BytesIO()
    whole = np.concatenate([stored, alpha[..., np.newaxis]], -1)
    tifffile.imwrite(stream, whole, photometric="rgb", extrasamples=["assocalpha"])
    back = decode(stream.getvalue())
    assert back.alpha is not None
    assert (back.alpha == alpha).all()
    shown = alpha > 3000  # of what has less, few levels are left
    assert abs(back.pixels[shown].astype(int) - 40_000).max() < 15


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, 2.5], "float samples from 0 to 2.5"),
        ([0.0, np.nan], "float samples from nan to nan"),
        ([0.0, np.inf], "float samples from 0 to inf"),
    ],
)
def test_floats_that_are_no_picture(values: list[float], message: str) -> None:
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.array([values], np.float32))
    with pytest.raises(ImageError, match=f"p: {message}, expected 0 to 1; scale them first"):
        decode(stream.getvalue())


def test_floats_slightly_outside_are_cut_off_and_that_is_said() -> None:
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.array([[-0.01, 0.5, 1.02]], np.float32))
    frames = decode_all(stream.getvalue(), "p")
    assert frames.pictures[0].pixels.ravel().tolist() == [0.0, 0.5, 1.0]
    assert frames.notices == ("float samples outside 0 to 1 are cut off",)


# Through the program.


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


@pytest.mark.parametrize("extension", ["png", "tif"])
@pytest.mark.parametrize("planes", [1, 3])
def test_a_gradient_keeps_its_levels(folder: Path, extension: str, planes: int) -> None:
    levels = np.linspace(0, 65535, 60_000).astype(np.uint16).reshape(200, 300, 1)
    pixels = np.concatenate([levels, levels[::-1], levels[:, ::-1]][:planes], axis=-1)
    Path(f"a.{extension}").write_bytes(encode(Picture(pixels), extension))
    assert upscale(f"a.{extension}", f"b.{extension}") == ""
    content = Path(f"b.{extension}").read_bytes()
    decoded = (imagecodecs.png_decode if extension == "png" else imagecodecs.tiff_decode)(content)
    result = np.atleast_3d(decoded)
    assert len(np.unique(result[..., 0])) > 50_000
    assert (result == pixels.repeat(2, 0).repeat(2, 1)).all()


def test_depth(folder: Path) -> None:
    pixels = noise(6, 5, 3, dtype=np.uint16)
    Path("a.png").write_bytes(encode(Picture(pixels), "png"))
    large = pixels.repeat(2, 0).repeat(2, 1)
    assert upscale("--depth", "8", "a.png", "b.png") == ""
    assert (decode(Path("b.png").read_bytes()).pixels == np.rint(large / 257)).all()
    assert upscale("a.png", "b.bmp") == "a.png: BMP holds 8 bits a sample, not 16\n"
    assert (decode(Path("b.bmp").read_bytes()).pixels == np.rint(large / 257)).all()
    assert upscale("--depth", "16", "b.bmp", "c.tif") == ""
    eight = np.rint(large / 257).astype(np.uint16)
    assert (
        decode(Path("c.tif").read_bytes()).pixels == 257 * eight.repeat(2, 0).repeat(2, 1)
    ).all()
    result = CliRunner().invoke(cli, ["upscale", "--depth", "16", "a.png", "b.jpg"])
    assert result.exit_code == 2
    assert "JPEG does not hold 16 bits a sample; choose png or tiff" in result.stderr


def test_depth_of_floats() -> None:
    picture = Picture(np.full((3, 4, 3), 0.5, np.float32))
    for extension, options, bits in (
        ("tif", OutputOptions(), 32),
        ("png", OutputOptions(), 16),
        ("jpg", OutputOptions(), 8),
        ("tif", OutputOptions(depth="8"), 8),
    ):
        back = decode(encode(picture, extension, options=options))
        assert 8 * back.pixels.dtype.itemsize == bits
    _, notes = adapt(Frames((picture,)), of("png"), OutputOptions())
    assert notes == ["PNG holds 16 bits a sample, not 32"]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_grey_stays_grey(folder: Path, form: str) -> None:
    extension = {"JPEG": "jpg", "PNG": "png", "TIFF": "tif"}[form]
    Path(f"a.{extension}").write_bytes(encoded(Image.fromarray(noise(8, 9)), form))
    assert upscale(f"a.{extension}", f"b.{extension}") == ""
    with Image.open(f"b.{extension}") as image:
        assert (image.mode, image.size) == ("L", (18, 16))


def test_a_thumbnail_of_many_bits_does_not_make_a_tiff_deep() -> None:
    """The picture is one with a palette, which is for Pillow."""
    picture = Image.fromarray(noise(9, 7, 3)).quantize(16)
    stream = io.BytesIO(encoded(picture, "TIFF"))
    with tifffile.TiffWriter(stream, append=True) as writer:
        writer.write(np.zeros((4, 4), np.float32), subfiletype=1, metadata=None)
    (found,) = decode_all(stream.getvalue()).pictures
    assert (found.pixels == np.asarray(picture.convert("RGB"))).all()


def test_a_page_with_a_palette_beside_a_deep_one() -> None:
    indices = noise(9, 7) % 4
    colours = np.array([[0, 0, 0], [255, 0, 9], [0, 200, 0], [10, 20, 250]], np.uint8)
    table = np.zeros((3, 256), np.uint16)
    table[:, :4] = colours.T.astype(np.uint16) * 257
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(indices, photometric="palette", colormap=table, metadata=None)
        writer.write(noise(5, 6, dtype=np.uint16), metadata=None)
    first, second = decode_all(stream.getvalue()).pictures
    assert (first.pixels == colours[indices]).all()
    assert second.pixels.dtype == np.uint16


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_tiff_gains_no_resolution(dtype: type, order: str) -> None:
    """Nor does a page take the one of the page before."""
    stream = io.BytesIO()
    pages = [noise(9, 7, dtype=dtype), noise(5, 6, dtype=dtype), noise(4, 4, dtype=dtype)]
    with tifffile.TiffWriter(stream, byteorder=order) as writer:
        for index, page in enumerate(pages):
            said = {"resolution": (300, 150), "resolutionunit": "INCH"} if index == 1 else {}
            writer.write(page, metadata=None, **said)
    back = decode_all(stream.getvalue())
    assert [one.metadata.dpi for one in back.pictures] == [None, (300, 150), None]
    with tifffile.TiffFile(io.BytesIO(encode(back, "tif"))) as file:
        assert len(file.pages) == 3
        for page, pixels, index in zip(file.pages, pages, range(3), strict=True):
            assert (page.asarray() == pixels).all()
            found = {tag.code for tag in page.tags} & {282, 283, 296}
            assert len(found) == (3 if index == 1 else 0)
