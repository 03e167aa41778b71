"""Takes the results of a film: the base of all sinks, and those without an encoder, which write
YUV4MPEG2, PNG files or a GIF."""

from __future__ import annotations

import io
import os
import select
import stat
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from waifu2x.errors import OutputError
from waifu2x.flows.film.frames.frame_device import Stages
from waifu2x.flows.film.frames.frame_enlarger import plane_format
from waifu2x.flows.film.frames.frame_source import EnlargedFrame, PlacedFrame, Planes
from waifu2x.flows.film.reading.client import DecodedFrame
from waifu2x.flows.jobs import make_folder
from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter, check_sides
from waifu2x.formats.film.description import ChromaSiting
from waifu2x.formats.film.frame_files import FramePattern, frame_pattern, times_text
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.png.write import PngWriter
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.formats.write import FileSink
from waifu2x.imaging import planar_rgb
from waifu2x.imaging.orientation import oriented, oriented_plane
from waifu2x.imaging.picture import Colours, Metadata, Picture
from waifu2x.imaging.planar import PlanarPicture
from waifu2x.imaging.streams import Extent, Header, Timed
from waifu2x.system.files import explained, reason, write_atomically

_NO_UNIT = 0
"""PNG's unit of dimensions that are only proportions."""
_PIPE_BYTES = 1 << 20
"""The most that Linux lets a pipe hold without privileges. With its usual 64 KiB, writer and reader
wait for each other twelve times in a frame of 960x540."""
_Y4M_FRAME = b"FRAME\n"
"""The word before the planes of each frame."""
_Y4M_SITINGS: dict[ChromaSiting, str] = {
    "left": "420mpeg2",
    "topleft": "420paldv",
    "center": "420jpeg",
}
_GIF_TICK = Fraction(1, 100)
"""Seconds of a GIF's unit of time."""
_SHORTEST_GIF = 2
"""Units that a frame lasts at least: browsers show shorter ones for ten."""


class FrameSink:
    """Writes results, frame by frame; a held frame is the last one again."""

    def __init__(self, stages: Stages) -> None:
        """`stages` count the time of writing."""
        self._stages = stages
        self._last: Planes = ()
        self.frames = self.computed = 0
        """Frames written, and those that the network made."""
        self.lost: tuple[str, ...] = ()
        """A clause for each loss in copied streams."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Returns a clause for each thing that could not be kept."""
        return ()

    def open(self, header: Header) -> None:
        """Begins. Raises OutputError."""

    def add(self, result: Sequence[EnlargedFrame]) -> None:
        """Writes the results of a stack and releases their source frames. Raises OutputError."""
        for placed, planes in result:
            try:
                with self._stages.at_work("encoding"):
                    if planes is not None:
                        self._last = planes
                        self.computed += 1
                    self._write(placed, self._last, is_held=planes is None)
                self.frames += 1
            finally:
                placed.release()

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        """Writes a frame; `is_held`: its planes are those of the frame before."""
        raise NotImplementedError

    def close(self) -> None:
        """Completes the output. Raises OutputError."""

    def abort(self) -> None:
        """Removes what is useless by itself."""


def picture_of(planes: Planes, orientation: int) -> Picture:
    """Returns a picture of planes of grey, or of green, blue, red and perhaps alpha, turned upright
    by EXIF's `orientation`."""
    order = [planes[0]] if len(planes) == 1 else [planes[2], planes[0], planes[1]]
    alpha = planes[3].copy() if len(planes) == 4 else None
    return oriented(Picture(np.stack(order, axis=-1), alpha), orientation)


class RawSink(FrameSink):
    """Writes results as YUV4MPEG2 (y4m), irrevocably: a line that describes the film, then the word
    FRAME and the planes of each frame, without times. FFmpeg writes it above 8 bits only as an
    unofficial extension."""

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
        _widen(self._descriptor)
        line = _y4m_header(self._shape, interlaced=self._interlaced)
        self._send([line])

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        self.write(planes if self._shape.orientation == 1 else _upright(planes, self._shape))
        self._place(placed.frame)

    def write(self, planes: Planes) -> None:
        """Writes the planes of a frame. Raises OutputError, or BrokenPipeError if the reader is
        gone."""
        self._send([_Y4M_FRAME, *(plane.data.cast("B") for plane in planes)])

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


