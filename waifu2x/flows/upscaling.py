"""Makes one file of pictures of another: checks both before the work, then does it."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from waifu2x.errors import ExistsError, ImageError, OutputError, Sentence
from waifu2x.flows.flow import flow
from waifu2x.flows.jobs import STANDARD, Job, Output, copy_times, make_folder, may_write
from waifu2x.flows.noise_choice import NoiseChoice, choose
from waifu2x.flows.picture_work import PictureWork, PreparedSource, WorkOptions
from waifu2x.formats import table
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.preview import Preview, preview
from waifu2x.formats.read import content, open_content
from waifu2x.formats.table import Format, OutputOptions
from waifu2x.formats.write import ContentSink, FileSink
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.streams import Extent, Header, Sink, Timed
from waifu2x.system import stores
from waifu2x.system.files import explained, read_bytes, reason, write_atomically
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.stopwatch import Stopwatch

_LARGE = 1 << 25
"""Pixels of results that all cores encode."""
_NOTHING = Sentence(
    "it has no noise that -n auto removes, and stays as it is", "give -n 0 to 3, or a scale"
)
_STILL = Sentence(
    "each of its frames is enlarged as if the film stood still", "use `waifu2x video`"
)
_LARGE_FILE = 1 << 24
"""Bytes that take longer to decode than a device to open."""
_LEAST_BYTES = 1 / 500
"""The least bytes a pixel in a format that compresses: a plain area."""
_UNCOMPRESSED = ("BMP", "PNM", "TGA")
"""Formats with at least a byte a pixel."""


@dataclass(frozen=True)
class Upscaled:
    """A finished file and its costs."""

    height: int
    width: int
    """Size of the first result."""
    spent: Mapping[str, float]
    """Seconds of `read`; `wait` for memory; `decode`; `prepare`, until the enlarger is there and
    the output is known to hold the result; the enlarger's own; `encode` and `write`."""
    seconds: float
    """Seconds on the clock: fewer than the sum of `spent` if threads overlap."""
    copied: bool = False
    """Whether the file was copied, since its pictures stay as they are."""
    previews: tuple[Preview, ...] = ()
    """The first picture, or every page of an archive, if wanted."""
    choices: tuple[NoiseChoice, ...] = ()
    """The noise levels that were chosen for JPEGs."""
    pictures: int = 1
    """Pictures in the file."""
    further_pixels: int = 0
    """Pixels of all results but the first."""
    recomputed: int = 0
    """Pictures computed again in fp32, since values left 16 bits."""
    film: Mapping[str, Any] | None = None
    """The facts of a film, as `waifu2x video --json` has them; None for pictures."""

    @property
    def pixels(self) -> int:
        """Returns the pixels of all results."""
        return self.height * self.width + self.further_pixels


def upscale_file(
    job: Job, output: Output, enlarger: Callable[[], Enlarger], options: WorkOptions
) -> Upscaled | None:
    """Reads, enlarges and writes one file; returns None if the target exists and may stay.
    `enlarger` is called when the first picture has been decoded, or while that of a large file is,
    and again for later notices. Raises Waifu2xError, OSError, MemoryError."""
    if not may_write(job, output.existing, options.sources):
        return None
    output = output.of(job.target)
    start, spent = time.monotonic(), Stopwatch()
    with spent("read"):
        data = _content(job.source)
    with ExitStack() as held:
        with spent("wait"):
            allocate = held.enter_context(options.reserve(data))
        with spent("decode"):
            name = _name(job.source, "standard input")
            source = open_content(data, name, options.max_pixels, allocate)
            held.enter_context(closing(source))
            options.check(source.header)
            if options.alone and len(data) >= _LARGE_FILE:
                network = _opened_meanwhile(source, enlarger)
            else:
                source.first()
                network = None
            del data
        with spent("prepare"):
            network, choice = choose(network or enlarger(), source.first().picture)
            choices = () if choice is None else (choice,)
            target = _name(job.target, "standard output")
            prepared = PreparedSource(source, network, output, name, target, spent, options)
        if prepared.header.animated and network.frames(*source.header.extents[0][:2]) > 1:
            options.on_notice(_STILL)
        height, width = prepared.sizes[0]
        stays = _stays(source.header, network)
        if stays and network.request.scale == 1:
            options.on_notice(_NOTHING)
        if stays and _is_file_of(job, output):
            side, first = output.preview_side, source.first().picture
            previews = (preview(first, side),) if side else ()
            for _ in source:
                pass  # a damaged file must not be copied
            with spent("write"):
                _copy(job, output)
            seconds, count = time.monotonic() - start, source.header.count or 1
            return Upscaled(height, width, spent.seconds, seconds, True, previews, choices, count)
        kept = prepared.header.all_extents
        check_disk(job.target, table.of(output.extension), kept)
        options.on_size(sum(extent.height for extent in kept), width)
        large = sum(extent.height * extent.width for extent in kept) >= _LARGE
        work = PictureWork(network, output, spent, animated=prepared.header.animated)
        sink = _sink(job, output, spent, None if options.alone or large else 1)
        flow(prepared, work, sink, in_flight=options.in_flight, on_progress=options.on_progress)
        if job.target != STANDARD:
            copy_times(job, output)
        seconds = time.monotonic() - start
        pixels = sum(extent.height * extent.width for extent in kept)
        return Upscaled(
            height,
            width,
            spent.seconds,
            seconds,
            previews=work.previews,
            pictures=len(kept),
            choices=choices,
            further_pixels=pixels - height * width,
            recomputed=work.recomputed,
        )


