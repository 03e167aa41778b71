"""The pictures of a file as a source: decoded one after the other, when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from waifu2x.formats.failures import in_words
from waifu2x.imaging.streams import Header, Timed

DAMAGED = "damaged or cut off"
"""What most errors of decoders mean."""


def _nothing() -> None:
    """For decoders that need not be closed."""


class DecodedFile:
    """A Source of a file's pictures. No more of them exist than the one that is being decoded."""

    def __init__(
        self,
        name: str,
        header: Header,
        pictures: Generator[Timed],
        close: Callable[[], None] = _nothing,
    ) -> None:
        """`name` stands for the file in messages; `pictures` decodes, and may raise whatever
        decoders raise; `close` lets go of what it decodes from."""
        self.header = header
        self._name = name
        self._pictures = pictures
        self._close = close
        self._first: Timed | None = None
        self._decoded = 0

    def first(self) -> Timed:
        """The first picture, which is kept for the iteration. Raises ImageError."""
        if self._first is None:
            self._first = self._next()
        assert self._first is not None  # a file without pictures is not opened
        return self._first

    def __iter__(self) -> Iterator[Timed]:
        """The pictures in their order, once. Raises ImageError."""
        picture, self._first = self._first or self._next(), None
        while picture is not None:
            yield picture
            del picture  # before there is another one
            picture = self._next()

    def _next(self) -> Timed | None:
        with in_words(self._name, DAMAGED):
            picture = next(self._pictures, None)
        index, self._decoded = self._decoded, self._decoded + 1
        return picture and replace(picture, index=index)

    def close(self) -> None:
        """Ends the decoding."""
        self._pictures.close()
        self._close()
