"""Two thousand odd pictures, and what the program makes of them.

    python -m tests.helpers.odd_pictures [--count 2000] [--seed 0] [--keep FOLDER]

Truncated files, flipped bits, pictures without frames, absurd sizes, broken profiles, every
orientation, of every format that is read. Each is enlarged by a tiny network, in a process whose
memory is limited. None may end in a traceback, take longer than 20 seconds or more than 1 GiB; what
is refused is refused in one sentence, and leaves no output.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import resource
import signal
import struct
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image, ImageCms

from tests.helpers.contents import encode, encoded, identity_models
from waifu2x.cli import cli
from waifu2x.imaging.picture import Picture

SECONDS = 20
MEMORY = 1 << 30
MAX_PIXELS = 50_000
"""The limit that the program is given: it keeps pictures whole and enlarges them, so small."""
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
Odd = tuple[str, bytes]
"""Name and content of a file."""


def sound(generator: np.random.Generator, size: tuple[int, int] = (40, 56)) -> dict[str, bytes]:
    """Pictures in which nothing is wrong, by the name of the file. `size` is rows and columns of
    those with 8 bits."""
    pixels = generator.integers(0, 256, (*size, 3), np.uint8)
    smooth = np.indices(size).sum(0).astype(np.uint8)
    rgb, grey = Image.fromarray(pixels), Image.fromarray(smooth)
    exif = Image.Exif()
    exif[0x010F], exif[0x0132] = "Maker", "2020:02:03 04:05:06"
    others: dict[str, Any] = {"append_images": [rgb.rotate(180), rgb], "save_all": True}
    deep = Picture(generator.integers(0, 65536, (30, 20, 3), np.uint16))
    words = deep.pixels
    floats = Picture(generator.random((20, 30, 3), np.float32))
    return {
        "rgb.png": encoded(rgb, exif=exif, icc_profile=PROFILE, dpi=(72, 72)),
        "grey.png": encoded(grey),
        "palette.png": encoded(rgb.quantize(17), transparency=3),
        "bits.png": encoded(grey.convert("1")),
        "interlaced.png": interlaced(),
        "deep.png": encode(deep, "png"),
        "animated.png": encoded(rgb, **others),
        "rgb.jpg": encoded(rgb, "JPEG", exif=exif, icc_profile=PROFILE, comment=b"comment"),
        "grey.jpg": encoded(grey, "JPEG"),
        "progressive.jpg": encoded(rgb, "JPEG", progressive=True, quality=90),
        "cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG"),
        "rgb.webp": encoded(rgb, "WEBP", exif=exif, icc_profile=PROFILE),
        "lossless.webp": encoded(rgb.convert("RGBA"), "WEBP", lossless=True),
        "animated.webp": encoded(rgb, "WEBP", **others),
        "rgb.gif": encoded(rgb, "GIF"),
        "animated.gif": encoded(rgb, "GIF", **others),
        "rgb.tif": encoded(rgb, "TIFF", compression="tiff_lzw", icc_profile=PROFILE),
        "fax.tif": encoded(grey.convert("1"), "TIFF", compression="group4"),
        "jpeg.tif": encoded(rgb, "TIFF", compression="jpeg"),
        "lab.tif": encoded(rgb.convert("LAB"), "TIFF"),
        "pages.tif": encoded(rgb, "TIFF", **others),
        "deep.tif": encode(deep, "tif"),
        "float.tif": encode(floats, "tif"),
        "rgb.bmp": encoded(rgb, "BMP"),
        "palette.bmp": encoded(rgb.quantize(16), "BMP"),
        "rgb.tga": encoded(rgb, "TGA", compression="tga_rle"),
        "rgb.ppm": encoded(rgb, "PPM"),
        "deep.ppm": encode(deep, "ppm"),
        "rgb.avif": encoded(rgb, "AVIF", speed=10),
        "rgb.jp2": encoded(rgb, "JPEG2000"),
        "rgb.qoi": encoded(rgb, "QOI"),
        "rgb.jxl": encode(Picture(pixels), "jxl"),
        "rgb.heic": encode(Picture(pixels), "heic"),
        "rgb.pcx": encoded(rgb, "PCX"),
        "rgb.dds": encoded(rgb, "DDS"),
        "rgb.sgi": encoded(rgb, "SGI"),
        "icon.ico": encoded(rgb, "ICO", sizes=[(16, 16), (32, 32)]),
        "views.mpo": encoded(rgb, "MPO", **others),
        "deep.jpg": bytes(imagecodecs.jpeg8_encode(words >> 4, bitspersample=12)),
        "lossless.jpg": bytes(imagecodecs.jpeg8_encode(words, bitspersample=16, lossless=True)),
        "apple.png": apple(pixels),
        "inks.tif": tiff(np.dstack([words, words[..., 0]]), photometric="separated"),
        "webp.tif": tiff(pixels, photometric="rgb", compression="webp"),
        "jpeg2000.tif": tiff(pixels, photometric="rgb", compression="jpeg2000"),
        "jpegxl.tif": tiff(pixels, photometric="rgb", compression="jpegxl"),
        "big.tif": tiff(pixels, photometric="rgb", bigtiff=True, byteorder=">"),
        "below.dng": dng(pixels),
    }


def tiff(samples: NDArray[Any], **options: Any) -> bytes:
    """One page as tifffile writes it."""
    stream = io.BytesIO()
    tifffile.imwrite(stream, samples, metadata=None, **options)
    return stream.getvalue()


def dng(pixels: NDArray[np.uint8]) -> bytes:
    """A finished picture below a thumbnail, as cameras and converters write it."""
    stream = io.BytesIO()
    version = (50706, 1, 4, b"\1\4\0\0", True)
    with tifffile.TiffWriter(stream) as writer:
        writer.write(
            pixels[::4, ::4], photometric="rgb", subfiletype=1, subifds=1, extratags=[version]
        )
        writer.write(pixels, photometric="rgb")
    return stream.getvalue()


def apple(samples: NDArray[np.uint8]) -> bytes:
    """A PNG as Xcode makes it of (H, W, 3 or 4): https://theapplewiki.com/wiki/PNG_CgBI_Format"""
    height, width, planes = samples.shape
    swapped = samples.astype(float)
    swapped[..., :3] = samples[..., 2::-1]
    if planes == 4:
        swapped[..., :3] *= samples[..., 3:] / 255
    lines = np.rint(swapped).astype(np.uint8).reshape(height, -1)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    rows = deflate.compress(b"".join(b"\0" + line.tobytes() for line in lines)) + deflate.flush()
    data = png_of((width, height, 8, 2 if planes == 3 else 6, 0, 0, 0), rows)
    first = b"CgBI" + bytes.fromhex("50002002")
    return data[:8] + struct.pack(">I", 4) + first + struct.pack(">I", zlib.crc32(first)) + data[8:]


