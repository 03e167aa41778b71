"""One picture to and from the content of a file, as the program does it."""

from __future__ import annotations

from contextlib import closing
from typing import IO

from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.read import open_content
from waifu2x.formats.table import Quality
from waifu2x.formats.write import ContentSink, header_of
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Timed
from waifu2x.system.stopwatch import Stopwatch


def decode(content: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Picture:
    """The first picture."""
    with closing(open_content(content, name, max_pixels)) as source:
        return source.first().picture


def encode(
    picture: Picture,
    form: str,
    file: IO[bytes],
    quality: Quality | None = None,
    *,
    threads: int | None = None,
) -> None:
    """Writes the content of a file."""
    sink = ContentSink(file, form, quality or Quality(), form, Stopwatch(), threads)
    sink.open(header_of(picture))
    sink.add(Timed(picture))
    sink.close()
