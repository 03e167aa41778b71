"""Makes a film in one go: from or into a pipe, or of numbered pictures.

There are no parts of it, so a run that is killed begins anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.film.frames.frame_device import FrameDevice, OnFrames, enlarge_frames
from waifu2x.flows.film.frames.frame_source import FrameSource
from waifu2x.flows.film.making import MadeFilm
from waifu2x.flows.film.parts.part_run import PartRun
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm
from waifu2x.flows.film.sinks.frame_files_sink import FrameFilesSink
from waifu2x.flows.film.sinks.frame_sink import FrameSink
from waifu2x.flows.film.sinks.muxed_sink import MuxedSink
from waifu2x.flows.film.sinks.raw_sink import RawSink
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film.frame_files import frame_pattern
from waifu2x.formats.film.writing import targets
from waifu2x.system.files import reason, writing

_STANDARD_OUTPUT = 1
_WHOLE = 1 << 62
"""Ticks of the one part that such a film is."""


def is_live(job: FilmJob) -> bool:
    """Whether a film is made in one go."""
    return (
        job.source == STANDARD
        or frame_pattern(job.source) is not None
        or job.target == STANDARD
        or targets.container_of(job.target, job.form) in targets.RAW
    )


def make_live(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    device: FrameDevice,
    *,
    replace: bool = False,
    on_frames: OnFrames = lambda frames, computed: None,
) -> MadeFilm:
    """Makes a film for which `is_live` holds.

    Raises ImageError, OutputError, BackendError, and BrokenPipeError where nobody reads standard
    output any more.
    """
    frames = FrameSource(
        reader,
        prepared.selection,
        PartRun(0, None),
        _WHOLE,
        job.duplicates,
        device.in_flight * device.stack,
    )
    with _sink(reader, job, prepared, replace) as sink:
        enlarge_frames(frames, sink, prepared.shape, reader.stages, device, on_frames)
        if not sink.frames:
            raise ImageError(f"{job.source}: has no frames between --start and --end")
    return MadeFilm(sink.frames, 0, sink.computed, reader.ending, sink.lost, sink.notices)


@contextmanager
def _sink(
    reader: FilmReader, job: FilmJob, prepared: PreparedFilm, replace: bool
) -> Iterator[FrameSink]:
    """Where the results go: into what is complete at the end of the block, or never there."""
    shape, plan = prepared.shape, prepared.plan
    pattern = frame_pattern(job.target)
    if pattern is not None:
        yield FrameFilesSink(pattern, job.source, shape, reader.stages, replace=replace)
        return
    try:
        with ExitStack() as held:
            target: Path | int = _STANDARD_OUTPUT
            descriptor = _STANDARD_OUTPUT
            if job.target != STANDARD:
                file = held.enter_context(writing(job.target, replace=replace))
                target, descriptor = Path(file.name), file.fileno()
            elif sys.stdout is None:
                raise OutputError("standard output: is closed")
            if plan.container == "y4m":
                name = "standard output" if job.target == STANDARD else str(job.target)
                how = prepared.selection.deinterlacing
                fields = reader.film.pictures.interlaced and how == "off"
                yield RawSink(descriptor, name, shape, reader.stages, interlaced=fields)
            else:
                yield MuxedSink(reader, prepared, target, job.cut)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
