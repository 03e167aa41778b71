"""Small archives that ask for much: of members, names, bytes to unpack, pixels, pages, XML."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.helpers import measured
from tests.helpers.odd_pictures import png_of

Greedy = tuple[str, bytes]
_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def archives() -> Iterator[Greedy]:
    """Yields name and content of each archive; each holds one honest page, but for a few."""
    yield from _members()
    yield from _names()
    yield from _bombs()
    yield from _overlaps()
    yield from _directories()
    yield from _pictures()
    yield from _descriptions()


def page(width: int = 8, height: int = 6) -> bytes:
    """Returns a PNG of two colours."""
    picture = Image.new("RGB", (width, height), (200, 30, 90))
    picture.putpixel((0, 0), (1, 2, 3))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def packed(members: dict[str, bytes], method: int = _DEFLATED) -> bytes:
    """Returns a ZIP of members by their names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as book:
        for name, content in members.items():
            book.writestr(name, content)
    return file.getvalue()


def _members() -> Iterator[Greedy]:
    for count in (1_000, 19_000, 20_001, 65_535, 100_000):
        yield (
            f"{count} empty files",
            packed({"1.png": page()} | {f"{n}.t": b"" for n in range(count)}),
        )
    for count in (1_000, 5_000):
        yield f"{count} pages that are none", packed({f"{n}.png": b"x" for n in range(count)})
    yield "300 pages", packed({f"{n}.png": page() for n in range(300)})
    yield "4,000 folders", packed({"1.png": page()} | {f"{n}/": b"" for n in range(4_000)})
    yield "a path of 2,000 folders", packed({"a/" * 2_000 + "1.png": page()})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as book:
        for _ in range(500):
            book.writestr("1.png", page())
    yield "500 pages of one name", file.getvalue()


def _names() -> Iterator[Greedy]:
    for length in (255, 4_096, 60_000):
        yield f"a name of {length}", packed({"a" * length + ".png": page()})
    long = {f"{n:04}" + "b" * 60_000 + ".t": b"" for n in range(150)}
    yield "names of 9 MB", packed({"1.png": page()} | long)
    for comment in (1, 60_000):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as book:
            book.writestr("1.png", page())
            book.comment = b"c" * comment
        yield f"a comment of {comment}", file.getvalue()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as book:
        for number in range(150):
            member = zipfile.ZipInfo(f"{number}.t")
            member.comment = b"d" * 60_000
            book.writestr(member, b"")
        book.writestr("1.png", page())
    yield "comments of 9 MB", file.getvalue()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as book:
        member = zipfile.ZipInfo("1.png")
        member.extra = struct.pack("<HH", 0x9999, 60_000) + bytes(60_000)
        book.writestr(member, page())
    yield "60,000 bytes of extra fields", file.getvalue()


def _bombs() -> Iterator[Greedy]:
    """Files that unpack to far more than they take: as pages, as what stands beside them."""
    for size in (64, 256, 1_000, 4_095):
        packed_zeros, crc = _deflated_zeros(size << 20)
        for name in ("2.png", "notes.txt", "ComicInfo.xml", "2.tif", "2.gif"):
            yield (
                f"{size} MiB of zeros as {name}",
                _raw(
                    [("1.png", page(), None, _STORED), (name, packed_zeros, (size << 20, crc), 8)]
                ),
            )
    for count, size in ((20, 64), (5, 256), (300, 4)):
        packed_zeros, crc = _deflated_zeros(size << 20)
        many = [(f"{n}.txt", packed_zeros, (size << 20, crc), 8) for n in range(count)]
        yield f"{count} times {size} MiB of zeros", _raw([("1.png", page(), None, 0), *many])
    block = bytes(1 << 20)
    for name, method, pack in (("bzip2", 12, _bzip2), ("lzma", 14, _lzma)):
        for size in (64, 400):
            content, crc = pack(block * size), zlib.crc32(block * size)
            for target in ("2.png", "notes.txt"):
                yield (
                    f"{size} MiB of zeros by {name} as {target}",
                    _raw(
                        [("1.png", page(), None, 0), (target, content, (size << 20, crc), method)]
                    ),
                )
    inner = _raw([("0.txt", *_zeros_of(256), 8)])
    for depth in range(4):
        inner = packed({f"{n}.zip": inner for n in range(4)} | {"1.png": page()})
        yield f"archives {depth + 1} deep", inner
    # They declare little and hold much, and the other way.
    packed_zeros, crc = _deflated_zeros(256 << 20)
    for name in ("2.png", "notes.txt"):
        yield f"{name} of 256 MiB that declares 10", _raw([(name, packed_zeros, (10, crc), 8)])
        huge = (0xFFFF_FFFE, 0)
        yield f"{name} of 10 bytes that declares 4 GiB", _raw([(name, b"0123456789", huge, 0)])


