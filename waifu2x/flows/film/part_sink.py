"""The files that the parts of a film are written to."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from waifu2x.errors import OutputError
from waifu2x.flows.film import manifest
from waifu2x.flows.film.manifest import PartRecord
from waifu2x.flows.film.parts import EnlargedFrame, PartBegin, PartEnd, Planes
from waifu2x.flows.film.stages import Stages
from waifu2x.formats.film.encode import PartEncoder, Shape
from waifu2x.imaging.streams import Header
from waifu2x.system import allocator
from waifu2x.system.files import abandon, reason, writing

_OVERLAP = 4
"""An encoder's last frames are coded beside at most one such part of the next frames: a run that is
killed then loses no more than that besides."""


class PartSink:
    """Writes results into parts: a sink of a flow.

    An encoder that has all its frames needs some time for the last of them, in which most of its
    threads have nothing to do: the next part begins meanwhile.
    """

    def __init__(self, folder: Path, shape: Shape, stages: Stages) -> None:
        """`stages` are told of the time that encoding takes."""
        self._stages = stages
        self._folder = folder
        self._shape = shape
        self._part: _OpenPart | None = None
        """The part that is being written."""
        self._closer = ThreadPoolExecutor(1, thread_name_prefix="waifu2x-part")
        self._closing: Future[None] | None = None
        """The end of the part before."""
        self._closing_frames = 0
        self._last: Planes | None = None

    def open(self, header: Header) -> None:
        """Nothing yet: a part begins with its first frame."""

    def add(self, result: EnlargedFrame) -> None:
        """Encodes a frame. Raises OutputError."""
        step = result.step
        try:
            with self._stages.at_work("encoding"), self._sentence():
                if step.begin is not None:
                    self._part = _OpenPart(self._folder, self._shape, step.part, step.begin)
                part = self._part
                assert part is not None
                if result.planes is not None:
                    self._last = result.planes
                    part.computed += 1
                assert self._last is not None
                part.encoder.add(self._last, step.frame.pts, step.frame.duration)
                part.frames += 1
                if part.frames * _OVERLAP > self._closing_frames:
                    self._wait()
                if step.end is not None:
                    self._wait()
                    self._part = None
                    self._closing_frames = part.frames
                    self._closing = self._closer.submit(part.complete, step.end)
        finally:
            step.frame.release()

    def close(self) -> None:
        """Completes the last part. Raises OutputError."""
        with self._stages.at_work("encoding"), self._sentence():
            self._closer.shutdown()
            self._wait()

    def abort(self) -> None:
        """Leaves the parts that are complete, or have all their frames."""
        self._closer.shutdown()
        if self._part is not None:
            self._part.abort()
            self._part = None

    def _wait(self) -> None:
        """Waits for the end of the part before."""
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.result()

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self._folder}: cannot write: {reason(error)}") from error


class _OpenPart:
    """A part that is being written."""

    def __init__(self, folder: Path, shape: Shape, number: int, begin: PartBegin) -> None:
        """Raises OutputError, OSError."""
        self._folder, self._number, self._begin = folder, number, begin
        self._held = ExitStack()
        self.frames = self.computed = 0
        """Frames that it has, and those of them that the network made."""
        try:
            file = self._held.enter_context(writing(manifest.part_path(folder, number)))
            self.encoder = PartEncoder(file, shape)
        except BaseException:
            abandon(self._held)
            raise

    def complete(self, end: PartEnd) -> None:
        """Writes what the encoder still has, and the record of the part.

        Raises OutputError, OSError, and leaves nothing then.
        """
        try:
            encoded = self.encoder.close()
        except BaseException:
            self.abort()
            raise
        self._held.close()
        path = manifest.part_path(self._folder, self._number)
        told = PartRecord(
            encoded,
            path.stat().st_size,
            manifest.fingerprint(path),
            self._begin.before,
            end.last,
            end.following,
            self.computed,
            end.damaged,
            end.moved,
            end.is_short,
            self._begin.is_sought,
        )
        manifest.record(self._folder, self._number, told)
        del self.encoder
        allocator.give_back()

    def abort(self) -> None:
        """Leaves nothing behind."""
        self.encoder.abort()
        abandon(self._held)
