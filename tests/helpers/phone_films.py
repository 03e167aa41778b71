"""Adds to an mp4 a track of timed metadata, as phones write beside picture and sound."""

from __future__ import annotations

import struct
from pathlib import Path

_SAMPLES, _SIZE = 10, 16


def box(kind: bytes, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">I4s", 8 + len(data), kind) + data


def add_data_track(path: Path) -> None:
    """Changes a file whose index is its last box, as FFmpeg writes it."""
    data = path.read_bytes()
    at = data.rindex(b"moov") - 4
    offset = at + 8
    entry = box(b"mebx", bytes(6), struct.pack(">H", 1), bytes(8))
    numbers = struct.pack
    table = box(
        b"stbl",
        box(b"stsd", numbers(">II", 0, 1), entry),
        box(b"stts", numbers(">IIII", 0, 1, _SAMPLES, 100)),
        box(b"stsc", numbers(">5I", 0, 1, 1, _SAMPLES, 1)),
        box(b"stsz", numbers(">III", 0, _SIZE, _SAMPLES)),
        box(b"stco", numbers(">III", 0, 1, offset)),
    )
    places = box(b"dinf", box(b"dref", numbers(">II", 0, 1), box(b"url ", numbers(">I", 1))))
    media = box(
        b"mdia",
        box(b"mdhd", numbers(">IIIIIHH", 0, 0, 0, 1000, 1000, 0x55C4, 0)),
        box(b"hdlr", bytes(8), b"meta", bytes(12), b"Core Media\0"),
        box(b"minf", box(b"nmhd", bytes(4)), places, table),
    )
    matrix = numbers(">9I", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    header = box(b"tkhd", numbers(">IIIIII", 7, 0, 0, 7, 0, 1000), bytes(16), matrix, bytes(8))
    index = box(b"moov", data[at + 8 :], box(b"trak", header, media))
    path.write_bytes(data[:at] + box(b"mdat", bytes(_SAMPLES * _SIZE)) + index)
