"""The process that reads one film: demuxers and decoders are large, and films come from strangers.

A crash, a hang or memory without bound there becomes one sentence in the parent. Replies are
pickled, so the process is no guard against a decoder that a film has taken over.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import FaultError, ImageError, Waifu2xError
from waifu2x.flows.film.reading import messages
from waifu2x.flows.fleet.heartbeat import OFTEN, Heartbeat
from waifu2x.flows.fleet.shared_memory import SharedPool
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film import is_animation
from waifu2x.formats.film.animations import AnimationFrames
from waifu2x.formats.film.description import Film, FilmCrop
from waifu2x.formats.film.frame_files import (
    FrameFiles,
    FrameSequence,
    frame_pattern,
)
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.pipes import PipeOutput, piped
from waifu2x.formats.film.pixels import cropped, planes_of
from waifu2x.formats.film.reading.fields import fields_of
from waifu2x.formats.film.reading.opening import opened
from waifu2x.formats.film.reading.reader import Reader
from waifu2x.formats.film.reading.selection import Decoded
from waifu2x.formats.film.reading.sizes import sizes_of
from waifu2x.formats.film.writing.film_writer import FilmJoin, FilmWriter
from waifu2x.formats.film.writing.header import cover_from_file, tried
from waifu2x.system.files import explained, open_regular, reason
from waifu2x.system.machine import available_memory

if TYPE_CHECKING:
    from av.container import InputContainer

_SLOWEST = 2e6
"""Bytes a second that any disk writes at least."""
_NO_MEMORY = (errno.ENOMEM, errno.ENOSPC, errno.EFBIG)
"""Errors of shared memory that is full."""
OPENING = 4 << 30
"""Bytes for the header, all fonts, and FFmpeg's probing by one thread, until the size of pictures
is known."""
_REFERENCES = 17
"""Pictures that a decoder may keep, and the one that it makes."""
_MOST_THREADS = 17
"""Threads that each decode a picture: FFmpeg starts no more, and dav1d fewer."""
_PICTURES_WAITING = 12
"""Pictures on their way out of a decoder and through filters."""
_BESIDE = 1.5
"""Bytes of decoders for each byte of pictures: motion vectors and edges."""
_STACK = 8 << 20
"""Bytes of a thread's stack. Decoders and filters have a thread for each core."""
_UNKNOWN_BITS = 64
"""Bits of a pixel of unknown format: the most that exist."""


def name_of(path: Path) -> str:
    """Returns the name of a film for messages."""
    return "standard input" if path == STANDARD else str(path)


def read_film(connection: Connection, path: Path, signs: Any, start: Fraction) -> None:
    """Runs the process: describes the film from `start` seconds on, and answers until the client is
    gone."""
    limit_memory(OPENING)
    try:
        answer(connection, path, signs, ExitStack(), start)
    finally:
        # Nothing is closed: freeing a decoder waits for its threads with Python's lock held, which
        # a thread with a message waits for: a deadlock.
        os._exit(0)


def answer(
    connection: Connection,
    path: Path,
    signs: Any,
    held: ExitStack,
    start: Fraction,
) -> None:
    """Answers until the client is gone; `held` gets what stays open."""
    try:
        ReadFilm(connection, path, Heartbeat(signs), held, start).run()
    except Exception as error:
        with suppress(OSError):  # the client may be gone
            connection.send(failure_of(error, name_of(path)))


