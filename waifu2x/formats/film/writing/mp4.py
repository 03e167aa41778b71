"""Turns subtitles off in an mp4 or mov, as they are in their source.

FFmpeg's muxer has players show the first of them, unless one is marked as the default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import IO

_MOST = 1 << 30
"""More bytes than the index of any film has."""
_ENABLED = 1


def turn_off(file: IO[bytes], tracks: Collection[int]) -> None:
    """Has players show none of these tracks, by their numbers in the file, unless they are asked
    to. Raises OSError."""
    start, size = _index(file)
    file.seek(start)
    index = file.read(size)
    for kind, begin, end in _boxes(index, 0, len(index)):
        if kind != b"trak":
            continue
        for inner, at, _ in _boxes(index, begin, end):
            if inner == b"tkhd":
                # A version, three bytes of flags, two times, and the number of the track.
                number = at + 4 + (16 if index[at] == 1 else 8)
                if int.from_bytes(index[number : number + 4]) in tracks:
                    file.seek(start + at + 3)
                    file.write(bytes([index[at + 3] & ~_ENABLED]))


def _index(file: IO[bytes]) -> tuple[int, int]:
    """Where the content of the film's index begins, and its size; no size where there is none."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(16)
        size, header = int.from_bytes(head[:4]), 8
        if size == 1:
            size, header = int.from_bytes(head[8:16]), 16
        if len(head) < 8 or size < header:
            return at, 0
        if head[4:8] == b"moov":
            return at + header, min(size - header, _MOST)
        at += size


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The kinds and contents of boxes that lie one after the other."""
    while at + 8 <= end:
        size = int.from_bytes(data[at : at + 4])
        if size < 8:
            return
        yield data[at + 4 : at + 8], at + 8, min(at + size, end)
        at += size
