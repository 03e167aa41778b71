"""Gives each frame of a film a time later than that of the one before.

Damaged films have impossible times, times that go back, or that leap ahead for a frame. Such a
frame is shown when it is due: its picture is as good as any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from waifu2x.formats.film.reading.opening import MAX_SECONDS

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_LOOKED_AT = 4
"""Frames that are examined after a leap, to see whether time goes back."""


class Times:
    def __init__(
        self, origin: Fraction, tick: Fraction, length: int, delay: int | None = None
    ) -> None:
        """Takes times from `origin`, in seconds, on, in ticks of `tick` seconds. A frame is shown
        for about `length` ticks. With `delay`, frames have only an order of coding, which is late
        by as many ticks."""
        self._origin, self._tick = origin, tick
        self._first = -(-origin // tick)
        self._is_plain = self._first * tick == origin  # fractions take long
        self._length = length
        self._delay = delay
        self._most = MAX_SECONDS // tick
        self.moved = 0
        """Frames so far whose time is not that of the film."""

    def given(self, frames: Iterable[VideoFrame]) -> Iterator[VideoFrame]:
        """Yields the frames, with `pts` and `duration` set."""
        source = iter(frames)
        waiting: deque[VideoFrame] = deque()
        last: int | None = None
        due = 0
        while True:
            frame = waiting.popleft() if waiting else next(source, None)
            if frame is None:
                return
            pts = self._told(frame)
            if pts is None:
                self.moved += frame.pts is not None
                pts = due
            elif pts > due:
                while len(waiting) < _LOOKED_AT and (more := next(source, None)) is not None:
                    waiting.append(more)
                later = [self._told(one) for one in waiting]
                back = [one for one in later if one is not None and one < pts]
                if sound := [one for one in back if last is None or one > last]:
                    self.moved += 1
                    pts = min(due, min(sound) - 1)
            if last is not None and pts <= last:
                self.moved += 1
                pts = last + 1
            last = pts
            duration = frame.duration or 0
            frame.pts = pts
            frame.duration = duration if 0 <= duration <= self._most else 0
            due = pts + (frame.duration or self._length)
            yield frame

    def _told(self, frame: VideoFrame) -> int | None:
        """Returns the time that the film gives a frame, if that is possible."""
        pts = frame.pts
        if self._delay is not None:
            pts = None if frame.dts is None else frame.dts - self._delay
        if pts is None:
            return None
        if self._is_plain:
            pts -= self._first
        else:
            pts = round((pts * self._tick - self._origin) / self._tick)
        return pts if abs(pts) <= self._most else None
