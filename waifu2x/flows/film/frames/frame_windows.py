"""Gives each frame of a film its neighbours in time, for networks that take several frames.

Before the first frame of a film and behind its last, that frame is repeated, as vapourkit does; the
script of TSCUNet's author mirrors time there instead. Neither looks for cuts. Here no window
reaches over a cut: the scene's first or last frame is repeated, as at the ends. A cut is told by
two neighbouring frames alone, so it is the same wherever decoding began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from waifu2x.flows.film.reading.client import DecodedFrame

_CUT = 10
"""Two frames belong to different scenes if their first planes (luma, or green) differ in the mean
by more than this fraction (1 / _CUT) of all codes, the threshold of FFmpeg's `scdet` too."""
_EACH = 4
"""The distance of the rows that are compared."""


class FrameWindow(NamedTuple):
    """A frame with those around it in the film."""

    frame: DecodedFrame
    frames: tuple[DecodedFrame, ...]
    """Those that a network takes, the earliest first: the frame is the middle one. Each has one
    more holder for each time that it is here."""
    latest: tuple[DecodedFrame, ...]
    """The frame, and those decoded before it within reach. They exist until the next window."""
    following: DecodedFrame | None
    """The next frame of the film, until the next window; None at its end."""


def neighbours_of(frames: int) -> int:
    """Returns how many frames on each side a window of `frames` needs, and at least the one that a
    part is compared by."""
    return max(1, frames // 2)


def windows(
    decoded: Iterator[DecodedFrame], frames: int, bits: int
) -> Generator[FrameWindow, None, None]:
    """Yields the windows of `frames` frames around each wanted one, and releases all frames that it
    takes from `decoded`. Unwanted ones before and behind them are neighbours alone. Samples have
    `bits` bits."""
    side, reach = frames // 2, neighbours_of(frames)
    kept: deque[tuple[DecodedFrame, bool]] = deque()
    """Frames, and whether each begins a scene."""
    middle, has_ended, has_begun = 0, False, False
    try:
        while True:
            while not has_ended and len(kept) <= middle + reach:
                frame = next(decoded, None)
                has_ended = frame is None
                if frame is not None:
                    begins = bool(side and kept) and is_cut(kept[-1][0], frame, bits)
                    kept.append((frame, begins))
            if middle == len(kept) or (has_begun and not kept[middle][0].is_wanted):
                return
            frame = kept[middle][0]
            if frame.is_wanted:
                has_begun = True
                yield FrameWindow(
                    frame,
                    _held([kept[place][0] for place in _places(kept, middle, side)]),
                    tuple(one for one, _ in list(kept)[: middle + 1])[-reach:],
                    kept[middle + 1][0] if middle + 1 < len(kept) else None,
                )
            middle += 1
            if middle > side:
                kept.popleft()[0].release()
                middle -= 1
    finally:
        for frame, _ in kept:
            frame.release()


def _places(kept: deque[tuple[DecodedFrame, bool]], middle: int, side: int) -> list[int]:
    """Returns the places of a window's frames, which end at cuts and where there are no frames."""
    before, behind = [middle], [middle]
    for _ in range(side):
        first, last = before[-1], behind[-1]
        before.append(first - 1 if first and not kept[first][1] else first)
        goes_on = last + 1 < len(kept) and not kept[last + 1][1]
        behind.append(last + 1 if goes_on else last)
    return [*reversed(before), *behind[1:]]


def _held(frames: list[DecodedFrame]) -> tuple[DecodedFrame, ...]:
    for frame in frames:
        frame.hold()
    return tuple(frames)


def is_cut(one: DecodedFrame, other: DecodedFrame, bits: int) -> bool:
    """Returns whether the second of two neighbouring frames begins another scene."""
    first, second = (frame.planes[0][::_EACH] for frame in (one, other))
    difference: NDArray[Any] = np.maximum(first, second) - np.minimum(first, second)
    total = int(difference.sum(dtype=np.uint64))
    return total * _CUT > difference.size * ((1 << bits) - 1)
