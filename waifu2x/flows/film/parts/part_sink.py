"""Writes enlarged frames into the files of parts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

from waifu2x.errors import OutputError
from waifu2x.flows.film.frames.frame_streams import FrameSink, PartBegin, PartEnd, Planes, Step
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.parts import manifest
from waifu2x.flows.film.parts.manifest import PartRecord
from waifu2x.flows.film.parts.part_runs import FilmWork
from waifu2x.formats.film.writing.encode import PartEncoder
from waifu2x.system import allocator
from waifu2x.system.files import abandon, reason, writing

_OVERLAP = 4
"""A part becomes complete beside at most one such part of the next frames: a run that is killed
then loses no more than that besides."""
_AHEAD = 4
"""The next encoder is opened in the last such part of a part."""


class PartSink(FrameSink):
    """Writes results into parts.

    An encoder that has all its frames needs some time for the last of them, in which most of its
    threads have nothing to do: the next part begins meanwhile, with an encoder that is open by
    then.
    """

    def __init__(self, work: FilmWork, stages: Stages, until: int) -> None:
        """`until` is the number of the part after the last, as far as is known; `stages` are told
        of the time that encoding takes."""
        super().__init__(stages)
        allocator.return_large()
        self._work = work
        self._until = until
        self._part: _OpenPart | None = None
        """The part that is being written."""
        self._beside = ThreadPoolExecutor(2, thread_name_prefix="waifu2x-part")
        self._next: Future[_OpenPart] | None = None
        """The part after it, once it is nearly full."""
        self._closed: _OpenPart | None = None
        """The part before it, which has all its frames."""
        self._closing: Future[None] | None = None
        """Its end."""

    def _write(self, step: Step, planes: Planes, *, is_held: bool) -> None:
        with self._sentence():
            if step.begin is not None:
                self._part = self._begun(step.part)
            part, before = self._part, self._closed
            assert part is not None
            part.computed += not is_held
            part.encoder.add(planes, step.frame.pts, step.frame.duration)
            part.frames += 1
            part.begin = step.begin or part.begin
            if before is not None and part.frames * _OVERLAP > before.frames:
                before.is_over.wait()
            if step.end is not None:
                self._wait()
                self._part, self._closed = None, part
                self._closing = self._beside.submit(part.complete, step.end)
            elif self._next is None and self._is_nearly_full(step):
                self._next = self._beside.submit(_OpenPart, self._work, step.part + 1)

    def close(self) -> None:
        """Completes the last part. Raises OutputError."""
        with self._stages.at_work("encoding"), self._sentence():
            self._drop_next()
            self._beside.shutdown()
            self._wait()

    def abort(self) -> None:
        """Leaves the parts that are complete, or have all their frames."""
        self._drop_next()
        self._beside.shutdown()
        if self._part is not None:
            self._part.abort()
            self._part = None

    def _is_nearly_full(self, step: Step) -> bool:
        ticks = self._work.part_ticks
        left = (step.part + 1) * ticks - step.frame.pts
        return left * _AHEAD <= ticks and step.part + 1 < self._until

    def _begun(self, number: int) -> _OpenPart:
        """A part, which most often is open. Raises OutputError, OSError."""
        ahead, self._next = self._next, None
        if ahead is not None:
            part = ahead.result()
            if part.number == number:
                return part
            part.abort()  # there are no frames in it
        return _OpenPart(self._work, number)

    def _drop_next(self) -> None:
        """Leaves nothing of a part that does not come."""
        ahead, self._next = self._next, None
        if ahead is not None:
            with suppress(OutputError, OSError):
                ahead.result().abort()

    def _wait(self) -> None:
        """Waits for the end of the part before."""
        closing, self._closing, self._closed = self._closing, None, None
        if closing is not None:
            closing.result()

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self._work.folder}: cannot write: {reason(error)}") from error


class _OpenPart:
    """A part that is being written."""

    def __init__(self, work: FilmWork, number: int) -> None:
        """Raises OutputError, OSError."""
        self._folder = work.folder
        self.number = number
        self.begin = PartBegin("", False)
        """What is known with its first frame."""
        self.is_over = threading.Event()
        """Set when it is complete, or never will be."""
        self._held = ExitStack()
        self.frames = self.computed = 0
        """Frames that it has, and those of them that the network made."""
        try:
            file = self._held.enter_context(writing(manifest.part_path(work.folder, number)))
            self.encoder = PartEncoder(file, work.shape)
        except BaseException:
            abandon(self._held)
            raise

    def complete(self, end: PartEnd) -> None:
        """Writes what the encoder still has, and the record of the part.

        Raises OutputError, OSError, and leaves nothing then.
        """
        try:
            self._record(end)
        finally:
            self.is_over.set()
        del self.encoder
        allocator.give_back()

    def _record(self, end: PartEnd) -> None:
        try:
            encoded = self.encoder.close()
        except BaseException:
            self.abort()
            raise
        self._held.close()
        path = manifest.part_path(self._folder, self.number)
        told = PartRecord(
            encoded,
            path.stat().st_size,
            manifest.fingerprint(path),
            self.begin.before,
            end.last,
            end.following,
            self.computed,
            end.damaged,
            end.moved,
            end.is_short,
            self.begin.is_sought,
        )
        manifest.record(self._folder, self.number, told)

    def abort(self) -> None:
        """Leaves nothing behind."""
        self.encoder.abort()
        abandon(self._held)
