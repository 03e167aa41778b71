"""The common parts of all formats: DecodedFile, Writer, and errors in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from waifu2x.errors import ImageError, Sentence, shortage
from waifu2x.imaging.streams import Header, Timed

_REASON = 200
"""Letters of a decoder's error that a message has, at most."""


@contextmanager
def in_words(name: str, otherwise: str) -> Iterator[None]:
    """Makes an ImageError of what decoders raise in its block.

    `name` stands for the file; `otherwise` says what most errors mean, such as "damaged".
    """
    try:
        yield
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(
            f"{name}: too large for this machine's memory", "cut it into parts"
        ) from error
    except ImportError as error:
        told = shortage(error) or Sentence(error)
        raise ImageError(told.of(name)) from error
    except Exception as error:
        # Decoders meet damage in many ways, and say so with as many kinds of exception, some of
        # them with the damaged bytes.
        reason = " ".join(str(error).split())[:_REASON] or type(error).__name__
        raise ImageError(f"{name}: {otherwise}: {reason}") from error


DAMAGED = "damaged or cut off"
"""The meaning of most errors of decoders."""


def _nothing() -> None:
    """Does nothing, for decoders that need not be closed."""


class DecodedFile:
    """A Source of a file's pictures, which decodes one after the other when it is asked for."""

    def __init__(
        self,
        name: str,
        header: Header,
        pictures: Generator[Timed],
        close: Callable[[], None] = _nothing,
    ) -> None:
        """`name` stands for the file in messages; `pictures` decodes and may raise anything;
        `close` releases what it decodes from."""
        self.header = header
        self._name = name
        self._pictures = pictures
        self._close = close
        self._first: Timed | None = None
        self._decoded = 0

    def first(self) -> Timed:
        """Returns the first picture, which the iteration yields again. Raises ImageError."""
        if self._first is None:
            self._first = self._next()
        assert self._first is not None  # a file without pictures is not opened
        return self._first

    def __iter__(self) -> Iterator[Timed]:
        """Yields the pictures in order, once. Raises ImageError."""
        picture, self._first = self._first or self._next(), None
        while picture is not None:
            yield picture
            del picture  # before the next one is decoded
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


class Writer(ABC):
    """Writes the content of a file, picture by picture."""

    @abstractmethod
    def add(self, timed: Timed) -> None:
        """Writes the next picture. Raises OutputError, and OSError if the file is not writable."""

    def finish(self) -> None:  # noqa: B027 (most formats end with their last picture)
        """Writes what comes after the last picture. Raises as `add` does."""

    def abort(self) -> None:  # noqa: B027
        """Ends the work, instead of `finish`."""
