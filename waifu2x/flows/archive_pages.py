"""The pages of archives: which files they are, what they are called, how they are written."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from waifu2x.errors import ImageError, OutputError
from waifu2x.flows import archive_members
from waifu2x.flows.archive_members import MemberName
from waifu2x.flows.jobs import Output
from waifu2x.formats import table
from waifu2x.formats.table import Quality
from waifu2x.system import stores
from waifu2x.system.files import explained, open_regular

_OTHERWISE = "png"
"""Extension of pages whose own format cannot be written."""
_LOSSY_WEBP = 90
"""Quality of pages in lossy WebP; without a number, WebP is lossless."""


def page_count(path: Path) -> int:
    """Returns the number of pages in an archive's directory; 1 for a URL, unread. Raises
    ImageError."""
    if stores.is_url(path):
        return 1
    with (
        explained(ImageError, f"{path}: cannot read"),
        open_regular(path) as file,
        archive_members.opened(file, str(path)) as archive,
    ):
        return sum(is_page(MemberName.of(member).text) for member in archive.infolist())


def is_page(name: str) -> bool:
    """Returns whether a file is a picture by its name; macOS's own files are none."""
    path = PurePosixPath(name)
    hidden = path.name.startswith(".") or "__MACOSX" in path.parts
    return not hidden and _suffix(name) in table.READABLE


def page_names(members: Sequence[MemberName], output: Output) -> dict[MemberName, MemberName]:
    """Maps the old names of pages to the new. A page that keeps its format keeps its name. Another
    one gets its new extension, or both where that name is taken."""
    pages = {name: _extension(name.text, output) for name in members if is_page(name.text)}
    names = {name: name for name, extension in pages.items() if _suffix(name.text) == extension}
    taken = {name.header for name in members if name not in pages or name in names}
    changed = {
        name: name.ending(extension, keeps_old=False)
        for name, extension in pages.items()
        if name not in names
    }
    counts = Counter((*(name.header for name in changed.values()), *taken))
    for name, new in changed.items():
        number = 1
        while counts[new.header] > 1 or new.header in taken:
            extension = pages[name] if number == 1 else f"{number}.{pages[name]}"
            new = name.ending(extension, keeps_old=True)
            number += 1
        names[name] = new
        taken.add(new.header)
    return names


def output_of_page(name: str, content: bytes, output: Output) -> Output:
    """Returns the output options of a page: its own format and quality, unless a format is
    requested."""
    extension = _extension(name, output)
    form, level = table.of(extension), output.quality.level
    if not form.quality or (level == "like" and form.name != "JPEG"):
        level = None
    if output.pages is None and output.quality.level is None:
        if form.name == "JPEG":
            level = "like"
        elif form.name == "WebP" and _has_losses(content):
            level = _LOSSY_WEBP
    compression = output.quality.compression if form.compression else "default"
    options, depth = output.options, output.options.depth
    if depth != "auto" and int(depth) not in form.depths:
        options = options._replace(depth="auto")
    return replace(
        output, extension=extension, quality=Quality(level, compression), options=options
    )


def _extension(name: str, output: Output) -> str:
    suffix = _suffix(name)
    return output.pages or (suffix if _can_write(suffix) else _OTHERWISE)


@functools.cache
def _can_write(extension: str) -> bool:
    if extension not in table.WRITABLE:
        return False
    try:
        table.check_encoder(table.of(extension))
    except OutputError:
        return False
    return True


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix[1:].lower()


def _has_losses(content: bytes) -> bool:
    """Returns whether a WebP has losses, by its chunks."""
    at = 12
    while at + 8 <= len(content):
        kind = content[at : at + 4]
        if kind in (b"VP8 ", b"VP8L"):
            return kind == b"VP8 "
        size = int.from_bytes(content[at + 4 : at + 8], "little")
        at += 8 if kind == b"ANMF" else 8 + size + size % 2
        at += 16 if kind == b"ANMF" else 0  # the frame's place, before its own chunks
    return False
