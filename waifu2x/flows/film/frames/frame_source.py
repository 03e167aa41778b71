"""The frames of a run of parts, each with its place, and those that repeat the one before found:
drawings are often shown for several frames."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.flows.film.frames.frame_windows import neighbours_of, windows
from waifu2x.flows.film.parts.part_runs import Duplicates, FilmWork, PartRun, first_part
from waifu2x.formats.film.reading.selection import Change
from waifu2x.imaging.streams import Extent, Header
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.film.frames.changed_areas import Area
    from waifu2x.flows.film.reading.client import DecodedFrame, FilmReader

Planes = Sequence[NDArray[Any]]
"""The samples of a frame: (rows, columns) for each plane, uint8, or uint16 above 8 bits."""
FindAreas = Callable[[Planes, Planes], "tuple[Area, ...] | None"]
"""Returns what to compute of a frame, given after the one whose result is kept; None for all."""
_BLOCK = 8
_MOST = 1.5
"""Mean difference of a block, of 255, that means motion. In drawings where a square of 4 pixels
moves by one, it is at least 1.9; see benchmarks/held_frames.py."""
_AREA = 32
_MOST_SHIFT = 0.5
"""Change of an area's mean, of 255, that means a fade: a codec changes each block, but not all
alike."""
_STRIP = 128
"""Rows that are compared together, so that they stay in a core's cache."""


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
    window: Sequence[DecodedFrame]
    """The frames that its result is made of: itself, or those around it too."""
    areas: tuple[Area, ...] | None
    """The areas to compute, all else being the result of the one before; None for all of it."""
    begin: PartBegin | None
    """None unless it is the first of its part."""
    end: PartEnd | None
    """None unless it is the last."""

    @property
    def is_held(self) -> bool:
        """Returns whether it equals the one before, so that its result is used again."""
        return self.areas == ()

    @property
    def planes(self) -> Planes:
        """Returns the planes of the frames in its window, one frame after the other."""
        return [plane for frame in self.window for plane in frame.planes]

    def release(self) -> None:
        """Ends the use of its frames."""
        for frame in self.window:
            frame.release()


class EnlargedFrame(NamedTuple):
    """The result for a frame."""

    placed: PlacedFrame
    planes: Planes | None
    """None: those of the frame before."""


