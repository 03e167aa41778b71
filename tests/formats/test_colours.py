"""The colours of a file arrive in every other format, or a line says that they are lost.

Judges: exiftool for numbers, littleCMS and libjxl for profiles, formulas for all else.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image, ImageCms

from tests.helpers.colorimetry import (
    Floats,
    delta_e,
    lab_of_light,
    srgb_light,
    srgb_values,
    to_xyz,
)
from tests.helpers.contents import (
    Frames,
    adapt,
    decode,
    decode_all,
    encode,
    encoded,
    identity_models,
    opened,
)
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.formats import table
from waifu2x.formats.table import OutputOptions
from waifu2x.imaging.picture import CodePoints, Colours, Metadata, Picture

pillow_heif = pytest.importorskip("pillow_heif")
pytest.importorskip("pillow_jxl")
for extension in ("heic", "jxl"):
    table.plug_in(table.of(extension))
needs_exiftool = pytest.mark.skipif(
    not shutil.which("exiftool"), reason="exiftool is not installed"
)
LAB = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
TARGETS = ("png", "jpg", "webp", "tif", "avif", "heic", "jxl", "qoi")
GAMMA = 563 / 256

y, x = np.mgrid[0:15, 0:17]
LIGHT = srgb_light(np.stack([y * 13 + 30, 230 - x * 11, 40 + (x + y) * 4], -1) / 255)
"""A picture (15, 17, 3) of colours inside sRGB, as light of sRGB's primaries."""
TRUE = lab_of_light(LIGHT)


def samples(primaries: int | str, values: Callable[[Any], Any], top: int = 255) -> NDArray[Any]:
    """The picture with other primaries and another curve."""
    light = LIGHT @ (np.linalg.inv(to_xyz(primaries)) @ to_xyz(1)).T
    levels = np.rint(values(light.clip(0, 1)) * top)
    return np.asarray(levels, np.uint8 if top == 255 else np.uint16)


P3 = samples(12, srgb_values)
ADOBE = samples("adobe", lambda light: light ** (1 / GAMMA))


ADOBE_PROFILE = bytes(  # by littleCMS
    imagecodecs.cms_profile(
        "rgb",
        whitepoint=(0.3127, 0.329, 1),
        primaries=(0.64, 0.33, 1, 0.21, 0.71, 1, 0.15, 0.06, 1),
        gamma=GAMMA,
    )
)


