"""Protocol Buffers' wire format: the fields of a message, each a number and a content."""

from __future__ import annotations

from collections.abc import Iterator

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import ModelBudget

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MOST_TEXT = 4096
_MOST_VARINT = 10
"""Bytes of 64 bits, seven in each."""


class Message:
    """The bytes of a message, a view of the file's, and the budget of all messages.

    Content beyond the message, and fields of other than the four kinds, raise ModelError.
    """

    def __init__(self, data: memoryview, budget: ModelBudget) -> None:
        self.data = data
        self.budget = budget

    def fields(self) -> Iterator[tuple[int, int, int | memoryview]]:
        """Yields number, kind and content of each field: an int, or the bytes of other kinds."""
        at, data = 0, self.data
        while at < len(data):
            self.budget.take_steps()
            key, at = self._varint(at)
            number, kind = key >> 3, key & 7
            if not number:
                raise self.damaged("a field without a number")
            if kind == VARINT:
                value, at = self._varint(at)
                yield number, kind, value
                continue
            if kind == LENGTH:
                size, at = self._varint(at)
            elif kind in (FIXED64, FIXED32):
                size = 8 if kind == FIXED64 else 4
            else:
                raise self.damaged(f"a field of kind {kind}")
            if size > len(data) - at:
                raise self.damaged("a field is longer than what it is in")
            yield number, kind, data[at : at + size]
            at += size

    def varints(self) -> Iterator[int]:
        """Yields the message as packed numbers."""
        at = 0
        while at < len(self.data):
            self.budget.take_steps()
            value, at = self._varint(at)
            yield value

    def inner(self, content: int | memoryview) -> Message:
        """Returns the message that a field holds."""
        if isinstance(content, int):
            raise self.damaged("a number in the place of a message")
        return Message(content, self.budget)

    def text(self, content: int | memoryview) -> str:
        """Returns the string that a field holds."""
        if isinstance(content, int):
            raise self.damaged("a number in the place of a string")
        if len(content) > _MOST_TEXT:
            raise self.damaged(f"a name of {len(content)} bytes")
        try:
            return content.tobytes().decode()
        except UnicodeDecodeError:
            raise self.damaged("a name that is not UTF-8") from None

    def number(self, content: int | memoryview) -> int:
        """Returns the signed number that a field holds."""
        if not isinstance(content, int):
            raise self.damaged("a message in the place of a number")
        return signed(content)

    def damaged(self, why: str) -> ModelError:
        """Returns the error for a damaged file."""
        return ModelError(f"{self.budget.name}: damaged: {why}")

    def _varint(self, at: int) -> tuple[int, int]:
        """Returns a number of seven bits a byte, the lowest first, and where it ends."""
        value = 0
        for place, byte in enumerate(self.data[at : at + _MOST_VARINT]):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if value >> 64:
                    break
                return value, at + place + 1
        raise self.damaged("a number that is cut off or has more than 64 bits")


def signed(value: int) -> int:
    """Returns the number whose two's complement of 64 bits is `value`."""
    return value - (1 << 64) if value >> 63 else value
