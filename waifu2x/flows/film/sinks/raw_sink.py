"""Results as raw frames, one after the other, into a pipe or a file."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress

from waifu2x.errors import OutputError
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.frames.steps import Planes, Step
from waifu2x.flows.film.reading.client import DecodedFrame
from waifu2x.flows.film.sinks.frame_sink import FrameSink
from waifu2x.formats.film.raw import Y4M_FRAME, y4m_header
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.imaging.streams import Header
from waifu2x.system.files import reason

_PIPE_BYTES = 1 << 20
"""The most that Linux lets a pipe hold without privileges: with its usual 64 KiB, writer and reader
wait for each other twelve times in a frame of 960x540."""


class RawSink(FrameSink):
    """Writes results as YUV4MPEG2. What is written cannot be taken back."""

    def __init__(
        self, descriptor: int, name: str, shape: Shape, stages: Stages, *, interlaced: bool = False
    ) -> None:
        """`descriptor` is open for writing, and stays so; `name` stands for it in messages.
        `interlaced` says that frames hold two fields."""
        super().__init__(stages)
        self._interlaced = interlaced
        self._descriptor = descriptor
        self._name = name
        self._shape = shape
        self._step = shape.tick * shape.rate
        """Frames of a tick."""
        self._first: int | None = None
        """The time of the first frame."""
        self.uneven = 0
        """Frames that are not where an even rate puts them: y4m has no times."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What could not be kept, each a clause."""
        if not self.uneven:
            return ()
        return (f"y4m has no times: {self.uneven} frames are not shown when they were",)

    def open(self, header: Header) -> None:
        """Writes the film's description. Raises OutputError, BrokenPipeError."""
        shape = self._shape
        _widen(self._descriptor)
        self._send(
            [
                y4m_header(
                    shape.encoding.pixels,
                    shape.height,
                    shape.width,
                    shape.rate,
                    shape.aspect,
                    shape.colours,
                    interlaced=self._interlaced,
                )
            ]
        )

    def _write(self, step: Step, planes: Planes, *, is_held: bool) -> None:
        self.write(planes)
        self._place(step.frame)

    def write(self, planes: Planes) -> None:
        """Writes the planes of a frame. Raises OutputError, or BrokenPipeError where nobody reads
        them."""
        self._send([Y4M_FRAME, *(plane.data.cast("B") for plane in planes)])

    def _place(self, frame: DecodedFrame) -> None:
        if self._first is None:
            self._first = frame.pts
        # In parts of a frame, since fractions take long. Half a frame: less is what containers
        # round times to.
        each, whole = self._step.numerator, self._step.denominator
        if 2 * abs((frame.pts - self._first) * each - self.frames * whole) > whole:
            self.uneven += 1

    def _send(self, parts: Sequence[bytes | memoryview]) -> None:
        waiting = [memoryview(part) for part in parts]
        try:
            while waiting:
                try:
                    written = _written(self._descriptor, waiting)
                except BlockingIOError:  # whoever made the pipe wants no one to wait in it
                    select.select([], [self._descriptor], [])
                    continue
                while waiting and written >= waiting[0].nbytes:
                    written -= waiting.pop(0).nbytes
                if written:
                    waiting[0] = waiting[0][written:]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{self._name}: cannot write: {reason(error)}") from error


def _written(descriptor: int, parts: Sequence[memoryview]) -> int:
    """Writes some of the bytes; how many."""
    if sys.platform == "win32":
        return os.write(descriptor, parts[0])
    return os.writev(descriptor, parts)


def _widen(descriptor: int) -> None:
    """Lets a pipe hold more, where that can be."""
    if sys.platform != "linux" or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