def png(pixels: NDArray[Any], *chunks: tuple[bytes, bytes]) -> bytes:
    height, width, planes = pixels.shape
    depth = 8 * pixels.itemsize
    rows = pixels.astype(pixels.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, depth, 2 if planes == 3 else 0, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def avif(pixels: NDArray[Any], primaries: int, transfer: int, bits: int = 8) -> bytes:
    return bytes(
        imagecodecs.avif_encode(
            pixels, level=100, bitspersample=bits, pixelformat="444",
            primaries=primaries, transfer=transfer, matrix=9 if primaries == 9 else 6,
        )
    )  # fmt: skip


def heic(pixels: NDArray[Any], primaries: int, transfer: int) -> bytes:
    return encoded(
        Image.fromarray(pixels), "HEIF", quality=100, chroma=444,
        color_primaries=primaries, transfer_characteristics=transfer,
    )  # fmt: skip


def adobe_exif(*, by_rule: bool) -> bytes:
    exif = Image.Exif()
    below = exif.get_ifd(0x8769)
    below[0xA001] = 0xFFFF if by_rule else 2
    if by_rule:
        below[0xA005] = {1: "R03"}
    return exif.tobytes()


def gif(pixels: NDArray[np.uint8], profile: bytes) -> bytes:
    """Its profile in an application's extension, behind the colour table."""
    image = Image.fromarray(np.arange(255, dtype=np.uint8).reshape(15, 17), "P")
    image.putpalette(pixels.tobytes() + bytes(3))
    data = encoded(image, "GIF", optimize=False)
    end = 13 + (3 << ((data[10] & 7) + 1))
    blocks = [profile[at : at + 255] for at in range(0, len(profile), 255)]
    content = b"".join(bytes((len(block),)) + block for block in blocks)
    return data[:end] + b"!\xff\x0bICCRGBG1012" + content + b"\0" + data[end:]


def bmp(pixels: NDArray[np.uint8], profile: bytes | None) -> bytes:
    """Version 5 with a profile; version 4 with the primaries and the gamma of Adobe RGB."""
    height, width, _ = pixels.shape
    rows = pixels[::-1, :, ::-1].reshape(height, -1)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    size = 124 if profile else 108
    header = struct.pack("<IiiHHIIiiII", size, width, height, 1, 24, 0, rows.size, 0, 0, 0, 0)
    header += bytes(16)
    if profile:
        header += struct.pack(">I", 0x4D424544)[::-1] + bytes(48)
        header += struct.pack("<IIII", 4, size + rows.size, len(profile), 0)
    else:
        ends = [0.64, 0.33, 0.03, 0.21, 0.71, 0.08, 0.15, 0.06, 0.79]
        header += struct.pack("<I9i", 0, *(round(v * 2**30) for v in ends))
        header += struct.pack("<3I", *[round(GAMMA * 65536)] * 3)
    assert len(header) == size
    body = rows.tobytes() + (profile or b"")
    return struct.pack("<2sIHHI", b"BM", 14 + size + len(body), 0, 0, 14 + size) + header + body


def jp2(pixels: NDArray[np.uint8], colr: bytes) -> bytes:
    """With another colr box."""
    data = encoded(Image.fromarray(pixels), "JPEG2000")
    at = data.index(b"colr") - 4
    end = at + int.from_bytes(data[at : at + 4])
    whole = data.index(b"jp2h") - 4
    box = struct.pack(">I", 8 + len(colr)) + b"colr" + colr
    size = int.from_bytes(data[whole : whole + 4]) + len(box) - (end - at)
    return data[:whole] + struct.pack(">I", size) + data[whole + 4 : at] + box + data[end:]


def tiff(pixels: NDArray[np.uint8], *, table: bool) -> bytes:
    """By its own tags: primaries of Adobe RGB, and its curve as a table."""
    import tifffile

    xy = (0.3127, 0.329), (0.64, 0.33, 0.21, 0.71, 0.15, 0.06)
    ratios = [tuple(n for v in part for n in (round(v * 10000), 10000)) for part in xy]
    tags: list[Any] = [(318, 5, 2, ratios[0], True), (319, 5, 6, ratios[1], True)]
    if table:
        curve = np.rint(np.linspace(0, 1, 256) ** GAMMA * 65535).astype(int).tolist()
        tags.append((301, 3, 256, tuple(curve), True))
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, photometric="rgb", extratags=tags)
    return file.getvalue()


def sources() -> dict[str, bytes]:
    adobe = ADOBE_PROFILE
    srgb = np.rint(srgb_values(LIGHT) * 255).astype(np.uint8)
    cicp, words = (b"cICP", b"\x0c\x0d\0\1"), struct.Struct(">8I")
    chrm = (b"cHRM", words.pack(31270, 32900, 64000, 33000, 21000, 71000, 15000, 6000))
    gama = (b"gAMA", struct.pack(">I", round(100_000 / GAMMA)))
    other = (b"iCCP", b"fallback\0\0" + zlib.compress(SRGB))
    tagged = Image.fromarray(ADOBE)
    return {
        "cicp.png": png(P3, cicp),
        "cicp-beside-iccp.png": png(P3, cicp, other),
        "cicp-beside-srgb.png": png(P3, cicp, (b"sRGB", b"\0"), gama, chrm),
        "iccp-beside-chrm.png": png(ADOBE, (b"iCCP", b"p\0\0" + zlib.compress(adobe)),
                                    (b"gAMA", struct.pack(">I", 45455))),
        "srgb-beside-chrm.png": png(srgb, (b"sRGB", b"\0"), gama, chrm),
        "chrm.png": png(ADOBE, gama, chrm),
        "deep.png": png(samples(12, srgb_values, 65535), cicp),
        "narrow.png": png(samples(12, lambda v: (srgb_values(v) * 219 + 16) / 255),
                          (b"cICP", b"\x0c\x0d\0\0")),
        "unknown.png": png(ADOBE, (b"cICP", b"\x03\x0d\0\1"), gama, chrm),
        "p3.avif": avif(P3, 12, 13),
        "deep.avif": avif(samples(12, srgb_values, 1023), 12, 13, 10),
        "p3.heic": heic(P3, 12, 13),
        "icc.jpg": encoded(tagged, "JPEG", quality=100, subsampling=0, icc_profile=adobe),
        "exif.jpg": encoded(tagged, "JPEG", quality=100, subsampling=0,
                            exif=adobe_exif(by_rule=False)),
        "rule.jpg": encoded(tagged, "JPEG", quality=100, subsampling=0,
                            exif=adobe_exif(by_rule=True)),
        "icc.webp": encoded(tagged, "WEBP", lossless=True, icc_profile=adobe),
        "icc.tif": encoded(tagged, "TIFF", icc_profile=adobe),
        "table.tif": tiff(ADOBE, table=True),
        "chromaticities.tif": tiff(samples("adobe", srgb_values), table=False),
        "icc.gif": gif(ADOBE, adobe),
        "icc.bmp": bmp(ADOBE, adobe),
        "calibrated.bmp": bmp(ADOBE, None),
        "icc.jp2": jp2(ADOBE, b"\2\0\0" + adobe),
        "cicp.jp2": jp2(P3, b"\5\0\0\x0c\x0d\0\1"),
    }  # fmt: skip


