"""From every format that is read to every one that is written, nothing is lost without a line.

Sources hold all that their formats can: exiftool puts metadata into what Pillow, tifffile and
imagecodecs write, and says what it finds there. The same readers judge the results.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.cases import thinned
from tests.helpers.contents import encoded, identity_models, ramp
from waifu2x.cli import cli
from waifu2x.formats import table

pytestmark = pytest.mark.skipif(not shutil.which("exiftool"), reason="exiftool is not installed")
HEIGHT, WIDTH = 24, 33
OPACITY = np.repeat(np.arange(WIDTH)[np.newaxis] // 11 * 127, HEIGHT, 0).astype(np.uint8)
"""Clear, half clear and opaque."""
RGB = Image.fromarray(ramp(3))
RGBA = Image.fromarray(np.dstack([ramp(3), OPACITY]))
DEEP = (
    ramp(3).astype(np.uint16) * 257 + np.arange(WIDTH, dtype=np.uint16)[np.newaxis, :, np.newaxis]
)
DEEP_CLEAR = np.dstack([DEEP, OPACITY.astype(np.uint16) * 257])
MORE: dict[str, Any] = {"save_all": True, "append_images": [RGB.rotate(180), RGB]}
MOVING: dict[str, Any] = {
    "save_all": True,
    "append_images": [RGBA.rotate(180), RGBA],
    "duration": [100, 200, 300],
}


def _plain(form: str, image: Image.Image = RGB, **options: Any) -> Callable[[], bytes]:
    return lambda: encoded(image, form, **options)


def _tiff() -> bytes:
    stream = io.BytesIO()
    pages = np.stack([DEEP_CLEAR, DEEP_CLEAR[::-1]])
    tifffile.imwrite(stream, pages, photometric="rgb", extrasamples=["unassalpha"], metadata=None)
    return stream.getvalue()


def _psd() -> bytes:
    head = struct.pack(">4sH6xHIIHH", b"8BPS", 1, 3, HEIGHT, WIDTH, 8, 3)
    return head + bytes(12) + b"\0\0" + ramp(3).transpose(2, 0, 1).tobytes()


def _palette(form: str, **options: Any) -> Callable[[], bytes]:
    return lambda: encoded(RGB.quantize(64), form, **options)


SOURCES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "deep": ("png", lambda: bytes(imagecodecs.png_encode(DEEP_CLEAR))),
    "palette": ("png", _palette("PNG")),
    "bits": ("png", _plain("PNG", RGB.convert("1"))),
    "moving": ("apng", _plain("PNG", RGBA, **MOVING)),
    "grey": ("jpg", _plain("JPEG", RGB.convert("L"), quality=98)),
    "inks": ("jpg", _plain("JPEG", RGB.convert("CMYK"), quality=98)),
    "views": ("mpo", _plain("MPO", **MORE)),
    "moving webp": ("webp", _plain("WEBP", RGBA, lossless=True, **MOVING)),
    "pages": ("tif", _tiff),
    "palette bmp": ("bmp", _palette("BMP", dpi=(144, 144))),
    "deep ppm": ("ppm", lambda: b"P6 33 24 65535\n" + DEEP.astype(">u2").tobytes()),
    "packed": ("tga", _plain("TGA", RGBA, compression="tga_rle")),
    "moving gif": ("gif", _plain("GIF", **MORE, duration=[100, 200, 300], loop=3)),
    "clear avif": ("avif", _plain("AVIF", RGBA, quality=95)),
    "moving avif": ("avif", _plain("AVIF", **MORE, quality=95)),
    "clear jp2": ("jp2", _plain("JPEG2000", RGBA)),
    "codestream": ("j2k", _plain("JPEG2000", no_jp2=True)),
    "clear qoi": ("qoi", lambda: bytes(imagecodecs.qoi_encode(np.asarray(RGBA)))),
    "clear jxl": ("jxl", _plain("JXL", RGBA, lossless=True)),
    "several heic": ("heic", lambda: _heic()),
    "merged": ("psd", _psd),
    "sizes": ("ico", _plain("ICO", RGBA.resize((32, 32)), sizes=[(16, 16), (32, 32)])),
    "palette pcx": ("pcx", _palette("PCX")),
    "clear dds": ("dds", _plain("DDS", RGBA)),
    "clear sgi": ("sgi", _plain("SGI", RGBA)),
}  # fmt: skip
"""The extension of each file, and the function that makes it by another program."""
TARGETS = [form.extensions[0] for form in table.FORMATS if form.writable]
WRITTEN = {
    "EXIF": ("-IFD0:Make=Maker", "-ExifIFD:DateTimeOriginal=2020:02:03 04:05:06"),
    "XMP": ("-XMP-dc:Source=kept",),
    "IPTC": ("-IPTC:Headline=kept",),
    "comment": ("-Comment=kept",),
    "text": ("-PNG:Author=kept",),
    "resolution": ("-IFD0:XResolution=144", "-IFD0:YResolution=144", "-IFD0:ResolutionUnit=inches"),
    "jfif": ("-JFIF:XResolution=144", "-JFIF:YResolution=144", "-JFIF:ResolutionUnit=inches"),
    "photoshop": ("-Photoshop:XResolution=144", "-Photoshop:YResolution=144"),
    "phys": ("-PNG-pHYs:PixelsPerUnitX=5669", "-PNG-pHYs:PixelsPerUnitY=5669"),
}
"""exiftool's arguments; each format takes those that it has a place for."""
READ = {
    "EXIF": ("IFD0:Make", "ExifIFD:DateTimeOriginal"),
    "XMP": ("XMP-dc:Source",),
    "IPTC": ("IPTC:Headline",),
    "comment": ("File:Comment", "GIF:Comment"),
    "text": ("PNG:Author", "PNG:Comment"),
    "resolution": (
        "IFD0:XResolution",
        "JFIF:XResolution",
        "PNG-pHYs:PixelsPerUnitX",
        "File:PixelsPerMeterX",
        "Photoshop:XResolution",
    ),
}  # fmt: skip
"""exiftool's names of what is held; any of those of a kind counts, and all of EXIF."""
SAID = {"16 bits": "bits a sample", "pictures": "kept|left out", "resolution": "resolution|EXIF"}
"""Words of notices; other kinds are named. EXIF has a resolution, too."""


