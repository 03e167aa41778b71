"""Text of subtitles in other containers."""

from __future__ import annotations

import pytest

from waifu2x.formats.film.writing.copied_streams import to_mov_text, to_subrip


def coded(text: str) -> bytes:
    """A packet of mov_text; empty without text."""
    data = text.encode()
    return len(data).to_bytes(2) + data if data else b""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (r"{\i1}A{\i0} line, and more", "A line, and more"),
        (r"Two\Nlines\hhere", "Two\nlines\u00a0here"),
        (r"{\an8\pos(10,20)\pbo3}Above{a remark}", "Above"),
        (r"{\p1}m 0 0 l 100 0 100 100 0 100{\p0}", ""),
        (r"{\an7\p4\bord0}m 0 0 b 1 2 3 4 5 6", ""),
        (r"Before {\p2}m 0 0 l 8 8{\p0\b1}after", "Before after"),
        (r"{\p1\p0}Text", "Text"),
        ("An open { brace", "An open { brace"),
    ],
)
def test_ass_becomes_the_text_that_is_read(line: str, text: str) -> None:
    assert to_mov_text(f"1,0,Default,,0,0,0,,{line}".encode(), "ass") == coded(text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("<i>A</i> <font color='#fff'>line</font>", "A line"),
        (r"{\an8}Above {here}", "Above {here}"),
        ("1 < 2 > 0", "1 < 2 > 0"),
    ],
)
def test_srt_becomes_the_text_that_is_read(line: str, text: str) -> None:
    assert to_mov_text(line.encode(), "subrip") == coded(text)


def test_mov_text_becomes_srt() -> None:
    assert to_subrip(coded("A line") + b"\0\0\0\x0cstyl\0\0\0\0") == b"A line"
    assert to_subrip(b"\0\0") == b""
    utf16 = "A line".encode("utf-16")
    assert to_subrip(len(utf16).to_bytes(2) + utf16) == b"A line"
