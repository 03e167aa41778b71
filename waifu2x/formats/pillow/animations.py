"""Writes animations frame by frame: GIF itself, others by Pillow's encoders.

The container of a GIF is written here, Pillow compresses the frames: GIF 89a, sections 17 to 27. A
frame is written when the next one is known to differ. Each frame but the first has a colour table
and holds the rectangle in which it differs from the one before it; with transparency, the rectangle
in which it shows anything.
"""

from __future__ import annotations

import io
import queue
import struct
import threading
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from waifu2x.formats.base import Writer
from waifu2x.formats.pillow.colours import coloured
from waifu2x.formats.pillow.write import (
    MOST_LOOPS,
    TRANSPARENT,
    image_of,
    in_words,
    plug_in,
    save_options,
)
from waifu2x.formats.table import Format, Quality
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Header, Timed
from waifu2x.system.lazy_dataclass import dataclass


def writer(header: Header, form: Format, quality: Quality, name: str, file: IO[bytes]) -> Writer:
    """Returns the writer of an animation; `name` stands for the file in messages."""
    if form.name == "GIF":
        return GifWriter(header, form, quality, name, file)
    return CodedAnimation(header, form, quality, name, file)


class CodedAnimation(Writer):
    """Writes an animation by Pillow's encoder, which keeps coded frames in memory until the end.

    Pillow asks for one frame after the other, so it runs in a thread that waits for each.
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
        self._first: Picture | None = None
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
        self._first = timed.picture
        options = save_options(timed.picture, self._form, self._quality)
        loop = min(self._header.loop, MOST_LOOPS)
        options |= {"save_all": True, "duration": self._durations, "loop": loop}
        assert self._header.count is not None  # known to every reader of animations
        further = _Further(self._frames, self._header.count - 1)
        self._thread = threading.Thread(
            target=self._encode, args=(image, further, options), name="waifu2x-encode"
        )
        self._thread.start()

    def finish(self) -> None:
        """Writes the file when the encoder has all frames. Raises OutputError, OSError."""
        self.abort()
        self._check()
        assert self._first is not None  # every file has a picture
        with in_words(self._form, self._name):
            content = coloured(self._content.getbuffer(), self._first, self._form)
        self._file.write(content)

    def abort(self) -> None:
        """Ends the encoder: no further frames will come."""
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
        if self._error is not None:
            with in_words(self._form, self._name):
                raise self._error


class _Further:
    """The frames after the first, as Pillow takes a file of several pictures: one by one."""

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
        """Takes the frames that are still queued, so that the caller does not wait for ever."""
        while not self._ended:
            self._ended = self._frames.get() is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._image, name)


_LONGEST = 655350
"""Milliseconds that a frame can be shown."""
_BLOCK = 255
"""Bytes of a block of data, at most."""
_EXTENSION, _IMAGE = 0x21, 0x2C
_TABLE = 0x80
"""A flag: a colour table follows."""
_HEAD, _PLACE = 13, 10
"""Bytes at the start of a file up to its colour table, and of a picture up to its indices."""
_CLEARED = 2
"""A way of disposal: before the next frame, the rectangle becomes transparent."""


@dataclass
class _Frame:
    """A frame that waits for the next one."""

    image: Image.Image
    seen: NDArray[np.uint8]
    """(H, W, 4): the pixels shown, black where it is transparent."""
    box: tuple[int, int, int, int]
    """The rectangle to be written: left, top, right, bottom."""
    duration: int
    """Milliseconds."""


class GifWriter(Writer):
    """Writes a GIF as its frames come; one that repeats the frame before it prolongs that."""

    def __init__(
        self, header: Header, form: Format, quality: Quality, name: str, file: IO[bytes]
    ) -> None:
        """`name` stands for the file in messages."""
        self._header = header
        self._form = form
        self._quality = quality
        self._name = name
        self._file = file
        self._waiting: _Frame | None = None
        self._written = 0
        self._options: dict[str, Any] = {}
        self._transparent = False

    def add(self, timed: Timed) -> None:
        """Takes the next frame, and writes the one before it. Raises OutputError, OSError."""
        picture, duration = timed.picture, round(timed.duration or 0)
        with in_words(self._form, self._name):
            image = _with_palette(image_of(picture, self._form))
            if self._waiting is None:
                self._options = save_options(picture, self._form, self._quality)
                self._transparent = picture.alpha is not None
            seen = _seen(image, self._transparent)
            if self._waiting is None:
                box = (0, 0, *image.size)
                self._waiting = _Frame(image, seen, box, duration)
                return
            before = self._waiting
            differs = (seen != before.seen).any(axis=-1)
            if not differs.any() and before.duration + duration <= _LONGEST:
                before.duration += duration
                return
            shown = seen[..., 3] > 0 if self._transparent else differs
            coded = self._coded(before)
        self._file.write(coded)
        self._waiting = _Frame(image, seen, _box(shown), duration)

    def finish(self) -> None:
        """Writes the last frame and the end of the file. Raises OutputError, OSError."""
        assert self._waiting is not None
        with in_words(self._form, self._name):
            coded = self._coded(self._waiting)
        self._file.write(coded + b";")

    def _coded(self, frame: _Frame) -> bytes:
        """Returns a frame as it stands in the file, the first behind the header."""
        left, top, right, bottom = frame.box
        table, packed = _packed(frame.image.crop(frame.box))
        bits = (len(table) // 3 - 1).bit_length()
        own = 0 if not self._written else _TABLE | (bits - 1)
        parts = [
            self._control(frame.duration),
            struct.pack("<BHHHHB", _IMAGE, left, top, right - left, bottom - top, own),
            table if self._written else b"",
            packed,
        ]
        if not self._written:
            parts.insert(0, self._head(frame.image, table, bits))
        self._written += 1
        return b"".join(parts)

    def _control(self, duration: int) -> bytes:
        """Returns the extension before a frame: its duration, and what is transparent."""
        flags, index = (_CLEARED << 2 | 1, TRANSPARENT) if self._transparent else (0, 0)
        ticks = min(duration, _LONGEST) // 10
        return struct.pack("<BBBBHBB", _EXTENSION, 0xF9, 4, flags, ticks, index, 0)

    def _head(self, image: Image.Image, table: bytes, bits: int) -> bytes:
        """Returns what stands before the first frame: sizes, its colour table, loops, a comment."""
        parts = [
            b"GIF89a",
            struct.pack("<HHBBB", *image.size, _TABLE | (bits - 1), 0, 0),
            table,
        ]
        if self._header.loop != 1:
            # A GIF names the repeats after the first time, and nothing where there are none.
            loops = min(max(0, self._header.loop - 1), MOST_LOOPS)
            parts.append(b"!\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<HB", loops, 0))
        comment = self._options.get("comment")
        if comment:
            parts.append(b"!\xfe")
            for at in range(0, len(comment), _BLOCK):
                block = comment[at : at + _BLOCK]
                parts.append(bytes((len(block),)) + block)
            parts.append(b"\0")
        return b"".join(parts)


def _packed(image: Image.Image) -> tuple[bytes, bytes]:
    """Returns the colour table of an image with a palette, and its indices as a GIF has them."""
    file = io.BytesIO()
    image.save(file, "GIF", interlace=0, optimize=False)
    content = file.getvalue()
    end = _HEAD + (3 << ((content[10] & 7) + 1))
    # Behind the table: place and size of the picture, its indices, the end of the file.
    return content[_HEAD:end], content[end + _PLACE : -1]


def _with_palette(image: Image.Image) -> Image.Image:
    if image.mode == "L":
        image.putpalette([level for level in range(256) for _ in range(3)])
    return image


def _seen(image: Image.Image, transparent: bool) -> NDArray[np.uint8]:
    """Returns (H, W, 4), colours and opacity of an image with a palette; 0 where transparent."""
    table = np.zeros((256, 4), np.uint8)
    palette = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
    table[: len(palette), :3] = palette
    table[:, 3] = 255
    if transparent:
        table[TRANSPARENT] = 0
    seen: NDArray[np.uint8] = table[np.asarray(image)]
    return seen


def _box(shown: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Returns the smallest rectangle around what is shown; one pixel where nothing is."""
    rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
    if not rows.size:
        return 0, 0, 1, 1
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