class ReadFilm:
    """A film in the process that reads it."""

    def __init__(
        self,
        connection: Connection,
        path: Path,
        heartbeat: Heartbeat,
        held: ExitStack,
        start: Fraction,
    ) -> None:
        """Opens it; `held` gets what stays open. It is described from `start` seconds on."""
        self._connection = connection
        self._has_message = messages.inbox(connection)
        self._path = path
        self._held = held
        self._heartbeat = heartbeat
        self._alive = heartbeat.beat
        self._pool = SharedPool()
        self._lent: dict[int, NDArray[Any]] = {}
        """Arrays that the client still uses, by the numbers of their frames."""
        self._sent = 0
        self._complaints: list[int] = []
        """Faults found each time that the film was opened."""
        self._resumed = 0.0
        self._sounds: Sequence[int] = ()
        self._live: FilmWriter | None = None
        self._tick = Fraction(1)
        """Seconds of a tick of the film that is written."""
        self._pattern = frame_pattern(path)
        self._name = name_of(path)
        # Standard input is read only once, also for other streams.
        self._reader = self._new_reader(keeps_others=path == STANDARD)
        self._is_fresh = path == STANDARD or not start
        film = self._reader.film if self._is_fresh else self._reader.film_from(start)
        if path == STANDARD:  # a redirected file cannot be opened again
            film = replace(film, seekable=False)
        self._film: Film = film

    def run(self) -> None:
        """Answers until the connection ends."""
        self._say(messages.FilmDescribed(self._film))
        while True:
            request: messages.Request = self._connection.recv()
            if isinstance(request, messages.AskFrames):
                self._frames(request)
            elif isinstance(request, messages.AskTrial):
                container, cover_of = self._container, self._kept_cover
                if self._film.seekable:
                    container, _ = self._open()
                    cover_of = cover_from_file
                plan = tried(container, request.plan, request.template, cover_of)
                self._say(messages.RequestDone(plan))
            elif isinstance(request, messages.AskSizes):
                container, file = self._open()
                nbytes = file.seek(0, os.SEEK_END)
                sizes = sizes_of(container, self._film, self._name, nbytes, self._alive)
                self._say(messages.SizesFound(sizes))
            elif isinstance(request, messages.AskFields):
                container, _ = self._open()
                fields = fields_of(container, self._film, self._name, self._alive)
                self._say(messages.FieldsFound(fields))
            elif isinstance(request, messages.BeginLive):
                self._begin_live(request)
            elif isinstance(request, messages.FinishLive):
                assert self._live is not None
                self._close_slowly(self._live.size)
                found = self._reader.complaints, self._reader.late_streams()
                self._say(messages.RequestDone(lost=self._live.close(*found)))
            elif isinstance(request, messages.AskJoin):
                container, _ = self._open()
                told = self._complaints[-1], self._alive, self._close_slowly
                film = FilmJoin(request.target, container, request.plan, request.parts, *told)
                self._say(messages.RequestDone(lost=film.write()))
            else:
                self._heed(request)

    def _close_slowly(self, size: int) -> None:
        """Announces silence: FFmpeg moves a whole mp4 for its index, and a disk writes what was
        held back."""
        self._heartbeat.rest(size / _SLOWEST)

    def _heed(self, request: messages.Request) -> None:
        """Does what may be asked at any time."""
        if isinstance(request, messages.ReleaseFrame):
            self._lent.pop(request.number, None)
        elif isinstance(request, messages.AddPicture) and self._live is not None:
            self._live.add_picture(request.coded.packet(self._tick))

    def _open(self) -> tuple[Any, Any]:
        """Returns a newly opened container of the film, and its file."""
        file: Any
        if self._pattern is not None:
            file = FrameFiles(self._pattern)
        elif is_animation(self._path):
            file = AnimationFrames(self._path, self._alive)
        else:
            with explained(ImageError, f"{self._name}: cannot read"):
                if self._path == STANDARD:
                    file = piped(messages.receive_descriptor(self._connection), self._alive)
                else:
                    file = open_regular(self._path)
        self._held.enter_context(file)
        container = self._held.enter_context(
            opened(
                file,
                self._name,
                self._complaints.append,
                are_frames=isinstance(file, FrameSequence),
            )
        )
        return container, file

    def _new_reader(self, film: Film | None = None, *, keeps_others: bool = False) -> Reader:
        """Returns a reader that stands at the beginning; `film` is the description to read it by,
        if there is one."""
        self._container, file = self._open()
        limit_memory(needed_memory(self._container))
        reader = Reader(
            self._container,
            file,
            self._name,
            self._alive,
            self._complaints[-1],
            keeps_others=keeps_others,
        )
        reader.film = film or reader.film
        return reader

    def _begin_live(self, request: messages.BeginLive) -> None:
        cover_of = self._kept_cover
        if self._film.seekable:
            self._reader = self._new_reader(self._film, keeps_others=True)
            self._is_fresh = True
        target: Path | PipeOutput | None = request.target
        if target is None:
            target = PipeOutput(messages.receive_descriptor(self._connection), self._alive)
            self._held.enter_context(target)
        kept = {one.index for one in request.plan.streams.taken}
        self._sounds = [
            one.index for one in self._film.others if one.kind == "audio" and one.index in kept
        ]
        self._tick = request.plan.shape.tick
        self._live = FilmWriter(target, self._container, request.plan, request.template, cover_of)
        self._say(messages.RequestDone())

    def _kept_cover(self, stream: Any) -> bytes:
        """Returns a cover, from what was read with the first picture."""
        packets = self._reader.others
        return next((bytes(one) for one in packets if one.stream_index == stream.index), b"")

    def _frames(self, request: messages.AskFrames) -> None:
        if not self._is_fresh:
            self._reader = self._new_reader(self._film)
        self._is_fresh = False
        self._resumed = time.monotonic()
        for decoded in self._reader.frames(request.selection):
            busy = time.monotonic() - self._resumed
            self._pass_others()
            while len(self._lent) >= request.ahead or self._has_message(0):
                while not self._has_message(OFTEN):
                    self._alive()
                answer: messages.Request = self._connection.recv()
                if isinstance(answer, messages.StopFrames):
                    self._say(messages.FramesEnded(self._reader.ending))
                    return
                self._heed(answer)
            self._resumed = time.monotonic()
            self._lend(decoded, busy, request.selection.crop)
        end = request.selection.end
        if self._live is not None and end is not None:
            self._reader.read_on(end, self._sounds)
        self._pass_others()
        self._say(messages.FramesEnded(self._reader.ending))

    def _pass_others(self) -> None:
        packets = self._reader.others
        while packets:
            packet = packets.popleft()
            if self._live is not None:
                self._live.copy(packet)

    def _lend(self, decoded: Decoded, busy: float, crop: FilmCrop | None) -> None:
        """Sends a frame in shared memory, or the part of it that is wanted."""
        pictures = self._film.pictures
        told = pictures.pixels, pictures.crop, pictures.colours.siting
        planes = planes_of(decoded.frame, *told)
        if crop is not None:
            planes = cropped(planes, pictures.pixels, crop)
        whole = self._pool.array((sum(plane.nbytes for plane in planes),), np.uint8)
        begin = 0
        for plane in planes:
            place = whole[begin : begin + plane.nbytes].view(plane.dtype)
            place.reshape(plane.shape)[...] = plane
            begin += plane.nbytes
        number = self._sent
        self._sent += 1
        self._lent[number] = whole

        def message(told: Sequence[Any], dropped: Sequence[int]) -> messages.SharedFrame:
            return messages.SharedFrame(
                number, told[0], dropped, decoded.pts, decoded.duration, decoded.is_wanted,
                decoded.damaged, decoded.moved, decoded.changes, busy,
            )  # fmt: skip

        self._pool.send(self._connection, [whole], message)

    def _say(self, reply: messages.Reply) -> None:
        self._connection.send(reply)


