"""Selects frames of a film, and describes each frame and the end of decoding."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.formats.film.description import Film, FilmCrop
from waifu2x.formats.film.reading.deinterlacing import Deinterlacing, FieldOrder, ticks_in_one
from waifu2x.formats.film.reading.packets import Gap
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.video.frame import VideoFrame


@dataclass(frozen=True)
class Selection:
    """The frames that are wanted."""

    start: Fraction = Fraction(0)
    """Seconds from the film's beginning."""
    end: Fraction | None = None
    first: int | None = None
    """Time in ticks of the first wanted frame. The frame before comes first, unwanted: it shows
    whether seeking has found the right place."""
    until: int | None = None
    """Time in ticks of the first frame that is not wanted any more. It comes last, unwanted."""
    is_sought: bool = True
    """Whether `first` is reached by seeking, instead of by decoding all before it."""
    deinterlacing: Deinterlacing = "off"
    order: FieldOrder | None = None
    """Order of the fields in a film that does not say it."""
    crop: FilmCrop | None = None
    """The part of each frame that is wanted."""


class Change(NamedTuple):
    """Pictures that are unlike those before them, from a frame on."""

    pts: int
    """In ticks of `tick_of`."""
    to: str
    """Their size, and their samples where they are not the film's, in words; empty for pictures
    like those that the film is described by."""


MAX_CHANGES = 20
"""Changes that are noted of a film."""


class Decoded(NamedTuple):
    """A frame whose time is later than that of the frame before it."""

    frame: VideoFrame
    pts: int
    """In ticks of `tick_of`."""
    duration: int
    """In ticks; 0 where the film does not say."""
    is_wanted: bool = True
    """False for the frame before the first wanted one, and for the one after the last."""
    damaged: int = 0
    moved: int = 0
    changes: tuple[Change, ...] = ()
    """The first changes of the selection so far, up to this frame."""


class Ending(NamedTuple):
    """Facts that only decoding shows."""

    frames: int = 0
    damaged: int = 0
    """Packets and frames that were not decoded completely, and damaged places of the container."""
    moved: int = 0
    """Frames whose time was impossible or not after that of the frame before."""
    seconds: Fraction = Fraction(0)
    """Where the last frame ends."""
    is_short: bool = False
    """Whether it ends before the film says it does."""
    gaps: tuple[Gap, ...] = ()
    """The first stretches without frames, of a damaged film: in others they are intended."""
    changes: tuple[Change, ...] = ()
    """The first changes of pictures, which were all given the size of the film."""


def tick_of(film: Film, deinterlacing: Deinterlacing) -> Fraction:
    """Returns the seconds of a tick of decoded frames."""
    return film.pictures.time_base / ticks_in_one(deinterlacing)


def ticks(seconds: Fraction, tick: Fraction) -> int:
    """Returns the first tick that is not before a time."""
    return -(-seconds // tick)
