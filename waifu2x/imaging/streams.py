"""Streams of pictures, from a source to a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
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
    """A file's description of its pictures, known before the first one is decoded."""

    extents: tuple[Extent, ...]
    """Upright sizes: of each page of a document, or a single one for all frames of an animation."""
    count: int | None = 1
    """The number of pictures; None if only the end of the file tells."""
    animated: bool = False
    """Whether the pictures follow each other in time. Then they share size, planes and dtype."""
    loop: int = 0
    """How many times an animation is shown; 0 is without end."""
    format: str = ""
    """The file's format, by its name in the table of formats."""
    notices: tuple[str, ...] = ()
    """Clauses, without a full stop, on data of the file that cannot be read."""
    jpeg: JpegCoding | None = None
    """The coding, of a JPEG."""
    palette: bool = False
    """Whether its samples are indices of a palette."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """The numbers of parts that are not read, by their kinds in the table of formats."""

    def extent(self, index: int) -> Extent:
        """Returns the extent of the picture at that index."""
        return self.extents[min(index, len(self.extents) - 1)]

    @property
    def all_extents(self) -> Sequence[Extent]:
        """Returns an extent for each picture; for a file of unknown length, the known ones."""
        count = self.count or len(self.extents)
        return [self.extent(index) for index in range(count)]


@dataclass(frozen=True, eq=False)
class Timed:
    """One picture of a file, and how long it is shown."""

    picture: Picture
    duration: float | None = None
    """Milliseconds; None in a file that is not animated."""
    notices: tuple[str, ...] = ()
    """Clauses, without a full stop, on what was found when this picture was decoded."""
    index: int = 0
    """The picture's place in its source."""


class Source(Protocol[Item]):
    """Yields items in order: most often pictures of a file (Timed)."""

    @property
    def header(self) -> Header:
        """Returns the header, which is known before the first item."""

    def __iter__(self) -> Iterator[Item]:
        """Yields the items in order, each made when it is asked for. Only once. Raises ImageError
        for what cannot be read."""

    def close(self) -> None:
        """Releases the file, also before its end."""


class Sink(Protocol[Result]):
    """Takes results in order. Its output exists once it is closed, and never in part."""

    def open(self, header: Header) -> None:
        """Begins the output of a source with this header, before the first `add`. Raises
        OutputError."""

    def add(self, result: Result) -> None:
        """Takes the next result. Raises OutputError."""

    def close(self) -> None:
        """Completes the output, which then appears under its name. Raises OutputError."""

    def abort(self) -> None:
        """Leaves nothing behind; called instead of `close`, also without `open`."""
