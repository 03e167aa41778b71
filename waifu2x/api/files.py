"""Upscales files of pictures for Python programs, as `waifu2x upscale` does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack, cast, get_args

from waifu2x.api.options import FileOptions, FilePath, progress_of
from waifu2x.backends import Progress
from waifu2x.errors import ExistsError, OutputError
from waifu2x.flows import upscaling
from waifu2x.flows.jobs import ARCHIVES, IN_FLIGHT, STANDARD, Existing, Job, Output, is_archive
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.flows.upscaling import Upscaled
from waifu2x.formats import table
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Depth, OutputOptions, Quality, Range
from waifu2x.system.arguments import integer
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage
    from waifu2x.imaging.enlarger import Enlarger

_PAGES_IN_FLIGHT = 4
"""Pages of an archive under way together: enough to keep a GPU busy."""
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class UpscaledFile:
    """A file that `upscale_file` has made."""

    path: Path
    """The file."""
    width: int
    """Pixels of its picture across; of the first one, where it holds several."""
    height: int
    """Pixels of its picture down; of the first one, where it holds several."""
    seconds: float
    """Seconds that it took, from reading the source on."""
    noise: int | None
    """The removed noise level, in an archive of its first JPEG; None for none."""
    notices: tuple[str, ...]
    """Sentences on parts of the source that the file does not keep, on a model that stands in for a
    missing one, and on why `auto` left out better backends. Empty if there is nothing to say."""
    copied: bool
    """Whether the file is a copy, since the picture was to stay as it is."""
    recomputed: int
    """The number of pictures computed again in fp32, since their values were too large for 16
    bits."""


class OpenUpscaler(Protocol):
    """The attributes of an Upscaler that files need."""

    enlarger: Enlarger
    notices: tuple[str, ...]


def upscaled(
    source: FilePath,
    target: FilePath,
    opened: Callable[[], OpenUpscaler],
    **how: Unpack[FileOptions],
) -> UpscaledFile:
    """Makes a file as `upscale_file` does, with an upscaler that `opened` returns when it is
    needed."""
    job = Job(_path(source), _path(target))
    output = _output(job, how)
    max_pixels = integer(
        how.get("max_pixels", MAX_PIXELS), range(1, 1 << 62), "max_pixels of at least 1"
    )
    on_progress = _CallerProgress(progress_of(how.get("on_progress")))
    work = _Work(job, output, opened, max_pixels)
    try:
        made = work.archive(on_progress) if is_archive(job.source) else work.file(on_progress)
    except Exception as error:
        if on_progress.raised is not None:
            raise on_progress.raised from None
        if isinstance(error, ExistsError):
            raise ExistsError(error.path, "use overwrite=True") from error.__cause__
        if isinstance(error, OSError):
            raise OutputError(f"{error.filename or job.target}: {reason(error)}") from error
        raise
    assert made is not None  # nothing is skipped
    noise = made.choices[0].level if made.choices else work.enlarger().noise
    return UpscaledFile(
        path=job.target,
        width=made.width,
        height=made.height,
        seconds=made.seconds,
        noise=noise,
        notices=tuple(work.notices),
        copied=made.copied,
        recomputed=made.recomputed,
    )


class _CallerProgress:
    """Passes progress on, and remembers the exception of the caller's function."""

    def __init__(self, on_progress: Progress) -> None:
        self._on_progress = on_progress
        self.raised: Exception | None = None

    def __call__(self, part: float) -> None:
        try:
            self._on_progress(part)
        except Exception as error:
            self.raised = error
            raise