class FrameSource:
    """The frames of a run of parts, in order and in stacks: a source of a flow."""

    def __init__(
        self,
        reader: FilmReader,
        work: FilmWork,
        run: PartRun,
        ahead: int,
        stack: int = 1,
        *,
        frames: int = 1,
    ) -> None:
        """`ahead` results may be unreleased; stacks have `stack` of them, the last maybe fewer.
        Each is made of a window of `frames` frames."""
        self._reader, self._work, self._run = reader, work, run
        self._stack = stack
        self.find: FindAreas | None = None
        """Finds what to compute of a frame; without it, frames that differ are computed whole."""
        self._window = frames
        self._neighbours = neighbours_of(frames)
        # One more to compare with, and two that are looked at together. With a window, those on its
        # sides too.
        self._ahead = ahead + 3 + 4 * (frames // 2)
        self._before = ""
        self._is_sought = False
        self._damaged = self._moved = self._begin = 0
        """The reader's counts at the beginning of the part, and its time."""
        self._goes_on = False
        """Whether the film goes on behind the run."""
        self.has_ended = False
        self._steps = self._made()
        pictures, crop = reader.film.pictures, work.selection.crop
        size = (pictures.height, pictures.width) if crop is None else crop.size
        extent = Extent(*size, pictures.pixels.nbytes(*size))
        self.header = Header((extent,), count=None, animated=True)

    def __iter__(self) -> Iterator[Sequence[PlacedFrame]]:
        while stack := tuple(islice(self._steps, self._stack)):
            yield stack

    def close(self) -> None:
        """Ends the decoding, but leaves the reader open."""
        self._steps.close()

    def _made(self) -> Generator[PlacedFrame]:
        bits, ticks = self._reader.film.pictures.pixels.bits, self._work.part_ticks
        reference: Sequence[DecodedFrame] = ()
        part: int | None = None
        with (
            closing(self._frames()) as frames,
            closing(windows(frames, self._window, bits)) as each,
        ):
            try:
                for frame, window, latest, following in each:
                    number = frame.pts // ticks
                    begin = self._begun(frame) if number != part else None
                    part = number
                    areas = None
                    if reference and begin is None:
                        # Only within a part, which does not depend on another.
                        areas = self._areas(reference, window)
                    if areas != ():
                        for one in window:
                            one.hold()
                        for one in reference:
                            one.release()
                        reference = window
                    is_last = following is None or following.pts // ticks != number
                    end = self._end(latest, following) if is_last else None
                    yield PlacedFrame(number, frame, window, areas, begin, end)
                self.has_ended = not self._goes_on
            finally:
                for one in reference:
                    one.release()

    def _areas(
        self, computed: Sequence[DecodedFrame], window: Sequence[DecodedFrame]
    ) -> tuple[Area, ...] | None:
        """Returns what to compute of a frame, where the result of `computed` is kept."""
        how, bits = self._work.duplicates, self._reader.film.pictures.pixels.bits
        if how == "off":
            return None
        if self.find is None or how == "tolerant":
            is_same = all(
                one is other or is_held(one.planes, other.planes, how, bits)
                for one, other in zip(computed, window, strict=True)
            )
            if is_same:
                return ()
        return None if self.find is None else self.find(computed[0].planes, window[0].planes)

    def _begun(self, first: DecodedFrame) -> PartBegin:
        if self._before:  # earlier damage belongs to another part
            self._damaged, self._moved = first.damaged, first.moved
        self._begin = first.pts
        return PartBegin(self._before, self._is_sought)

    def _end(self, latest: Sequence[DecodedFrame], following: DecodedFrame | None) -> PartEnd:
        found = self._reader.ending if following is None else following
        self._before = hash_of(latest)
        return PartEnd(
            self._before,
            None if following is None else following.pts,
            found.damaged - self._damaged,
            found.moved - self._moved,
            following is None and self._reader.ending.is_short,
            tuple(one for one in found.changes if self._begin <= one.pts <= latest[-1].pts),
        )

    def _frames(self) -> Generator[DecodedFrame]:
        """Yields the frames of the run, between unwanted ones before and behind it."""
        run, ticks, selection = self._run, self._work.part_ticks, self._work.selection
        start = first_part(self._reader.film, selection, ticks)
        wanted = replace(
            selection,
            first=run.first * ticks if run.first > start else None,
            until=None if run.until is None else run.until * ticks,
            is_sought=run.is_sought,
            neighbours=self._neighbours,
        )
        self._is_sought = wanted.first is not None and wanted.is_sought
        if self._is_sought:
            with closing(self._reader.frames(wanted, self._ahead)) as frames:
                begun = self._begun_with(frames)
                if self._has_found(begun):
                    yield from self._watched(chain(begun, frames))
                    return
                for frame in begun:
                    frame.release()
            # Seeking has found another place: decode everything.
            wanted, self._is_sought = replace(wanted, is_sought=False), False
        with closing(self._reader.frames(wanted, self._ahead)) as frames:
            begun = self._begun_with(frames)
            self._has_found(begun)
            yield from self._watched(chain(begun, frames))

    def _watched(self, frames: Iterator[DecodedFrame]) -> Iterator[DecodedFrame]:
        """Yields the frames, and notes whether the film goes on behind the run."""
        for frame in frames:
            self._goes_on = not frame.is_wanted and not self._is_before(frame)
            yield frame

    def _is_before(self, frame: DecodedFrame) -> bool:
        return not frame.is_wanted and frame.pts < self._run.first * self._work.part_ticks

    def _begun_with(self, frames: Iterator[DecodedFrame]) -> list[DecodedFrame]:
        """Returns the frames before the run, and the one behind them, if there is any."""
        begun: list[DecodedFrame] = []
        for frame in frames:
            begun.append(frame)
            if not self._is_before(frame):
                break
        return begun

    def _has_found(self, begun: Sequence[DecodedFrame]) -> bool:
        """Notes the frames before the run; returns whether they are the right ones, as far as that
        is known."""
        before = [frame for frame in begun if self._is_before(frame)]
        if not before:
            return False
        self._before = hash_of(before)
        if self._run.before is not None:
            return self._run.before == self._before
        return len(before) == self._neighbours


def hash_of(frames: Sequence[DecodedFrame]) -> str:
    """Returns a hash of frames and their times."""
    hashed = hashlib.blake2b(digest_size=16)
    for frame in frames:
        hashed.update(str(frame.pts).encode())
        for plane in frame.planes:
            hashed.update(plane.data)
    return hashed.hexdigest()


def is_held(
    computed: Sequence[NDArray[Any]], planes: Sequence[NDArray[Any]], how: Duplicates, bits: int
) -> bool:
    """Returns whether a frame equals the last computed one. Planes are (rows, columns) of samples
    of `bits`. A slow fade differs from its neighbour by next to nothing, so that is not compared.
    """
    if how == "off":
        return False
    pairs = list(zip(computed, planes, strict=True))
    if how == "exact":
        return all(np.array_equal(one, other) for one, other in pairs)
    unit = 1 << (bits - 8)
    return all(_is_near(one, other, unit) for one, other in pairs)


def _is_near(one: NDArray[Any], other: NDArray[Any], unit: int) -> bool:
    """Returns whether planes differ only by a codec's noise. `unit` is a level of 8 bits."""
    for top in range(0, one.shape[0], _STRIP):
        # The last strip overlaps the one before, so that it is whole.
        begin = max(0, min(top, one.shape[0] - _STRIP))
        strips = one[begin : begin + _STRIP], other[begin : begin + _STRIP]
        if np.array_equal(*strips):
            continue
        difference = np.maximum(*strips) - np.minimum(*strips)
        if _block_averages(difference, _BLOCK).max() >= _MOST * unit:
            return False
        shift = _block_averages(strips[0], _AREA) - _block_averages(strips[1], _AREA)
        if abs(shift).max() >= _MOST_SHIFT * unit:
            return False
    return True


def _block_averages(plane: NDArray[Any], side: int) -> NDArray[np.float64]:
    """Returns the means of blocks; the last may be narrower, or overlap those above."""
    height, width = plane.shape
    side = min(side, height)
    whole = height // side * side
    # Rows first, as long as they are: sums of short axes are slow.
    sums = np.add.reduce(plane[:whole].reshape(-1, side, width), axis=1, dtype=np.uint32)
    if whole < height:
        last = np.add.reduce(plane[-side:], axis=0, dtype=np.uint32)
        sums = np.concatenate([sums, last[None]])
    starts = np.arange(0, width, side)
    counts = np.diff(np.append(starts, width)) * side
    means: NDArray[np.float64] = np.add.reduceat(sums, starts, axis=1) / counts
    return means
