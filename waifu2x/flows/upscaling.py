"""One picture from file to file: read, enlarged, written, each with its seconds."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.jobs import (
    STANDARD,
    Identity,
    Job,
    OnNotice,
    Output,
    Reserve,
    copy_times,
    make_folder,
    may_write,
)
from waifu2x.formats import table
from waifu2x.formats.adapt import OutputOptions, adapt, check_results, finish
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.preview import preview
from waifu2x.formats.profiles import in_srgb_tone
from waifu2x.formats.read import content, decode
from waifu2x.formats.write import EXISTS, encode, write
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.picture import Frames, Picture
from waifu2x.system.files import read_bytes, reason, write_atomically
from waifu2x.system.stopwatch import Stopwatch

_LARGE = 1 << 25
"""Pixels of results."""
_LARGE_FILE = 1 << 24
"""Bytes that take longer to decode than a device takes to open."""


@dataclass(frozen=True)
class Upscaled:
    """A picture that was made, and what it took."""

    height: int
    width: int
    """Of the first picture, where there are several."""
    spent: Stopwatch
    """Seconds of `read`, of `wait`, for memory, of `decode`, of `prepare`, until the enlarger is
    there and the output's format is known to hold the result, of what the enlarger tells, of
    `encode` and of `write`."""
    copied: bool = False
    """Whether it stays as it is, and so does its file."""
    previews: tuple[bytes, ...] = ()
    """JPEGs of the first picture, before and after, where they are wanted; of one that stays as it
    is, one."""


def upscale_file(
    job: Job,
    output: Output,
    enlarger: Callable[[], Enlarger],
    *,
    max_pixels: int = MAX_PIXELS,
    reserve: Reserve = lambda content: nullcontext(),
    on_size: Callable[[int, int], None] = lambda height, width: None,
    on_progress: Progress = ignore,
    on_notice: OnNotice = lambda job, note: None,
    sources: frozenset[Identity] = frozenset(),
    alone: bool = True,
) -> Upscaled | None:
    """Reads, enlarges and writes one file; None if it is there already and may stay.

    `enlarger` is called when the file has been read, or while a large one is decoded; then, before
    the work, `on_size` with the rows of all results together and the columns of the first, and
    `on_notice` with a line about what the output does not keep, if there is anything. Nothing in
    `sources` is ever replaced. `alone`: no other files are worked on; otherwise only large results
    are encoded by all cores, and nothing is done while a file is decoded.
    Raises Waifu2xError, OSError, MemoryError.
    """
    if not may_write(job, output.existing, sources):
        return None
    spent = Stopwatch()
    with spent("read"):
        file = _content(job.source)
    with ExitStack() as held:
        with spent("wait"):
            held.enter_context(reserve(file))
        name = _name(job.source, "standard input")
        with spent("decode"):
            if alone and len(file) >= _LARGE_FILE:
                source, network = _decoded_meanwhile(file, name, max_pixels, enlarger)
            else:
                source, network = decode(file, name, max_pixels), None
            del file
        with spent("prepare"):
            network = network or enlarger()
            sizes = result_sizes(network, source, name)
            height, width = sizes[0]
            stays = _stays(source, network) and _is_file_of(job, output)
            if not stays:
                target = _name(job.target, "standard output")
                source = prepared(source, sizes, output, target, job, on_notice)
        if stays:
            with spent("write"):
                _copy(job, output)
            return Upscaled(height, width, spent, True, _previews(output, source))
        on_size(sum(rows for rows, _ in sizes[: len(source.pictures)]), width)
        result = enlarged(source, network, on_progress, spent)
        pixels = sum(rows * columns for rows, columns in sizes)
        threads = None if alone or pixels >= _LARGE else 1
        _write(finished(result, output), job, output, spent, threads)
        return Upscaled(height, width, spent, False, _previews(output, source, result))


def _decoded_meanwhile(
    file: bytes, name: str, max_pixels: int, enlarger: Callable[[], Enlarger]
) -> tuple[Frames, Enlarger]:
    """The pictures of a file, and the enlarger, opened while they are decoded.

    Raises what either does; what is wrong with the file comes first.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="waifu2x-decode") as pool:
        decoding = pool.submit(decode, file, name, max_pixels)
        try:
            network = enlarger()
        except Exception:
            decoding.result()
            raise
        return decoding.result(), network


