"""Writes the results of a film as an animated GIF."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from waifu2x.flows.film.frames.frame_streams import FrameSink, PlacedFrame, Planes, picture_of
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter, check_sides
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.formats.write import FileSink
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed

_TICK = Fraction(1, 100)
"""Seconds of a GIF's unit of time."""
_SHORTEST = 2
"""Units that a frame lasts at least: browsers show shorter ones for ten."""


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
        most = _TICK.denominator // _SHORTEST
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
        shown = (frame.pts - self._first) * tick / _TICK
        lasts = frame.duration * tick if frame.duration else 1 / self._shape.rate
        self._end = shown + lasts / _TICK
        begin = max(round(shown), self._at + _SHORTEST) if self._waiting is not None else 0
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
        self._put(max(round(self._end), self._at + _SHORTEST))
        self._file.close()

    def abort(self) -> None:
        self._file.abort()

    def _put(self, until: int) -> None:
        """Writes the frame that waits, shown up to a time."""
        if self._waiting is not None:
            milliseconds = float((until - self._at) * _TICK * 1000)
            self._file.add(Timed(self._waiting, milliseconds))
