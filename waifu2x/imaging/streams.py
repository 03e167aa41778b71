"""Pictures that pass one after the other, from a source to a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from numpy.typing import DTypeLike, NDArray

from waifu2x.imaging.picture import JpegCoding, Picture
from waifu2x.system.lazy_dataclass import dataclass

Item = TypeVar("Item", covariant=True)
Result = TypeVar("Result", contravariant=True)


Allocate = Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]
"""Makes an uninitialised, C-contiguous array of a shape and dtype, for a decoder to fill."""


class Extent(NamedTuple):
    """The size of a picture, and of its samples in memory."""

    height: int
    width: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """What a file says of its pictures before the first one is decoded."""

    extents: tuple[Extent, ...]
    """Upright: of each page of a document; a single one that all frames of an animation share."""
    count: int | None = 1
    """How many pictures there are; None where only the end of the file tells."""
    animated: bool = False
    """Whether the pictures follow each other in time. Then they share size, planes and dtype."""
    loop: int = 0
    """How many times an animation is shown; 0 is without end."""
    format: str = ""
    """The file's format, by its name in the table of formats."""
    notices: tuple[str, ...] = ()
    """What of the file cannot be had, each a clause without a full stop."""
    jpeg: JpegCoding | None = None
    """How it is coded, if it is a JPEG."""
    palette: bool = False
    """Whether its samples are places in a palette of colours."""

    def extent(self, index: int) -> Extent:
        """The extent of the picture at that index."""
        return self.extents[min(index, len(self.extents) - 1)]

    @property
    def all_extents(self) -> Sequence[Extent]:
        """One extent for each picture; for a file of unknown length, those that are known."""
        count = self.count or len(self.extents)
        return [self.extent(index) for index in range(count)]


@dataclass(frozen=True, eq=False)
class Timed:
    """One picture of a file, and how long it is shown."""

    picture: Picture
    duration: float | None = None
    """Milliseconds; None where nothing is animated."""
    notices: tuple[str, ...] = ()
    """What was found only when this picture was decoded, each a clause without a full stop."""
    index: int = 0
    """The picture's place in its source."""


class Source(Protocol[Item]):
    """Where items come from, one after the other: most often pictures of a file (Timed)."""

    @property
    def header(self) -> Header:
        """What is known before the first item."""

    def __iter__(self) -> Iterator[Item]:
        """The items in their order, each made when it is asked for. Can be done once.

        Raises ImageError for what cannot be read.
        """

    def close(self) -> None:
        """Lets go of the file, also before its end."""


class Sink(Protocol[Result]):
    """Where results go, in order. What it makes is there when it is closed, and never in part."""

    def open(self, header: Header) -> None:
        """Begins; called once, before the first `add`. `header` is that of the source.

        Raises OutputError.
        """

    def add(self, result: Result) -> None:
        """Takes the next result. Raises OutputError."""

    def close(self) -> None:
        """Completes the output, which then appears under its name. Raises OutputError."""

    def abort(self) -> None:
        """Leaves nothing behind; called instead of `close`, also where `open` was never called."""