def result_sizes(network: Enlarger, source: Frames, name: str) -> list[tuple[int, int]]:
    """Rows and columns of the result of each picture of a file, which errors name."""
    try:
        return [network.result_size(*picture.pixels.shape[:2]) for picture in source.pictures]
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error


def prepared(
    source: Frames,
    sizes: Sequence[tuple[int, int]],
    output: Output,
    name: str,
    job: Job,
    on_notice: OnNotice,
) -> Frames:
    """What is to be enlarged of a file, to these sizes; `name` is the output's.

    Tells what the output will not keep. Raises OutputError if it cannot hold the result.
    """
    form = table.of(output.extension)
    source, notes = adapt(source, form, output.options)
    shapes = [
        (*size, picture.pixels.shape[-1] + (picture.alpha is not None))
        for size, picture in zip(sizes, source.pictures, strict=False)
    ]
    check_results(form, shapes, source.pictures[0].pixels.dtype.itemsize, name)
    if notes:
        on_notice(job, "; ".join(notes))
    return source


def finished(result: Frames, output: Output) -> Frames:
    """Results as they are written."""
    form = table.of(output.extension)
    pictures = (finish(picture, form, output.options) for picture in result.pictures)
    return replace(result, pictures=tuple(pictures))


def enlarged(source: Frames, network: Enlarger, on_progress: Progress, spent: Stopwatch) -> Frames:
    """Every picture enlarged; those of an animation that repeat, once."""
    share = scaled(on_progress, 1 / len(source.pictures))
    done: dict[bytes, Picture] = {}
    results = []
    for picture in source.pictures:
        digest = _digest(picture) if source.animated else b""
        found = done.get(digest)
        if found is None:
            work = partial(network.picture, on_progress=share, stopwatch=spent)
            found = in_srgb_tone(picture, work)
            if source.animated:
                done[digest] = found
        else:
            share(1.0)
        results.append(found)
    return replace(source, pictures=tuple(results))


def _digest(picture: Picture) -> bytes:
    digest = hashlib.blake2b(picture.pixels.data, digest_size=16)
    if picture.alpha is not None:
        digest.update(picture.alpha.data)
    return digest.digest()


def _stays(source: Frames, network: Enlarger) -> bool:
    """Whether every picture of a file comes back as it is."""
    return all(network.leaves(*picture.pixels.shape[:2]) for picture in source.pictures)


def _is_file_of(job: Job, output: Output) -> bool:
    """Whether a job is from file to file, and the source is, by its name, what is asked for."""
    suffix = job.source.suffix[1:].lower()
    known = suffix in table.WRITABLE and table.same(suffix, output.extension)
    plain = output.options == OutputOptions(background=output.options.background)
    return known and plain and STANDARD not in (job.source, job.target)


def _copy(job: Job, output: Output) -> None:
    """The source's file as the target's, to the byte."""
    try:
        data = read_bytes(job.source)
    except OSError as error:
        raise ImageError(f"{job.source}: cannot read: {reason(error)}") from error
    make_folder(job.target.parent)
    try:
        write_atomically(job.target, data, replace=output.existing == "overwrite")
    except FileExistsError as error:
        raise OutputError(EXISTS.format(job.target)) from error
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
    copy_times(job, output)


def _previews(output: Output, *files: Frames) -> tuple[bytes, ...]:
    return tuple(preview(each.pictures[0]) for each in files if output.previews)


def _name(path: Path, standard: str) -> str:
    return standard if path == STANDARD else str(path)


def _content(source: Path) -> bytes:
    """Of a file, or of standard input. Raises ImageError."""
    if source != STANDARD:
        return content(source)
    if sys.stdin is None:
        raise ImageError("standard input: is closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise ImageError(f"standard input: cannot read: {reason(error)}") from error


def _write(result: Frames, job: Job, output: Output, spent: Stopwatch, threads: int | None) -> None:
    if job.target != STANDARD:
        with spent("write"):
            make_folder(job.target.parent)
        overwrite = output.existing == "overwrite"
        write(
            result,
            job.target,
            output.extension,
            output.quality,
            spent,
            replace=overwrite,
            threads=threads,
        )
        copy_times(job, output)
        return
    if sys.stdout is None:
        raise OutputError("standard output: is closed")
    encoded = io.BytesIO()  # a pipe cannot be sought
    with spent("encode"):
        encode(result, output.extension, output.quality, "standard output", encoded)
    with spent("write"):
        try:
            sys.stdout.buffer.write(encoded.getbuffer())
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"standard output: cannot write: {reason(error)}") from error