def interlaced() -> bytes:
    """A grey PNG of 2x2 pixels in Adam7: passes 1, 6 and 7."""
    rows = zlib.compress(b"\0\x11" + b"\0\x22" + b"\0\x33\x44")
    return png_of((2, 2, 8, 0, 0, 0, 1), rows)


def png_of(header: tuple[int, ...], rows: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A PNG with any header, chunks before the pixels, and whatever for pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", *header)), *more, (b"IDAT", rows), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def absurd() -> Iterator[Odd]:
    """Small files that declare much, nothing, or the impossible."""
    rows = zlib.compress(bytes(1 << 20))
    sizes = [(0, 5), (5, 0), (1 << 31, 1), (65535, 65535), (100_000, 100_000), (200, 199)]
    for width, height in [*sizes, (2**31 - 1, 2**31 - 1), (1, 40_000)]:
        for depth, kind in ((8, 2), (16, 2), (1, 0), (8, 6)):
            yield (
                f"size-{width}x{height}-{depth}-{kind}.png",
                png_of((width, height, depth, kind, 0, 0, 0), rows),
            )
    for depth, kind in ((3, 0), (16, 3), (4, 2), (8, 5), (0, 0)):
        yield f"kind-{depth}-{kind}.png", png_of((4, 4, depth, kind, 0, 0, 0), rows)
    bomb = zlib.compress(bytes(64 << 20), 9)
    yield (
        "text-bomb.png",
        png_of((4, 4, 8, 2, 0, 0, 0), zlib.compress(bytes(52)), (b"zTXt", b"Comment\0\0" + bomb)),
    )
    yield "xmp-bomb.png", png_of(
        (4, 4, 8, 2, 0, 0, 0), zlib.compress(bytes(52)),
        (b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + bomb),
    )  # fmt: skip
    yield (
        "profile-bomb.png",
        png_of((4, 4, 8, 2, 0, 0, 0), zlib.compress(bytes(52)), (b"iCCP", b"p\0\0" + bomb)),
    )
    yield "no-frames.gif", b"GIF89a" + struct.pack("<HHBBB", 9, 9, 0, 0, 0) + b";"
    yield "no-frames.png", png_of((4, 4, 8, 2, 0, 0, 0), zlib.compress(bytes(52)),
                                  (b"acTL", struct.pack(">II", 0, 0)))  # fmt: skip
    yield "many-frames.png", png_of((4, 4, 8, 2, 0, 0, 0), zlib.compress(bytes(52)),
                                    (b"acTL", struct.pack(">II", 2**31 - 1, 0)))  # fmt: skip
    yield "no-pages.tif", b"II*\0" + bytes(4)
    yield "loop.tif", b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 256, 4, 1, 9) + b"\x08\0\0\0"
    for order in ("<", ">"):
        for width, height in ((65535, 65535), (2**32 - 1, 2**32 - 1), (0, 0)):
            for bits in (8, 16, 32):
                tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits),
                        (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1),
                        (278, 4, 1, height), (279, 4, 1, 2**31)]  # fmt: skip
                body = struct.pack(order + "H", len(tags))
                for tag, kind, count, value in tags:
                    number = struct.pack(order + ("HH" if kind == 3 else "I"),
                                         *((value, 0) if kind == 3 else (value,)))  # fmt: skip
                    body += struct.pack(order + "HHI", tag, kind, count) + number
                mark = b"II*\0" if order == "<" else b"MM\0*"
                yield (
                    f"size-{width}-{bits}-{ord(order)}.tif",
                    mark + struct.pack(order + "I", 8) + body + bytes(4),
                )
    for header in (b"P6\n99999 99999\n65535\n", b"P6 0 0 65535\n", b"P5\n-1 5\n255\n", b"P6\n"):
        yield f"header-{zlib.crc32(header)}.ppm", header + bytes(99)
    for extension in ("gif", "bmp", "tga", "webp", "avif", "jp2", "qoi", "jxl", "heic", "psd"):
        yield f"empty.{extension}", b""
        yield f"zeros.{extension}", bytes(5000)
    vast = 3 << 1 | (2**30 - 1) << 3 | 1 << 33  # 2**30 rows, as many columns
    yield "vast.jxl", b"\xff\x0a" + vast.to_bytes(20, "little")
    yield "text.png", b"This is not a picture\n" * 9


