"""What a process that reads a film, and the one that asks it to, tell each other.

Requests may be large, pictures among them, and who sends one waits until it is read. So the process
says nothing that it was not asked for: what has not been received yet are at most the frames that
may be ahead, whose messages are small, and one answer. It never waits to say something while the
other waits for it to listen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from waifu2x.flows.batch.shared_memory import SharedArray
from waifu2x.formats.film.description import Cut, Film
from waifu2x.formats.film.reading.selection import Ending, Selection
from waifu2x.formats.film.writing.encode import Encoded, Shape
from waifu2x.formats.film.writing.header import PictureTemplate
from waifu2x.formats.film.writing.live_writing import CodedPicture
from waifu2x.formats.film.writing.targets import StreamPlan


class AskFrames(NamedTuple):
    """Decode these, at most so many ahead."""

    selection: Selection
    ahead: int


class AskTrial(NamedTuple):
    """Try whether a container takes all that."""

    shape: Shape
    plan: StreamPlan
    template: PictureTemplate


class AskJoin(NamedTuple):
    """Write the film into that file."""

    target: Path
    shape: Shape
    plan: StreamPlan
    parts: Sequence[tuple[Path, Encoded]]
    cut: Cut


class BeginLive(NamedTuple):
    """Begin to write the film beside its decoding: pictures come as they are encoded."""

    target: Path | None
    """None: a descriptor follows."""
    shape: Shape
    plan: StreamPlan
    template: PictureTemplate
    cut: Cut


class AddPicture(NamedTuple):
    """Write this one into the film that was begun."""

    coded: CodedPicture


class FinishLive(NamedTuple):
    """There are no more pictures."""


class ReleaseFrame(NamedTuple):
    """The memory of a frame may be used again."""

    number: int


class StopFrames(NamedTuple):
    """No more frames are wanted."""


Request = (
    AskFrames | AskTrial | AskJoin | BeginLive | AddPicture | FinishLive | ReleaseFrame | StopFrames
)


class FilmDescribed(NamedTuple):
    """What the film holds: the first thing that the process says."""

    film: Film


class SharedFrame(NamedTuple):
    """A frame: all its planes, one behind the other in an array of bytes."""

    number: int
    array: SharedArray
    dropped: Sequence[int]
    pts: int
    duration: int
    is_wanted: bool
    damaged: int
    moved: int
    busy: float
    """Seconds of decoding since the frame before: those in which it did not wait for memory."""


class FramesEnded(NamedTuple):
    """There are no more frames."""

    ending: Ending


class RequestDone(NamedTuple):
    """What was asked for is done."""

    plan: StreamPlan | None = None
    lost: tuple[str, ...] = ()


class ReadingFailed(NamedTuple):
    """It cannot go on."""

    error: Exception
    trace: str = ""
    """Where it went wrong, if that is a fault of this program."""


Reply = FilmDescribed | SharedFrame | FramesEnded | RequestDone | ReadingFailed