def _y4m_header(shape: Shape, *, interlaced: bool) -> bytes:
    """Returns the line that describes a film, as FFmpeg writes it."""
    pixels, colours, rate = shape.encoding.pixels, shape.colours, shape.rate
    height, width = shape.written
    if pixels.planes == 1:
        space, extra = f"mono{pixels.bits if pixels.bits > 8 else ''}", ""
    else:
        space = pixels.chroma
        if pixels.bits > 8:
            space += f"p{pixels.bits}"
        elif space == "420":
            space = _Y4M_SITINGS[colours.siting]
        extra = f" XYSCSS={space.upper()}"
    aspect = shape.written_aspect
    ratio = "0:0" if aspect is None else f"{aspect.numerator}:{aspect.denominator}"
    fields = "?" if interlaced else "p"
    return (
        f"YUV4MPEG2 W{width} H{height} F{rate.numerator}:{rate.denominator} I{fields} A{ratio} "
        f"C{space}{extra} XCOLORRANGE={colours.range.upper()}\n"
    ).encode()


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


class GifSink(FrameSink):
    """Writes results as a GIF that repeats without end. Times are rounded to its units, so that no
    error adds up; frames that leave no time for the next one are left out."""

    def __init__(self, path: Path, shape: Shape, stages: Stages, *, replace: bool) -> None:
        """With `replace`, an existing file is replaced."""
        super().__init__(stages)
        self._path = path
        self._shape = shape
        self._file = FileSink(path, "gif", Quality(), replace=replace)
        self._adapter = Adapter(table.of("gif"), OutputOptions())
        self._waiting: Picture | None = None
        self._planes: Planes = ()
        self._first = self._at = 0
        self._end: Fraction | None = None
        self._left_out = 0
        self._told: list[str] = []

    @property
    def notices(self) -> tuple[str, ...]:
        if not self._left_out:
            return tuple(self._told)
        most = _GIF_TICK.denominator // _SHORTEST_GIF
        left = f"GIF shows at most {most} frames a second: {self._left_out} are left out"
        return (*self._told, left)

    def open(self, header: Header) -> None:
        """Begins the file. Raises OutputError."""
        height, width = self._shape.written
        check_sides(table.of("gif"), height, width, str(self._path))
        extent = Extent(height, width, height * width * self._shape.encoding.pixels.planes)
        self._file.open(Header((extent,), None, animated=True))

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        tick, frame = self._shape.tick, placed.frame
        if self._waiting is None:
            self._first = frame.pts
        shown = (frame.pts - self._first) * tick / _GIF_TICK
        lasts = frame.duration * tick if frame.duration else 1 / self._shape.rate
        self._end = shown + lasts / _GIF_TICK
        begin = max(round(shown), self._at + _SHORTEST_GIF) if self._waiting is not None else 0
        if begin - shown > 1:
            self._left_out += 1
            return
        self._put(begin)
        if self._waiting is None or planes is not self._planes:  # a held frame has the same
            self._planes = planes
            self._waiting, told = self._adapter.picture(picture_of(planes, self._shape.orientation))
            self._told += told
        self._at = begin

    def close(self) -> None:
        """Writes the last frame and completes the file, if there is a frame. Raises OutputError."""
        if self._end is None:
            self._file.abort()
            return
        self._put(max(round(self._end), self._at + _SHORTEST_GIF))
        self._file.close()

    def abort(self) -> None:
        self._file.abort()

    def _put(self, until: int) -> None:
        """Writes the frame that waits, shown up to a time."""
        if self._waiting is not None:
            milliseconds = float((until - self._at) * _GIF_TICK * 1000)
            self._file.add(Timed(self._waiting, milliseconds))
