"""PNG's chunks: found, checked, sorted, and made."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from waifu2x.formats.limits import Budget
from waifu2x.imaging.picture import Chunk

SIGNATURE = b"\x89PNG\r\n\x1a\n"
Place = tuple[bytes, int, int]
"""A chunk in a file: its kind, and the offsets at which its content starts and ends."""
_MADE = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"iCCP"}
_KEPT = {b"tIME"}
"""Kinds that describe the whole picture, though they are not marked as safe to copy."""
_OF_SAMPLES = {b"sBIT", b"bKGD", b"hIST", b"sPLT"}
"""Kinds that describe sample values: sBIT does not hold for results, bKGD is kept by
`background`."""
_COLOUR, _INDEXED = 2, 3
"""IHDR's colour type: a flag, and that of pictures with a palette."""
_LARGEST_PROFILE = 1 << 24
"""Bytes of a profile that are unpacked."""


def contents(data: bytes) -> Iterator[Chunk]:
    """Yields kind and content of the chunks up to IEND, or to where the file is cut off.

    Damaged chunks that are optional are left out. Pixels, which decoders read, are yielded empty.
    """
    for place in places(data):
        kind, start, end = place
        if kind in (b"IDAT", b"fdAT"):
            yield kind, b""
        elif not optional(kind) or sound(data, place):
            yield kind, data[start:end]


def without(data: bytes, kinds: Container[bytes]) -> bytes:
    """Returns a file without its chunks of some kinds. Raises OverBudgetError."""
    view, kept, at = memoryview(data), [], 0
    for kind, start, end in places(data):
        if kind in kinds:
            kept.append(view[at : start - 8])
            at = end + 4
    return b"".join((*kept, view[at:])) if kept else data


def places(data: bytes) -> Iterator[Place]:
    """Yields where the chunks of a file are, up to IEND or to where it is cut off or no PNG any
    more.

    Raises OverBudgetError.
    """
    at, kind, budget = len(SIGNATURE), b"", Budget(len(data))
    while at + 12 <= len(data) and kind != b"IEND":
        budget.visit()
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        if at + 12 + length > len(data) or not (kind.isascii() and kind.isalpha()):
            return
        yield kind, at + 8, at + 8 + length
        at += 12 + length


def optional(kind: bytes) -> bool:
    """Returns whether a picture can be read without this kind of chunk. PNG 3, section 5.4."""
    return bool(kind[0] & 0x20)


def sound(data: bytes, place: Place) -> bool:
    """Returns whether the checksum of a chunk is right."""
    _, start, end = place
    (said,) = struct.unpack_from(">I", data, end)
    return int(fast_zlib().crc32(memoryview(data)[start - 4 : end])) == int(said)


def other_chunks(found: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Returns the chunks to copy unchanged: text, time, and those marked as safe to copy."""
    return tuple(
        (kind, body)
        for kind, body in found
        if kind in _KEPT
        or (kind[3:4].islower() and kind[:1].islower() and kind not in _MADE | _OF_SAMPLES)
    )


def chunk(kind: bytes, *parts: bytes | memoryview) -> tuple[bytes | memoryview, ...]:
    """Returns a chunk in pieces as it stands in a file, without copying `parts`."""
    crc32 = fast_zlib().crc32
    checksum, length = crc32(kind), 0
    for part in parts:
        checksum, length = crc32(part, checksum), length + len(part)
    return struct.pack(">I4s", length, kind), *parts, struct.pack(">I", checksum)


def background(found: Mapping[bytes, bytes]) -> bytes | None:
    """Returns a file's background colour as three numbers of 16 bits; None if it has none.

    `found` has the contents of IHDR, PLTE and bKGD. PNG 3, section 11.3.4.1.
    """
    header, body = found.get(b"IHDR", b""), found.get(b"bKGD", b"")
    if len(header) != 13:
        return None
    depth, kind = header[8:10]
    if kind == _INDEXED:
        index = body[0] if len(body) == 1 else 256
        colour = found.get(b"PLTE", b"")[3 * index : 3 * index + 3]
        levels, depth = tuple(colour), 8
    elif len(body) % 2 == 0:
        levels = struct.unpack(f">{len(body) // 2}H", body)
    else:
        return None
    if len(levels) != (3 if kind & _COLOUR else 1) or not 0 < depth <= 16:
        return None
    peak = (1 << depth) - 1
    if max(levels) > peak:
        return None
    scaled = [round(level * 65535 / peak) for level in levels]
    return struct.pack(">3H", *scaled * (3 // len(scaled)))


def background_chunk(background: bytes, planes: int, depth: int) -> Chunk | None:
    """Returns bKGD for 1 or 3 planes without transparency; None if it has no such colour."""
    peak = (1 << depth) - 1
    levels = [round(level * peak / 65535) for level in struct.unpack(">3H", background)]
    if planes == 3:
        return b"bKGD", struct.pack(">3H", *levels)
    return (b"bKGD", struct.pack(">H", levels[0])) if len(set(levels)) == 1 else None


def profile_chunk(profile: bytes) -> Chunk:
    """Returns the iCCP chunk of a colour profile."""
    return b"iCCP", b"ICC profile\0\0" + zlib.compress(profile)


def profile(body: bytes) -> bytes | None:
    """Returns the colour profile in the content of an iCCP chunk; None if it is damaged."""
    try:
        packed = body.partition(b"\0")[2][1:]
        return zlib.decompressobj().decompress(packed, _LARGEST_PROFILE) or None
    except zlib.error:
        return None


@cache
def fast_zlib() -> Any:
    """Returns isal_zlib, which is faster than zlib; zlib where isal does not exist.

    Chosen once: the two make other bytes of the same pixels. An isal that cannot be loaded, as
    where memory is short, raises ImportError.
    """
    try:
        from isal import isal_zlib
    except ModuleNotFoundError:
        return zlib
    return isal_zlib
