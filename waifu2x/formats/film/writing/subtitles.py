"""Subtitles as text of another container."""

from __future__ import annotations

import re

_MARKS = re.compile(r"</?(?:i|b|u|s|font)\b[^<>]*>", re.IGNORECASE)
_OVERRIDES = re.compile(r"\{\\[^{}]*\}")
_BLOCKS = re.compile(r"\{([^}]*)\}")
"""Tags of style and remarks of ASS: none of it is shown."""
_DRAWING = re.compile(r"\\p(-?\d+)")
"""The tag that says whether what follows is text (0), or shapes to draw."""
_MOST = 0xFFFF
"""Bytes of a text of mov_text."""


def to_mov_text(data: bytes, codec: str) -> bytes:
    """A packet of mov_text with the text of one of SRT or ASS, without its styles and drawings;
    empty if there is no text."""
    text = data.decode("utf-8", "replace")
    if codec in ("ass", "ssa"):
        # The text is the ninth field, and may hold commas itself.
        fields = text.split(",", 8)
        text = _spoken(fields[8] if len(fields) == 9 else "")
        text = text.replace(r"\N", "\n").replace(r"\n", "\n").replace(r"\h", "\u00a0")
    else:
        text = _MARKS.sub("", _OVERRIDES.sub("", text))
    coded = text.strip().replace("\r\n", "\n").encode()
    if not coded:
        return b""
    while len(coded) > _MOST:
        coded = coded[:_MOST].decode("utf-8", "ignore").encode()
    return len(coded).to_bytes(2) + coded


def _spoken(line: str) -> str:
    """The text of a line of ASS, without its tags, and without the shapes that it draws."""
    found, is_text = [], True
    for number, piece in enumerate(_BLOCKS.split(line)):
        if number % 2:  # a block
            modes = _DRAWING.findall(piece)
            is_text = int(modes[-1]) <= 0 if modes else is_text
        elif is_text:
            found.append(piece)
    return "".join(found)


def to_subrip(data: bytes) -> bytes:
    """A packet of SRT with the text of one of mov_text; empty for one that fills a gap."""
    size = int.from_bytes(data[:2])
    coded = data[2 : 2 + size]
    if coded[:2] in (b"\xfe\xff", b"\xff\xfe"):
        return coded.decode("utf-16", "replace").strip().encode()
    return coded.decode("utf-8", "replace").strip().encode()
