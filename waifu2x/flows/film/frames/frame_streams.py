"""The source and the sinks of the flow of a film: frames, each with its place in a part."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.flows.film.frames.repeated_frames import Duplicates, is_held
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.parts.part_runs import PartRun, first_part
from waifu2x.flows.film.reading.client import DecodedFrame, FilmReader
from waifu2x.formats.film.reading.selection import Change, Selection
from waifu2x.imaging.orientation import oriented
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header
from waifu2x.system.lazy_dataclass import dataclass

Planes = Sequence[NDArray[Any]]
"""The samples of a frame: (rows, columns) for each plane, uint8, or uint16 above 8 bits."""


class PartBegin(NamedTuple):
    """Facts that the first frame of a part tells."""

    before: str
    """Hash of the frame before; empty for the first part that has frames."""
    is_sought: bool


class PartEnd(NamedTuple):
    """Facts that the last frame of a part tells."""

    last: str
    following: int | None
    """Time in ticks of the next frame; None at the end of the film."""
    damaged: int
    moved: int
    is_short: bool
    changes: tuple[Change, ...]
    """Changes of pictures within the part."""


@dataclass(frozen=True, eq=False)
class PlacedFrame:
    """A frame with its place in a part."""

    part: int
    frame: DecodedFrame
    is_held: bool
    """Whether it equals the one before, so that its result is used again."""
    begin: PartBegin | None
    """None unless it is the first of its part."""
    end: PartEnd | None
    """None unless it is the last."""


@dataclass(frozen=True, eq=False)
class EnlargedFrame:
    placed: PlacedFrame
    planes: Planes | None
    """None: those of the frame before."""


class FrameSource:
    """The frames of a run of parts, in order: a source of a flow."""

    def __init__(
        self,
        reader: FilmReader,
        selection: Selection,
        run: PartRun,
        part_ticks: int,
        duplicates: Duplicates,
        ahead: int,
    ) -> None:
        self._reader = reader
        self._selection = selection
        self._run = run
        self._part_ticks = part_ticks
        self._duplicates = duplicates
        # One more to compare with, and two that are looked at together.
        self._ahead = ahead + 3
        self._before = ""
        self._is_sought = False
        self._damaged = self._moved = self._begin = 0
        """The reader's counts at the beginning of the part, and its time."""
        self.has_ended = False
        self._steps = self._made()
        pictures = reader.film.pictures
        size = pictures.height, pictures.width
        if selection.crop is not None:
            size = selection.crop.size
        nbytes = sum(rows * columns for rows, columns in pictures.pixels.shapes(*size)) * (
            1 if pictures.pixels.bits == 8 else 2
        )
        self.header = Header((Extent(*size, nbytes),), count=None, animated=True)

    def __iter__(self) -> Generator[PlacedFrame]:
        return self._steps

    def close(self) -> None:
        """Ends the decoding, but leaves the reader open."""
        self._steps.close()

    def _made(self) -> Generator[PlacedFrame]:
        bits = self._reader.film.pictures.pixels.bits
        reference: DecodedFrame | None = None
        part: int | None = None
        following: DecodedFrame | None = None
        with closing(self._frames()) as frames:
            try:
                following = frame = next(frames, None)
                while frame is not None and frame.is_wanted:
                    following = next(frames, None)
                    number = frame.pts // self._part_ticks
                    begin = self._begun(frame) if number != part else None
                    part = number
                    held = (
                        reference is not None
                        and begin is None  # a part does not depend on another
                        and is_held(reference.planes, frame.planes, self._duplicates, bits)
                    )
                    if not held:
                        if reference is not None:
                            reference.release()
                        reference = frame
                        reference.hold()
                    is_last = following is None or following.pts // self._part_ticks != number
                    end = self._end(frame, following) if is_last else None
                    yield PlacedFrame(number, frame, held, begin, end)
                    frame = following
                self.has_ended = frame is None
            finally:
                if reference is not None:
                    reference.release()
                if following is not None:
                    following.release()

    def _begun(self, first: DecodedFrame) -> PartBegin:
        if self._before:  # earlier damage belongs to another part
            self._damaged, self._moved = first.damaged, first.moved
        self._begin = first.pts
        return PartBegin(self._before, self._is_sought)

    def _end(self, frame: DecodedFrame, following: DecodedFrame | None) -> PartEnd:
        found = self._reader.ending if following is None else following
        self._before = hash_of(frame)
        return PartEnd(
            self._before,
            None if following is None else following.pts,
            found.damaged - self._damaged,
            found.moved - self._moved,
            following is None and self._reader.ending.is_short,
            tuple(one for one in found.changes if self._begin <= one.pts <= frame.pts),
        )

    def _frames(self) -> Generator[DecodedFrame]:
        """Yields the frames of the run, then the next one, unwanted."""
        run, ticks = self._run, self._part_ticks
        start = first_part(self._reader.film, self._selection, ticks)
        wanted = replace(
            self._selection,
            first=run.first * ticks if run.first > start else None,
            until=None if run.until is None else run.until * ticks,
            is_sought=run.is_sought,
        )
        self._is_sought = wanted.first is not None and wanted.is_sought
        if self._is_sought:
            with closing(self._reader.frames(wanted, self._ahead)) as frames:
                if self._has_found(next(frames, None)):
                    yield from frames
                    return
            # Seeking has found another place: decode everything.
            wanted, self._is_sought = replace(wanted, is_sought=False), False
        with closing(self._reader.frames(wanted, self._ahead)) as frames:
            first = next(frames, None)
            if first is None:
                return
            if wanted.first is not None and first.pts < wanted.first:
                self._before = hash_of(first)
                first.release()
            else:
                yield first
            yield from frames

    def _has_found(self, first: DecodedFrame | None) -> bool:
        """Returns whether seeking has found the frame before the run, as far as that is known."""
        if first is None:
            return False
        is_before = first.pts < self._run.first * self._part_ticks
        if is_before:
            self._before = hash_of(first)
        first.release()
        return is_before and self._run.before in (None, self._before)


def hash_of(frame: DecodedFrame) -> str:
    hashed = hashlib.blake2b(str(frame.pts).encode(), digest_size=16)
    for plane in frame.planes:
        hashed.update(plane.data)
    return hashed.hexdigest()


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

    def add(self, result: EnlargedFrame) -> None:
        """Writes a result and releases its source frame. Raises OutputError."""
        try:
            with self._stages.at_work("encoding"):
                if result.planes is not None:
                    self._last = result.planes
                    self.computed += 1
                self._write(result.placed, self._last, is_held=result.planes is None)
            self.frames += 1
        finally:
            result.placed.frame.release()

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
