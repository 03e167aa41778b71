"""The two files of an ncnn network, as lines of layers and as runs of weights.

One line of text is one layer: kind, name, numbers of blobs in and out, their names, and key=value
pairs whose meaning depends on the kind. The weights follow one another in the order of the lines.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import shown
from waifu2x.system.lazy_dataclass import dataclass

MAX_LAYERS = 10_000
_MAGIC = "7767517"
_MAX_WORD = 256
_MAX_TEXT = 4 << 20
_FLOAT32 = 0
_FLOAT16 = 0x01306B47
_OTHER_TAGS = {0x000D4B38: "int8", 0x0002C056: "scaled float32"}
_NUMBER = re.compile(r"[+-]?(\d+|(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?)", re.ASCII)
_ARRAY = -23300
"""Key k of an array is written as -23300 - k."""

Number = int | float


@dataclass
class Line:
    """One layer, as text."""

    file: str
    """For messages."""
    label: str
    """For messages: line, kind and name."""
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[int, Number | list[Number]]
    """By key; a reader takes them out, and those left at the end are refused."""

    @property
    def where(self) -> str:
        """Returns the beginning of messages: file, line, kind and name."""
        return f"{self.file}: {self.label}"

    def number(self, key: int, word: str, default: Number | None = None) -> Number:
        """Takes a value that must be there, or has a default."""
        value = self.values.pop(key, default)
        if value is None:
            raise ModelError(f"{self.where}: key {key} ({word}) is missing")
        if isinstance(value, list):
            raise ModelError(f"{self.where}: key {key} ({word}) is a list, but expected a number")
        return value

    def whole(self, key: int, word: str, default: int | None = None, least: int = 0) -> int:
        """Takes a whole number of at least `least`."""
        value = self.number(key, word, default)
        if not isinstance(value, int) or value < least:
            raise ModelError(
                f"{self.where}: key {key} ({word}) is {value}, but expected at least {least}"
            )
        return value

    def array(self, key: int, word: str) -> list[Number]:
        """Takes a list, empty if it is absent."""
        value = self.values.pop(key, [])
        if not isinstance(value, list):
            raise ModelError(f"{self.where}: key {key} ({word}) is a number, but expected a list")
        return value

    def expect(self, key: int, word: str, *allowed: Number, default: Number = 0) -> None:
        """Takes a value. Raises ModelError unless it is one of those allowed."""
        value = self.values.pop(key, default)
        if value not in allowed:
            raise ModelError(f"{self.where}: key {key} ({word}) is {value}: not supported")

    def finish(self) -> None:
        """Raises ModelError for keys that nothing took: they may change the result."""
        for key, value in self.values.items():
            raise ModelError(f"{self.where}: key {key} is {value}: not supported")


def parse_lines(text: bytes, name: str) -> list[Line]:
    """Returns the layers of a .param file; `name` stands for it in messages. Raises ModelError."""
    if len(text) > _MAX_TEXT:
        raise ModelError(f"{name}: larger than the {_MAX_TEXT >> 20} MiB that a .param may take")
    try:
        rows = text.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise ModelError(f"{name}: not a .param file of ncnn in text form") from error
    if rows[0].strip() != _MAGIC:
        raise ModelError(f"{name}: line 1: expected {_MAGIC}, as .param files of ncnn begin")
    counts = rows[1].split() if len(rows) > 1 else []
    if len(counts) != 2 or not all(re.fullmatch(r"\d{1,9}", each, re.ASCII) for each in counts):
        raise ModelError(f"{name}: line 2: expected the numbers of layers and of blobs")
    layers, blobs = map(int, counts)
    if not 1 <= layers <= MAX_LAYERS:
        raise ModelError(f"{name}: line 2: {layers} layers, but expected 1 to {MAX_LAYERS}")
    lines = [
        _parse_line(row.split(), name, f"line {number}")
        for number, row in enumerate(rows[2:], 3)
        if row.strip()
    ]
    if len(lines) != layers:
        raise ModelError(f"{name}: line 2 says {layers} layers, but {len(lines)} follow")
    made = [blob for line in lines for blob in line.outputs]
    if len(made) != blobs:
        raise ModelError(f"{name}: line 2 says {blobs} blobs, but the layers make {len(made)}")
    return lines


def _parse_line(words: list[str], name: str, label: str) -> Line:
    where = f"{name}: {label}"
    if max(map(len, words)) > _MAX_WORD:
        raise ModelError(f"{where}: a name or number of more than {_MAX_WORD} characters")
    if len(words) < 4 or not all(re.fullmatch(r"\d{1,4}", each, re.ASCII) for each in words[2:4]):
        raise ModelError(f"{where}: expected kind, name and the numbers of blobs in and out")
    label = f"{label} ({shown(words[0])} {shown(words[1])})"
    where = f"{name}: {label}"
    inputs, outputs = map(int, words[2:4])
    names = words[4 : 4 + inputs + outputs]
    if len(names) < inputs + outputs or any("=" in blob for blob in names):
        raise ModelError(f"{where}: expected the names of {inputs + outputs} blobs")
    values: dict[int, Number | list[Number]] = {}
    for pair in words[4 + inputs + outputs :]:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"-?\d{1,5}", key, re.ASCII):
            raise ModelError(f"{where}: '{shown(pair)}' is not a key=value pair")
        number = int(key)
        parsed: Number | list[Number]
        if number <= _ARRAY:
            number, parsed = _ARRAY - number, _parse_list(value, f"{where}: key {number}")
        else:
            parsed = _parse_number(value, f"{where}: key {number}")
        if number in values:
            raise ModelError(f"{where}: key {number} appears twice")
        values[number] = parsed
    return Line(name, label, words[0], tuple(names[:inputs]), tuple(names[inputs:]), values)


def _parse_list(text: str, where: str) -> list[Number]:
    count, *rest = text.split(",")
    if count != str(len(rest)):
        raise ModelError(f"{where} says {shown(count)} numbers, but {len(rest)} follow")
    return [_parse_number(each, where) for each in rest]


def _parse_number(text: str, where: str) -> Number:
    if len(text) > 30 or not _NUMBER.fullmatch(text):
        raise ModelError(f"{where} is {text[:30]!r}, but expected a number")
    value = float(text)
    if not math.isfinite(value):
        raise ModelError(f"{where} is {text}, which is not finite")
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else value


class BinFile:
    """The weights of a .bin file, read from its beginning to its end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._position = 0

    @property
    def left(self) -> int:
        """Bytes that are not read."""
        return len(self._raw) - self._position

    def tagged(self, count: int, where: str) -> NDArray[np.float32]:
        """Reads weights in the precision that the number before them names."""
        tag = int(self._take(1, "<u4", where)[0])
        if tag == _FLOAT16:
            weights = self._take(count, "<f2", where)
            self._take(-count % 2, "<f2", where)
        elif tag == _FLOAT32:
            weights = self._take(count, "<f4", where)
        else:
            word = _OTHER_TAGS.get(tag, f"tag {tag:#010x}")
            raise ModelError(
                f"{where}: its weights in the .bin file are {word}: only fp32 and fp16 can be read"
            )
        return _finite(weights, where)

    def plain(self, count: int, where: str) -> NDArray[np.float32]:
        """Reads biases or slopes."""
        return _finite(self._take(count, "<f4", where), where)

    def _take(self, count: int, dtype: str, where: str) -> NDArray[np.generic]:
        size = count * np.dtype(dtype).itemsize
        if size > self.left:
            raise ModelError(
                f"{where}: it needs {size} bytes of the .bin file, but {self.left} are left in it"
            )
        values = np.frombuffer(self._raw, dtype, count, self._position)
        self._position += size
        return values


def _finite(values: NDArray[np.generic], where: str) -> NDArray[np.float32]:
    numbers = values.astype(np.float32, copy=False)
    if not np.isfinite(numbers).all():
        raise ModelError(f"{where}: its weights in the .bin file hold a value that is not finite")
    return numbers
