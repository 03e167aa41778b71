"""Writes picture files, one picture after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from waifu2x.errors import ExistsError, OutputError
from waifu2x.formats import pnm, table
from waifu2x.formats.base import Writer
from waifu2x.formats.metadata import transfer
from waifu2x.formats.png.write import PngWriter
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed
from waifu2x.system.files import abandon, reason, writing
from waifu2x.system.stopwatch import Stopwatch


class ContentSink:
    """A Sink that writes the content of an open file, of pictures as `Adapter` leaves them."""

    def __init__(
        self,
        file: IO[bytes],
        extension: str,
        quality: Quality,
        name: str,
        spent: Stopwatch,
        threads: int | None = None,
    ) -> None:
        """`file` can be read and sought; `name` stands for it in messages.

        `quality.level` is for formats of table.LOSSY; "like", for JPEG, codes a picture that was
        read from a JPEG as that was. `threads` is how many cores the encoder may use, all by
        default; callers that write several files together pass 1. The file is the same. `spent`
        gets the seconds of `encode`.
        """
        self._file = file
        self._form = table.of(extension)
        self._quality = quality
        self._name = name
        self.spent = spent
        self._threads = threads
        self._writer: Writer | None = None

    def open(self, header: Header) -> None:
        """Begins. Raises OutputError for a format whose plugin is missing."""
        with self._encoding():
            self._writer = self._writer_for(header)

    def add(self, result: Timed) -> None:
        """Writes the next picture. Raises OutputError, and OSError if the file is not writable."""
        assert self._writer is not None
        with self._encoding():
            picture = result.picture
            # Sizes in the metadata must be those of the result.
            said = transfer.sized(picture.metadata, *picture.pixels.shape[:2])
            self._writer.add(replace(result, picture=replace(picture, metadata=said)))

    def close(self) -> None:
        """Completes the content; the file stays open. Raises as `add` does."""
        assert self._writer is not None
        with self._encoding():
            self._writer.finish()

    def abort(self) -> None:
        """Ends the work, and leaves what is written."""
        if self._writer is not None:
            self._writer.abort()

    @contextmanager
    def _encoding(self) -> Iterator[None]:
        """Measures its block, and makes an OutputError of a lack of memory."""
        with self.spent("encode"):
            try:
                yield
            except MemoryError as error:
                raise OutputError(
                    f"{self._name}: not enough memory to encode as {self._form.name}",
                    "use a smaller scale",
                ) from error

    def _writer_for(self, header: Header) -> Writer:
        form, quality, file = self._form, self._quality, self._file
        if form.name == "PNG":
            return PngWriter(header, file, quality.compression, self._threads)
        if form.name == "TIFF":
            from waifu2x.formats.tiff import TiffWriter

            return TiffWriter(header, file, quality.compression)
        if form.name == "PNM":
            return pnm.PnmWriter(file)
        if header.animated:
            from waifu2x.formats.pillow import animations

            return animations.writer(header, form, quality, self._name, file)
        from waifu2x.formats.pillow.write import PillowWriter

        return PillowWriter(form, quality, self._name, file)


class FileSink:
    """A Sink that writes a file, which appears under its name when it is complete."""

    def __init__(
        self,
        path: Path,
        extension: str,
        quality: Quality,
        spent: Stopwatch | None = None,
        *,
        replace: bool | None = False,
        threads: int | None = None,
    ) -> None:
        """`spent` gets the seconds of `encode` and of `write`; `threads` is as for a ContentSink.

        With `replace` False, a file of that name is kept, and closing raises OutputError; with
        None, it raises nothing.
        """
        self.path = path
        self._extension = extension
        self._quality = quality
        self.spent = spent or Stopwatch()
        self._replace = replace
        self._threads = threads
        self._written = ExitStack()
        self._content: ContentSink | None = None

    def open(self, header: Header) -> None:
        """Begins a temporary file. Raises OutputError."""
        with self._in_words():
            with self.spent("write"):
                file = self._written.enter_context(writing(self.path, replace=self._replace))
            self._content = ContentSink(
                file, self._extension, self._quality, str(self.path), self.spent, self._threads
            )
            self._content.open(header)

    def add(self, result: Timed) -> None:
        """Writes the next picture. Raises OutputError."""
        assert self._content is not None
        with self._in_words():
            self._content.add(result)

    def close(self) -> None:
        """Completes the file and gives it its name. Raises OutputError."""
        assert self._content is not None
        with self._in_words():
            self._content.close()
            with self.spent("write"):
                self._written.close()

    def abort(self) -> None:
        """Removes the temporary file."""
        if self._content is not None:
            self._content.abort()
        abandon(self._written)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Makes an OutputError of an OSError in its block."""
        try:
            yield
        except FileExistsError as error:
            raise ExistsError(self.path) from error
        except OSError as error:
            raise OutputError(f"{self.path}: cannot write: {reason(error)}") from error


def header_of(picture: Picture) -> Header:
    """Returns the header of a file that holds one picture."""
    height, width = picture.pixels.shape[:2]
    return Header((Extent(height, width, picture.pixels.nbytes),))


def write_picture(
    picture: Picture,
    path: Path,
    extension: str,
    *,
    replace: bool = False,
    threads: int | None = None,
) -> None:
    """Writes one picture into a new file; arguments and errors are those of a FileSink."""
    sink = FileSink(path, extension, Quality(), replace=replace, threads=threads)
    try:
        sink.open(header_of(picture))
        sink.add(Timed(picture))
        sink.close()
    except BaseException:
        sink.abort()
        raise