def oriented(files: dict[str, bytes]) -> Iterator[Odd]:
    """Every orientation, and those that do not exist."""
    with Image.open(io.BytesIO(files["rgb.png"])) as image:
        rgb = image.convert("RGB")
    for form in ("PNG", "JPEG", "WEBP", "TIFF", "AVIF"):
        for orientation in (0, *range(1, 10), 65535):
            exif = Image.Exif()
            exif[0x0112] = orientation
            options: dict[str, Any] = {"speed": 10} if form == "AVIF" else {}
            yield (
                f"orientation-{orientation}.{form.lower()}",
                encoded(rgb, form, exif=exif, **options),
            )


def profiled(files: dict[str, bytes], generator: np.random.Generator) -> Iterator[Odd]:
    """Profiles in which bytes are wrong."""
    with Image.open(io.BytesIO(files["rgb.png"])) as image:
        rgb = image.convert("RGB")
    for index in range(120):
        damaged = bytearray(PROFILE)
        for place in generator.integers(0, len(damaged), 1 + index % 20):
            damaged[place] = generator.integers(256)
        form = ("PNG", "JPEG", "WEBP", "TIFF")[index % 4]
        yield f"profile-{index}.{form.lower()}", encoded(rgb, form, icc_profile=bytes(damaged))


