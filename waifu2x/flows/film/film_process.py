"""The process that reads one film: demuxers and decoders are large, and films come from strangers.

Whatever they do there, here it is a sentence. The process that asks trusts nothing but the planes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError, Waifu2xError
from waifu2x.flows.batch.shared_memory import SharedPool
from waifu2x.flows.film.messages import (
    AskFrames,
    AskJoin,
    AskTrial,
    FilmDescribed,
    FramesEnded,
    ReadingFailed,
    ReleaseFrame,
    Reply,
    Request,
    RequestDone,
    SharedFrame,
    StillReading,
    StopFrames,
)
from waifu2x.formats.film.library import library
from waifu2x.formats.film.muxing import join, tried
from waifu2x.formats.film.opening import in_short, opened
from waifu2x.formats.film.pixels import planes_of
from waifu2x.formats.film.reader import Decoded, Reader
from waifu2x.system.files import open_regular, reason

MAX_MEMORY = 8 << 30
"""Bytes that reading a film may take: decoders keep some twenty pictures for reference."""
_OFTEN = 1.0
"""Seconds after which the process says that it goes on."""


def read_film(connection: Connection, path: Path) -> None:
    """The process: describes the film, and does what it is asked until nobody asks any more."""
    _limit_memory()
    with suppress(OSError, EOFError):  # whoever asked is gone
        try:
            with ExitStack() as held:
                _OpenFilm(connection, path, held).run()
        except Waifu2xError as error:
            connection.send(ReadingFailed(error))
        except MemoryError:
            connection.send(
                ReadingFailed(
                    ImageError(f"{path}: its pictures take more memory than there is for them")
                )
            )
        except Exception as error:
            # FFmpeg's errors are of many kinds, files' errors among them.
            if isinstance(error, (OSError, EOFError)) and not isinstance(
                error, library().FFmpegError
            ):
                raise
            connection.send(ReadingFailed(ImageError(f"{path}: cannot be read: {in_short(error)}")))


class _OpenFilm:
    """A film in the process that reads it."""

    def __init__(self, connection: Connection, path: Path, held: ExitStack) -> None:
        self._connection = connection
        self._path = path
        self._held = held
        self._said = time.monotonic()
        self._pool = SharedPool()
        self._lent: dict[int, NDArray[Any]] = {}
        """Arrays that the other process still uses, by the numbers of their frames."""
        self._sent = 0
        self._complaints: list[int] = []
        """How much was wrong each time that the film was opened."""
        self._resumed = 0.0
        """When the decoder last went on."""
        self._reader = self._new_reader()
        self._is_fresh = True
        """Whether the reader is still at the beginning."""
        self._film = self._reader.film

    def run(self) -> None:
        """Answers until there are no more questions."""
        self._say(FilmDescribed(self._film))
        while True:
            request: Request = self._connection.recv()
            if isinstance(request, AskFrames):
                self._frames(request)
            elif isinstance(request, AskTrial):
                container, _ = self._open()
                plan = tried(container, self._film, request.shape, request.plan)
                self._say(RequestDone(plan))
            elif isinstance(request, AskJoin):
                container, _ = self._open()
                lost = join(
                    request.target,
                    container,
                    self._film,
                    request.shape,
                    request.plan,
                    request.parts,
                    request.cut,
                    self._alive,
                    self._complaints[-1],
                )
                self._say(RequestDone(lost=lost))
            elif isinstance(request, ReleaseFrame):
                self._lent.pop(request.number, None)

    def _open(self) -> tuple[Any, Any]:
        try:
            file = self._held.enter_context(open_regular(self._path))
        except OSError as error:
            raise ImageError(f"{self._path}: cannot read: {reason(error)}") from error
        container = self._held.enter_context(opened(file, str(self._path), self._complaints.append))
        return container, file

    def _new_reader(self) -> Reader:
        container, file = self._open()
        return Reader(container, file, str(self._path), self._alive, self._complaints[-1])

    def _frames(self, request: AskFrames) -> None:
        if not self._is_fresh:
            self._reader = self._new_reader()
        self._is_fresh = False
        self._resumed = time.monotonic()
        for decoded in self._reader.frames(request.selection):
            busy = time.monotonic() - self._resumed
            while len(self._lent) >= request.ahead or self._connection.poll():
                answer: Request = self._connection.recv()
                if isinstance(answer, StopFrames):
                    self._say(FramesEnded(self._reader.ending))
                    return
                if isinstance(answer, ReleaseFrame):
                    self._lent.pop(answer.number, None)
            self._resumed = time.monotonic()
            self._lend(decoded, busy)
        self._say(FramesEnded(self._reader.ending))

    def _lend(self, decoded: Decoded, busy: float) -> None:
        """Sends a frame, in memory that both processes see."""
        planes = planes_of(decoded.frame, self._film.pictures.pixels)
        whole = self._pool.array((sum(plane.nbytes for plane in planes),), np.uint8)
        begin = 0
        for plane in planes:
            place = whole[begin : begin + plane.nbytes].view(plane.dtype)
            place.reshape(plane.shape)[...] = plane
            begin += plane.nbytes
        number = self._sent
        self._sent += 1
        self._lent[number] = whole

        def message(told: Sequence[Any], dropped: Sequence[int]) -> SharedFrame:
            return SharedFrame(
                number, told[0], dropped, decoded.pts, decoded.duration, decoded.is_wanted,
                decoded.damaged, decoded.moved, busy,
            )  # fmt: skip

        self._pool.send(self._connection, [whole], message)
        self._said = time.monotonic()

    def _say(self, reply: Reply) -> None:
        self._connection.send(reply)
        self._said = time.monotonic()

    def _alive(self) -> None:
        if time.monotonic() - self._said > _OFTEN:
            self._say(StillReading())


def _limit_memory() -> None:
    """What a damaged header claims must not take the machine's memory."""
    if sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MAX_MEMORY if most == resource.RLIM_INFINITY else min(MAX_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
