"""What the blocks of a GIF say without being unpacked.

GIF 89a, sections 17 to 26: https://www.w3.org/Graphics/GIF/spec-gif89a.txt
"""

from __future__ import annotations

_IMAGE, _EXTENSION = 0x2C, 0x21
_HEAD = 13
"""Bytes of the header and of the logical screen's descriptor."""
_TABLE = 0x80
"""A flag: a colour table follows."""


def has_colours(data: bytes) -> bool:
    """Whether any picture of a file has a colour table with more than the levels of grey.

    Pictures without one, or with one in which each place holds its own number as a grey, are grey.
    """
    table, at = _colour_table(data, _HEAD, data[10]) if len(data) > _HEAD else (b"", len(data))
    everywhere = not _is_grey(table)
    while at < len(data):
        kind = data[at]
        if kind == _IMAGE and at + 10 < len(data):
            flags = data[at + 9]
            table, at = _colour_table(data, at + 10, flags)
            if (not _is_grey(table)) if flags & _TABLE else everywhere:
                return True
            at += 1  # how wide its codes are
        elif kind == _EXTENSION:
            at += 2
        else:
            break
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    return False


def _colour_table(data: bytes, at: int, flags: int) -> tuple[bytes, int]:
    """The colour table at an offset, where flags tell of one, and the offset behind it."""
    end = at + (3 << ((flags & 7) + 1)) if flags & _TABLE else at
    return data[at:end], end


def _is_grey(table: bytes) -> bool:
    """Whether each place of a colour table holds its own number as a grey."""
    return all(table[at : at + 3] == bytes((at // 3,)) * 3 for at in range(0, len(table), 3))
