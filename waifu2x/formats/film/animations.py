"""Animated pictures (GIF, APNG, WebP, AVIF) as films: frames and times, by the readers of pictures.

FFmpeg's decoder of GIF gives transparency to every animation, and the one of WebP knows none.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from waifu2x.errors import ImageError, Sentence
from waifu2x.formats.film.frame_files import TICK, FrameSequence
from waifu2x.formats.png.write import PngWriter
from waifu2x.formats.read import content, open_content
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed

_MOST_PIXELS = 1 << 33
"""Pixels of all frames together; they are decoded one after another."""
_SHORT, _SHORT_MEANS = 10, 100
"""Milliseconds up to which browsers show a frame as long as the second number says."""


class AnimationFrames(FrameSequence):
    """The frames of an animation: RGB, with transparency if any pixel of the animation has it."""

    def __init__(self, path: Path, on_frame: Callable[[], None] = lambda: None) -> None:
        """Decodes all frames once, for their times; `on_frame` is called after each. Raises
        ImageError for a picture that is not animated, or cannot be read."""
        super().__init__()
        self._name = str(path)
        self._data = content(path)
        self._is_transparent = False
        times = [0]
        for timed in self._frames():
            self._is_transparent = self._is_transparent or timed.picture.transparent
            shown = timed.duration or 0
            shown = _SHORT_MEANS if shown <= _SHORT else shown
            times.append(times[-1] + round(shown / 1000 / TICK))
            self.damaged += len(timed.notices)
            on_frame()
        *self.times, self.end = times

    def contents(self) -> Iterator[bytes]:
        """Yields each frame as PNG. Raises ImageError."""
        for timed in self._frames():
            yield self._png(timed.picture)

    def _frames(self) -> Iterator[Timed]:
        with closing(open_content(self._data, self._name, _MOST_PIXELS)) as source:
            if not source.header.animated:
                why = Sentence("it is a picture, not a film", f"use `waifu2x {self._name}`")
                raise ImageError(Sentence(next(iter(source.header.notices), why)).of(self._name))
            self.kind = source.header.format.lower()
            self.damaged = len(source.header.notices)
            yield from source

    def _png(self, picture: Picture) -> bytes:
        pixels, alpha = picture.pixels, picture.alpha
        pixels = np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
        if not self._is_transparent:
            alpha = None
        elif alpha is None:
            alpha = np.full(pixels.shape[:2], np.iinfo(pixels.dtype).max, pixels.dtype)
        file = io.BytesIO()
        height, width = pixels.shape[:2]
        header = Header((Extent(height, width, pixels.nbytes),))
        writer = PngWriter(header, file, "fast", 1)
        writer.add(Timed(Picture(pixels, alpha)))
        writer.finish()
        return file.getvalue()
