"""Writes a film while it is made: for pipes, where nothing can be done twice."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waifu2x.errors import OutputError
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.opening import in_short
from waifu2x.formats.film.writing.covers import CoverOf
from waifu2x.formats.film.writing.film_writer import FilmWriter
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.formats.film.writing.live_encode import CodedPicture
from waifu2x.formats.film.writing.picture_stream import PictureTemplate
from waifu2x.system.files import reason

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet


class LiveMuxer:
    """A film that is being written into a file or pipe, beside its decoding and encoding.

    All methods raise OutputError, or BrokenPipeError where nobody reads it any more.
    """

    def __init__(
        self,
        target: Path | io.RawIOBase,
        name: str,
        source: InputContainer,
        plan: FilmPlan,
        template: PictureTemplate,
        cover_of: CoverOf,
    ) -> None:
        """Writes the header into a file or pipe, which `name` stands for in messages."""
        self._target, self._name = target, name
        self._tick = plan.shape.tick
        self._start = -(-plan.cut.start // self._tick)
        with self._sentences():
            self._writer = FilmWriter(target, source, plan, template, cover_of)

    def copy(self, packet: Packet[Any]) -> None:
        """Takes a packet of another stream of the source."""
        self._copy(self._writer.copied.packets(packet))

    def picture(self, coded: CodedPicture) -> None:
        """Takes an encoded picture."""
        packet = library().Packet(coded.data)
        packet.time_base = self._tick
        packet.pts, packet.dts = coded.pts - self._start, coded.dts - self._start
        packet.duration, packet.is_keyframe = coded.duration, coded.is_keyframe
        with self._sentences():
            self._writer.add_picture(packet)
        self._copy(self._writer.copied.until(float((coded.dts - self._start) * self._tick)))

    @property
    def size(self) -> int:
        """Bytes of the file so far; 0 of a pipe."""
        return self._target.stat().st_size if isinstance(self._target, Path) else 0

    def close(self, complaints: int, late: int) -> tuple[str, ...]:
        """Completes the film; what is missing in streams, by `CopiedStreams.lost`."""
        self._copy(self._writer.copied.rest())
        with self._sentences():
            self._writer.close()
        return self._writer.copied.lost(complaints, late)

    def _copy(self, packets: Iterator[Packet[Any]]) -> None:
        with self._sentences():
            for made in packets:
                self._writer.add_copied(made)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except library().FFmpegError as error:
            raise OutputError(f"{self._name}: cannot write: {in_short(error)}") from error
        except OSError as error:
            raise OutputError(f"{self._name}: cannot write: {reason(error)}") from error
