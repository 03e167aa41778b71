"""How the process that reads a film and the one that asks it talk: messages.

Requests may be large, pictures among them, and the sender of one waits until it is read. So the
reading process sends only replies: unread data is bounded by the frames that may be ahead, whose
messages are small, plus one reply, and neither side can block on a full pipe while the other does.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import NamedTuple

from waifu2x.flows.fleet.shared_memory import SharedArray
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.fields import Fields
from waifu2x.formats.film.reading.selection import Change, Ending, Selection
from waifu2x.formats.film.reading.sizes import SizeFrom
from waifu2x.formats.film.writing.encode import CodedPicture, PictureTemplate
from waifu2x.formats.film.writing.film_writer import Parts
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.formats.film.writing.targets import StreamPlan


class AskFrames(NamedTuple):
    """Decode these frames, at most `ahead` of them unreleased."""

    selection: Selection
    ahead: int


class AskTrial(NamedTuple):
    """Test which streams a container takes."""

    plan: FilmPlan
    template: PictureTemplate


class AskSizes(NamedTuple):
    """Look for changes of size within the film."""


class AskFields(NamedTuple):
    """Look for fields and pulldown in the film."""


class AskJoin(NamedTuple):
    target: Path
    plan: FilmPlan
    parts: Parts


class BeginLive(NamedTuple):
    """Write the film while it is decoded: pictures come as they are encoded."""

    target: Path | None
    """None: a descriptor follows."""
    plan: FilmPlan
    template: PictureTemplate


class AddPicture(NamedTuple):
    """Write a picture into the film that was begun."""

    coded: CodedPicture


class FinishLive(NamedTuple):
    """There are no more pictures."""


class ReleaseFrame(NamedTuple):
    """The memory of a frame may be used again."""

    number: int


class StopFrames(NamedTuple):
    """No more frames are wanted."""


Request = (
    AskFrames
    | AskTrial
    | AskSizes
    | AskFields
    | AskJoin
    | BeginLive
    | AddPicture
    | FinishLive
    | ReleaseFrame
    | StopFrames
)


class FilmDescribed(NamedTuple):
    """The description of the film: the first reply."""

    film: Film


class SharedFrame(NamedTuple):
    """A frame: its planes, one after the other in an array of bytes."""

    number: int
    array: SharedArray
    dropped: Sequence[int]
    pts: int
    duration: int
    is_wanted: bool
    damaged: int
    moved: int
    changes: tuple[Change, ...]
    busy: float
    """Seconds of decoding since the frame before, without waiting for memory."""


class FramesEnded(NamedTuple):
    ending: Ending


class RequestDone(NamedTuple):
    plan: StreamPlan | None = None
    lost: tuple[str, ...] = ()


class SizesFound(NamedTuple):
    sizes: tuple[SizeFrom, ...]


class FieldsFound(NamedTuple):
    fields: Fields


class ReadingFailed(NamedTuple):
    error: Exception
    trace: str = ""
    """The traceback of a fault of this program."""


Reply = (
    FilmDescribed
    | SharedFrame
    | FramesEnded
    | RequestDone
    | SizesFound
    | FieldsFound
    | ReadingFailed
)


def send_descriptor(connection: Connection, descriptor: int, process: int) -> None:
    """Sends an open file to the process with that id. Raises OSError."""
    if sys.platform == "win32":
        import msvcrt

        descriptor = msvcrt.get_osfhandle(descriptor)
    send_handle(connection, descriptor, process)


def receive_descriptor(connection: Connection) -> int:
    """Returns an open file that was sent; the caller closes it. Raises OSError."""
    received = recv_handle(connection)
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.open_osfhandle(received, 0)
    return received


def inbox(connection: Connection) -> Callable[[float], bool]:
    """Returns a function that waits for a message or the end of the connection, `seconds` at most,
    and returns whether there is one. It raises OSError once the connection is closed.
    `Connection.poll` sets up a selector for each wait."""
    if not hasattr(select, "poll"):
        return connection.poll
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)

    def poll(seconds: float) -> bool:
        connection.fileno()  # raises once closed: the number may be reused
        return bool(waiting.poll(seconds * 1000))

    return poll