def _opened_meanwhile(source: DecodedFile, enlarger: Callable[[], Enlarger]) -> Enlarger:
    """Returns the enlarger, opened while the first picture is decoded. Raises what either does; an
    error of the picture wins."""
    with ThreadPoolExecutor(1, thread_name_prefix="waifu2x-decode") as pool:
        decoding = pool.submit(source.first)
        try:
            network = enlarger()
        except Exception:
            decoding.result()
            raise
        decoding.result()
        return network


def _stays(header: Header, network: Enlarger) -> bool:
    return all(network.leaves(height, width) for height, width, _ in header.extents)


def _is_file_of(job: Job, output: Output) -> bool:
    """Returns whether a job is from file to file, and the source already has the wanted format."""
    suffix = job.source.suffix[1:].lower()
    known = suffix in table.WRITABLE and table.same(suffix, output.extension)
    plain = output.options == OutputOptions(background=output.options.background)
    return known and plain and STANDARD not in (job.source, job.target)


def _copy(job: Job, output: Output) -> None:
    with explained(ImageError, f"{job.source}: cannot read"):
        data = read_bytes(job.source)
    make_folder(job.target.parent)
    try:
        write_atomically(job.target, data, replace=output.replaces)
    except FileExistsError as error:
        raise ExistsError(job.target) from error
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
    copy_times(job, output)


def _name(path: Path, standard: str) -> str:
    return standard if path == STANDARD else str(path)


def _content(source: Path) -> bytes:
    if source != STANDARD:
        return content(source)
    if sys.stdin is None:
        raise ImageError("standard input: it is closed")
    with explained(ImageError, "standard input: cannot read"):
        return sys.stdin.buffer.read()


def _sink(job: Job, output: Output, spent: Stopwatch, threads: int | None) -> Sink[Timed]:
    if job.target == STANDARD:
        return _StandardOutput(output, spent)
    return _NewFile(
        job.target,
        output.extension,
        output.quality,
        spent,
        replace=output.replaces,
        threads=threads,
    )


class _NewFile(FileSink):
    def open(self, header: Header) -> None:
        with self.spent("write"):
            make_folder(self.path.parent)
        super().open(header)


class _StandardOutput(ContentSink):
    """Standard output, which gets everything at the end, since a pipe cannot be sought in."""

    def __init__(self, output: Output, spent: Stopwatch) -> None:
        self._encoded = io.BytesIO()
        super().__init__(self._encoded, output.extension, output.quality, "standard output", spent)

    def open(self, header: Header) -> None:
        if sys.stdout is None:
            raise OutputError("standard output: it is closed")
        super().open(header)

    def close(self) -> None:
        super().close()
        with self.spent("write"), explained(OutputError, "standard output: cannot write"):
            sys.stdout.buffer.write(self._encoded.getbuffer())
            sys.stdout.buffer.flush()


def check_disk(target: Path, form: Format, extents: Sequence[Extent]) -> None:
    """Raises OutputError, from an OSError, for results that cannot fit on the disk. Compression
    shows only later: what is refused would not fit even if it were of one colour."""
    if target == STANDARD or stores.is_url(target):
        return
    folder = next((each for each in target.parents if each.is_dir()), None)
    if folder is None:
        return  # making it will tell why that fails
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # some file systems do not tell
    pixels = sum(extent.height * extent.width for extent in extents)
    needed = pixels if form.name in _UNCOMPRESSED else pixels * _LEAST_BYTES
    if free < needed:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        megabytes = f"{free / 2**20:.0f} MiB are" if free >= 2**20 else f"{free >> 10} KiB are"
        raise OutputError(
            f"{target}: no space on the disk for the result, {megabytes} free",
            "make room, or choose another folder",
        ) from full