SOURCES = sources()


def profile_in(data: bytes) -> bytes | None:
    """The profile of a file, as Pillow finds it."""
    with Image.open(io.BytesIO(data)) as image:
        return image.info.get("icc_profile")


def as_shown(data: bytes, points: tuple[int, int] | None) -> Floats:
    """Lab of a file's pixels: by its code points where a reader has found them, else by its profile
    and littleCMS, else as sRGB."""
    pixels = opened(data)
    if pixels.shape[-1] == 1:
        pixels = pixels.repeat(3, axis=-1)
    unit = pixels / (65535 if pixels.dtype == np.uint16 else 255)
    profile = profile_in(data)
    if points is not None:
        return lab_of_light(srgb_light(unit), points[0])
    if profile is None:
        return lab_of_light(srgb_light(unit))
    return np.asarray(
        imagecodecs.cms_transform(
            unit, profile, LAB, colorspace="rgb", outcolorspace="lab", outdtype="f8"
        )
    )


def numbers_in(folder: Path) -> dict[str, dict[str, Any]]:
    """exiftool's tags of all files in a folder, by their names."""
    command = ["exiftool", "-json", "-n", str(folder)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {Path(one["SourceFile"]).name: one for one in found}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """A folder with all sources in all formats, and exiftool's tags by name."""
    folder = tmp_path_factory.mktemp("results")
    for name, data in SOURCES.items():
        picture = decode(data)
        for target in TARGETS:
            level = 100 if target in ("jpg", "avif", "heic") else None
            (folder / f"{name}.{target}").write_bytes(encode(picture, target, level))
    return folder, numbers_in(folder)


@needs_exiftool
@pytest.mark.parametrize("source", SOURCES)
def test_colours_look_the_same_in_every_format(
    source: str, results: tuple[Path, dict[str, dict[str, Any]]]
) -> None:
    folder, tags = results
    mean = {}
    for target in TARGETS:
        found = tags.get(f"{source}.{target}", {})
        points = (found.get("ColorPrimaries"), found.get("TransferCharacteristics"))
        data = (folder / f"{source}.{target}").read_bytes()
        shown = as_shown(data, points if points in ((1, 13), (12, 13)) else None)
        if source == "narrow.png" and target == "png":
            assert found["VideoFullRangeFlag"] == 0
            shown = lab_of_light(srgb_light((opened(data) - 16.0).clip(0) / 219), 12)
        mean[target] = delta_e(shown, TRUE).mean()
    assert {target for target, found in mean.items() if not found < 1} == set(), mean


def test_delta_e_is_that_of_its_authors() -> None:
    one = np.array([[50, 2.6772, -79.7751], [50, 2.5, 0], [2.0776, 0.0795, -1.1350]])
    other = np.array([[50, 0, -82.7485], [73, 25, -18], [0.9033, -0.0636, -0.5514]])
    assert np.allclose(delta_e(one, other), [2.0425, 27.1492, 0.9082], atol=1e-4)


# HDR.

HDR = [
    (b"mDCV", struct.pack(">8H2I", 34000, 16000, 13250, 34500, 7500, 3000, 15635, 16450,
                          10_000_000, 50)),
    (b"cLLI", struct.pack(">2I", 9_995_000, 4_000_001)),
]  # fmt: skip


def chunks_in(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def pq(nits: Any) -> Floats:
    """SMPTE ST 2084."""
    power = (np.asarray(nits) / 10000) ** 0.1593017578125
    return np.asarray(((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375)


def hdr_pixels(most: float = 90) -> NDArray[np.uint16]:
    """The picture in BT.2020 and PQ, its white at `most` cd/m²."""
    return samples(9, lambda light: pq(light * most), 65535)


@needs_exiftool
@pytest.mark.parametrize("transfer", [16, 18])
def test_hdr_keeps_its_numbers(tmp_path: Path, transfer: int) -> None:
    pixels = hdr_pixels()
    picture = decode(png(pixels, (b"cICP", bytes((9, transfer, 0, 1))), *HDR))
    lossless = {"png", "jxl"}
    for target in TARGETS[:7]:
        data = encode(picture, target, None if target in ("webp", *lossless) else 100)
        (tmp_path / f"a.{target}").write_bytes(data)
        expected = decode(data) if target == "png" else opened(data)
        shown = expected.pixels if isinstance(expected, Picture) else expected
        peak = 65535 if shown.dtype == np.uint16 else 255
        assert abs(shown / peak - pixels / 65535).max() < (0.01 if target in lossless else 0.03)
    tags = numbers_in(tmp_path)
    for target in ("png", "avif", "heic"):
        found = tags[f"a.{target}"]
        numbers = found["ColorPrimaries"], found["TransferCharacteristics"]
        assert numbers == (9, transfer), target
    for target in ("jpg", "webp", "tif", "jxl"):
        profile = profile_in((tmp_path / f"a.{target}").read_bytes())
        assert profile is not None
        (place,) = [
            struct.unpack_from(">II", profile, 136 + 12 * number)
            for number in range(struct.unpack_from(">I", profile, 128)[0])
            if profile[132 + 12 * number :][:4] == b"cicp"
        ]
        assert profile[place[0] + 8 :][:4] == bytes((9, transfer, 0, 1)), target
        ImageCms.ImageCmsProfile(io.BytesIO(profile))
    chunks = dict(chunks_in((tmp_path / "a.png").read_bytes()))
    assert [chunks[kind] for kind, _ in HDR] == [body for _, body in HDR]


def test_hdr_is_shown_as_sdr_where_it_has_to_be() -> None:
    """Colours that are darker than the highlights stay; white on paper is 203 cd/m²."""
    picture = decode(png(hdr_pixels(90), (b"cICP", b"\x09\x10\0\1")))
    expected = lab_of_light(LIGHT * 90 / 203)
    for target in ("bmp", "jp2"):
        shown = lab_of_light(srgb_light(opened(encode(picture, target)) / 255))
        assert delta_e(shown, expected).mean() < 1
    grey = np.rint(pq(np.linspace(0, 90, 256)) * 65535).astype(np.uint16).reshape(16, 16, 1)
    shown = opened(encode(decode(png(grey, (b"cICP", b"\x09\x10\0\1"))), "bmp"))
    expected_grey = srgb_values(np.linspace(0, 90, 256) / 203) * 255
    assert abs(shown.ravel() - expected_grey).max() < 1.5
    # Highlights get no darker, and none is lost below 1,000.
    bright = np.rint(pq(np.linspace(0, 1000, 256)) * 65535).astype(np.uint16).reshape(16, 16, 1)
    shown = opened(encode(decode(png(bright, (b"cICP", b"\x09\x10\0\1"))), "bmp")).ravel()
    assert (np.diff(shown.astype(int)) >= 0).all()
    assert shown[-1] == 255
    # HLG's white on paper is at 75 %, as bright as PQ's at 203 cd/m²: BT.2390 makes it 160.
    white = srgb_values(160 / 203) * 255
    for data in (
        png(np.full((2, 2, 3), round(0.75 * 65535), np.uint16), (b"cICP", b"\x09\x12\0\1")),
        png(np.full((2, 2, 3), np.rint(pq(203) * 65535), np.uint16), (b"cICP", b"\x09\x10\0\1")),
    ):
        assert abs(opened(encode(decode(data), "bmp")).astype(int) - white).max() <= 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("png", []),
        ("avif", []),
        ("heic", []),
        ("jxl", ["JPEG XL holds no metadata of HDR10"]),
        ("jpg", ["JPEG holds no metadata of HDR10",
                 "JPEG says that the picture is HDR in its colour profile alone"]),
        ("bmp", ["BMP holds no metadata of HDR10", "BMP holds no HDR: converted to sRGB"]),
    ],
)  # fmt: skip
def test_losses_are_said(target: str, expected: list[str]) -> None:
    picture = decode(png(samples(12, srgb_values), (b"cICP", b"\x09\x10\0\1"), *HDR))
    _, notices = adapt(Frames((picture,)), table.of(target), OutputOptions())
    assert notices == expected


def test_colours_without_meaning_are_said_to_be_lost() -> None:
    picture = Picture(P3, None, Colours(None, CodePoints(3, 200)))
    _, notices = adapt(Frames((picture,)), table.of("jpg"), OutputOptions())
    assert notices == ["JPEG cannot say its colours (primaries 3, transfer 200)"]
    assert dict(chunks_in(encode(picture, "png")))[b"cICP"] == bytes((3, 200, 0, 1))


# Through the program.


def run(source: str, target: str) -> str:
    command = ["upscale", "-m", "identity", "--backend", "numpy", source, target]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("depth", [255, 65535])
def test_a_png_keeps_all_its_words(depth: int) -> None:
    words = [
        (b"cICP", b"\x09\x10\0\1"),
        (b"iCCP", b"ICC profile\0\0" + zlib.compress(SRGB)),
        (b"gAMA", struct.pack(">I", 45455)),
        *HDR,
    ]
    Path("a.png").write_bytes(png(samples(9, pq, depth), *words))
    assert run("a.png", "b.png") == ""
    found = dict(chunks_in(Path("b.png").read_bytes()))
    assert zlib.decompress(found[b"iCCP"].partition(b"\0")[2][1:]) == SRGB
    kept = [(kind, body) for kind, body in words if kind != b"iCCP"]
    assert [(kind, found[kind]) for kind, _ in kept] == kept


@pytest.mark.usefixtures("folder")
def test_nothing_is_added_to_a_png() -> None:
    Path("a.png").write_bytes(png(P3, (b"cICP", b"\x0c\x0d\0\1")))
    run("a.png", "b.png")
    kinds = [kind for kind, _ in chunks_in(Path("b.png").read_bytes())]
    assert kinds == [b"IHDR", b"cICP", b"IDAT", b"IEND"]


@needs_exiftool
@pytest.mark.usefixtures("folder")
def test_code_points_of_an_avif_reach_a_png(tmp_path: Path) -> None:
    """With a profile beside them for programs that know no code points."""
    Path("a.avif").write_bytes(avif(P3, 12, 13))
    run("a.avif", "b.png")
    data = Path("b.png").read_bytes()
    assert dict(chunks_in(data))[b"cICP"] == b"\x0c\x0d\0\1"
    enlarged = as_shown(data, None)
    assert delta_e(enlarged[::2, ::2], TRUE).mean() < 1


@needs_exiftool
def test_code_points_of_avif_are_in_its_stream_too(tmp_path: Path) -> None:
    if not shutil.which("ffprobe"):
        pytest.skip("ffprobe is not installed")
    path = tmp_path / "a.avif"
    path.write_bytes(encode(Picture(P3, None, Colours(None, CodePoints(9, 16))), "avif"))
    command = ["ffprobe", "-v", "quiet", "-show_frames", "-of", "json", str(path)]
    (frame,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["frames"]
    assert (frame["color_primaries"], frame["color_transfer"]) == ("bt2020", "smpte2084")


@needs_exiftool
def test_animations_keep_code_points(tmp_path: Path) -> None:
    said = Colours(None, CodePoints(12, 13))
    frames = tuple(Picture(np.roll(P3, n, 0), None, said) for n in (0, 5))
    (tmp_path / "a.avif").write_bytes(encode(Frames(frames, (100.0, 100.0)), "avif"))
    found = numbers_in(tmp_path)["a.avif"]
    assert (found["ColorPrimaries"], found["TransferCharacteristics"]) == (12, 13)
    pictures = decode_all((tmp_path / "a.avif").read_bytes()).pictures
    assert [picture.colours.code_points for picture in pictures] == [CodePoints(12, 13)] * 2


# Grey.


@pytest.mark.parametrize("target", ["webp", "avif", "jpg", "tif", "jxl", "heic", "bmp", "png"])
@pytest.mark.parametrize("said", ["gAMA", "iCCP", "cICP"])
def test_grey_stays_as_bright(target: str, said: str) -> None:
    """A profile for grey is of no use to a format that has only RGB."""
    light = np.linspace(0, 1, 256).reshape(16, 16, 1)
    linear = bytes(imagecodecs.cms_profile("gray", gamma=1.0))
    words = {
        "gAMA": (b"gAMA", struct.pack(">I", 100_000)),
        "iCCP": (b"iCCP", b"p\0\0" + zlib.compress(linear)),
        "cICP": (b"cICP", b"\x01\x08\0\1"),
    }
    picture = decode(png(np.rint(light * 255).astype(np.uint8), words[said]))
    level = 100 if target in ("avif", "jpg", "heic") else None
    data = encode(picture, target, level)
    profile, shown = profile_in(data), opened(data)
    if profile is not None:
        image = Image.open(io.BytesIO(data))
        space = ImageCms.ImageCmsProfile(io.BytesIO(profile)).profile.xcolor_space.strip()
        assert space == ("GRAY" if image.mode == "L" else "RGB")
        colorspace = "gray" if image.mode == "L" else "rgb"
        lab = imagecodecs.cms_transform(
            shown[..., 0] / 255 if image.mode == "L" else shown / 255, profile, LAB,
            colorspace=colorspace, outcolorspace="lab", outdtype="f8",
        )  # fmt: skip
    elif target == "bmp":
        lab = lab_of_light(srgb_light(shown.repeat(3, -1) / 255))
    elif target in ("avif", "heic"):
        lab = lab_of_light(shown.repeat(3 // shown.shape[-1], -1) / 255)
        assert decode(data).colours.code_points == CodePoints(1, 8)
    expected = lab_of_light(np.repeat(np.rint(light * 255) / 255, 3, -1))
    assert delta_e(np.asarray(lab), expected)[1:].mean() < 1


# EXIF.


@pytest.mark.parametrize("by_rule", [False, True])
def test_exif_says_no_other_colours_than_the_file(by_rule: bool) -> None:
    block = adobe_exif(by_rule=by_rule)
    cmyk = encoded(Image.fromarray(ADOBE).convert("CMYK"), "JPEG", exif=block)
    for source in (cmyk, encoded(Image.fromarray(P3), "PNG", exif=block)):
        data = encode(decode(source), "jpg")
        with Image.open(io.BytesIO(data)) as image:
            found = image.getexif().get_ifd(0x8769)
            assert "icc_profile" not in image.info
            assert found[0xA001] == 1
            if by_rule:
                assert image.getexif().get_ifd(0xA005)[1] == "R98"
    kept = encode(decode(SOURCES["exif.jpg"]), "jpg")
    with Image.open(io.BytesIO(kept)) as image:
        assert image.getexif().get_ifd(0x8769)[0xA001] == 2


# JPEG XL, whose header is rewritten.


@pytest.mark.parametrize("level", [None, 90])
@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (9, 300), (256, 256)])
def test_jpeg_xl_of_other_colours(level: int | None, alpha: bool, size: tuple[int, int]) -> None:
    height, width = size
    smooth = np.resize(np.rint(srgb_values(LIGHT) * 255), (height, width, 3)).astype(np.uint8)
    opacity = np.full(size, 200, np.uint8) if alpha else None
    for points in (CodePoints(12, 13), CodePoints(9, 16), CodePoints(5, 4)):
        picture = Picture(smooth, opacity, Colours(None, points))
        data = encode(picture, "jxl", level)
        with Image.open(io.BytesIO(data)) as image:
            shown = np.asarray(image).astype(int)
            assert image.size == (width, height)
        if level is None:
            assert (shown[..., :3] == smooth).all()
            assert not alpha or (shown[..., 3] == 200).all()


# Damage.


@pytest.mark.parametrize("seed", range(8))
def test_damaged_words_are_no_failure(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for name in ("p3.avif", "icc.gif", "icc.bmp", "calibrated.bmp", "cicp.jp2", "table.tif"):
        data = bytearray(SOURCES[name])
        for place in generator.integers(8, min(len(data), 400), 3):
            data[place] = generator.integers(256)
        try:
            picture = decode(bytes(data))
        except ImageError:
            continue
        for target in ("png", "jpg", "avif", "jxl", "qoi"):
            decode(encode(picture, target))


@pytest.mark.parametrize("seed", range(8))
def test_senseless_primaries_and_curves_are_no_failure(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for scale in (2**32, 300_000, 3):
        numbers = generator.integers(0, scale, 8).tolist()
        gamma = int(generator.integers(0, scale))
        words = (b"cHRM", struct.pack(">8I", *numbers)), (b"gAMA", struct.pack(">I", gamma))
        picture = decode(png(P3, *words))
        for target in ("png", "jpg", "avif", "jxl", "qoi"):
            with Image.open(io.BytesIO(encode(picture, target))) as image:
                image.load()
        profile = bytearray(ADOBE_PROFILE)
        for place in generator.integers(132, len(profile), 6):
            profile[place] = generator.integers(256)
        picture = Picture(P3, None, Colours(bytes(profile)))
        for target in ("png", "jpg", "jxl", "qoi"):
            encode(picture, target)


def test_the_light_of_a_picture_decides_how_its_highlights_are_shown() -> None:
    """MaxCLL of 203 cd/m² leaves white as it is; one of 4,000 keeps what lies above 1,000 apart."""
    levels = np.rint(pq(np.array([[[203.0], [1500], [4000]]])) * 65535).astype(np.uint16)

    def shown(light: int) -> list[int]:
        words = (b"cICP", b"\x09\x10\0\1"), (b"cLLI", struct.pack(">2I", light * 10_000, 0))
        return opened(encode(decode(png(levels, *words)), "bmp")).ravel().tolist()

    assert shown(203)[0] >= 254
    dim, bright, brightest = shown(4000)
    assert dim < bright < brightest >= 254


@pytest.mark.usefixtures("folder")
def test_pictures_of_other_colours_are_compared_as_they_look() -> None:
    srgb = np.rint(srgb_values(LIGHT) * 255).astype(np.uint8)
    Path("a.png").write_bytes(png(P3, (b"cICP", b"\x0c\x0d\0\1")))
    Path("b.png").write_bytes(encoded(Image.fromarray(srgb), "PNG", icc_profile=SRGB))
    Path("c.png").write_bytes(encoded(Image.fromarray(srgb)))
    for other, least in (("a.png", 45), ("c.png", 1000)):
        done = CliRunner().invoke(cli, ["compare", "--json", "b.png", other])
        found = json.loads(done.stdout)["psnr"]
        assert found is None or found > least
    CliRunner().invoke(cli, ["compare", "a.png", "a.png", "-o", "sheet.png"])
    assert dict(chunks_in(Path("sheet.png").read_bytes()))[b"cICP"] == b"\x0c\x0d\0\1"


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("target", ["avif", "heic"])
def test_hdr10_stands_beside_all_else(target: str, alpha: bool) -> None:
    """By libheif; places in the file move, and nothing is lost by that."""
    pixels = (hdr_pixels() >> 8).astype(np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    picture = decode(png(pixels, (b"cICP", b"\x09\x10\0\1"), *HDR))
    opacity = np.full(pixels.shape[:2], 130, np.uint8) if alpha else None
    metadata = Metadata(exif=exif.tobytes()[6:], xmp=b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>")
    picture = replace(picture, pixels=pixels, alpha=opacity, metadata=metadata)
    found = pillow_heif.open_heif(io.BytesIO(encode(picture, target, 100))).info
    assert found["nclx_profile"]["transfer_characteristics"] == 16
    light, display = found["content_light_level"], found["mastering_display_colour_volume"]
    assert list(light.values()) == [1000, 400]  # of whole cd/m²
    assert display["display_primaries_x"] == (13250, 7500, 34000)
    assert display["display_primaries_y"] == (34500, 3000, 16000)
    assert (display["white_point_x"], display["white_point_y"]) == (15635, 16450)
    assert display["max_display_mastering_luminance"] == 10_000_000
    assert display["min_display_mastering_luminance"] == 50
    without = replace(picture, colours=replace(picture.colours, hdr=None))
    with Image.open(io.BytesIO(encode(picture, target, 100))) as image:
        with Image.open(io.BytesIO(encode(without, target, 100))) as plain:
            assert (np.asarray(image) == np.asarray(plain)).all()
        assert image.getexif()[0x010F] == "Maker"
        assert image.info["xmp"] == metadata.xmp
    back = decode(encode(picture, target, 100))
    assert decode(encode(back, "png")).colours.hdr == back.colours.hdr is not None


def test_animations_have_no_hdr10() -> None:
    picture = decode(png((hdr_pixels() >> 8).astype(np.uint8), (b"cICP", b"\x09\x10\0\1"), *HDR))
    frames = Frames((picture, picture), (100.0, 100.0))
    _, notices = adapt(frames, table.of("avif"), OutputOptions())
    assert notices == ["AVIF holds no metadata of HDR10 in an animation"]
    assert len(decode_all(encode(frames, "avif")).pictures) == 2
