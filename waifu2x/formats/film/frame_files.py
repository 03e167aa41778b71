"""Films as numbered pictures in a folder, with their times in a text file beside them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Any

from waifu2x.errors import ExistsError, ImageError, OutputError
from waifu2x.system.files import open_regular, reason
from waifu2x.system.lazy_dataclass import dataclass

TIMES = "timestamps.txt"
"""The file of times: a line that names its format, then the milliseconds of each frame."""
TICK = Fraction(1, 1_000_000)
"""Seconds of a tick of such films."""
PLAIN_RATE = 25
"""Frames a second where no file tells."""
_FORMAT = "# timestamp format v2"
_NUMBERED = re.compile(r"%0?([1-9]?)d")
_MOST_BYTES = 64 << 20
_MOST_OF_FRAME = 1 << 30
"""Bytes of a frame's file."""
_LARGEST = 7 * 24 * 3600 * 1000.0
"""Milliseconds that no film lasts."""


@dataclass(frozen=True)
class FramePattern:
    """The names of the frames of a film: a path whose last part has a place for a number."""

    path: Path

    def frame(self, number: int) -> Path:
        """The file of a frame."""
        return self.path.with_name(self.path.name % number)

    @property
    def times(self) -> Path:
        """The file of times."""
        return self.path.with_name(TIMES)

    def numbers(self) -> range:
        """The numbers of the frames that are there: from 0 or 1 on, up to the first that is not."""
        first = next((number for number in (0, 1) if self.frame(number).exists()), 1)
        end = next(number for number in count(first) if not self.frame(number).exists())
        return range(first, end)

    def check_free(self, source: Path, *, replace: bool) -> None:
        """Raises ExistsError where there are frames, or times, that are not to be replaced, and
        OutputError where `source` is frames whose times would be lost."""
        given = frame_pattern(source)
        if given is not None and _is_same(given.path.parent, self.path.parent):
            raise OutputError(
                f"{self.path}: is in the folder of the input, whose {TIMES} would be replaced: "
                "choose another folder"
            )
        if replace:
            return
        if there := self.numbers():
            raise ExistsError(self.frame(there[0]), "use --overwrite, or other names")
        if self.times.exists():
            raise ExistsError(self.times, "use --overwrite, or another folder")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return False


def frame_pattern(path: Path) -> FramePattern | None:
    """The frames that a path such as `frames/%06d.png` names; None if it names one file."""
    name = path.name
    if not name.lower().endswith(".png") or len(_NUMBERED.findall(name)) != 1:
        return None
    return FramePattern(path) if "%" not in _NUMBERED.sub("", name) else None


class FrameFiles(io.RawIOBase):
    """The files of all frames, one after the other, as one that cannot be sought in."""

    def __init__(self, pattern: FramePattern) -> None:
        """Raises ImageError where there are none."""
        numbers = pattern.numbers()
        if not numbers:
            raise ImageError(f"{pattern.frame(1)}: cannot read: no such file or directory")
        self._paths = [pattern.frame(number) for number in numbers]
        self._waiting = iter(self._paths)
        self._file: Any = None
        self.count = len(numbers)

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; none at the end of the last file. Raises ImageError."""
        while True:
            if self._file is None:
                path = next(self._waiting, None)
                if path is None:
                    return b""
                self._file = _opened(path)
            data: bytes = self._file.read(size)
            if data:
                return data
            self._file.close()
            self._file = None

    def contents(self) -> Iterator[bytes]:
        """What each file holds, wherever `read` has come to. Raises ImageError."""
        for path in self._paths:
            with _opened(path) as file:
                data: bytes = file.read(_MOST_OF_FRAME + 1)
            if len(data) > _MOST_OF_FRAME:
                raise ImageError(
                    f"{path}: is larger than the {_MOST_OF_FRAME >> 30} GiB that a frame may have"
                )
            yield data

    def close(self) -> None:
        """Closes the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


def _opened(path: Path) -> IO[bytes]:
    try:
        return open_regular(path)
    except OSError as error:
        raise ImageError(f"{path}: cannot read: {reason(error)}") from error


def read_times(pattern: FramePattern, frames: int) -> tuple[int, ...]:
    """When each frame is shown, in ticks; evenly where there is no file of times.

    Raises ImageError for a file that is none, or of fewer frames.
    """
    path = pattern.times
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return tuple(number * TICK.denominator // PLAIN_RATE for number in range(frames))
    except OSError as error:
        raise ImageError(f"{path}: cannot read: {reason(error)}") from error
    lines = data[:_MOST_BYTES].decode("ascii", "replace").splitlines()
    try:
        if not lines or not lines[0].lower().startswith(("# timestamp format v2", "# timecode")):
            raise ValueError
        shown = [line for line in lines[1:] if line.strip() and not line.startswith("#")]
        times = [float(line) for line in shown]
        if not all(0 <= time < _LARGEST for time in times):  # nor is it of what is no number
            raise ValueError
        ticks = tuple(round(time * 1000) for time in times)
        if any(later <= earlier for earlier, later in pairwise(ticks)):
            raise ValueError
    except ValueError as error:
        raise ImageError(
            f"{path}: is no file of times: it has to begin with {_FORMAT!r}, and then have a line "
            "of milliseconds for each frame, each more than the one before"
        ) from error
    if len(ticks) < frames:
        raise ImageError(f"{path}: has times for {len(ticks)} of {frames} frames")
    return ticks[:frames]


def rate_of(times: Sequence[int]) -> Fraction:
    """About how many frames a second such times are; exactly where they are even."""
    if len(times) < 2:
        return Fraction(PLAIN_RATE)
    mean = Fraction(len(times) - 1, times[-1] - times[0]) / TICK
    for base in (1, 1001):
        # Half a tick at the last frame is what times are rounded to.
        near = Fraction(round(mean * base), base)
        if near and abs(1 / near - 1 / mean) * (len(times) - 1) <= TICK:
            return near
    return mean.limit_denominator(1000)


def times_text(times: Sequence[int], tick: Fraction) -> str:
    """The file of times, for times in ticks of so many seconds."""
    milliseconds = (float(time * tick * 1000) for time in times)
    lines = (f"{time:.6f}".rstrip("0").rstrip(".") for time in milliseconds)
    return "\n".join([_FORMAT, *lines, ""])