def _overlaps() -> Iterator[Greedy]:
    """Members that share their bytes, as in a ZIP bomb without archives in archives."""
    content, size = _deflated_zeros(16 << 20)[0], 16 << 20
    crc = zlib.crc32(bytes(size))
    for count in (10, 200, 5_000):
        for ending in ("png", "txt"):
            file = bytearray(_local(b"0." + ending.encode(), content, size, crc, 8))
            entries = b"".join(
                _central(f"{n}.{ending}".encode(), len(content), size, crc, 8, 0)
                for n in range(count)
            )
            start = len(file)
            file += entries + _end(count, len(entries), start)
            yield f"{count} {ending} files that share 16 MiB", bytes(file)


def _directories() -> Iterator[Greedy]:
    """Directories that count otherwise than they hold, or lie elsewhere."""
    whole = packed({"1.png": page()})
    at = whole.rindex(b"PK\5\6")
    for count in (0, 2, 65_535):
        changed = whole[: at + 8] + struct.pack("<HH", count, count) + whole[at + 12 :]
        yield f"a directory that counts {count} of 1", changed
    for size in (0, 1 << 31, 0xFFFF_FFFF):
        yield (
            f"a directory of {size} bytes",
            whole[: at + 12] + struct.pack("<I", size) + whole[at + 16 :],
        )
    for place in (0, len(whole), 0xFFFF_FFFE):
        yield (
            f"a directory at {place}",
            whole[: at + 16] + struct.pack("<I", place) + whole[at + 20 :],
        )
    big = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 2**40, 2**40, 2**50, 0)
    finder = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    yield "2^40 files by ZIP64", whole[:at] + big + finder + _end(65_535, 0xFFFF_FFFF, 0xFFFF_FFFF)
    yield "1 MB of ends of archives", whole + _end(1, 46, 0) * (1_000_000 // 22)
    yield "2 MB of zeros behind", whole + bytes(2_000_000)


def _pictures() -> Iterator[Greedy]:
    """Pages whose headers ask for much."""
    for width, height in ((30_000, 30_000), (2**31 - 1, 1), (1, 2**31 - 1), (65_535, 65_535)):
        yield (
            f"a PNG of {width}x{height}",
            packed({"2.png": png_of((width, height, 8, 2, 0, 0, 0), zlib.compress(bytes(1000)))}),
        )
        bitmap = struct.pack(
            "<2sIII IiiHHIIiiII", b"BM", 54, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0
        )
        yield f"a BMP of {width}x{height}", packed({"2.bmp": bitmap})
        tall, wide = min(height, 65_535), min(width, 65_535)
        gif = struct.pack("<6sHHBBB", b"GIF89a", wide, tall, 0, 0, 0)
        gif += struct.pack("<cHHHHB", b",", 0, 0, wide, tall, 0) + b"\2\2\x44\1\0;"
        yield f"a GIF of {wide}x{tall}", packed({f"{width}.gif": gif})
        tga = struct.pack("<BBB5xHHHHBB", 0, 0, 10, 0, 0, wide, tall, 24, 0) + b"\xff\1\2\3"
        yield f"a TGA of {wide}x{tall}", packed({"2.tga": tga})
        yield f"a PPM of {width}x{height}", packed({"2.ppm": b"P6 %d %d 255\n" % (width, height)})
    rows = zlib.compress(bytes(6 * 25))
    texts = [(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 22)))] * 200
    profile = (b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 28)))
    for name, chunks in (
        ("800 MiB of texts in a PNG", texts),
        ("a profile of 256 MiB", [profile]),
        ("100,000 texts in a PNG", [(b"tEXt", b"a\0")] * 100_000),
    ):
        yield name, packed({"2.png": png_of((8, 6, 8, 2, 0, 0, 0), rows, *chunks)})
    pixels = Image.new("1", (16_000, 16_000))
    for form in ("PNG", "TIFF", "GIF"):
        file = io.BytesIO()
        options = {"compression": "tiff_lzw"} if form == "TIFF" else {}
        pixels.save(file, form, **options)
        yield f"256 megapixels of black, {form}", packed({f"2.{form.lower()}": file.getvalue()})


