"""Films as numbered pictures in a folder, with their times in a text file beside them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import IO

from waifu2x.errors import ExistsError, ImageError, OutputError
from waifu2x.system.files import explained, open_regular, reason
from waifu2x.system.lazy_dataclass import dataclass

TIMES = "timestamps.txt"
"""The file of times: a line that names its format, then the milliseconds of each frame."""
TICK = Fraction(1, 1_000_000)
PLAIN_RATE = 25
"""Frames a second where no file of times exists."""
_FORMAT = "# timestamp format v2"
_NUMBERED = re.compile(r"%0?([1-9]?)d")
_ANY_NUMBER = re.compile(r"(|.*\D)(\d{1,18})(\.png)", re.IGNORECASE | re.ASCII)
_MOST_DIGITS = 18
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
        """Returns the file of a frame."""
        return self.path.with_name(self.path.name % number)

    @property
    def times(self) -> Path:
        """Returns the file of times."""
        return self.path.with_name(TIMES)

    def existing(self) -> list[int]:
        """Returns the numbers of all frames that exist, in order."""
        before, after = _NUMBERED.split(self.path.name)[::2]
        named = re.compile(rf"{re.escape(before)}(\d{{1,{_MOST_DIGITS}}}){re.escape(after)}")
        found = (named.fullmatch(name) for name in _names(self.path.parent))
        numbers = (int(name[1]) for name in found if name is not None)
        return sorted(number for number in set(numbers) if self.frame(number).exists())

    def numbers(self) -> range:
        """Returns the numbers of existing frames, from any first one. Raises ImageError for a
        gap."""
        there = self.existing()
        for earlier, later in pairwise(there):
            if later != earlier + 1:
                raise ImageError(
                    f"{self.frame(earlier + 1)}: it is missing, but {self.frame(later).name} is"
                    " there",
                    "number frames without a gap",
                )
        return range(there[0], there[-1] + 1) if there else range(0)

    def check_free(self, source: Path, *, replace: bool) -> None:
        """Raises ExistsError for frames or times that must not be replaced. Raises OutputError
        where the times of `source` would be lost, which is frames, too."""
        given = frame_pattern(source)
        if given is not None and _is_same(given.path.parent, self.path.parent):
            raise OutputError(
                f"{self.path}: it is in the folder of the input, whose {TIMES} would be replaced",
                "choose another folder",
            )
        if replace:
            return
        if there := self.existing():
            raise ExistsError(self.frame(there[0]), "use --overwrite, or other names")
        if self.times.exists():
            raise ExistsError(self.times, "use --overwrite, or another folder")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return False


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def pattern_in(folder: Path) -> Path | None:
    """Returns the pattern of the numbered PNG files in a folder; None without any. Raises
    ImageError for files of several patterns."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in _names(folder):
        if (parts := _ANY_NUMBER.fullmatch(name)) is not None:
            before, digits, after = parts.groups()
            found.setdefault((before, after), []).append(digits)
    patterns = []
    for (before, after), numbers in sorted(found.items()):
        is_filled = any(digits[0] == "0" and len(digits) > 1 for digits in numbers)
        width = f"0{min(map(len, numbers))}" if is_filled else ""
        patterns.append(folder / f"{before}%{width}d{after}")
    if len(patterns) > 1:
        names = " and ".join(str(one) for one in patterns[:2])
        raise ImageError(
            f"{folder}: it has several sequences of pictures", f"name one, {names} say"
        )
    return patterns[0] if patterns and frame_pattern(patterns[0]) is not None else None


def frame_pattern(path: Path) -> FramePattern | None:
    """Returns the frames that a path such as `frames/%06d.png` names; None for one file."""
    name = path.name
    if not name.lower().endswith(".png") or len(_NUMBERED.findall(name)) != 1:
        return None
    return FramePattern(path) if "%" not in _NUMBERED.sub("", name) else None


class FrameSequence(io.RawIOBase):
    """Frames that are files of PNG, concatenated as one file without seeking."""

    kind = "frames"
    """The format's name for people."""
    times: Sequence[int] = ()
    """The time of each frame in ticks."""
    end: int | None = None
    """Where the last frame ends, in ticks, if known."""
    damaged = 0
    """Damaged places that were found before the first frame was read."""

    def __init__(self) -> None:
        self._waiting: Iterator[bytes] | None = None
        self._rest = memoryview(b"")

    def contents(self) -> Iterator[bytes]:
        """Yields the content of each file, independently of `read`. Raises ImageError."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns at most `size` bytes; none at the end of the last file. Raises ImageError."""
        if self._waiting is None:
            self._waiting = self.contents()
        if not self._rest:
            self._rest = memoryview(next(self._waiting, b""))
        end = size if size >= 0 else len(self._rest)
        data, self._rest = bytes(self._rest[:end]), self._rest[end:]
        return data


class FrameFiles(FrameSequence):
    """The numbered files of a pattern."""

    def __init__(self, pattern: FramePattern) -> None:
        """Raises ImageError if no frame exists, or for an invalid file of times."""
        super().__init__()
        numbers = pattern.numbers()
        if not numbers:
            raise ImageError(f"{pattern.frame(1)}: cannot read: no such file or directory")
        self._paths = [pattern.frame(number) for number in numbers]
        self.times = read_times(pattern, len(numbers))

    def contents(self) -> Iterator[bytes]:
        """Yields the content of each file, independently of `read`. Raises ImageError."""
        for path in self._paths:
            with _opened(path) as file:
                data: bytes = file.read(_MOST_OF_FRAME + 1)
            if len(data) > _MOST_OF_FRAME:
                raise ImageError(
                    f"{path}: it is larger than the {_MOST_OF_FRAME >> 30} GiB that a frame may"
                    " have"
                )
            yield data


def _opened(path: Path) -> IO[bytes]:
    with explained(ImageError, f"{path}: cannot read"):
        return open_regular(path)


def read_times(pattern: FramePattern, frames: int) -> tuple[int, ...]:
    """Returns the time of each frame in ticks; even times where no file tells. Raises ImageError
    for an invalid file, or one with fewer times than `frames`."""
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
        if not all(0 <= time < _LARGEST for time in times):  # nor for NaN
            raise ValueError
        ticks = tuple(round(time * 1000) for time in times)
        if any(later <= earlier for earlier, later in pairwise(ticks)):
            raise ValueError
    except ValueError as error:
        raise ImageError(
            f"{path}: it is no file of times: it has to begin with {_FORMAT!r}, and then have a"
            " line "
            "of milliseconds for each frame, each more than the one before"
        ) from error
    if len(ticks) < frames:
        raise ImageError(f"{path}: it has times for {len(ticks)} of {frames} frames")
    return ticks[:frames]


def rate_of(times: Sequence[int]) -> Fraction:
    """Returns the approximate rate of times in ticks, in frames a second; exact for even times."""
    if len(times) < 2:
        return Fraction(PLAIN_RATE)
    mean = Fraction(len(times) - 1, times[-1] - times[0]) / TICK
    for base in (1, 1001):
        # Times are rounded to half a tick at the last frame.
        near = Fraction(round(mean * base), base)
        if near and abs(1 / near - 1 / mean) * (len(times) - 1) <= TICK:
            return near
    return mean.limit_denominator(1000)


def times_text(times: Sequence[int], tick: Fraction) -> str:
    """Returns the content of a file of times; `times` are in ticks of `tick` seconds."""
    milliseconds = (float(time * tick * 1000) for time in times)
    lines = (f"{time:.6f}".rstrip("0").rstrip(".") for time in milliseconds)
    return "\n".join([_FORMAT, *lines, ""])
