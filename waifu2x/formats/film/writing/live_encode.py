"""Encodes pictures into packets that go into a film at once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.formats.film.library import library
from waifu2x.formats.film.writing.codecs import ENCODERS
from waifu2x.formats.film.writing.encode import (
    Shape,
    decode_times,
    encoding,
    frame_with,
    opened_stream,
)
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
        self._has_begun = False
        """Whether pictures have come."""
        extradata = self._stream.codec_context.extradata
        self.template = template_of(file.getvalue())._replace(extradata=extradata)
        """What a container wants to know of these pictures."""

    def add(
        self, planes: Sequence[NDArray[Any]], pts: int, duration: int
    ) -> Sequence[CodedPicture]:
        """Encodes a picture; those that are ready. Raises OutputError."""
        coded = self._encoded(frame_with(planes, self._shape, pts, duration))
        self._has_begun |= bool(coded)
        return coded

    def flush(self) -> Sequence[CodedPicture]:
        """The last pictures. Raises OutputError."""
        coded = self._encoded(None)
        # Of fewer pictures than it reorders x265 leaves decode times uninitialised.
        return coded if self._has_begun else _dated(coded)

    def close(self) -> None:
        """Lets go of the encoder."""
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
    """A whole film, with other decode times."""
    shown = sorted(one.pts for one in coded)
    ranks = {pts: rank for rank, pts in enumerate(shown)}
    depth = max((number - ranks[one.pts] for number, one in enumerate(coded)), default=0)
    times = decode_times(shown, depth) if coded else []
    return [one._replace(dts=dts) for one, dts in zip(coded, times, strict=False)]
