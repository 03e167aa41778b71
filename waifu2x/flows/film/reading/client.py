"""The client of the process that reads a film."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.errors import ImageError, Waifu2xError
from waifu2x.flows.film.frames.frame_device import Stages
from waifu2x.flows.film.reading import messages
from waifu2x.flows.film.reading.process import name_of, read_film
from waifu2x.flows.fleet.heartbeat import OFTEN, HeartbeatWatch, new_signs
from waifu2x.flows.fleet.processes import ChildProcess, EndedError
from waifu2x.flows.fleet.shared_memory import AttachedPool
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film.description import Film, FilmCrop, PixelFormat
from waifu2x.formats.film.reading.fields import Fields
from waifu2x.formats.film.reading.selection import Ending, Selection
from waifu2x.formats.film.reading.sizes import SizeFrom
from waifu2x.formats.film.writing.encode import CodedPicture, PictureTemplate
from waifu2x.formats.film.writing.film_writer import Parts
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.formats.film.writing.targets import StreamPlan

_LOG = logging.getLogger(__name__)
_STANDARD_INPUT = 0
SILENCE = 120.0
"""Seconds of silence after which the process counts as lost: it reads packets all the time."""


class DecodedFrame:
    """A decoded frame. Its planes exist until each holder has released it."""

    def __init__(
        self, reader: FilmReader, message: messages.SharedFrame, planes: Sequence[NDArray[Any]]
    ) -> None:
        self.planes = planes
        """(rows, columns) each."""
        self.pts = message.pts
        self.duration = message.duration
        self.is_wanted = message.is_wanted
        self.damaged = message.damaged
        """Packets so far that could not be decoded."""
        self.moved = message.moved
        self.changes = message.changes
        """Changes of pictures so far."""
        self._number = message.number
        self._reader = reader
        self._holders = 1

    def hold(self) -> None:
        with self._reader.lock:
            self._holders += 1

    def release(self) -> None:
        """Removes a holder; the last one ends the planes."""
        with self._reader.lock:
            self._holders -= 1
            if self._holders:
                return
        self.planes = ()
        self._reader.send(messages.ReleaseFrame(self._number))


class FilmReader:
    """Reads one film in a process that ends with this context manager."""

    def __init__(
        self,
        path: Path,
        pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin(),
        check: Callable[[], None] = lambda: None,
        start: Fraction = Fraction(0),
    ) -> None:
        """Opens `path`, which may name numbered frames or be STANDARD. `pin` is `Backend.pin` of
        the device; `check` is called each second while the film is opened, and may raise. The film
        is described by its first picture from `start` seconds on, except a pipe. Raises ImageError,
        and UnavailableError where PyAV is missing."""
        self.lock = threading.Lock()
        self.path = path
        self._name = name_of(path)
        signs = new_signs()
        self._watch = HeartbeatWatch(signs, SILENCE)
        self._child = ChildProcess(read_film, path, signs, start, name="waifu2x-film")
        self._has_message = messages.inbox(self._child.connection)
        self._attached = AttachedPool(self._child.connection, pin)
        self.ending = Ending()
        """Complete once all frames have been read."""
        self.stages = Stages()
        self._fields: Fields | None = None
        try:
            self._child.start()
            if path == STANDARD:
                messages.send_descriptor(self._child.connection, _STANDARD_INPUT, self._child.pid)
            described = self._receive(check)
        except BaseException as error:
            self.close()
            if isinstance(error, EndedError):
                raise ImageError(f"{self._name}: the process that reads it {error}") from error
            raise
        assert isinstance(described, messages.FilmDescribed)
        self.film: Film = described.film
        self._crop: FilmCrop | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def crop(self, crop: FilmCrop) -> None:
        """Reads only a part of the pictures from now on: `film` describes it. Raises ImageError for
        one that is outside, or begins within a sample of chroma."""
        pictures = self.film.pictures
        height, width, pixels = pictures.height, pictures.width, pictures.pixels
        if crop.left + crop.width > width or crop.top + crop.height > height:
            raise ImageError(
                f"{self._name}: it has {width}x{height} pixels: --crop {crop} is not within them"
            )
        if crop.left % pixels.columns or crop.top % pixels.rows:
            raise ImageError(
                f"{self._name}: it has chroma for {pixels.columns}x{pixels.rows} pixels",
                f"begin --crop {crop} at multiples of that",
            )
        self._crop = crop
        cut = replace(pictures, height=crop.height, width=crop.width)
        self.film = replace(self.film, pictures=cut)

    def frames(self, selection: Selection, ahead: int) -> Generator[DecodedFrame]:
        """Yields the selected frames, at most `ahead` of them unreleased. Raises
        ImageError."""
        pixels = self.film.pictures.pixels
        if selection.crop is None:
            selection = replace(selection, crop=self._crop)
        size = self.film.pictures.height, self.film.pictures.width
        shapes = pixels.shapes(*(size if selection.crop is None else selection.crop.size))
        self.send(messages.AskFrames(selection, ahead))
        finished = False
        try:
            while True:
                reply = self._receive()
                if isinstance(reply, messages.FramesEnded):
                    finished = True
                    self.ending = reply.ending
                    return
                assert isinstance(reply, messages.SharedFrame)
                self.stages.add("decoding", reply.busy)
                yield self._frame(reply, shapes, pixels)
        finally:
            if not finished:
                self._stop(shapes, pixels)

    def tried(self, plan: FilmPlan, template: PictureTemplate) -> StreamPlan:
        """Returns the streams without those that FFmpeg refuses. Raises OutputError, ImageError."""
        reply = self._done(messages.AskTrial(plan, template))
        assert reply.plan is not None
        return reply.plan

    def sizes(self) -> tuple[SizeFrom, ...]:
        """Returns the sizes of pictures in the order of the film, which can be sought in: those
        that a look at a few places finds. Raises ImageError."""
        self.send(messages.AskSizes())
        reply = self._receive()
        assert isinstance(reply, messages.SizesFound)
        return reply.sizes

    def fields(self) -> Fields:
        """Returns how the fields of the film look, which can be sought in. Raises ImageError."""
        if self._fields is None:
            self.send(messages.AskFields())
            reply = self._receive()
            assert isinstance(reply, messages.FieldsFound)
            self._fields = reply.fields
        return self._fields

    def join(self, target: Path, plan: FilmPlan, parts: Parts) -> tuple[str, ...]:
        """Joins finished parts to a film in an existing file; returns a phrase for each loss in a
        damaged source's streams. Raises OutputError, ImageError."""
        return self._done(messages.AskJoin(target, plan, parts)).lost

    def begin_live(self, target: Path | int, plan: FilmPlan, template: PictureTemplate) -> None:
        """Begins to write the film, into an existing file or a descriptor, while it is decoded:
        call `frames` then, and `add_picture` for each encoded picture. Raises OutputError,
        BrokenPipeError, ImageError, as the other methods then do."""
        path = target if isinstance(target, Path) else None
        self.send(messages.BeginLive(path, plan, template))
        if not isinstance(target, Path):
            messages.send_descriptor(self._child.connection, target, self._child.pid)
        self._receive()

    def add_picture(self, coded: CodedPicture) -> None:
        """Writes a picture into the film; `frames` raises its errors."""
        self.send(messages.AddPicture(coded))

    def finish_live(self) -> tuple[str, ...]:
        """Completes the film; returns a clause for each loss in copied streams."""
        return self._done(messages.FinishLive()).lost

    def send(self, request: messages.Request) -> None:
        """Sends a request. One to an ended process is ignored: the next answer shows its end."""
        self._child.send(request)

    def _done(self, request: messages.Request) -> messages.RequestDone:
        self.send(request)
        reply = self._receive()
        assert isinstance(reply, messages.RequestDone)
        return reply

    def close(self) -> None:
        """Ends the process, and with it the planes of all frames."""
        self._child.close()
        self._attached.close()

    def _stop(self, shapes: Sequence[tuple[int, int]], pixels: PixelFormat) -> None:
        """Ends the decoding and releases the frames on their way."""
        self.send(messages.StopFrames())
        # The process may be gone, and its errors are not why this ends.
        with suppress(Waifu2xError, OSError):
            while isinstance(reply := self._receive(), messages.SharedFrame):
                self._frame(reply, shapes, pixels).release()

    def _frame(
        self, reply: messages.SharedFrame, shapes: Sequence[tuple[int, int]], pixels: PixelFormat
    ) -> DecodedFrame:
        self._attached.drop(reply.dropped)
        try:
            (whole,) = self._attached.receive([reply.array])
        except (EOFError, ConnectionError) as error:
            raise self._lost(self._child.how_ended()) from error
        planes, begin = [], 0
        size = 1 if pixels.bits == 8 else 2
        for rows, columns in shapes:
            end = begin + rows * columns * size
            planes.append(whole[begin:end].view(pixels.dtype).reshape(rows, columns))
            begin = end
        return DecodedFrame(self, reply, planes)

    def _lost(self, why: object) -> ImageError:
        return ImageError(f"{self._name}: the process that reads it {why}: the film is damaged")

    def _receive(self, check: Callable[[], None] = lambda: None) -> messages.Reply:
        watch = self._watch
        watch.begin()
        try:
            while not self._has_message(OFTEN):
                check()
                if watch.is_lost():
                    self._child.kill()
                    raise ImageError(
                        f"{self._name}: its decoder has not answered for "
                        f"{watch.silent:.0f} seconds: the film is damaged"
                    )
            reply: messages.Reply = self._child.receive()
        except EndedError as error:
            raise self._lost(error) from error
        if isinstance(reply, messages.ReadingFailed):
            for line in reply.trace.splitlines():
                _LOG.debug(line)
            raise reply.error
        return reply
