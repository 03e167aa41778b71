"""Encodes pictures into packets that go into a film at once."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.formats.film.library import library
from waifu2x.formats.film.writing.codecs import ENCODERS
from waifu2x.formats.film.writing.encode import Shape, encoding, frame_with, opened_stream
from waifu2x.formats.film.writing.picture_stream import template_of


class CodedPicture(NamedTuple):
    """A picture as an encoder gives it, with times in ticks of the film."""

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
        # Only a header is written into it: containers want some encoders to work otherwise.
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
        extradata = self._stream.codec_context.extradata
        self.template = template_of(file.getvalue())._replace(extradata=extradata)
        """What a container wants to know of these pictures."""

    def add(
        self, planes: Sequence[NDArray[Any]], pts: int, duration: int
    ) -> Iterator[CodedPicture]:
        """Encodes a picture; those that are ready. Raises OutputError."""
        return self._encoded(frame_with(planes, self._shape, pts, duration))

    def flush(self) -> Iterator[CodedPicture]:
        """The last pictures. Raises OutputError."""
        return self._encoded(None)

    def close(self) -> None:
        """Lets go of the encoder."""
        with suppress(Exception):
            self._container.close()

    def _encoded(self, frame: Any) -> Iterator[CodedPicture]:
        shape = self._shape
        with encoding(shape):
            packets = self._stream.encode(frame)
        for packet in packets:
            unit = packet.time_base / shape.tick
            pts = round(packet.pts * unit)
            yield CodedPicture(
                bytes(packet),
                pts,
                pts if packet.dts is None else round(packet.dts * unit),
                round((packet.duration or 0) * unit) or round(1 / shape.rate / shape.tick),
                packet.is_keyframe,
            )
