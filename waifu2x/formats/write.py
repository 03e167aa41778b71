"""Pictures into files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

from waifu2x.errors import OutputError
from waifu2x.formats import metadata, png, png_write, pnm, table
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Chunk, Frames, Picture
from waifu2x.system.files import reason, writing
from waifu2x.system.stopwatch import Stopwatch

EXISTS = "{}: exists already: use --overwrite or --skip-existing"


def write(
    frames: Frames,
    path: Path,
    extension: str,
    quality: Quality,
    spent: Stopwatch | None = None,
    *,
    replace: bool = False,
    threads: int | None = None,
) -> None:
    """Writes pictures that fit the format; the file appears under its name when it is complete.

    `spent` gets the seconds of `encode` and of `write`; `threads` as of `encode`.
    Raises OutputError, also if there is a file by then and `replace` is false.
    """
    spent = spent or Stopwatch()
    try:
        with ExitStack() as stack:
            with spent("write"):
                file = stack.enter_context(writing(path, replace=replace))
            with spent("encode"):
                encode(frames, extension, quality, str(path), file, threads)
            with spent("write"):
                stack.close()
    except FileExistsError as error:
        raise OutputError(EXISTS.format(path)) from error
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {reason(error)}") from error


def encode(
    frames: Frames,
    extension: str,
    quality: Quality,
    name: str,
    file: IO[bytes],
    threads: int | None = None,
) -> None:
    """Writes the content of a file to `file`, which can be read and sought.

    The pictures are such as `adapt` leaves for the format; a level of quality is for table.LOSSY,
    "like" for JPEG: coded as the picture was that it comes from, if that was a JPEG.
    `threads` is how many cores may work on it, where the encoder can use them; None is all, 1 is
    for callers that write several files at a time. The file is the same.
    Raises OutputError, and OSError if `file` cannot be written.
    """
    form = table.of(extension)
    frames = _sized(frames)
    try:
        if form.name == "PNG":
            ancillary = _chunks(frames.pictures[0])
            png_write.write(frames, ancillary, file, quality.compression, threads)
        elif form.name == "TIFF":
            from waifu2x.formats import tiff

            tiff.write(frames, file, quality.compression)
        elif form.name == "PNM":
            pnm.write(frames.pictures[0], file)
        else:
            from waifu2x.formats import pillow_write

            pillow_write.write(frames, form, quality, name, file)
    except MemoryError as error:
        raise OutputError(
            f"{name}: not enough memory to encode as {form.name}: use a smaller scale"
        ) from error


def _sized(frames: Frames) -> Frames:
    """With metadata that knows how large the pictures are now."""
    pictures = (
        replace(picture, metadata=metadata.sized(picture.metadata, *picture.pixels.shape[:2]))
        for picture in frames.pictures
    )
    return replace(frames, pictures=tuple(pictures))


def _chunks(picture: Picture) -> list[Chunk]:
    """What a PNG says before its pixels."""
    colours = picture.colours
    first: Sequence[Chunk] = colours.chunks
    if colours.icc_profile:
        first = [png.profile_chunk(colours.icc_profile)]
    return [*first, *metadata.png_chunks(picture.metadata)]