def _heic() -> bytes:
    heif = pytest.importorskip("pillow_heif")
    file = heif.from_pillow(RGBA)
    file.add_from_pillow(RGB)
    stream = io.BytesIO()
    file.save(stream, quality=95)
    return stream.getvalue()


class ExifTool:
    """A process of exiftool, which takes any number of commands."""

    def __init__(self) -> None:
        command = ["exiftool", "-stay_open", "True", "-@", "-"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def __call__(self, *arguments: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n".join([*arguments, "-execute\n"]).encode())
        self._process.stdin.flush()
        lines = iter(self._process.stdout.readline, b"{ready}\n")
        return b"".join(lines).decode()

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(b"-stay_open\nFalse\n")

    def kinds(self, path: Path) -> set[str]:
        """Returns the kinds of metadata that a file holds."""
        told = self("-j", "-G1", "-a", "-n", str(path))
        (row,) = json.loads(told[told.index("[") :])
        return {
            kind
            for kind, names in READ.items()
            if (all if kind == "EXIF" else any)(n in row for n in names)
        }


@pytest.fixture(scope="module")
def exiftool() -> Iterator[ExifTool]:
    process = ExifTool()
    yield process
    process.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, exiftool: ExifTool) -> Path:
    """A folder with an identity model, where sources are made when they are first needed."""
    made = tmp_path_factory.mktemp("pairs")
    identity_models(made / "identity")
    return made


def source(name: str, folder: Path, exiftool: ExifTool) -> Path:
    """Returns a file with all metadata that its format takes."""
    extension, make = SOURCES[name]
    path = folder / f"{name}.{extension}"
    if not path.exists():
        path.write_bytes(make())
        for arguments in WRITTEN.values():  # one by one: a format lacks some
            exiftool("-m", "-overwrite_original", *arguments, str(path))
    return path


def decoded(path: Path) -> tuple[NDArray[Any], int, bool]:
    """Reads the first picture as floats (H, W, 4) in 0 to 255, and returns the pictures of the
    file and whether its samples have 16 bits."""
    if path.suffix == ".tif":
        with tifffile.TiffFile(path) as file:
            pixels, count = np.atleast_3d(file.pages[0].asarray()), len(file.pages)
    elif path.suffix in (".png", ".apng") and path.read_bytes()[24] == 16:
        pixels, count = np.atleast_3d(imagecodecs.png_decode(path.read_bytes())), 1
    elif path.suffix == ".ppm":
        pixels, count = _of_ppm(path.read_bytes()), 1
    elif path.suffix == ".jxl":
        pixels, count = np.atleast_3d(imagecodecs.jpegxl_decode(path.read_bytes())), 1
    else:
        if path.suffix == ".heic":
            pytest.importorskip("pillow_heif").register_heif_opener()
        with Image.open(path) as image:
            count = getattr(image, "n_frames", 1)
            pixels = np.asarray(image.convert("RGBA"))
    deep = pixels.dtype == np.uint16
    values = pixels / (257 if deep else 1)
    if values.shape[2] < 3:
        grey, opacity = values[..., :1], values[..., 1:]
        values = np.dstack([grey, grey, grey, opacity])
    if values.shape[2] == 3:
        values = np.dstack([values, np.full(values.shape[:2], 255)])
    return values, count, deep


def _of_ppm(data: bytes) -> NDArray[Any]:
    magic, width, height, peak = re.sub(rb"#.*", b"", data[:200]).split(maxsplit=4)[:4]
    dtype = np.dtype(">u2" if int(peak) > 255 else "u1")
    shape = int(height), int(width), 3 if magic == b"P6" else 1
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(data[-size:], dtype).reshape(shape).astype(dtype.newbyteorder("="))


@pytest.mark.parametrize(("name", "target"), thinned(list(SOURCES), TARGETS))
def test_nothing_is_lost_without_a_line(
    name: str, target: str, folder: Path, exiftool: ExifTool
) -> None:
    for extension in (target, SOURCES[name][0]):
        if (plugin := table.of(extension).plugin) is not None:
            pytest.importorskip(plugin[0])
    path = source(name, folder, exiftool)
    result = folder / f"{name} as {target}.{target}"
    command = ["upscale", "--backend", "numpy", "-s", "2", "-m", str(folder / "identity")]
    quality = ["-q", "100"] if table.of(target).quality else []
    run = CliRunner().invoke(cli, [*command, *quality, str(path), str(result)])
    assert run.exit_code == 0, run.output
    said = run.stderr
    lost = exiftool.kinds(path) - exiftool.kinds(result)
    wanted, pictures, deep = decoded(path)
    found, kept, is_deep = decoded(result)
    lost |= {"16 bits"} if deep and not is_deep else set()
    lost |= {"pictures"} if kept < pictures else set()
    if (wanted[..., 3] < 200).any() and not (found[..., 3] < 200).any():
        lost.add("transparency")
    silent = {kind for kind in lost if not re.search(SAID.get(kind, kind), said)}
    assert not silent, said
    # Kernels of the model repeat each pixel.
    assert found.shape[:2] == (2 * wanted.shape[0], 2 * wanted.shape[1])
    opaque = wanted[..., 3] > 250
    off = abs(found[::2, ::2, :3] - wanted[..., :3])[opaque]
    assert off.mean() < (9 if target == "gif" else 3), said
