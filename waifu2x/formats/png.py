"""PNG's chunks: found, checked, sorted, and made."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from waifu2x.imaging.picture import Chunk

SIGNATURE = b"\x89PNG\r\n\x1a\n"
Place = tuple[bytes, int, int]
"""Kind of a chunk, and where its content starts and ends."""
_MADE = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"iCCP"}
_COLOURS = {b"cICP", b"gAMA", b"cHRM", b"sRGB"}
_KEPT = {b"tIME", b"mDCV", b"cLLI"}
"""Kinds that speak of the whole picture, though they are not marked as safe to copy."""
_OF_SAMPLES = {b"sBIT", b"bKGD", b"hIST", b"sPLT"}
_LARGEST_PROFILE = 1 << 24
"""Bytes of a profile that are unpacked."""


def chunks(data: bytes) -> Iterator[Chunk]:
    """The chunks of a file up to IEND, or to where it is cut off; none that may be left out and is
    damaged. Pixels, which are most of the file and for a decoder, are not looked at."""
    for place in places(data):
        kind, start, end = place
        if kind in (b"IDAT", b"fdAT"):
            yield kind, b""
        elif not optional(kind) or sound(data, place):
            yield kind, data[start:end]


def places(data: bytes) -> Iterator[Place]:
    """Where the chunks of a file are, up to IEND, or to where it is cut off or no PNG any more."""
    at, kind = len(SIGNATURE), b""
    while at + 12 <= len(data) and kind != b"IEND":
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        if at + 12 + length > len(data) or not (kind.isascii() and kind.isalpha()):
            return
        yield kind, at + 8, at + 8 + length
        at += 12 + length


def optional(kind: bytes) -> bool:
    """Whether a picture is a picture without it. PNG 3, section 5.4."""
    return bool(kind[0] & 0x20)


def sound(data: bytes, place: Place) -> bool:
    """Whether the checksum of a chunk is right."""
    _, start, end = place
    (said,) = struct.unpack_from(">I", data, end)
    return int(fast_zlib().crc32(memoryview(data)[start - 4 : end])) == int(said)


def colour_chunks(found: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Those that say what the numbers mean."""
    return tuple(chunk for chunk in found if chunk[0] in _COLOURS)


def other_chunks(found: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Those that go along unchanged: text, time, and what is marked as safe to copy."""
    return tuple(
        (kind, body)
        for kind, body in found
        if kind in _KEPT
        or (kind[3:4].islower() and kind[:1].islower() and kind not in _MADE | _OF_SAMPLES)
    )


def chunk(kind: bytes, *parts: bytes | memoryview) -> tuple[bytes | memoryview, ...]:
    """A chunk as it stands in a file, in pieces: its content's are not copied."""
    crc32 = fast_zlib().crc32
    checksum, length = crc32(kind), 0
    for part in parts:
        checksum, length = crc32(part, checksum), length + len(part)
    return struct.pack(">I4s", length, kind), *parts, struct.pack(">I", checksum)


def profile_chunk(profile: bytes) -> Chunk:
    """iCCP."""
    return b"iCCP", b"ICC profile\0\0" + zlib.compress(profile)


def profile(body: bytes) -> bytes | None:
    """The colour profile of an iCCP; None if it is damaged."""
    try:
        packed = body.partition(b"\0")[2][1:]
        return zlib.decompressobj().decompress(packed, _LARGEST_PROFILE) or None
    except zlib.error:
        return None


def fast_zlib() -> Any:
    """ISA-L by the interface of zlib; zlib where pip has no wheel of it."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib
