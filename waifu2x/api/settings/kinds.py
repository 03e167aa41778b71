"""Kinds of values: what a text of the user's means, as an option, a setting or a parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from waifu2x.errors import Waifu2xError
from waifu2x.flows import naming
from waifu2x.flows.jobs import InFlight
from waifu2x.imaging.sizes import scale_of
from waifu2x.system.arguments import listed, nearest

if TYPE_CHECKING:
    from waifu2x.flows.batch.subset import Shard
    from waifu2x.formats.film.description import FilmCrop
    from waifu2x.imaging.blend import Mask

LOCAL = "local"
"""Stands for the address of a cluster: processes of this machine."""
MOST_PIXELS = 1_000_000
"""The largest side that may be asked for."""
_LONGEST = 60
"""The most characters of a wrong value that a message quotes."""
_SCHEDULER = re.compile(r"(tcp|tls|ucx|wss?)://\S+:\d+", re.ASCII)
"""An address of Dask's."""
_TIME = re.compile(r"(?:(?:(\d{1,3}):)?(\d{1,4}):)?(\d{1,6}(?:\.\d{1,9})?)", re.ASCII)


class Kind:
    """A text that a function parses; by default any text, which stands for itself."""

    words: tuple[str, ...] = ()
    """All that there is to choose from, for shells and forms; empty if it is no such list."""
    json: Literal["string", "integer"] = "string"
    """The type of a value in JSON."""

    def __init__(self, parse: Callable[[str], Any] = str, expected: str = "") -> None:
        """`parse` raises ValueError for wrong text; `expected` says what was to be there, unless
        the error itself does."""
        self._parse = parse
        self._expected = expected

    def parse(self, text: str) -> Any:
        """Returns the value that a text means. Raises ValueError, with the end of a sentence that
        begins with the setting's name."""
        try:
            return self._parse(text)
        except ValueError as error:
            expected = f"{_quoted(text)}: expected {self._expected}" if self._expected else error
            raise ValueError(f"{expected}.") from error

    def kept(self, text: str) -> Any:
        """Returns the value of a text as JSON has it. Raises ValueError, as `parse` does."""
        self.parse(text)
        return text


class OneOf(Kind):
    """A choice of words, in any case."""

    def __init__(self, words: Sequence[str], shown: Sequence[str] = ()) -> None:
        """`shown` are the words that messages list, if there are many."""
        self.words = tuple(words)
        self._shown = listed(shown or words)
        self._many = bool(shown)

    def parse(self, text: str) -> str:
        """Returns the word as it is spelt here. Raises ValueError."""
        found = next((each for each in self.words if each.casefold() == text.casefold()), None)
        if found is not None:
            return found
        near = nearest(text, self.words) if self._many else None
        quoted = _quoted(text)
        raise ValueError(
            f"{quoted}; did you mean {near}?" if near else f"expected {self._shown}, not {quoted}."
        )

    kept = parse


class Whole(Kind):
    """A whole number from `least` to `most`, or one of `among`."""

    json = "integer"

    def __init__(
        self, most: int = MOST_PIXELS, unit: str = " of pixels", least: int = 1, among: str = ""
    ) -> None:
        self._most, self._unit, self._least = most, unit, least
        self.words = tuple(among.split())

    def parse(self, text: str) -> int:
        """Returns the number. Raises ValueError."""
        if self.words:
            fits = text in self.words
            expected = listed(self.words)
        else:
            is_number = re.fullmatch(r"\d{1,19}", text, re.ASCII)
            fits = bool(is_number) and self._least <= int(text) <= self._most
            expected = f"a whole number{self._unit} from {self._least} to {self._most}"
        if not fits:
            raise ValueError(f"expected {expected}, not {_quoted(text)}.")
        return int(text)

    kept = parse


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def _matched(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None:
        raise ValueError(text)
    return found


def noise_level(word: str) -> int | Literal["auto"] | None:
    """Returns the noise level of an Upscaler for a word of NOISE or LEVEL."""
    return "auto" if word == "auto" else None if word == "none" else int(word)


def noise_word(level: int | Literal["auto"] | None) -> str:
    """Returns the word of NOISE for a noise level."""
    return "none" if level is None else str(level)


def _least_size(text: str) -> tuple[int, int]:
    found = _matched(r"([1-9]\d{0,5})(?:x([1-9]\d{0,5}))?", text)
    return int(found[1]), int(found[2] or found[1])


def _size(text: str) -> tuple[int, int]:
    found = _matched(r"(0*[1-9]\d{0,4})x(0*[1-9]\d{0,4})", text)
    return int(found[1]), int(found[2])


def _tile(text: str) -> int | None:
    if text == "auto":
        return None
    _matched(r"\d{2,9}", text)
    if int(text) < 16:
        raise ValueError(text)
    return int(text)


def _devices(text: str) -> tuple[int, ...] | Literal["all"]:
    if text == "all":
        return "all"
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text, re.ASCII):
        raise ValueError(f"{_quoted(text)}: expected a number like 0, several like 0,1, or all")
    numbers = tuple(map(int, text.split(",")))
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{_quoted(text)} names a device twice")
    return numbers


