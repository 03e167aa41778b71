"""Which frames of a film are wanted, and what is said of each and of all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.deinterlacing import Deinterlacing, ticks_in_one
from waifu2x.formats.film.reading.packets import Gap
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.video.frame import VideoFrame


@dataclass(frozen=True)
class Selection:
    """Which frames are wanted, and how."""

    start: Fraction = Fraction(0)
    """Seconds from the film's beginning."""
    end: Fraction | None = None
    first: int | None = None
    """The time in ticks from which on frames are wanted. The one before, if there is one, comes
    first, unwanted: it tells whether a search has found the right place."""
    until: int | None = None
    """The time in ticks from which on they are not wanted any more. The first of those comes last,
    unwanted: it tells what follows."""
    is_sought: bool = True
    """Whether `first` is sought in the film, or come to by decoding all that is before it."""
    deinterlacing: Deinterlacing = "off"


class Decoded(NamedTuple):
    """A frame, with a time of its own that is later than that of the frame before it."""

    frame: VideoFrame
    pts: int
    """In ticks of `tick_of`, from the film's beginning where its times mean nothing."""
    duration: int
    """In ticks; 0 where the film does not say."""
    is_wanted: bool = True
    """False of the frame before the first one wanted, and of the one after the last."""
    damaged: int = 0
    """Packets that could not be decoded up to now."""
    moved: int = 0
    """Frames up to this one whose time was moved."""


class Ending(NamedTuple):
    """What was found only while a film was decoded."""

    frames: int = 0
    damaged: int = 0
    """Packets and frames that could not be decoded as they were meant, and places at which the
    container is damaged."""
    moved: int = 0
    """Frames whose time was not after that of the frame before, or no film's, and was moved."""
    seconds: Fraction = Fraction(0)
    """Where the last frame ends."""
    is_short: bool = False
    """Whether it ends before the film says it does."""
    gaps: tuple[Gap, ...] = ()
    """The first stretches without frames, of a film that is damaged: else they are meant so."""


def tick_of(film: Film, deinterlacing: Deinterlacing) -> Fraction:
    """Seconds of a tick of decoded frames."""
    return film.pictures.time_base / ticks_in_one(deinterlacing)


def ticks(seconds: Fraction, tick: Fraction) -> int:
    """The first tick that is not before a time."""
    return -(-seconds // tick)
