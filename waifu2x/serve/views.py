"""Views of pictures for clients: thumbnails, PNGs for browsers, and crops by any model.

Another process decodes a stranger's file, and the result is encoded anew; only the server's own
PNGs are sent as they are.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from waifu2x.errors import ImageError
from waifu2x.flows.noise_choice import choose
from waifu2x.serve import decoding
from waifu2x.serve.decoding import SentFile
from waifu2x.serve.film_frames import film_frame
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import JobRecord
from waifu2x.serve.limits import CROP_SIDE, VIEW_PIXELS, ServiceLimits
from waifu2x.serve.reading import ReadingProcesses
from waifu2x.serve.spool import Spool
from waifu2x.serve.upscalers import Upscalers
from waifu2x.system.files import write_atomically

_KEPT = 32
"""Views that are kept of a job: it may have very many frames or pages."""
_VIEW_NAME = re.compile(r"(source|result-\d+)-\d+\.png")
_PNG_HEAD = struct.Struct(">8sI4sIIB")
"""Signature, length and kind of the first chunk, width, height, bits per sample."""


class Views:
    """Makes views of jobs and keeps them beside their files. Threads may share it."""

    def __init__(
        self,
        spool: Spool,
        limits: ServiceLimits,
        reading: ReadingProcesses,
        upscalers: Upscalers,
        on_made: Callable[[str], None],
    ) -> None:
        """`on_made` is called with the id of a job that has got a new file."""
        self._on_made = on_made
        self._spool = spool
        self._limits = limits
        self._reading = reading
        self._upscalers = upscalers
        self._lock = threading.Lock()
        self._making: dict[Path, threading.Lock] = {}

    def thumbnail(self, record: JobRecord) -> Path:
        """Returns a small JPEG of the source. Raises ImageError."""
        target = self._spool.of(record.id) / "thumbnail.jpg"
        source = self._spool.source(record)

        def make() -> None:
            if record.kind == "film":
                frame = film_frame(source, record.name, None)
                write_atomically(target, decoding.thumbnail(frame))
            else:
                file = self._sent(record, source)
                self._reading.call(record.name, decoding.make_thumbnail, file, target)

        return self._made(target, make)

    def source(self, record: JobRecord, page: int) -> Path:
        """Returns a PNG of a picture of the source. Raises ImageError."""
        return self._view(record, self._spool.source(record), f"source-{page}.png", page)

    def result(self, record: JobRecord, page: int) -> Path:
        """Returns a PNG of a picture of the result. Raises ImageError."""
        made = self._spool.result(record)
        if record.result is None or not made.exists():
            raise ImageError(f"{record.name}: there is no result yet")
        if record.kind == "picture" and page == 0 and _is_view(made):
            return made  # the server has encoded it, and browsers show it
        return self._view(record, made, f"result-{record.attempt}-{page}.png", page)

    def crop(
        self, record: JobRecord, page: int, box: tuple[int, int, int, int], settings: JobSettings
    ) -> bytes:
        """Enlarges a part of the source by other settings; returns a PNG. Raises Waifu2xError."""
        if not all(0 < side <= CROP_SIDE for side in box[2:]):
            raise ImageError(f"a crop has 1 to {CROP_SIDE} pixels a side")
        source = self._spool.source(record)
        if record.kind == "film":
            picture = decoding.part(film_frame(source, record.name, page), record.name, box)
        else:
            file = self._sent(record, source)
            picture = self._reading.call(record.name, decoding.cut, file, page, box)
        with self._upscalers.opened(settings) as upscaler:
            enlarger, _ = choose(upscaler.enlarger, picture)
            larger = enlarger.picture(picture)
        return decoding.encoded(larger)

    def _view(self, record: JobRecord, path: Path, name: str, page: int) -> Path:
        target = self._spool.of(record.id) / name

        def make() -> None:
            if record.kind == "film":
                frame = film_frame(path, record.name, page)
                write_atomically(target, decoding.encoded(decoding.reduced(frame)))
            else:
                file = self._sent(record, path)
                self._reading.call(record.name, decoding.make_view, file, page, target)

        return self._made(target, make)

    def _sent(self, record: JobRecord, path: Path) -> SentFile:
        is_archive = record.kind == "archive"
        return SentFile(path, record.name, is_archive, self._limits.max_pixels)

    def _made(self, target: Path, make: Callable[[], None]) -> Path:
        """Makes `target` unless it exists. Threads that ask for one target wait for each other."""
        with self._lock:
            making = self._making.setdefault(target, threading.Lock())
        with making:
            try:
                if target.exists():
                    target.touch()
                else:
                    make()
                    _forget(target.parent)
                    self._on_made(target.parent.name)
            finally:
                with self._lock, suppress(KeyError):
                    del self._making[target]
        return target


def _forget(folder: Path) -> None:
    """Removes the least recently used views of a job; `_KEPT` of them stay."""
    views = []
    for path in folder.iterdir():
        with suppress(OSError):  # another thread has removed it
            if _VIEW_NAME.fullmatch(path.name):
                views.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(views)[:-_KEPT]:
        with suppress(OSError):
            path.unlink()


def _is_view(path: Path) -> bool:
    """Returns whether a file is an 8-bit PNG that is small enough for a view."""
    with path.open("rb") as file:
        head = file.read(_PNG_HEAD.size)
    if len(head) < _PNG_HEAD.size:
        return False
    signature, _, kind, width, height, bits = _PNG_HEAD.unpack(head)
    return (signature, kind, bits) == (
        b"\x89PNG\r\n\x1a\n",
        b"IHDR",
        8,
    ) and width * height <= VIEW_PIXELS
