"""Animations into files whose encoders Pillow has, frame by frame."""

from __future__ import annotations

import io
import queue
import threading
from typing import IO, Any

from PIL import Image

from waifu2x.formats.gif_write import GifWriter
from waifu2x.formats.pillow_write import MOST_LOOPS, image_of, in_words, plug_in, save_options
from waifu2x.formats.table import Format, Quality
from waifu2x.formats.writer import Writer
from waifu2x.imaging.streams import Header, Timed


def writer(header: Header, form: Format, quality: Quality, name: str, file: IO[bytes]) -> Writer:
    """What writes an animation in a format; `name` stands for the file in messages."""
    if form.name == "GIF":
        return GifWriter(header, form, quality, name, file)
    return CodedAnimation(header, form, quality, name, file)


class CodedAnimation(Writer):
    """An animation whose coded frames Pillow's encoder keeps in memory until the last one is there.

    Pillow asks for one frame after the other. So it works in a thread of its own, which waits for
    each frame until there is one.
    """

    def __init__(
        self, header: Header, form: Format, quality: Quality, name: str, file: IO[bytes]
    ) -> None:
        """`name` stands for the file in messages. Raises OutputError for a missing plugin."""
        plug_in(form, name)
        self._header = header
        self._form = form
        self._quality = quality
        self._name = name
        self._file = file
        self._content = io.BytesIO()
        self._durations: list[int] = []
        self._frames: queue.Queue[Image.Image | None] = queue.Queue(1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def add(self, timed: Timed) -> None:
        """Hands the next frame to the encoder. Raises OutputError."""
        self._check()
        image = image_of(timed.picture, self._form)
        self._durations.append(round(timed.duration or 0))
        if self._thread is not None:
            self._frames.put(image)
            return
        options = save_options(timed.picture, self._form, self._quality)
        loop = min(self._header.loop, MOST_LOOPS)
        options |= {"save_all": True, "duration": self._durations, "loop": loop}
        assert self._header.count is not None  # all that read animations know
        further = _Further(self._frames, self._header.count - 1)
        self._thread = threading.Thread(
            target=self._encode, args=(image, further, options), name="waifu2x-encode"
        )
        self._thread.start()

    def finish(self) -> None:
        """Writes the file when the encoder has all frames. Raises OutputError, OSError."""
        self.abort()
        self._check()
        self._file.write(self._content.getbuffer())

    def abort(self) -> None:
        """Waits until the encoder has ended, of which no further frames are expected."""
        if self._thread is not None:
            self._frames.put(None)
            self._thread.join()
            self._thread = None

    def _encode(self, first: Image.Image, further: _Further, options: dict[str, Any]) -> None:
        try:
            first.save(self._content, self._form.pillow, append_images=[further], **options)
        except BaseException as error:
            self._error = error
        finally:
            further.drain()

    def _check(self) -> None:
        """Raises what the encoder has raised."""
        if self._error is not None:
            with in_words(self._form, self._name):
                raise self._error


class _Further:
    """The frames after the first, as Pillow takes a file of several pictures: at one at a time."""

    def __init__(self, frames: queue.Queue[Image.Image | None], count: int) -> None:
        self.n_frames = count
        self._frames = frames
        self._at = -1
        self._image: Image.Image | None = None
        self._ended = False

    def seek(self, frame: int) -> None:
        """Goes to a frame, never back. Raises EOFError behind the last one."""
        while self._at < frame < self.n_frames and not self._ended:
            self._image = self._frames.get()
            self._ended = self._image is None
            self._at += 1
        if self._ended or frame >= self.n_frames:
            raise EOFError("there are no more frames")

    def drain(self) -> None:
        """Takes what is still handed over, so that nobody waits for ever."""
        while not self._ended:
            self._ended = self._frames.get() is None

    def __getattr__(self, name: str) -> Any:
        """The frame that it is at."""
        return getattr(self._image, name)
