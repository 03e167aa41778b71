"""The process that reads one film: demuxers and decoders are large, and films come from strangers.

Whatever they do there, here it is a sentence. The process that asks trusts nothing but the planes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError, Waifu2xError
from waifu2x.flows.batch.shared_memory import SharedPool
from waifu2x.flows.film.descriptors import receive_descriptor
from waifu2x.flows.film.inbox import inbox
from waifu2x.flows.film.messages import (
    AddPicture,
    AskFrames,
    AskJoin,
    AskTrial,
    BeginLive,
    FilmDescribed,
    FinishLive,
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
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film.frame_files import FrameFiles, frame_pattern, read_times
from waifu2x.formats.film.library import library
from waifu2x.formats.film.live_muxing import LiveMuxer
from waifu2x.formats.film.muxing import cover_from_file, join, tried
from waifu2x.formats.film.opening import in_short, opened
from waifu2x.formats.film.pipe_input import piped
from waifu2x.formats.film.pipe_output import PipeOutput
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
    with ExitStack() as held:
        try:
            _OpenFilm(connection, path, held).run()
        except (Waifu2xError, BrokenPipeError) as error:
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
                raise  # whoever asked is gone
            connection.send(ReadingFailed(ImageError(f"{path}: cannot be read: {in_short(error)}")))
        finally:
            # To free a decoder waits for its threads with Python's lock held, which these want
            # where they have something to say: neither would ever end.
            os._exit(0)


class _OpenFilm:
    """A film in the process that reads it."""

    def __init__(self, connection: Connection, path: Path, held: ExitStack) -> None:
        self._connection = connection
        self._has_message = inbox(connection)
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
        self._live: LiveMuxer | None = None
        """The film that is written beside the decoding."""
        self._pattern = frame_pattern(path)
        self._name = "standard input" if path == STANDARD else str(path)
        # What can be read only once is read for both.
        self._reader = self._new_reader(keeps_others=path == STANDARD)
        self._is_fresh = True
        """Whether the reader is still at the beginning."""
        self._film = self._reader.film
        if path == STANDARD:  # a file that was redirected cannot be opened again
            self._film = replace(self._film, seekable=False)

    def run(self) -> None:
        """Answers until there are no more questions."""
        self._say(FilmDescribed(self._film))
        while True:
            request: Request = self._connection.recv()
            if isinstance(request, AskFrames):
                self._frames(request)
            elif isinstance(request, AskTrial):
                container, cover_of = self._container, self._kept_cover
                if self._film.seekable:
                    container, _ = self._open()
                    cover_of = cover_from_file
                plan = tried(container, self._film, request.shape, request.plan, cover_of)
                self._say(RequestDone(plan))
            elif isinstance(request, BeginLive):
                self._begin_live(request)
            elif isinstance(request, FinishLive):
                assert self._live is not None
                self._say(RequestDone(lost=self._live.close(self._reader.complaints)))
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
            else:
                self._heed(request)

    def _heed(self, request: Request) -> None:
        """Does what is asked for at any time."""
        if isinstance(request, ReleaseFrame):
            self._lent.pop(request.number, None)
        elif isinstance(request, AddPicture) and self._live is not None:
            self._live.picture(request.coded)

    def _open(self) -> tuple[Any, Any]:
        """The film's container, newly opened, and its file."""
        file: Any
        if self._pattern is not None:
            file = FrameFiles(self._pattern)
        else:
            try:
                if self._path == STANDARD:
                    file = piped(receive_descriptor(self._connection), self._alive)
                else:
                    file = open_regular(self._path)
            except OSError as error:
                raise ImageError(f"{self._name}: cannot read: {reason(error)}") from error
        self._held.enter_context(file)
        container = self._held.enter_context(
            opened(file, self._name, self._complaints.append, are_frames=self._pattern is not None)
        )
        return container, file

    def _new_reader(self, *, keeps_others: bool = False) -> Reader:
        self._container, file = self._open()
        times = None if self._pattern is None else read_times(self._pattern, file.count)
        return Reader(
            self._container,
            file,
            self._name,
            self._alive,
            self._complaints[-1],
            keeps_others=keeps_others,
            times=times,
        )

    def _begin_live(self, request: BeginLive) -> None:
        cover_of = self._kept_cover
        if self._film.seekable:
            self._reader = self._new_reader(keeps_others=True)
            self._is_fresh = True
        target: Path | PipeOutput | None = request.target
        if target is None:
            target = PipeOutput(receive_descriptor(self._connection), self._alive)
            self._held.enter_context(target)
        self._live = LiveMuxer(
            target,
            str(request.target or "standard output"),
            self._container,
            self._film,
            request.shape,
            request.plan,
            request.extradata,
            request.cut,
            cover_of,
        )
        self._say(RequestDone())

    def _kept_cover(self, stream: Any) -> bytes:
        """A cover, from what was read with the first picture."""
        packets = self._reader.others
        return next((bytes(one) for one in packets if one.stream_index == stream.index), b"")

    def _frames(self, request: AskFrames) -> None:
        if not self._is_fresh:
            self._reader = self._new_reader()
        self._is_fresh = False
        self._resumed = time.monotonic()
        for decoded in self._reader.frames(request.selection):
            busy = time.monotonic() - self._resumed
            self._pass_others()
            while len(self._lent) >= request.ahead or self._has_message(0):
                while not self._has_message(_OFTEN):
                    self._alive()
                answer: Request = self._connection.recv()
                if isinstance(answer, StopFrames):
                    self._say(FramesEnded(self._reader.ending))
                    return
                self._heed(answer)
            self._resumed = time.monotonic()
            self._lend(decoded, busy)
        end = request.selection.end
        if self._live is not None and end is not None:
            self._reader.read_on(end)
        self._pass_others()
        self._say(FramesEnded(self._reader.ending))

    def _pass_others(self) -> None:
        """Copies what has been read of other streams."""
        packets = self._reader.others
        while packets:
            packet = packets.popleft()
            if self._live is not None:
                self._live.copy(packet)

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
