"""Encodes and writes a film while it is made, for pipes, where nothing can be done twice."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.errors import OutputError
from waifu2x.formats.film.library import in_short, library
from waifu2x.formats.film.writing.codecs import ENCODERS
from waifu2x.formats.film.writing.encode import (
    Shape,
    decode_times,
    encoding,
    frame_with,
    opened_stream,
)
from waifu2x.formats.film.writing.film_writer import FilmWriter
from waifu2x.formats.film.writing.header import CoverOf, FilmPlan, PictureTemplate, template_of
from waifu2x.system.files import reason

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet


class CodedPicture(NamedTuple):
    """An encoded picture, with times in ticks of the film."""

    data: bytes
    pts: int
    dts: int
    duration: int
    is_keyframe: bool


class LiveEncoder:
    """Encodes pictures, one after the other."""

    def __init__(self, shape: Shape) -> None:
        """Raises OutputError for options that the encoder does not know."""
        self._shape = shape
        # Only a header is written into it; encoders depend on the container.
        file = io.BytesIO()
        self._container = library().open(file, "w", format="matroska")
        try:
            name = ENCODERS[shape.encoding.codec].library
            self._stream = opened_stream(self._container, name, shape)
            with encoding(shape):
                self._container.start_encoding()
        except BaseException:
            self.close()
            raise
        self._has_begun = False
        extradata = self._stream.codec_context.extradata
        self.template = template_of(file.getvalue())._replace(extradata=extradata)

    def add(
        self, planes: Sequence[NDArray[Any]], pts: int, duration: int
    ) -> Sequence[CodedPicture]:
        """Encodes a picture; returns those that are ready. Raises OutputError."""
        coded = self._encoded(frame_with(planes, self._shape, pts, duration))
        self._has_begun |= bool(coded)
        return coded

    def flush(self) -> Sequence[CodedPicture]:
        """Returns the last pictures. Raises OutputError."""
        coded = self._encoded(None)
        # x265 leaves decoding times uninitialised for fewer pictures than it reorders.
        return coded if self._has_begun else _dated(coded)

    def close(self) -> None:
        with suppress(Exception):
            self._container.close()

    def _encoded(self, frame: Any) -> list[CodedPicture]:
        shape = self._shape
        with encoding(shape):
            packets = self._stream.encode(frame)
        coded = []
        for packet in packets:
            unit = packet.time_base / shape.tick
            pts = round(packet.pts * unit)
            one = CodedPicture(
                bytes(packet),
                pts,
                pts if packet.dts is None else round(packet.dts * unit),
                round((packet.duration or 0) * unit) or round(1 / shape.rate / shape.tick),
                packet.is_keyframe,
            )
            coded.append(one)
        return coded


def _dated(coded: Sequence[CodedPicture]) -> Sequence[CodedPicture]:
    """Returns a whole film with new decoding times."""
    shown = sorted(one.pts for one in coded)
    ranks = {pts: rank for rank, pts in enumerate(shown)}
    depth = max((number - ranks[one.pts] for number, one in enumerate(coded)), default=0)
    times = decode_times(shown, depth) if coded else []
    return [one._replace(dts=dts) for one, dts in zip(coded, times, strict=False)]


class LiveMuxer:
    """A film that is written into a file or pipe while it is decoded and encoded. All methods raise
    OutputError, or BrokenPipeError where the reader is gone."""

    def __init__(
        self,
        target: Path | io.RawIOBase,
        name: str,
        source: InputContainer,
        plan: FilmPlan,
        template: PictureTemplate,
        cover_of: CoverOf,
    ) -> None:
        """Writes the header. `name` stands for the target in messages."""
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
        """Returns the bytes of the file so far; 0 for a pipe."""
        return self._target.stat().st_size if isinstance(self._target, Path) else 0

    def close(self, complaints: int, late: int) -> tuple[str, ...]:
        """Completes the film. Returns and takes what `CopiedStreams.lost` does."""
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
