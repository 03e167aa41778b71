"""Writes enlarged frames into the files of parts."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress

from waifu2x.errors import OutputError
from waifu2x.flows.film.frames.frame_device import Stages
from waifu2x.flows.film.frames.frame_sinks import FrameSink
from waifu2x.flows.film.frames.frame_source import PartBegin, PartEnd, PlacedFrame, Planes
from waifu2x.flows.film.parts import part_files
from waifu2x.flows.film.parts.part_files import PartRecord
from waifu2x.flows.film.parts.part_runs import FilmWork
from waifu2x.formats.film.writing.encode import Encoded, PartEncoder
from waifu2x.system import allocator
from waifu2x.system.files import abandon, explained, writing

_OVERLAP = 4
"""The fraction of the next part during which a part is completed: a killed run loses no more than
that besides."""
_AHEAD = 4
"""The fraction of a part in which the next encoder is opened."""


class PartSink(FrameSink):
    """Writes results into parts. While an encoder finishes its last frames, most of its threads are
    idle. So the next part begins meanwhile, with an encoder that is already open."""

    def __init__(self, work: FilmWork, stages: Stages, until: int) -> None:
        """`until` is the number after the last part, as far as known; `stages` count the time of
        encoding."""
        super().__init__(stages)
        allocator.return_large()
        self._work = work
        self._until = until
        self._part: _OpenPart | None = None
        """The part that is being written."""
        self._beside = ThreadPoolExecutor(2, thread_name_prefix="waifu2x-part")
        self._next: Future[_OpenPart] | None = None
        """The next part, once this one is nearly full."""
        self._closed: _OpenPart | None = None
        """The part before, which has all its frames."""
        self._closing: Future[None] | None = None

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        with self._explained():
            if placed.begin is not None:
                self._part = self._begun(placed.part)
            part, before = self._part, self._closed
            assert part is not None
            part.add(placed, planes)
            if before is not None and part.frames * _OVERLAP > before.frames:
                before.is_over.wait()
            if placed.end is not None:
                self._wait()
                self._part, self._closed = None, part
                self._closing = self._beside.submit(part.complete, placed.end)
            elif self._next is None and self._is_nearly_full(placed):
                self._next = self._beside.submit(_OpenPart, self._work, placed.part + 1)

    def close(self) -> None:
        """Completes the last part. Raises OutputError."""
        with self._stages.at_work("encoding"), self._explained():
            self._drop_next()
            self._beside.shutdown()
            self._wait()

    def abort(self) -> None:
        """Keeps parts that are complete or have all their frames."""
        self._drop_next()
        self._beside.shutdown()
        if self._part is not None:
            self._part.abort()
            self._part = None

    def _is_nearly_full(self, placed: PlacedFrame) -> bool:
        ticks = self._work.part_ticks
        left = (placed.part + 1) * ticks - placed.frame.pts
        return left * _AHEAD <= ticks and placed.part + 1 < self._until

    def _begun(self, number: int) -> _OpenPart:
        """Returns a part, which usually is open already. Raises OutputError, OSError."""
        ahead, self._next = self._next, None
        if ahead is not None:
            part = ahead.result()
            if part.number == number:
                return part
            part.abort()  # it has no frames
        return _OpenPart(self._work, number)

    def _drop_next(self) -> None:
        """Removes a part that was opened in vain."""
        ahead, self._next = self._next, None
        if ahead is not None:
            with suppress(OutputError, OSError):
                ahead.result().abort()

    def _wait(self) -> None:
        closing, self._closing, self._closed = self._closing, None, None
        if closing is not None:
            closing.result()

    def _explained(self) -> AbstractContextManager[None]:
        return explained(OutputError, f"{self._work.folder}: cannot write")


class _OpenPart:
    def __init__(self, work: FilmWork, number: int) -> None:
        """Raises OutputError, OSError."""
        self._folder = work.folder
        self.number = number
        self.begin = PartBegin("", False)
        """Set with its first frame."""
        self.is_over = threading.Event()
        """Set when it is complete or has failed."""
        self._held = ExitStack()
        self.computed = 0
        """Frames that the network made."""
        self._pts: list[int] = []
        self._durations: list[int] = []
        try:
            file = self._held.enter_context(writing(part_files.part_path(work.folder, number)))
            self.encoder = PartEncoder(file, work.shape)
        except BaseException:
            abandon(self._held)
            raise

    @property
    def frames(self) -> int:
        return len(self._pts)

    def add(self, placed: PlacedFrame, planes: Planes) -> None:
        frame = placed.frame
        self.encoder.add(planes, frame.pts, frame.duration)
        self._pts.append(frame.pts)
        self._durations.append(frame.duration)
        self.computed += not placed.is_held
        self.begin = placed.begin or self.begin

    def complete(self, end: PartEnd) -> None:
        """Flushes the encoder and writes the record. On OutputError or OSError it
        removes the part."""
        try:
            self._record(end)
        finally:
            self.is_over.set()
        del self.encoder
        allocator.give_back()

    def _record(self, end: PartEnd) -> None:
        try:
            depth = self.encoder.close()
        except BaseException:
            self.abort()
            raise
        self._held.close()
        path = part_files.part_path(self._folder, self.number)
        told = PartRecord(
            Encoded(tuple(self._pts), tuple(self._durations), depth),
            path.stat().st_size,
            part_files.fingerprint(path),
            self.begin.before,
            end.last,
            end.following,
            self.computed,
            end.damaged,
            end.moved,
            end.is_short,
            self.begin.is_sought,
            end.changes,
        )
        part_files.record(self._folder, self.number, told)

    def abort(self) -> None:
        self.encoder.abort()
        abandon(self._held)
