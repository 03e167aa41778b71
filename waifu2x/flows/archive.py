"""Pictures in a CBZ or ZIP archive, enlarged into another."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from waifu2x.backends import Progress, ignore
from waifu2x.errors import ExistsError, ImageError, OutputError
from waifu2x.flows import archive_members, comic_info
from waifu2x.flows.archive_members import MemberName, NewMember, unpacked
from waifu2x.flows.archive_pages import output_of_page, page_names
from waifu2x.flows.flow import flow
from waifu2x.flows.jobs import Job, Output, copy_times, make_folder, may_write
from waifu2x.flows.noise_choice import NoiseChoice, choose
from waifu2x.flows.picture_work import PictureWork, PreparedSource, WorkOptions
from waifu2x.flows.upscaling import Upscaled
from waifu2x.formats.preview import Preview
from waifu2x.formats.read import open_content
from waifu2x.formats.write import ContentSink
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.streams import Header
from waifu2x.system import stores
from waifu2x.system.files import abandon, reason, writing
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.stopwatch import Stopwatch

_LONGEST_NAME = 0xFFFF
"""The most bytes of a name, and of its extra field."""


class ArchivePage(NamedTuple):
    """A finished page of an archive."""

    content: bytes
    size: tuple[int, int]
    """Rows and columns of the (first) result."""
    spent: Mapping[str, float]
    """Seconds by stage."""
    choice: NoiseChoice | None
    """The chosen noise level, if there was a choice."""
    previews: tuple[Preview, ...] = ()
    recomputed: int = 0
    """Pictures of it that were computed again in fp32."""


MakePage = Callable[[str, bytes, Progress], ArchivePage]
"""Makes a page of its name, for messages, and its file's content. Progress adds up to 1. Several
threads call it."""


def upscale_archive(
    job: Job,
    output: Output,
    make_page: MakePage,
    *,
    on_progress: Progress = ignore,
    in_flight: int = 1,
) -> Upscaled | None:
    """Enlarges the pictures of an archive under their names; returns None if the target exists and
    may stay. Other files are copied, unless `output.pages_only`; order and dates stay. If a picture
    fails, nothing is written. `in_flight` pages are under way. Raises Waifu2xError, OSError,
    MemoryError and what `make_page` raises."""
    if not may_write(job, output.existing):
        return None
    make_folder(job.target.parent)
    start, spent = time.monotonic(), Stopwatch()
    try:
        with _opened(job.source) as archive:
            source = _Members(job, archive, output, spent)
            work = partial(_made, job, make_page, spent)
            comment = b"" if output.pages_only else archive.comment
            sink = _NewArchive(job.target, comment, spent, replace=output.replaces)
            flow(source, work, sink, in_flight=in_flight, on_progress=on_progress)
    except FileExistsError as error:
        raise ExistsError(job.target) from error
    except OSError as error:
        place = job.source if str(error.filename) == str(job.source) else job.target
        raise OutputError(f"{place}: {reason(error)}") from error
    copy_times(job, output)
    pages = sink.pages
    height, width = pages[0].size
    return Upscaled(
        height,
        width,
        spent.seconds,
        time.monotonic() - start,
        previews=tuple(preview for page in pages for preview in page.previews),
        pictures=len(pages),
        choices=tuple(page.choice for page in pages if page.choice is not None),
        further_pixels=sum(page.size[0] * page.size[1] for page in pages[1:]),
        recomputed=sum(page.recomputed for page in pages),
    )


def upscale_page(
    name: str, content: bytes, output: Output, network: Enlarger, options: WorkOptions
) -> ArchivePage:
    """Makes a page of an archive. `name` is for messages, and ends as the page's. Raises as
    `upscale_file`."""
    output = output_of_page(name, content, output)
    spent, result = Stopwatch(), io.BytesIO()
    with ExitStack() as held:
        with spent("wait"):
            allocate = held.enter_context(options.reserve(content))
        with spent("decode"):
            source = open_content(content, name, options.max_pixels, allocate)
            held.enter_context(closing(source))
            source.first()
        with spent("prepare"):
            network, choice = choose(network, source.first().picture)
        prepared = PreparedSource(source, network, output, name, name, spent, options)
        work = PictureWork(network, output, spent, animated=prepared.header.animated)
        sink = ContentSink(result, output.extension, output.quality, name, spent, 1)
        flow(prepared, work, sink, on_progress=options.on_progress)
    size = prepared.sizes[0]
    return ArchivePage(
        result.getvalue(), size, spent.seconds, choice, work.previews, work.recomputed
    )


@dataclass(frozen=True)
class _Member:
    info: zipfile.ZipInfo
    old: MemberName
    name: MemberName
    """Its name in the new archive."""
    content: bytes
    is_picture: bool
    page: ArchivePage | None = None
    """The result for a picture, without its content."""


class _Members:
    """The files of an archive as a source, unpacked one by one."""

    def __init__(
        self, job: Job, archive: zipfile.ZipFile, output: Output, spent: Stopwatch
    ) -> None:
        """Raises ImageError for an archive without pictures, and for names that its result must not
        have."""
        self._job = job
        self._archive = archive
        self._spent = spent
        members = [member for member in archive.infolist() if not member.is_dir()]
        named = [(member, MemberName.of(member)) for member in members]
        self._pages = page_names([name for _, name in named], output)
        if not self._pages:
            raise ImageError(f"{job.source}: no pictures in this archive")
        self._named = [
            (member, name)
            for member, name in named
            if name in self._pages or not output.pages_only or comic_info.is_comic_info(name.text)
        ]
        self._is_strangers = output.pages_only
        for _, name in self._named:
            new = self._pages.get(name, name)
            if max(len(new.header), len(new.extra)) > _LONGEST_NAME:
                raise ImageError(f"{job.source}: {name.shown}: too long a name")
            if new.leaves():
                raise ImageError(
                    f"{job.source}: {name.shown}: it leads out of its folder",
                    "unpack the archive, and pack it again",
                )
        self.header = Header((), len(self._named), format="ZIP")

    def __iter__(self) -> Iterator[_Member]:
        for info, name in self._named:
            content: bytes | None
            with self._spent("read"):
                content = unpacked(self._archive, info, str(self._job.source))
            new = self._pages.get(name)
            if comic_info.is_comic_info(name.text):
                edit = comic_info.rewritten if self._is_strangers else comic_info.without_sizes
                content = edit(content)
            if content is not None:
                yield _Member(info, name, new or name, content, new is not None)

    def close(self) -> None:
        """Does nothing: the archive is closed by its opener."""


def _made(
    job: Job, make_page: MakePage, spent: Stopwatch, member: _Member, on_progress: Progress
) -> _Member:
    """Returns a file of the new archive: a picture enlarged, any other as it is."""
    if not member.is_picture:
        on_progress(1.0)
        return member
    page = make_page(f"{job.source}: {member.old.shown}", member.content, on_progress)
    spent.add(page.spent)
    shown = tuple(each._replace(name=member.name.text) for each in page.previews)
    made = page._replace(content=b"", previews=shown)
    return replace(member, content=page.content, page=made)


class _NewArchive:
    """A new archive as a sink. Files keep their dates and rights."""

    def __init__(
        self, path: Path, comment: bytes, spent: Stopwatch, *, replace: bool | None
    ) -> None:
        self.pages: list[ArchivePage] = []
        self._path = path
        self._comment = comment
        self._spent = spent
        self._replace = replace
        self._held = ExitStack()
        self._archive: zipfile.ZipFile | None = None

    def open(self, header: Header) -> None:
        file = self._held.enter_context(writing(self._path, replace=self._replace))
        self._archive = self._held.enter_context(zipfile.ZipFile(file, "w"))
        self._archive.comment = self._comment  # where readers of comics keep what they know

    def add(self, result: _Member) -> None:
        assert self._archive is not None
        added = NewMember(result.name, result.info)
        # Pictures are compressed already.
        added.compress_type = zipfile.ZIP_STORED if result.is_picture else zipfile.ZIP_DEFLATED
        with self._spent("write"):
            self._archive.writestr(added, result.content)
        if result.page is not None:
            self.pages.append(result.page)

    def close(self) -> None:
        """Completes the archive and gives it its name. Raises OSError."""
        with self._spent("write"):
            self._held.close()

    def abort(self) -> None:
        abandon(self._held)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with (
        stores.downloaded(path) if stores.is_url(path) else path.open("rb") as file,
        archive_members.opened(file, str(path)) as archive,
    ):
        yield archive
