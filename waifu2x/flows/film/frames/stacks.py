"""Frames that are worked on together: what each thread is told costs as much as a small frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from waifu2x.imaging.streams import Header, Sink, Source

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_PIXELS = 1 << 19
"""Pixels of the frames of a stack."""
_MOST = 8


def stack_size(height: int, width: int) -> int:
    """How many frames of a size a device is given at a time."""
    return max(1, min(_MOST, _PIXELS // max(1, height * width)))


class StackedSource(Generic[_Item]):
    """The items of a source, several at a time: a source of a flow."""

    def __init__(self, source: Source[_Item], size: int) -> None:
        self._source = source
        self._size = size
        self.header = source.header

    def __iter__(self) -> Iterator[Sequence[_Item]]:
        """Tuples of `size` items, the last one perhaps of less."""
        stack: list[_Item] = []
        for item in self._source:
            stack.append(item)
            if len(stack) == self._size:
                yield tuple(stack)
                stack = []
        if stack:
            yield tuple(stack)

    def close(self) -> None:
        """Closes the source."""
        self._source.close()


class StackedSink(Generic[_Result]):
    """Hands the results of stacks to a sink one by one: a sink of a flow."""

    def __init__(self, sink: Sink[_Result]) -> None:
        self._sink = sink

    def open(self, header: Header) -> None:
        """Begins. Raises OutputError."""
        self._sink.open(header)

    def add(self, result: Iterable[_Result]) -> None:
        """Takes the results of a stack. Raises OutputError."""
        for one in result:
            self._sink.add(one)

    def close(self) -> None:
        """Completes the output. Raises OutputError."""
        self._sink.close()

    def abort(self) -> None:
        """Leaves nothing behind."""
        self._sink.abort()
