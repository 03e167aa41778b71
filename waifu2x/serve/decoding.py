"""What is done with files of strangers before and beside the work: in a process of its own.

Functions for `ReadingProcesses`. Each takes paths and numbers, and leaves its result in a file or
returns it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from waifu2x.errors import ImageError
from waifu2x.flows.archive_pages import is_page, page_count
from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter, finish
from waifu2x.formats.failures import in_words
from waifu2x.formats.preview import preview
from waifu2x.formats.profiles import to_srgb
from waifu2x.formats.read import content, open_content
from waifu2x.formats.source import DecodedFile
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.formats.write import ContentSink, header_of
from waifu2x.imaging.picture import Metadata, Picture
from waifu2x.imaging.streams import Timed
from waifu2x.serve.jobs import Kind, SourceInfo
from waifu2x.serve.limits import VIEW_PIXELS
from waifu2x.system.files import write_atomically
from waifu2x.system.stopwatch import Stopwatch

_THUMBNAIL_SIDE = 256
_LARGEST_PAGE = 1 << 30
"""Bytes of a page of an archive."""
_VIEW = OutputOptions("8", strip=True)


class Probe(NamedTuple):
    """What the header of a file says."""

    kind: Kind
    source: SourceInfo


def probe(path: Path, name: str, is_archive: bool, max_pixels: int) -> Probe:
    """What a file is. `name` stands for it in messages. Raises ImageError."""
    size = path.stat().st_size
    if is_archive:
        pages = page_count(path)
        if not pages:
            raise ImageError(f"{name}: no pictures in this archive")
        with _opened(path, name, True, 0, max_pixels) as source:
            first = source.header.extents[0]
        return Probe("archive", SourceInfo(first.width, first.height, size, "zip", pages))
    with _opened(path, name, False, 0, max_pixels) as source:
        header = source.header
        first = header.extents[0]
        info = SourceInfo(first.width, first.height, size, header.format, header.count or 0)
        is_moving = header.animated and header.count != 1
        return Probe("animation" if is_moving else "picture", info)


def make_thumbnail(path: Path, name: str, is_archive: bool, max_pixels: int, target: Path) -> None:
    """Writes a small JPEG of the first picture. Raises ImageError, OSError."""
    write_atomically(target, thumbnail(_picture(path, name, is_archive, 0, max_pixels)))


def thumbnail(picture: Picture) -> bytes:
    """A picture as a small JPEG."""
    return preview(to_srgb(picture), _THUMBNAIL_SIDE).thumbnail


def make_view(
    path: Path, name: str, is_archive: bool, page: int, max_pixels: int, target: Path
) -> None:
    """Writes a picture as a PNG of 8 bits for browsers; a very large one is reduced.

    Raises ImageError, OutputError.
    """
    picture = _picture(path, name, is_archive, page, max_pixels)
    write_atomically(target, encoded(reduced(picture)))


def encoded(picture: Picture) -> bytes:
    """A picture as a PNG of 8 bits without metadata, made quickly. Raises OutputError."""
    form, file = table.of("png"), io.BytesIO()
    picture, _ = Adapter(form, _VIEW).picture(picture)
    picture = finish(picture, form, _VIEW)
    sink = ContentSink(file, "png", Quality(None, "fast"), "the view", Stopwatch())
    sink.open(header_of(picture))
    sink.add(Timed(picture))
    sink.close()
    return file.getvalue()


def cut(
    path: Path, name: str, is_archive: bool, page: int, max_pixels: int, box: tuple[int, ...]
) -> Picture:
    """The part of a picture at `box` (x, y, width, height), in sRGB. Raises ImageError."""
    return part(_picture(path, name, is_archive, page, max_pixels), name, box)


def part(picture: Picture, name: str, box: tuple[int, ...]) -> Picture:
    """The part of a picture at `box` (x, y, width, height), in sRGB. Raises ImageError."""
    x, y, width, height = box
    rows, columns = picture.pixels.shape[:2]
    if x + width > columns or y + height > rows:
        raise ImageError(f"{name}: the crop reaches out of the picture, {columns}x{rows}")
    return to_srgb(_part(picture, slice(y, y + height), slice(x, x + width)))


def _part(picture: Picture, rows: slice, columns: slice) -> Picture:
    alpha = picture.alpha
    return replace(
        picture,
        pixels=np.ascontiguousarray(picture.pixels[rows, columns]),
        alpha=None if alpha is None else np.ascontiguousarray(alpha[rows, columns]),
        metadata=Metadata(),
    )


def _picture(path: Path, name: str, is_archive: bool, page: int, max_pixels: int) -> Picture:
    with _opened(path, name, is_archive, page, max_pixels) as source:
        skipped = 0 if is_archive else page
        timed = next(islice(iter(source), skipped, None), None)
    if timed is None:
        raise ImageError(f"{name}: has no page {page}")
    return timed.picture


@contextmanager
def _opened(
    path: Path, name: str, is_archive: bool, page: int, max_pixels: int
) -> Iterator[DecodedFile]:
    data = _page(path, name, page) if is_archive else content(path)
    with closing(open_content(data, name, max_pixels)) as source:
        yield source


def _page(path: Path, name: str, page: int) -> bytes:
    with path.open("rb") as file, in_words(name, "not an archive, or damaged"):
        archive = zipfile.ZipFile(file)
        pages = [each for each in archive.infolist() if is_page(each.filename)]
        if page >= len(pages):
            raise ImageError(f"{name}: has no page {page}")
        if pages[page].file_size > _LARGEST_PAGE:
            raise ImageError(f"{name}: page {page} is too large")
        try:
            return archive.read(pages[page])
        except RuntimeError as error:  # encrypted
            raise ImageError(f"{name}: cannot be unpacked: {error}") from error


def reduced(picture: Picture) -> Picture:
    """A picture of no more pixels than a view may have: every second one, or fewer."""
    rows, columns = picture.pixels.shape[:2]
    step = 1
    while -(-rows // step) * -(-columns // step) > VIEW_PIXELS:
        step += 1
    every = slice(None, None, step)
    return picture if step == 1 else _part(picture, every, every)
