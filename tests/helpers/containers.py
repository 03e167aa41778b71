"""Films byte by byte: what no muxer writes."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def element(identity: int, content: bytes) -> bytes:
    """An element of EBML."""
    head = identity.to_bytes(-(-identity.bit_length() // 8))
    return head + (len(content) | 1 << 56).to_bytes(8) + content


def number(identity: int, value: int) -> bytes:
    """One that holds a whole number."""
    return element(identity, value.to_bytes(max(1, -(-value.bit_length() // 8))))


def double(identity: int, value: float) -> bytes:
    """One that holds a real number."""
    return element(identity, struct.pack(">d", value))


EBML = element(0x1A45DFA3, element(0x4282, b"matroska") + number(0x4287, 4) + number(0x4285, 2))


def track(
    kind: int, codec: bytes, extra: bytes = b"", which: int = 1, size: tuple[int, int] = (16, 16)
) -> bytes:
    """A track of Matroska; `size` is width and height."""
    video = element(0xE0, number(0xB0, size[0]) + number(0xBA, size[1])) if kind == 1 else b""
    told = number(0xD7, which) + number(0x73C5, which) + number(0x83, kind) + element(0x86, codec)
    return element(0xAE, told + video + extra)


def block(which: int, time: int, data: bytes) -> bytes:
    """A packet of Matroska, which is a keyframe."""
    return element(0xA3, (0x80 | which).to_bytes() + struct.pack(">hB", time, 0x80) + data)


def matroska(
    tracks: bytes,
    clusters: Sequence[tuple[int, bytes]],
    info: bytes = b"",
    more: bytes = b"",
    scale: int = 1_000_000,
) -> bytes:
    """A film; `clusters` are times and blocks, `scale` the nanoseconds of a tick."""
    parts = element(0x1549A966, number(0x2AD7B1, scale) + info) + element(0x1654AE6B, tracks)
    parts += more
    parts += b"".join(element(0x1F43B675, number(0xE7, t) + data) for t, data in clusters)
    return EBML + element(0x18538067, parts)


def box(kind: bytes, content: bytes) -> bytes:
    """A box of MP4."""
    return (len(content) + 8).to_bytes(4) + kind + content


def with_box(film: bytes, added: bytes) -> bytes:
    """A film of MP4 whose header comes last, with a box in its first track's sample entry."""
    path = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")
    return _with_box(film, path, added)


def _with_box(content: bytes, path: Sequence[bytes], added: bytes) -> bytes:
    at = 0
    while content[at + 4 : at + 8] != path[0]:
        at += int.from_bytes(content[at : at + 4])
    end = at + int.from_bytes(content[at : at + 4])
    inner = content[at + 8 : end]
    if len(path) > 1:
        inner = _with_box(inner, path[1:], added)
    else:  # a version, a number of entries, and one entry
        entry = inner[8:]
        inner = inner[:8] + box(entry[4:8], entry[8:] + added)
    return content[:at] + box(path[0], inner) + content[end:]
