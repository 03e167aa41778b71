"""Pictures in a CBZ or ZIP archive, enlarged into another."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path, PurePosixPath

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.jobs import (
    Identity,
    Job,
    OnNotice,
    Output,
    Reserve,
    copy_times,
    make_folder,
    may_write,
)
from waifu2x.flows.upscaling import Upscaled, enlarged, finished, prepared, result_sizes
from waifu2x.formats import table
from waifu2x.formats.failures import in_words
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.read import decode
from waifu2x.formats.write import EXISTS, encode
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.system import stores
from waifu2x.system.files import reason, writing
from waifu2x.system.stopwatch import Stopwatch

EXTENSIONS = ("cbz", "zip")
_LARGEST = 1 << 30
"""Bytes of a file in an archive that are unpacked."""


def upscale_archive(
    job: Job,
    output: Output,
    enlarger: Callable[[], Enlarger],
    *,
    max_pixels: int = MAX_PIXELS,
    reserve: Reserve = lambda content: nullcontext(),
    on_progress: Progress = ignore,
    on_notice: OnNotice = lambda job, note: None,
    sources: frozenset[Identity] = frozenset(),
    alone: bool = True,
) -> Upscaled | None:
    """An archive whose pictures are enlarged, one after the other, under their names.

    Other files are copied, order and dates stay. One picture that cannot be read fails the whole,
    and nothing is written. Arguments and errors are those of `upscale_file`.
    """
    if not may_write(job, output.existing, sources):
        return None
    spent = Stopwatch()
    with spent("prepare"):
        network = enlarger()
    make_folder(job.target.parent)
    height = width = 0
    try:
        with (
            _opened(job.source) as source,
            writing(job.target, replace=output.existing == "overwrite") as file,
            zipfile.ZipFile(file, "w") as target,
        ):
            members = [member for member in source.infolist() if not member.is_dir()]
            names = _names(members, output.extension)
            share = scaled(on_progress, 1 / max(1, len(names)))
            for member in members:
                with spent("read"):
                    content = _unpacked(source, member, job)
                name = names.get(member.filename)
                if name is None:
                    _add(target, member, member.filename, content, zipfile.ZIP_DEFLATED)
                    continue
                shown = f"{job.source}: {member.filename}"
                with ExitStack() as held:
                    with spent("wait"):
                        held.enter_context(reserve(content))
                    with spent("decode"):
                        frames = decode(content, shown, max_pixels)
                    sizes = result_sizes(network, frames, shown)
                    frames = prepared(frames, sizes, output, shown, job, on_notice)
                    frames = finished(enlarged(frames, network, share, spent), output)
                    with spent("encode"):
                        result = io.BytesIO()
                        threads = None if alone else 1
                        encode(frames, output.extension, output.quality, shown, result, threads)
                with spent("write"):
                    _add(target, member, name, result.getvalue(), zipfile.ZIP_STORED)
                height, width = frames.pictures[0].pixels.shape[:2]
            if not names:
                raise ImageError(f"{job.source}: no pictures in this archive")
    except FileExistsError as error:
        raise OutputError(EXISTS.format(job.target)) from error
    except OSError as error:
        place = job.source if str(error.filename) == str(job.source) else job.target
        raise OutputError(f"{place}: {reason(error)}") from error
    copy_times(job, output)
    return Upscaled(height, width, spent)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive. Raises ImageError, and OSError if there is none."""
    with stores.downloaded(path) if stores.is_url(path) else path.open("rb") as file:
        with in_words(str(path), "not an archive, or damaged"):
            archive = zipfile.ZipFile(file)
        with archive:
            yield archive


def _names(members: list[zipfile.ZipInfo], extension: str) -> dict[str, str]:
    """What pictures are called in the new archive, by their names in the old."""
    pictures = [member.filename for member in members if _is_picture(member.filename)]
    names = {name: f"{name.rpartition('.')[0]}.{extension}" for name in pictures}
    others = [member.filename for member in members if member.filename not in names]
    with_type: set[str] = set()
    while True:
        counts = Counter((*names.values(), *others))
        clashing = {name for name, new in names.items() if counts[new] > 1} - with_type
        if not clashing:
            return names
        # Where two would have one name, both keep their type in it.
        names |= {name: f"{name}.{extension}" for name in clashing}
        with_type |= clashing


def _is_picture(name: str) -> bool:
    """By its name; what macOS puts into archives besides is none."""
    path = PurePosixPath(name)
    hidden = path.name.startswith(".") or "__MACOSX" in path.parts
    return not hidden and path.suffix[1:].lower() in table.READABLE


def _unpacked(source: zipfile.ZipFile, member: zipfile.ZipInfo, job: Job) -> bytes:
    name = f"{job.source}: {member.filename}"
    if member.file_size > _LARGEST:
        raise ImageError(f"{name}: more than {_LARGEST >> 20} MiB: unpack the archive first")
    with in_words(name, "damaged"):
        try:
            return source.read(member)
        except RuntimeError as error:  # encrypted, or packed in a rare way
            raise ImageError(f"{name}: cannot be unpacked: {error}") from error


def _add(
    target: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, content: bytes, method: int
) -> None:
    """A file with the date and the rights of what it is made of."""
    added = zipfile.ZipInfo(name, member.date_time)
    added.external_attr, added.compress_type = member.external_attr, method
    target.writestr(added, content)
