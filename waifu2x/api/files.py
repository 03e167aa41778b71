"""Files of pictures upscaled by Python programs, as `waifu2x upscale` does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, Unpack, cast, get_args

from waifu2x.api.upscaler import OnProgress, Upscaler, UpscalerOptions, progress_of
from waifu2x.errors import ExistsError, OutputError
from waifu2x.flows import upscaling
from waifu2x.flows.jobs import IN_FLIGHT, STANDARD, Existing, Job, Output
from waifu2x.formats import table
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Depth, OutputOptions, Quality
from waifu2x.system.arguments import integer
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.imaging.enlarger import Enlarger

_Value = TypeVar("_Value")
FilePath = str | os.PathLike[str]


class FileOptions(TypedDict, total=False):
    """The keyword arguments of `upscale_file` that are about the files."""

    format: str | None
    quality: int | Literal["like"] | None
    compression: Compression
    depth: Literal["auto", 8, 16]
    background: tuple[int, int, int]
    strip: bool
    copy_times: bool
    overwrite: bool
    max_pixels: int
    on_progress: OnProgress | None


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
    """The noise level that was removed; None if there was none."""
    notices: tuple[str, ...]
    """Sentences on what the file does not keep of the source, on which model stands in for one that
    is missing, and on why `auto` left out better backends. Empty if there is nothing to say."""
    copied: bool
    """Whether the file is a copy, since the picture was to stay as it is."""


def upscale_file(
    source: FilePath,
    target: FilePath,
    scale: float | Fraction | None = None,
    noise: int | Literal["auto"] | None = "auto",
    *,
    format: str | None = None,
    quality: int | Literal["like"] | None = None,
    compression: Compression = "default",
    depth: Literal["auto", 8, 16] = "auto",
    background: tuple[int, int, int] = (255, 255, 255),
    strip: bool = False,
    copy_times: bool = False,
    overwrite: bool = False,
    max_pixels: int = MAX_PIXELS,
    on_progress: OnProgress | None = None,
    **options: Unpack[UpscalerOptions],
) -> UpscaledFile:
    """One file of pictures enlarged and denoised into another, as `waifu2x upscale` does it.

    The result keeps what its format can hold: transparency, bits per sample, colour profile, EXIF,
    XMP and other metadata, all frames of an animation with their timing, all pages of a TIFF. It
    appears under its name when it is complete; where the work fails, nothing is changed. For many
    files, the method `Upscaler.upscale_file` keeps the networks compiled.

    Args:
        source: The file to read, in any format that `waifu2x info` knows.
        target: The file to make. Its extension says the format. Folders on the way to it are made.
        scale: Output pixels per input pixel in each direction, above 0 and up to 32; without it and
            any other size, 2.
        noise: "auto" removes noise from a JPEG by its quality, where that makes it better; else the
            level of noise to remove, from 0 (weak) to 3 (strong), or None for none.
        format: The format of the target by its usual extension, such as "png", where the name of
            the target has none.
        quality: 1 to 100 for JPEG (default 95), AVIF and HEIC (90), WebP, JPEG XL and JPEG 2000
            (default: lossless); "like" is for a JPEG coded as finely as the source, if that is one.
        compression: How much time may make the file smaller: "fast", "default" or "best", for PNG,
            TIFF, WebP and JPEG XL.
        depth: Bits per sample, 8 or 16; "auto": as many as the source has, where the format holds
            them.
        background: Red, green and blue, 0 to 255 each, under transparent pixels where the format
            has no transparency.
        strip: Whether to drop metadata; the colour profile stays.
        copy_times: Whether the target gets the dates of the source.
        overwrite: Whether to replace a target that exists. The source is never replaced.
        max_pixels: The most pixels that the source may hold, all its frames together.
        on_progress: Called with each further part of the work; the parts add up to 1 if the source
            tells how many pictures it holds. It may be called by other threads, one at a time. To
            stop the work, raise an exception in it, which comes out of this call.
        options: Further keyword arguments of an Upscaler.

    Returns:
        The size of the result, how long it took, the noise level, and what there is to say.

    Raises:
        ImageError: The source is not there, is damaged or too large, or is no picture.
        ExistsError: The target exists, and `overwrite` is false.
        OutputError: The target cannot be written, or its format cannot hold the result.
        ModelError: The model is not there, is damaged, or lacks what is asked for.
        BackendError: The device cannot be used, fails, or its memory is too small.
        MemoryError: The machine's memory is too small for the result.
        ValueError: An argument makes no sense, or the format does not have it.

    Examples:
        >>> made = waifu2x.upscale_file("photo.jpg", "large.webp", scale=2, quality=90)
        >>> made.path.name, made.width, made.height
        ('large.webp', 32, 18)
    """
    how: FileOptions = {
        "format": format,
        "quality": quality,
        "compression": compression,
        "depth": depth,
        "background": background,
        "strip": strip,
        "copy_times": copy_times,
        "overwrite": overwrite,
        "max_pixels": max_pixels,
        "on_progress": on_progress,
    }
    with ExitStack() as stack:
        # Opened when the source is there and can be read.
        return upscaled(
            source, target, lambda: stack.enter_context(Upscaler(scale, noise, **options)), **how
        )


def upscaled(
    source: FilePath, target: FilePath, opened: Callable[[], Upscaler], **how: Unpack[FileOptions]
) -> UpscaledFile:
    """What `upscale_file` makes with the upscaler that `opened` gives when it is needed."""
    job = Job(_path(source), _path(target))
    output = _output(job.target, how)
    max_pixels = integer(
        how.get("max_pixels", MAX_PIXELS), range(1, 1 << 62), "max_pixels of at least 1"
    )
    upscaler: Upscaler | None = None
    notices: list[str] = []
    on_progress = progress_of(how.get("on_progress"))
    stopped_by: BaseException | None = None

    def told(part: float) -> None:
        nonlocal stopped_by
        try:
            on_progress(part)
        except BaseException as error:
            stopped_by = error
            raise

    def enlarger() -> Enlarger:
        nonlocal upscaler
        if upscaler is None:
            upscaler = opened()
            notices.extend(upscaler.notices)
        return upscaler.enlarger

    try:
        made = upscaling.upscale_file(
            job,
            output,
            enlarger,
            max_pixels=max_pixels,
            on_progress=told,
            on_notice=lambda job, notice: notices.append(notice),
            in_flight=IN_FLIGHT,
        )
    except ExistsError as error:
        raise ExistsError(error.path, "use overwrite=True") from error.__cause__
    except OSError as error:
        if error is stopped_by:
            raise  # the caller's own
        raise OutputError(f"{error.filename or job.target}: {reason(error)}") from error
    assert made is not None  # since nothing is to be skipped
    assert upscaler is not None
    noise = made.choices[0].level if made.choices else upscaler.enlarger.noise
    return UpscaledFile(
        job.target, made.width, made.height, made.seconds, noise, tuple(notices), made.copied
    )


def _path(name: FilePath) -> Path:
    path = Path(name)
    # To the command, a lone "-" is standard input or output.
    return path.absolute() if path == STANDARD else path


def _output(target: Path, how: FileOptions) -> Output:
    """How the target is written. Raises ValueError, and OutputError for a name without format."""
    level = how.get("quality")
    if level is not None and level != "like":
        level = integer(level, range(1, 101), 'a quality from 1 to 100, "like" or None')
    compression = _one_of(how.get("compression", "default"), "compression", get_args(Compression))
    depth = _one_of(how.get("depth", "auto"), "depth", ("auto", 8, 16))
    background = tuple(
        integer(value, range(256), "a background of three numbers from 0 to 255")
        for value in how.get("background", OutputOptions().background)
    )
    if len(background) != 3:
        raise ValueError(f"Expected a background of three numbers, but got {background}")
    extension = _extension(target, how.get("format"))
    encoded, bits = Quality(level, compression), cast(Depth, str(depth))
    table.check(extension, encoded, bits)
    options = OutputOptions(bits, background, how.get("strip", False))
    existing: Existing = "overwrite" if how.get("overwrite", False) else "fail"
    return Output(extension, encoded, existing, options, how.get("copy_times", False))


def _extension(target: Path, chosen: str | None) -> str:
    """The format of a target: as is asked, or by its name."""
    if chosen is not None:
        chosen = _one_of(chosen, "format", table.WRITABLE)
    suffix = target.suffix[1:].lower()
    if suffix in table.WRITABLE:
        if chosen is not None and not table.same(chosen, suffix):
            raise ValueError(f"format {chosen!r} contradicts the name {target}")
        return suffix
    if chosen is None:
        raise OutputError(f"{target}: its name says no format: end it in .png, say, or use format=")
    return chosen


def _one_of(value: _Value, name: str, allowed: Sequence[object]) -> _Value:
    if value not in allowed:
        expected = ", ".join(map(repr, allowed))
        raise ValueError(f"Expected a {name} of {expected}, but got {value!r}")
    return value
