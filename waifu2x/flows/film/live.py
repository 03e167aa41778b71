"""Makes a film in one go: from or into a pipe, or of numbered pictures.

It has no parts, so a run that is killed begins anew.
"""

from __future__ import annotations

import io
import os
import select
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from waifu2x.errors import OutputError
from waifu2x.flows.film.assembly import MadeFilm, no_frames
from waifu2x.flows.film.frames.frame_device import FrameDevice, OnFrames, enlarge_frames
from waifu2x.flows.film.frames.frame_enlarger import plane_format
from waifu2x.flows.film.frames.frame_streams import (
    FrameSink,
    FrameSource,
    PlacedFrame,
    Planes,
    picture_of,
)
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.gif_sink import GifSink
from waifu2x.flows.film.parts.part_runs import PartRun
from waifu2x.flows.film.reading.client import DecodedFrame, FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm
from waifu2x.flows.jobs import STANDARD, make_folder
from waifu2x.formats.film import is_animation
from waifu2x.formats.film.description import Cut
from waifu2x.formats.film.frame_files import (
    FramePattern,
    frame_pattern,
    times_text,
)
from waifu2x.formats.film.raw import Y4M_FRAME, y4m_header
from waifu2x.formats.film.writing import targets
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.formats.film.writing.live_writing import LiveEncoder
from waifu2x.formats.png.write import PngWriter
from waifu2x.imaging import planar_rgb
from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.picture import Colours, Metadata
from waifu2x.imaging.planar import PlanarPicture
from waifu2x.imaging.streams import Extent, Header, Timed
from waifu2x.system.files import explained, reason, write_atomically, writing

_STANDARD_OUTPUT = 1
_NO_UNIT = 0
"""PNG's unit of dimensions that are only proportions."""
_WHOLE = 1 << 62
"""Ticks of the only part of such a film."""
_PIPE_BYTES = 1 << 20
"""The most that Linux lets a pipe hold without privileges. With its usual 64 KiB, writer and reader
wait for each other twelve times in a frame of 960x540."""


def is_live(job: FilmJob) -> bool:
    """Returns whether a film is made in one go."""
    return (
        job.source == STANDARD
        or is_animation(job.source)  # and numbered pictures
        or job.target == STANDARD
        or targets.container_of(job.target, job.form) in targets.RAW
    )


def make_live(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    device: FrameDevice,
    *,
    on_frames: OnFrames = lambda frames, computed: None,
) -> MadeFilm:
    """Makes a film for which `is_live` holds. Raises ImageError, OutputError, BackendError, and
    BrokenPipeError where the reader of standard output is gone."""
    frames = FrameSource(
        reader,
        prepared.selection,
        PartRun(0, None),
        _WHOLE,
        job.duplicates,
        device.in_flight * device.stack,
    )
    with _sink(reader, job, prepared) as sink:
        enlarge_frames(frames, sink, prepared.shape, reader.stages, device, on_frames)
        if not sink.frames:
            raise no_frames(reader, job)
    return MadeFilm(sink.frames, 0, sink.computed, reader.ending, sink.lost, sink.notices)


@contextmanager
def _sink(reader: FilmReader, job: FilmJob, prepared: PreparedFilm) -> Iterator[FrameSink]:
    """Gives the sink for the results. A file gets its name only at the end of the context."""
    shape, plan = prepared.shape, prepared.plan
    pattern = frame_pattern(job.target)
    if pattern is not None:
        colours = reader.film.pictures.said()
        yield FrameFilesSink(
            pattern, job.source, shape, colours, reader.stages, replace=job.overwrite
        )
        return
    if plan.container == "gif":
        yield GifSink(job.target, shape, reader.stages, replace=job.overwrite)
        return
    with explained(OutputError, f"{job.target}: cannot write"), ExitStack() as held:
        target: Path | int = _STANDARD_OUTPUT
        descriptor = _STANDARD_OUTPUT
        if job.target != STANDARD:
            file = held.enter_context(writing(job.target, replace=job.overwrite))
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


class MuxedSink(FrameSink):
    """Encodes results; the process that reads the film writes them beside its other streams."""

    def __init__(
        self, reader: FilmReader, prepared: PreparedFilm, target: Path | int, cut: Cut
    ) -> None:
        """`target` is an existing file or a descriptor. Raises OutputError, BrokenPipeError."""
        super().__init__(reader.stages)
        self._reader = reader
        self._encoder = LiveEncoder(prepared.shape)
        plan = FilmPlan(reader.film, prepared.shape, prepared.plan, cut)
        reader.begin_live(target, plan, self._encoder.template)

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        for coded in self._encoder.add(planes, placed.frame.pts, placed.frame.duration):
            self._reader.add_picture(coded)

    def close(self) -> None:
        with self._stages.at_work("encoding"):
            for coded in self._encoder.flush():
                self._reader.add_picture(coded)
        self._encoder.close()
        self.lost = self._reader.finish_live()

    def abort(self) -> None:
        self._encoder.close()


