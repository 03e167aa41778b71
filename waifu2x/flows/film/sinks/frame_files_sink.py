"""Results as numbered PNG files, with their times in a text file beside them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from waifu2x.errors import OutputError
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.frames.steps import Planes, Step
from waifu2x.flows.film.sinks.frame_sink import FrameSink
from waifu2x.flows.jobs import make_folder
from waifu2x.formats.film.frame_files import FramePattern, times_text
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.png.write import PngWriter
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed
from waifu2x.system.files import reason, write_atomically


class FrameFilesSink(FrameSink):
    """Writes results as files from number 1 on."""

    def __init__(
        self, pattern: FramePattern, source: Path, shape: Shape, stages: Stages, *, replace: bool
    ) -> None:
        """`source` is the film that is read. With `replace`, frames that are there already are
        replaced."""
        super().__init__(stages)
        self._pattern = pattern
        self._source = source
        self._shape = shape
        self._replace = replace
        self._times: list[int] = []
        self._content = b""

    def open(self, header: Header) -> None:
        """Makes the folder. Raises OutputError, and ExistsError where there are frames, or times,
        already."""
        pattern = self._pattern
        make_folder(pattern.path.parent)
        pattern.check_free(self._source, replace=self._replace)
        there = pattern.numbers()
        self._remove(there[0] if there else 1)

    def _write(self, step: Step, planes: Planes, *, is_held: bool) -> None:
        if not is_held:
            self._content = self._png(planes)
        self._times.append(step.frame.pts)
        self._write_file(len(self._times), self._content)

    def close(self) -> None:
        """Writes the times, without which the frames are not complete. Raises OutputError."""
        data = times_text(self._times, self._shape.tick).encode()
        try:
            write_atomically(self._pattern.times, data)
        except OSError as error:
            raise OutputError(f"{self._pattern.times}: cannot write: {reason(error)}") from error

    def _remove(self, first: int) -> None:
        """Removes frames of another film, which would look like the end of this one."""
        number = first
        try:
            self._pattern.times.unlink(missing_ok=True)
            while self._pattern.frame(number).exists():
                self._pattern.frame(number).unlink()
                number += 1
        except OSError as error:
            raise OutputError(
                f"{self._pattern.frame(number)}: cannot be removed: {reason(error)}"
            ) from error

    def _write_file(self, number: int, content: bytes) -> None:
        path = self._pattern.frame(number)
        try:
            write_atomically(path, content)
        except OSError as error:
            raise OutputError(f"{path}: cannot write: {reason(error)}") from error

    def _png(self, planes: Planes) -> bytes:
        """Planes of grey, or of green, blue, red and perhaps alpha, as a file."""
        alpha = planes[3:]
        order = [planes[0]] if len(planes) == 1 else [planes[2], planes[0], planes[1]]
        pixels = np.stack(order, axis=-1)
        height, width = planes[0].shape
        content = io.BytesIO()
        writer = PngWriter(Header((Extent(height, width, pixels.nbytes),)), content)
        writer.add(Timed(Picture(pixels, alpha[0] if alpha else None)))
        writer.finish()
        return content.getvalue()