class _Work:
    """Makes a file of another, and collects notices."""

    def __init__(
        self, job: Job, output: Output, opened: Callable[[], OpenUpscaler], max_pixels: int
    ) -> None:
        self._job = job
        self._output = output
        self._opened = opened
        self._max_pixels = max_pixels
        self._lock = threading.Lock()
        self._upscaler: OpenUpscaler | None = None
        self.notices: list[str] = []

    def enlarger(self) -> Enlarger:
        """Returns the upscaler's enlarger; opens it first. Threads may call it."""
        with self._lock:
            if self._upscaler is None:
                self._upscaler = self._opened()
                self.notices.extend(self._upscaler.notices)
            return self._upscaler.enlarger

    def file(self, on_progress: Progress) -> Upscaled | None:
        return upscaling.upscale_file(
            self._job,
            self._output,
            self.enlarger,
            WorkOptions(
                max_pixels=self._max_pixels,
                in_flight=IN_FLIGHT,
                on_progress=on_progress,
                on_notice=self.notices.append,
            ),
        )

    def archive(self, on_progress: Progress) -> Upscaled | None:
        from waifu2x.flows.archive import upscale_archive

        return upscale_archive(
            self._job, self._output, self._page, on_progress=on_progress, in_flight=_PAGES_IN_FLIGHT
        )

    def _page(self, name: str, content: bytes, on_progress: Progress) -> ArchivePage:
        from waifu2x.flows.archive import upscale_page

        return upscale_page(
            name,
            content,
            self._output,
            self.enlarger(),
            WorkOptions(
                max_pixels=self._max_pixels,
                on_progress=on_progress,
                on_notice=lambda notice: self.notices.append(f"{name}: {notice}"),
            ),
        )


def _path(name: FilePath) -> Path:
    path = Path(name)
    # In the command line, a lone "-" means standard input or output.
    return path.absolute() if path == STANDARD else path


def _output(job: Job, how: FileOptions) -> Output:
    """Returns how the target is written. Raises ValueError, and OutputError for a name without
    format and for a missing encoder."""
    level = how.get("quality")
    if level is not None and level != "like":
        level = integer(level, range(1, 101), 'a quality from 1 to 100, "like" or None')
    compression = _one_of(how.get("compression", "default"), "compression", get_args(Compression))
    depth = _one_of(how.get("depth", "auto"), "depth", ("auto", 8, 10, 12, 16))
    background = tuple(
        integer(value, range(256), "a background of three numbers from 0 to 255")
        for value in how.get("background", OutputOptions().background)
    )
    if len(background) != 3:
        raise ValueError(f"Expected a background of three numbers, but got {background}")
    extension = _extension(job, how.get("format"))
    encoded, bits = Quality(level, compression), cast(Depth, str(depth))
    if extension is not None:
        table.check(extension, encoded, bits)
        try:
            table.check_encoder(table.of(extension))
        except OutputError as error:
            raise error.of(job.target) from error
    to = _one_of(how.get("to"), "to", (None, *get_args(Range)))
    options = OutputOptions(bits, background, how.get("strip", False), to)
    existing: Existing = "overwrite" if how.get("overwrite", False) else "fail"
    copy_times = how.get("copy_times", False)
    return Output(extension or "png", encoded, existing, options, copy_times, pages=extension)


def _extension(job: Job, chosen: str | None) -> str | None:
    """Returns the format of a target, chosen or by its name; None for an archive whose pages keep
    theirs."""
    target = job.target
    if chosen is not None:
        chosen = _one_of(chosen, "format", table.WRITABLE)
    suffix = target.suffix[1:].lower()
    if is_archive(job.source) or suffix in ARCHIVES:
        if not is_archive(job.source):
            raise OutputError(
                f"{target}: an archive can be made of an archive only, and {job.source} is none"
            )
        if suffix not in ARCHIVES:
            raise OutputError(f"{target}: {job.source} is an archive", "end it in .cbz or .zip")
        return chosen
    if suffix in table.WRITABLE:
        if chosen is not None and not table.same(chosen, suffix):
            raise ValueError(f"format {chosen!r} contradicts the name {target}")
        return suffix
    if chosen is None:
        raise OutputError(
            f"{target}: its name says no format", "end it in .png, say, or use format="
        )
    return chosen


def _one_of(value: _Value, name: str, allowed: Sequence[object]) -> _Value:
    if value not in allowed:
        expected = ", ".join(map(repr, allowed))
        raise ValueError(f"Expected a {name} of {expected}, but got {value!r}")
    return value
