"""Decodes files of strangers for the page. `ReadingProcesses` runs these functions."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.flows import archive_members
from waifu2x.flows.archive_members import MemberName, unpacked
from waifu2x.flows.archive_pages import is_page, page_count
from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter, finish
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.metadata.profiles import to_srgb
from waifu2x.formats.preview import preview
from waifu2x.formats.read import content, open_content
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.formats.write import ContentSink, header_of
from waifu2x.imaging.dtypes import to_unit
from waifu2x.imaging.picture import Metadata, Picture
from waifu2x.imaging.streams import Timed
from waifu2x.serve.jobs import Kind, SourceInfo
from waifu2x.serve.limits import VIEW_PIXELS
from waifu2x.system.files import write_atomically
from waifu2x.system.stopwatch import Stopwatch

_THUMBNAIL_SIDE = 256
_CHECKS = 16
"""Checks along the longer side of a thumbnail."""
_GREYS = 0.5, 0.62
_VIEW = OutputOptions("8", strip=True)


class SentFile(NamedTuple):
    """A file that a client has sent."""

    path: Path
    name: str
    """The client's name for it, for messages."""
    is_archive: bool
    max_pixels: int


class Probe(NamedTuple):
    """The header of a file."""

    kind: Kind
    source: SourceInfo


def probe(file: SentFile) -> Probe:
    """Returns the kind of a file and the data of its header. Raises ImageError."""
    size = file.path.stat().st_size
    pages = page_count(file.path) if file.is_archive else 0
    if file.is_archive and not pages:
        raise ImageError(f"{file.name}: no pictures in this archive")
    with _opened(file, 0) as source:
        header = source.header
        first = header.extents[0]
    if file.is_archive:
        return Probe("archive", SourceInfo(first.width, first.height, size, "zip", pages))
    info = SourceInfo(first.width, first.height, size, header.format, header.count or 0)
    is_moving = header.animated and header.count != 1
    return Probe("animation" if is_moving else "picture", info)


def make_thumbnail(file: SentFile, target: Path) -> None:
    """Writes a small JPEG of the first picture to `target`. Raises ImageError, OSError."""
    write_atomically(target, thumbnail(_picture(file, 0)))


def thumbnail(picture: Picture) -> bytes:
    """Encodes a picture as a small JPEG, a transparent one on checks."""
    picture = to_srgb(picture)
    if picture.alpha is not None:
        step = max(1, max(picture.pixels.shape[:2]) // (2 * _THUMBNAIL_SIDE))
        every = slice(None, None, step)
        picture = _on_checks(picture.pixels[every, every], picture.alpha[every, every])
    return preview(picture, _THUMBNAIL_SIDE).thumbnail


def _on_checks(pixels: NDArray[Any], alpha: NDArray[Any]) -> Picture:
    """Returns a transparent picture on checks between black and white, which hide no drawing and
    fit a light page and a dark one."""
    rows, columns = alpha.shape
    square = max(1, max(rows, columns) // _CHECKS)
    down, along = np.ogrid[:rows, :columns]
    ground = np.where((down // square + along // square) % 2, *_GREYS)[..., np.newaxis]
    share = to_unit(alpha, np.float32)[..., np.newaxis]
    seen = to_unit(pixels, np.float32) * share + ground * (1 - share)
    return Picture(seen.astype(np.float32))


def make_view(file: SentFile, page: int, target: Path) -> None:
    """Writes a picture to `target` as an 8-bit PNG, reduced if it is very large. Raises ImageError,
    OutputError."""
    write_atomically(target, encoded(reduced(_picture(file, page))))


def encoded(picture: Picture) -> bytes:
    """Encodes a picture, fast, as an 8-bit PNG without metadata. Raises OutputError."""
    form, file = table.of("png"), io.BytesIO()
    picture, _ = Adapter(form, _VIEW).picture(picture)
    picture = finish(picture)
    sink = ContentSink(file, "png", Quality(None, "fast"), "the view", Stopwatch())
    sink.open(header_of(picture))
    sink.add(Timed(picture))
    sink.close()
    return file.getvalue()


def cut(file: SentFile, page: int, box: tuple[int, ...]) -> Picture:
    """Returns the part of a picture at `box` (x, y, width, height), in sRGB. Raises ImageError."""
    return part(_picture(file, page), file.name, box)


def part(picture: Picture, name: str, box: tuple[int, ...]) -> Picture:
    """Returns the part of a picture at `box` (x, y, width, height), in sRGB. Raises ImageError."""
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


def _picture(file: SentFile, page: int) -> Picture:
    with _opened(file, page) as source:
        skipped = 0 if file.is_archive else page
        timed = next(islice(iter(source), skipped, None), None)
    if timed is None:
        raise ImageError(f"{file.name}: it has no page {page}")
    return timed.picture


@contextmanager
def _opened(file: SentFile, page: int) -> Iterator[DecodedFile]:
    data = _page(file.path, file.name, page) if file.is_archive else content(file.path)
    with closing(open_content(data, file.name, file.max_pixels)) as source:
        yield source


def _page(path: Path, name: str, page: int) -> bytes:
    with path.open("rb") as file, archive_members.opened(file, name) as archive:
        pages = [each for each in archive.infolist() if is_page(MemberName.of(each).text)]
        if page >= len(pages):
            raise ImageError(f"{name}: it has no page {page}")
        return unpacked(archive, pages[page], name)


def reduced(picture: Picture) -> Picture:
    """Returns a picture of at most VIEW_PIXELS pixels: every nth row and column of a larger one."""
    rows, columns = picture.pixels.shape[:2]
    step = 1
    while -(-rows // step) * -(-columns // step) > VIEW_PIXELS:
        step += 1
    every = slice(None, None, step)
    return picture if step == 1 else _part(picture, every, every)