def cut(files: dict[str, bytes]) -> Iterator[Odd]:
    """Each file cut off at twenty places."""
    for name, content in files.items():
        for part in range(20):
            yield f"cut-{part}-{name}", content[: len(content) * part // 20]


def flipped(files: dict[str, bytes], generator: np.random.Generator) -> Iterator[Odd]:
    """Files with flipped bits, without end: half of them near the start, where headers are."""
    names = sorted(files)
    index = 0
    while True:
        name = names[index % len(names)]
        damaged = bytearray(files[name])
        reach = len(damaged) if index // len(names) % 2 else min(len(damaged), 200)
        for _ in range(int(generator.integers(1, 9))):
            damaged[int(generator.integers(reach))] ^= 1 << int(generator.integers(8))
        yield f"flip-{index}-{name}", bytes(damaged)
        index += 1


def odd_pictures(seed: int, count: int) -> Iterator[Odd]:
    """As many files; the last of them are ones with flipped bits."""
    generator = np.random.default_rng(seed)
    files = sound(generator)
    made = 0
    for group in (
        iter(files.items()), absurd(), oriented(files), profiled(files, generator), cut(files),
        flipped(files, generator),
    ):  # fmt: skip
        for odd in group:
            if made == count:
                return
            yield odd
            made += 1


def sample(seed: int, count: int, every: int) -> Iterator[Odd]:
    """Some of them, from every group."""
    for index, odd in enumerate(odd_pictures(seed, count)):
        if index % every == seed % every:
            yield odd


def outcome_of(name: str, content: bytes, folder: Path) -> str:
    """`done` or `refused`; raises AssertionError if the program did anything but."""
    source, target = folder / name.replace("/", "_"), folder / "result.png"
    source.write_bytes(content)
    target.unlink(missing_ok=True)
    models = folder / "identity"
    if not models.exists():
        identity_models(models)
    command = ["upscale", "--backend", "numpy", "-m", str(models), "--max-pixels", str(MAX_PIXELS)]
    result = CliRunner().invoke(cli, [*command, str(source), str(target)])
    source.unlink()
    lines = result.stderr.splitlines()
    assert "Traceback" not in result.output, f"{name}: {result.output}"
    unexpected = result.exception
    assert unexpected is None or isinstance(unexpected, SystemExit), f"{name}: {unexpected!r}"
    if result.exit_code == 0:
        assert target.exists(), name
        assert all(line.startswith(f"{source}: ") for line in lines), f"{name}: {lines}"
        return "done"
    assert result.exit_code == 1, f"{name}: exit code {result.exit_code}: {lines}"
    assert len(lines) == 1, f"{name}: {lines}"
    assert re.match(r"Error: .*\S", lines[0]), f"{name}: {lines}"
    assert str(source) in lines[0] or str(target) in lines[0], f"{name}: {lines}"
    assert not target.exists(), name
    return "refused"


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for files that went wrong")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    warnings.filterwarnings("ignore", module="PIL")  # as the program does
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in odd_pictures(arguments.seed, arguments.count):
            signal.alarm(SECONDS)
            try:
                outcomes[outcome_of(name, content, Path(folder))] += 1
            except (AssertionError, TimeoutError) as error:
                outcomes["wrong"] += 1
                wrong.append(f"{name}: {error}")
                print(wrong[-1][:2000], flush=True)
                if arguments.keep:
                    arguments.keep.mkdir(exist_ok=True)
                    (arguments.keep / name).write_bytes(content)
            finally:
                signal.alarm(0)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if peak > MEMORY:
                wrong.append(f"{name}: {peak / 2**20:.0f} MiB by then")
                print(wrong[-1])
                break
    print(json.dumps(outcomes | {"peak MiB": round(peak / 2**20)}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
