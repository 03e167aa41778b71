"""Selects frames of a film, and compares the end of decoding with the length that it claims."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.formats.film.description import Film, FilmCrop, seconds_of
from waifu2x.formats.film.reading.fields import Deinterlacing, FieldOrder, ticks_in_one
from waifu2x.formats.film.reading.packets import Gap
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


@dataclass(frozen=True)
class Selection:
    """The frames that are wanted."""

    start: Fraction = Fraction(0)
    """Seconds from the film's beginning."""
    end: Fraction | None = None
    first: int | None = None
    """Time in ticks of the first wanted frame. Those before it come first, unwanted: they show
    whether seeking has found the right place."""
    until: int | None = None
    """Time in ticks of the first frame that is not wanted any more. It comes unwanted."""
    neighbours: int = 1
    """Unwanted frames that come before `first`, and from `until` on, as far as there are any."""
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
    """False for the frames before the first wanted one, and for those after the last."""
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


_FRAMED = ("matroska", "mov")
_ONE_EACH = ("h264", "hevc", "ffv1", "prores", "dnxhd", "mjpeg", "png", "vp9")
"""Codecs in which each packet is one picture; `_FRAMED` are such containers."""


def missing_frames(film: Film, stream: VideoStream, coded: int, frames: int) -> int:
    """Returns how many frames a fully decoded film lacks, as far as that is known. For AVI it is at
    most 1. `frames` is how many were decoded."""
    pictures = film.pictures
    if film.container == "avi" and pictures.codec != "mpeg4":
        # Its index has all frames. Its header's number counts those, too, that a recorder dropped:
        # empty chunks, where the frame before stays. An index of MPEG-4 counts some twice.
        return int(frames < len(stream.index_entries))
    if film.container in _FRAMED and pictures.codec in _ONE_EACH:
        return max(0, coded - frames)
    return 0


def ends_early(film: Film, stream: VideoStream, end: float) -> bool:
    """Returns whether a film claims to be longer than `end` seconds, where its last frame ends."""
    pictures = film.pictures
    if stream.duration is not None and stream.duration > 0:
        # Matroska's is where it ends, however late it begins.
        begin = 0 if film.container == "matroska" else stream.start_time or 0
        claimed = float((stream.duration + begin) * pictures.time_base)
        claimed -= film.shift / 1e6
        if film.container == "avi" and pictures.frames is not None:
            # FFmpeg goes by the size of the file if that is less than its header says.
            claimed = max(claimed, float(pictures.frames / pictures.rate))
    elif pictures.frames is not None:
        claimed = float(pictures.frames / pictures.rate)
    else:
        # The end of the longest stream counts for a container, so a bit less is no damage.
        claimed = seconds_of(dict(pictures.tags).get("DURATION", "")) or film.seconds or 0
    near = 3 / float(pictures.rate)
    # Other containers' claims are of their longest stream, or were copied from another file.
    return end < claimed - (near if film.container in ("avi", "mov") else max(1.0, near))