def failure_of(error: Exception, name: str) -> messages.ReadingFailed:
    """Returns the reply for an error; `name` stands for the film. Faults of the film become
    sentences about it. Any other is a fault of this program and must not look like one of the film,
    or it would never be found."""
    if isinstance(error, (Waifu2xError, BrokenPipeError)):
        return messages.ReadingFailed(error)
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        return messages.ReadingFailed(
            ImageError(f"{name}: its pictures take more memory than there is for them")
        )
    if isinstance(error, library().FFmpegError):
        return messages.ReadingFailed(ImageError(f"{name}: cannot be read: {in_short(error)}"))
    if isinstance(error, OSError):
        return messages.ReadingFailed(ImageError(f"{name}: cannot be read: {reason(error)}"))
    kind = type(error).__name__
    return messages.ReadingFailed(
        FaultError(f"{name}: cannot be read: {kind}: {error}"),
        "".join(traceback.format_exception(error)),
    )


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _NO_MEMORY


def limit_memory(size: int) -> None:
    """Limits the memory of this process to `size` bytes and to three quarters of what the machine
    has left. Only on Linux. So a decoder fails, and not another program."""
    if sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    left = available_memory()
    limits = [size, *([] if left is None else [left * 3 // 4])]
    limits += [] if most == resource.RLIM_INFINITY else [most]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), most))


def needed_memory(container: InputContainer, cores: int | None = None) -> int:
    """Returns the bytes that reading a film may take on `cores` cores; None: all of this machine. A
    damaged header must not take the machine's memory; nor must a film of large pictures fail where
    many cores each decode one."""
    cores = cores or os.cpu_count() or 1
    largest = 0
    for stream in container.streams.video:
        context = stream.codec_context
        if context is None:  # its codec is unknown to FFmpeg
            continue
        bits = _UNKNOWN_BITS if context.format is None else context.format.padded_bits_per_pixel
        largest = max(largest, context.width * context.height * bits // 8)
    pictures = _REFERENCES + _PICTURES_WAITING + min(cores + 1, _MOST_THREADS)
    return OPENING + int(largest * pictures * _BESIDE) + 2 * cores * _STACK
