"""Writes a film while it is made: for pipes, where nothing can be done twice."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from waifu2x.errors import OutputError
from waifu2x.formats.film.aac import audio_config
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.encode import Shape
from waifu2x.formats.film.library import library
from waifu2x.formats.film.live_encode import CodedPicture
from waifu2x.formats.film.muxing import (
    CopiedStreams,
    Cut,
    begin_streams,
    open_target,
    write_fields,
)
from waifu2x.formats.film.opening import in_short
from waifu2x.formats.film.targets import KeptStream, StreamPlan
from waifu2x.system.files import reason

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream


class LiveMuxer:
    """A film that is being written into a file or pipe.

    All methods raise OutputError, or BrokenPipeError where nobody reads it any more.
    """

    def __init__(
        self,
        target: Path | io.RawIOBase,
        name: str,
        source: InputContainer,
        film: Film,
        shape: Shape,
        plan: StreamPlan,
        extradata: bytes | None,
        cut: Cut,
        cover_of: Callable[[Stream], bytes],
    ) -> None:
        """Writes the header into a file or pipe, which `name` stands for in messages."""
        self._target = target
        self._name = name
        self._film, self._shape, self._plan = film, shape, plan
        self._start = -(-cut.start // shape.tick)
        held = None if isinstance(target, Path) else _HeldPipe(target)
        with self._sentences():
            self._out = open_target(held or f"file:{target}", plan, faststart=held is None)
            self._video, others = begin_streams(
                self._out, source, film, shape, plan, extradata, cut, cover_of
            )
            if held is not None:
                _describe_aac(source, others)
            self._out.start_encoding()
            if held is not None:
                with held.released() as header:
                    write_fields(header, film, shape, plan)
        self._copied = CopiedStreams(film, others, cut)

    def copy(self, packet: Packet[Any]) -> None:
        """Takes a packet of another stream of the source."""
        made = self._copied.packet(packet)
        if made is not None:
            with self._sentences():
                self._copied.mux(self._out, made)

    def picture(self, coded: CodedPicture) -> None:
        """Takes an encoded picture."""
        packet = library().Packet(coded.data)
        packet.stream = self._video
        packet.time_base = self._shape.tick
        packet.pts, packet.dts = coded.pts - self._start, coded.dts - self._start
        packet.duration, packet.is_keyframe = coded.duration, coded.is_keyframe
        with self._sentences():
            self._out.mux(packet)

    def close(self, complaints: int) -> tuple[str, ...]:
        """Completes the film; what is missing in sounds, if there were complaints."""
        with self._sentences():
            self._out.close()
            if isinstance(self._target, Path):
                with self._target.open("r+b") as file:
                    write_fields(file, self._film, self._shape, self._plan)
        return self._copied.lost(complaints)

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


def _describe_aac(source: InputContainer, others: dict[int, tuple[Any, KeptStream]]) -> None:
    for index, (stream, taken) in others.items():
        context: Any = source.streams[index].codec_context
        is_aac = taken.handling == "copy" and context is not None and context.name == "aac"
        if is_aac and not context.extradata:
            stream.codec_context.extradata = audio_config(context)


class _HeldPipe(io.RawIOBase):
    """A pipe whose beginning is held back until `released`, since it cannot be changed then."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._held: io.BytesIO | None = io.BytesIO()

    @contextmanager
    def released(self) -> Iterator[IO[bytes]]:
        """The beginning, which is written at the end of the block. Raises OSError."""
        held, self._held = self._held, None
        assert held is not None
        yield held
        self.write(held.getvalue())

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Takes all of it. Raises OSError."""
        if self._held is not None:
            return self._held.write(data)
        return self._file.write(data) or 0