def _colour(text: str) -> tuple[int, int, int]:
    from PIL import ImageColor

    red, green, blue = ImageColor.getrgb(text)[:3]
    return red, green, blue


def _template(text: str) -> str:
    naming.check(text)
    return text


def _quality(text: str) -> int | Literal["like"]:
    return "like" if text == "like" else int(_matched(r"[1-9]\d?|100", text)[0])


def _time(text: str) -> Fraction:
    """Parses a time such as 90, 1:30.5 or 1:02:03 into seconds."""
    hours, minutes, seconds = _matched(_TIME.pattern, text).groups()
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + Fraction(seconds)


def _crf(text: str) -> float:
    _matched(r"\d{1,3}(\.\d{1,2})?", text)
    if float(text) > 255:
        raise ValueError(text)
    return float(text)


def _strength(text: str) -> float:
    _matched(r"0(\.\d{1,4})?|1(\.0{1,4})?", text)
    return float(text)


def _mask(text: str) -> Mask:
    from waifu2x.formats.mask import read_mask

    try:
        return read_mask(Path(text))
    except Waifu2xError as error:
        raise ValueError(str(error)) from error


def _crop(text: str) -> FilmCrop | Literal["auto"]:
    """Parses a rectangle as FFmpeg's filter takes it."""
    from waifu2x.formats.film.description import FilmCrop

    if text == "auto":
        return "auto"
    width, height, left, top = map(
        int, _matched(r"(\d{1,5}):(\d{1,5}):(\d{1,5}):(\d{1,5})", text).groups()
    )
    if not (width and height):
        raise ValueError(text)
    return FilmCrop(width, height, left, top)


def _pair(text: str) -> tuple[str, str]:
    found = _matched(r"(?s)([^=]+)=(.*)", text)
    return found[1], found[2]


def _in_flight(text: str) -> InFlight | None:
    if text == "auto":
        return None
    part = r"([1-9]\d{0,2})"
    load, process, save = map(int, _matched(f"{part}:{part}:{part}", text).groups())
    return InFlight(load + process + save, process)


def _shard(text: str) -> Shard:
    from waifu2x.flows.batch.subset import shard_of

    return shard_of(text)


def _address(text: str) -> str:
    return text if text == LOCAL else _matched(_SCHEDULER.pattern, text)[0]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise ValueError(text)
    return names


FLAG = Kind()
"""Yes or no: an option without a value."""
TEXT = Kind()
PATH = Kind(Path)
"""A file to be made, or whose absence its reader tells."""
FILE = Kind(Path)
"""A file that must be there."""
PIXELS = Whole()
NOISE = OneOf(("auto", "none", "0", "1", "2", "3"))
LEVEL = OneOf(("none", "0", "1", "2", "3"))
SCALE = Kind(scale_of, "a number above 0, at most 32, such as 2, 1.5 or 4/3")
LEAST_SIZE = Kind(_least_size, "pixels, like 2000, or 3840x2160")
SIZE = Kind(_size, "a size like 960x540")
TILE = Kind(_tile, "auto or a whole number from 16 up")
DEVICES = Kind(_devices)
COLOUR = Kind(_colour, "a name like black, or #rrggbb")
TEMPLATE = Kind(_template)
QUALITY = Kind(_quality, "a number from 1 to 100, or like")
TIME = Kind(_time, "seconds, or a time like 1:02.5")
CRF = Kind(_crf, "a number such as 18: less is better")
STRENGTH = Kind(_strength, "a number from 0 to 1")
MASK = Kind(_mask)
CROP = Kind(_crop, "auto, or like 1920:800:0:140")
PAIR = Kind(_pair, "KEY=VALUE")
JOBS = Kind(_in_flight, "auto, or three whole numbers like 1:1:2")
SHARD = Kind(_shard, "a part like 3/16")
ADDRESS = Kind(_address, f"{LOCAL}, or like tcp://host:8786")
NAMES = Kind(_names, "names like cunet,cugan/se")