def _descriptions() -> Iterator[Greedy]:
    """ComicInfo.xml that asks for much."""
    head = b"<?xml version='1.0'?>"
    laughs = b"<!DOCTYPE a [<!ENTITY a0 'ha'>" + b"".join(
        b"<!ENTITY a%d '%s'>" % (n + 1, b"&a%d;" % n * 10) for n in range(12)
    )
    books = {
        "a billion laughs": head + laughs + b"]><ComicInfo><Title>&a12;</Title></ComicInfo>",
        "a file of this machine": head
        + b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><ComicInfo>&x;</ComicInfo>",
        "100,000 deep": b"<a>" * 100_000 + b"</a>" * 100_000,
        "50,000 attributes": b"<ComicInfo "
        + b" ".join(b"a%d='1'" % n for n in range(50_000))
        + b"/>",
        "100,000 lists of pages": b"<ComicInfo>" + b"<Pages/>" * 100_000 + b"</ComicInfo>",
        "a long comment": b"<ComicInfo><!--" + b"x" * 900_000 + b"--></ComicInfo>",
        "a long number": b"<ComicInfo><PageCount>" + b"9" * 900_000 + b"</PageCount></ComicInfo>",
        "10 MB of spaces": b"<ComicInfo>" + b" " * 10_000_000 + b"</ComicInfo>",
    }  # fmt: skip
    for name, content in books.items():
        yield f"ComicInfo: {name}", packed({"1.png": page(), "ComicInfo.xml": content})


def _deflated_zeros(size: int) -> tuple[bytes, int]:
    """Returns whole mebibytes of zeros, deflated, and their checksum."""
    deflate, block, crc = zlib.compressobj(9, zlib.DEFLATED, -15), bytes(1 << 20), 0
    one = deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)
    for _ in range(size >> 20):
        crc = zlib.crc32(block, crc)
    return one * (size >> 20) + deflate.flush(), crc


def _zeros_of(mebibytes: int) -> tuple[bytes, tuple[int, int]]:
    content, crc = _deflated_zeros(mebibytes << 20)
    return content, (mebibytes << 20, crc)


def _bzip2(content: bytes) -> bytes:
    return bz2.compress(content)


def _lzma(content: bytes) -> bytes:
    """Returns a stream as in a ZIP: the version and size of its properties, then both."""
    options = [{"id": lzma.FILTER_LZMA1, "preset": 0}]
    properties = b"\x5d" + struct.pack("<I", 1 << 18)
    packed_content = lzma.compress(content, lzma.FORMAT_RAW, filters=options)
    return struct.pack("<BBH", 9, 4, len(properties)) + properties + packed_content


_Member = tuple[str, bytes, tuple[int, int] | None, int]
"""Name, stored bytes, declared size and checksum where they are not those of the bytes, method."""


def _raw(members: list[_Member]) -> bytes:
    file, entries = bytearray(), bytearray()
    for name, content, declared, method in members:
        size, crc = declared or (len(content), zlib.crc32(content))
        entries += _central(name.encode(), len(content), size, crc, method, len(file))
        file += _local(name.encode(), content, size, crc, method)
    start = len(file)
    return bytes(file + entries) + _end(len(members), len(entries), start)


def _local(name: bytes, content: bytes, size: int, crc: int, method: int) -> bytes:
    head = struct.pack(
        "<4sHHHIIIIHH", b"PK\3\4", 20, 0, method, 0, crc, len(content), size, len(name), 0
    )
    return head + name + content


def _central(name: bytes, stored: int, size: int, crc: int, method: int, at: int) -> bytes:
    head = struct.pack(
        "<4sHHHHIIIIHHHHHII",
        b"PK\1\2", 20, 20, 0, method, 0, crc, stored, size, len(name), 0, 0, 0, 0, 0, at,
    )  # fmt: skip
    return head + name


def _end(count: int, size: int, start: int) -> bytes:
    return struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, size, start, 0)


_WORK = """
from waifu2x.api import Upscaler

def work(path, model):
    with Upscaler(2, model=model, backend="numpy") as upscaler:
        upscaler.upscale_file(path, path + ".out.cbz")
"""


def run(path: Path, model: Path) -> tuple[str, float, int]:
    """Enlarges an archive in a process of its own, by a model that costs nothing; returns as
    `measured.run`."""
    return measured.run(_WORK, 60, path, model)
