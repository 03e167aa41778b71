"""The frames of a film as items of a flow, and the parts that their results are written to."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.film import manifest
from waifu2x.flows.film.film_reader import DecodedFrame, FilmReader
from waifu2x.flows.film.held import Duplicates, is_held
from waifu2x.flows.film.manifest import PartRecord
from waifu2x.flows.film.stages import Stages
from waifu2x.formats.film.encode import PartEncoder, Shape
from waifu2x.formats.film.reader import Selection
from waifu2x.imaging.streams import Extent, Header
from waifu2x.system.files import abandon, reason, writing
from waifu2x.system.lazy_dataclass import dataclass

Planes = Sequence[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Step:
    """A frame of the film that is made."""

    number: int
    """Its place in the whole film."""
    frame: DecodedFrame
    is_held: bool
    """Whether it shows what the one before shows, whose result is used again."""


@dataclass(frozen=True, eq=False)
class EnlargedFrame:
    """A frame of the film that is made, enlarged."""

    step: Step
    planes: Planes | None
    """None: as the one before."""


@dataclass(frozen=True)
class PartRun:
    """Parts that follow each other and are missing."""

    first: int
    """Number of the first one."""
    count: int | None
    """How many there are; None: up to the end of the film."""
    before: PartRecord | None
    """The part before them, if there is one."""


class FrameSource:
    """The frames of a run of parts, in order: a source of a flow."""

    def __init__(
        self,
        reader: FilmReader,
        selection: Selection,
        run: PartRun,
        part_frames: int,
        duplicates: Duplicates,
        ahead: int,
    ) -> None:
        self._reader = reader
        self._selection = selection
        self._run = run
        self._part_frames = part_frames
        self._duplicates = duplicates
        self._ahead = (
            ahead + 3
        )  # the one that others are compared with, the one last encoded, and the next
        pictures = reader.film.pictures
        nbytes = sum(
            rows * columns
            for rows, columns in pictures.pixels.shapes(pictures.height, pictures.width)
        ) * (1 if pictures.pixels.bits == 8 else 2)
        self.header = Header(
            (Extent(pictures.height, pictures.width, nbytes),), count=None, animated=True
        )

    def __iter__(self) -> Generator[Step]:
        """The steps. Raises ImageError."""
        bits = self._reader.film.pictures.pixels.bits
        number = self._run.first * self._part_frames
        end = None if self._run.count is None else number + self._run.count * self._part_frames
        reference: DecodedFrame | None = None
        frames = self._frames()
        try:
            for frame in frames:
                held = (
                    reference is not None
                    and number % self._part_frames != 0  # a part does not depend on another
                    and is_held(reference.planes, frame.planes, self._duplicates, bits)
                )
                if not held:
                    if reference is not None:
                        reference.release()
                    reference = frame
                    reference.hold()
                yield Step(number, frame, held)
                number += 1
                if number == end:
                    return
        finally:
            if reference is not None:
                reference.release()
            frames.close()

    def close(self) -> None:
        """Nothing is open but the reader, which is another's."""

    def _frames(self) -> Generator[DecodedFrame]:
        """The frames after those of the part before."""
        before = self._run.before
        if before is None:
            yield from self._reader.frames(self._selection, self._ahead)
            return
        wanted = replace(self._selection, after=before.encoded.pts[-1])
        frames = self._reader.frames(wanted, self._ahead)
        first = next(frames, None)
        found = first is not None and not first.is_wanted and hash_of(first) == before.last
        if first is not None:
            first.release()
        if found:
            yield from frames
            return
        frames.close()
        # The search has come to another place: decode it all.
        frames = self._reader.frames(self._selection, self._ahead)
        for _ in range(self._run.first * self._part_frames - 1):
            skipped = next(frames, None)
            if skipped is not None:
                skipped.release()
        last = next(frames, None)
        found = last is not None and hash_of(last) == before.last
        if last is not None:
            last.release()
        if not found:
            raise ImageError("the film decodes otherwise than when its parts were made: --restart")
        yield from frames


def hash_of(frame: DecodedFrame) -> str:
    """A hash of a frame's planes and time."""
    hashed = hashlib.blake2b(str(frame.pts).encode(), digest_size=16)
    for plane in frame.planes:
        hashed.update(plane.data)
    return hashed.hexdigest()


class PartSink:
    """Writes results into parts: a sink of a flow."""

    def __init__(
        self, folder: Path, shape: Shape, part_frames: int, stages: Stages | None = None
    ) -> None:
        self._stages = stages or Stages()
        self._folder = folder
        self._shape = shape
        self._part_frames = part_frames
        self._held: ExitStack | None = None
        """The part that is being written."""
        self._encoder: PartEncoder | None = None
        self._number = 0
        self._frames = 0
        self._computed = 0
        self._last: Planes | None = None
        self._frame: DecodedFrame | None = None
        """The last frame of the film that was added."""
        self.frames = self.computed = 0
        """Frames written in all, and those that the network made."""

    def open(self, header: Header) -> None:
        """Nothing yet: a part begins with its first frame."""

    def add(self, result: EnlargedFrame) -> None:
        """Encodes a frame. Raises OutputError."""
        step = result.step
        self._let_go()
        self._frame = step.frame
        with self._stages.at_work("encoding"):
            self._add(result)

    def _add(self, result: EnlargedFrame) -> None:
        step = result.step
        try:
            if self._encoder is None:
                self._begin(step.number // self._part_frames)
            if result.planes is not None:
                self._last = result.planes
                self._computed += 1
                self.computed += 1
            assert self._encoder is not None
            assert self._last is not None
            self._encoder.add(self._last, step.frame.pts, step.frame.duration)
            self._frames += 1
            self.frames += 1
            if (step.number + 1) % self._part_frames == 0:
                self._complete()
        except OSError as error:
            raise OutputError(f"{self._folder}: cannot write: {reason(error)}") from error

    def close(self) -> None:
        """Completes the last part. Raises OutputError."""
        try:
            with self._stages.at_work("encoding"):
                if self._encoder is not None:
                    self._complete()
        except OSError as error:
            raise OutputError(f"{self._folder}: cannot write: {reason(error)}") from error
        finally:
            self._let_go()

    def abort(self) -> None:
        """Leaves the parts that are complete."""
        self._let_go()
        if self._encoder is not None:
            self._encoder.abort()
            self._encoder = None
        if self._held is not None:
            abandon(self._held)
            self._held = None

    def _let_go(self) -> None:
        """Releases the frame that was kept for its hash."""
        if self._frame is not None:
            self._frame.release()
            self._frame = None

    def _begin(self, number: int) -> None:
        self._held = ExitStack()
        file = self._held.enter_context(writing(manifest.part_path(self._folder, number)))
        self._encoder = PartEncoder(file, self._shape)
        self._number, self._frames, self._computed = number, 0, 0

    def _complete(self) -> None:
        assert self._encoder is not None
        assert self._held is not None
        assert self._frame is not None
        encoded = self._encoder.close()
        self._encoder = None
        self._held.close()
        self._held = None
        path = manifest.part_path(self._folder, self._number)
        manifest.record(
            self._folder,
            self._number,
            PartRecord(
                encoded,
                path.stat().st_size,
                manifest.fingerprint(path),
                hash_of(self._frame),
                self._computed,
            ),
        )
