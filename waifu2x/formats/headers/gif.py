"""Reads the blocks of a GIF without unpacking them.

GIF 89a, sections 17 to 26: https://www.w3.org/Graphics/GIF/spec-gif89a.txt
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from waifu2x.formats.limits import Budget

_IMAGE, _EXTENSION, _TRAILER = 0x2C, 0x21, 0x3B
_BLOCK_START = re.compile(rb"[,!;]")
_COMMENT, _APPLICATION = b"\xfe", b"\xff"
"""Labels of extensions."""
_LOOP = b"NETSCAPE2.0"
_HEAD = 13
"""Bytes of the header and of the logical screen's descriptor."""
_TABLE = 0x80
"""A flag: a colour table follows."""


def images(data: bytes, budget: Budget) -> Iterator[int]:
    """Yields where each picture's descriptor begins, up to the end or to where the file is cut off.

    Other bytes between blocks are skipped: the specification knows none, but Pillow decodes what
    follows, and sizes that are not found here would not be bounded. Raises OverBudgetError.
    """
    if len(data) <= _HEAD:
        return
    _, at = _colour_table(data, _HEAD, data[10])
    is_first = True
    while found := _BLOCK_START.search(data, at):
        budget.visit()
        at = found.start()
        if data[at] == _EXTENSION:
            at = _behind_extension(data, at + 1, is_first=is_first)
        elif data[at] == _TRAILER or at + 10 >= len(data):
            return
        else:
            yield at
            is_first = False
            _, at = _colour_table(data, at + 10, data[at + 9])
            at = _behind_blocks(data, at + 1)  # which begin with how wide codes are


def _behind_extension(data: bytes, at: int, *, is_first: bool) -> int:
    """Returns where an extension ends, whose label is at an offset, as Pillow finds it: after an
    empty first block, it takes what follows for further ones."""
    label = data[at : at + 1]
    start, at = at + 1, at + 1
    if label != _COMMENT:
        at = _behind_block(data, at)
        if is_first and label == _APPLICATION and data[start + 1 : at].startswith(_LOOP):
            at = _behind_block(data, at)
    return _behind_blocks(data, at)


def _behind_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at = _behind_block(data, at)
    return at + 1


def _behind_block(data: bytes, at: int) -> int:
    return at + 1 + data[at] if at < len(data) else at


def has_colours(data: bytes) -> bool:
    """Returns whether any picture has a colour table with more than the levels of grey.

    A picture is grey if it has no table, or one whose entry n is the grey n. Raises
    OverBudgetError.
    """
    everywhere: bool | None = None
    for at in images(data, Budget(len(data))):
        flags = data[at + 9]
        if flags & _TABLE:
            coloured = not _is_grey(_colour_table(data, at + 10, flags)[0])
        else:
            if everywhere is None:
                everywhere = not _is_grey(_colour_table(data, _HEAD, data[10])[0])
            coloured = everywhere
        if coloured:
            return True
    return False


def _colour_table(data: bytes, at: int, flags: int) -> tuple[bytes, int]:
    """Returns the colour table at an offset, empty if flags tell of none, and where it ends."""
    end = at + (3 << ((flags & 7) + 1)) if flags & _TABLE else at
    return data[at:end], end


def _is_grey(table: bytes) -> bool:
    return all(table[at : at + 3] == bytes((at // 3,)) * 3 for at in range(0, len(table), 3))


def profile(data: bytes) -> bytes | None:
    """Returns the ICC profile of a GIF; None without one. ICC.1:2022, annex B.5.

    Raises OverBudgetError.
    """
    at = data.find(_PROFILE)
    if at < 0 or at > next(iter(images(data, Budget(len(data)))), len(data)):
        return None
    at += len(_PROFILE)
    parts = []
    while at < len(data) and data[at]:
        parts.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return b"".join(parts) or None


def xmp(data: bytes) -> bytes | None:
    """Returns the XMP of a GIF; None without it. XMP Specification, part 3 (2020), 1.1.2.

    It lies there as it is, not in blocks; 258 bytes behind it lead readers of blocks to its end.
    """
    at = data.find(_XMP) + len(_XMP)
    end = data.find(_XMP_END, at) if at >= len(_XMP) else -1
    return data[at:end] if end > at else None


_XMP = b"!\xff\x0bXMP DataXMP"
_XMP_END = bytes((1, *range(255, -1, -1), 0))
_PROFILE = b"!\xff\x0bICCRGBG1012"