class RawSink(FrameSink):
    """Writes results as YUV4MPEG2, irrevocably."""

    def __init__(
        self, descriptor: int, name: str, shape: Shape, stages: Stages, *, interlaced: bool = False
    ) -> None:
        """`descriptor` stays open; `name` stands for it in messages. `interlaced`: frames hold two
        fields."""
        super().__init__(stages)
        self._interlaced = interlaced
        self._descriptor = descriptor
        self._name = name
        self._shape = shape
        self._step = shape.tick * shape.rate
        self._first: int | None = None
        self.uneven = 0
        """Frames that are not at an even rate: y4m has no times."""

    @property
    def notices(self) -> tuple[str, ...]:
        if not self.uneven:
            return ()
        return (f"y4m has no times: {self.uneven} frames are not shown when they were",)

    def open(self, header: Header) -> None:
        """Writes the header. Raises OutputError, BrokenPipeError."""
        shape = self._shape
        _widen(self._descriptor)
        line = y4m_header(
            shape.encoding.pixels,
            *shape.written,
            shape.rate,
            shape.written_aspect,
            shape.colours,
            interlaced=self._interlaced,
        )
        self._send([line])

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        self.write(planes if self._shape.orientation == 1 else _upright(planes, self._shape))
        self._place(placed.frame)

    def write(self, planes: Planes) -> None:
        """Writes the planes of a frame. Raises OutputError, or BrokenPipeError if the reader is
        gone."""
        self._send([Y4M_FRAME, *(plane.data.cast("B") for plane in planes)])

    def _place(self, frame: DecodedFrame) -> None:
        if self._first is None:
            self._first = frame.pts
        # In integers, since fractions are slow. Containers round times by less than half a frame.
        each, whole = self._step.numerator, self._step.denominator
        if 2 * abs((frame.pts - self._first) * each - self.frames * whole) > whole:
            self.uneven += 1

    def _send(self, parts: Sequence[bytes | memoryview]) -> None:
        waiting = [memoryview(part) for part in parts]
        with explained(OutputError, f"{self._name}: cannot write"):
            while waiting:
                try:
                    written = _written(self._descriptor, waiting)
                except BlockingIOError:  # the pipe is non-blocking
                    select.select([], [self._descriptor], [])
                    continue
                while waiting and written >= waiting[0].nbytes:
                    written -= waiting.pop(0).nbytes
                if written:
                    waiting[0] = waiting[0][written:]


def _upright(planes: Planes, shape: Shape) -> Planes:
    """Returns planes that are turned. Chroma goes through RGB, since the places of its samples turn
    into others that no format has."""
    pixels, orientation = shape.encoding.pixels, shape.orientation
    if (pixels.columns, pixels.rows) == (1, 1):
        return [np.ascontiguousarray(oriented_plane(plane, orientation)) for plane in planes]
    form = plane_format(pixels, shape.colours)
    rgb = planar_rgb.to_rgb(PlanarPicture(form, *planes))
    turned = [np.empty(size, pixels.dtype) for size in pixels.shapes(*shape.written)]
    upright = np.ascontiguousarray(oriented_plane(rgb, orientation))
    planar_rgb.from_rgb(upright, PlanarPicture(form, *turned))
    return turned


def _written(descriptor: int, parts: Sequence[memoryview]) -> int:
    """Writes some of the bytes; returns how many."""
    if sys.platform == "win32":
        return os.write(descriptor, parts[0])
    return os.writev(descriptor, parts)


def _widen(descriptor: int) -> None:
    """Enlarges the buffer of a pipe, if possible."""
    if sys.platform != "linux" or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class FrameFilesSink(FrameSink):
    """Writes results as PNG files, and a file of times. They have the numbers of the source's
    frames, where these are files, too; else they begin with 1."""

    def __init__(
        self,
        pattern: FramePattern,
        source: Path,
        shape: Shape,
        colours: Colours,
        stages: Stages,
        *,
        replace: bool,
    ) -> None:
        """`source` is the film that is read, `colours` are those that each file says. With
        `replace`, existing frames are replaced."""
        super().__init__(stages)
        self._pattern = pattern
        self._source = source
        given = frame_pattern(source)
        self._number = given.numbers()[0] if given is not None else 1
        self._shape = shape
        self._colours = colours
        self._replace = replace
        self._times: list[int] = []
        self._content = b""
        self._metadata = Metadata()
        aspect = shape.written_aspect
        if aspect is not None and aspect != 1:
            # FFmpeg, which films are made of frames by, takes the first number for the width of a
            # pixel; PNG's specification means pixels in a unit, and so the reverse.
            dimensions = struct.pack(">IIB", *aspect.as_integer_ratio(), _NO_UNIT)
            self._metadata = Metadata(chunks=((b"pHYs", dimensions),))

    def open(self, header: Header) -> None:
        """Makes the folder. Raises OutputError, and ExistsError for existing frames or times."""
        pattern = self._pattern
        make_folder(pattern.path.parent)
        pattern.check_free(self._source, replace=self._replace)
        self._remove()

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        if not is_held:
            self._content = self._png(planes)
        self._write_file(self._number + len(self._times), self._content)
        self._times.append(placed.frame.pts)

    def close(self) -> None:
        """Writes the times, which complete the frames. Raises OutputError."""
        data = times_text(self._times, self._shape.tick).encode()
        with explained(OutputError, f"{self._pattern.times}: cannot write"):
            write_atomically(self._pattern.times, data)

    def _remove(self) -> None:
        """Removes the frames of an earlier film, which would look like the end of this one."""
        frames = [self._pattern.frame(number) for number in self._pattern.existing()]
        for path in (self._pattern.times, *frames):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"{path}: cannot be removed: {reason(error)}") from error

    def _write_file(self, number: int, content: bytes) -> None:
        path = self._pattern.frame(number)
        with explained(OutputError, f"{path}: cannot write"):
            write_atomically(path, content)

    def _png(self, planes: Planes) -> bytes:
        """Returns planes of grey, or of green, blue, red and perhaps alpha, as a file."""
        picture = picture_of(planes, self._shape.orientation)
        height, width, _ = picture.pixels.shape
        content = io.BytesIO()
        writer = PngWriter(Header((Extent(height, width, picture.pixels.nbytes),)), content)
        writer.add(Timed(replace(picture, colours=self._colours, metadata=self._metadata)))
        writer.finish()
        return content.getvalue()
