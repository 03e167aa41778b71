"""Writes a film: its header at once, then packets as they come."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from waifu2x.formats.film.writing.copied_streams import CopiedStreams
from waifu2x.formats.film.writing.header import (
    BegunStreams,
    CoverOf,
    FilmPlan,
    PictureTemplate,
    begin_streams,
    open_target,
    write_fields,
)
from waifu2x.formats.film.writing.mp4 import turn_off

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from av.container import InputContainer
    from av.packet import Packet

_DEFAULT = 1
"""FFmpeg's disposition of a stream that players choose by themselves."""
_RATES = (
    96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350,
)  # fmt: skip
_PROFILES = {"Main": 1, "LC": 2, "SSR": 3, "LTP": 4}
"""Audio object types of ISO/IEC 14496-3."""
_EXTENDED = ("HE-AAC", "HE-AACv2")
"""AAC LC at half the rate, with data to restore high frequencies, and in the second a second
channel."""
_CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 8: 7}


class FilmWriter:
    """A film that is being written into a file or pipe. All methods raise FFmpeg's errors, OSError
    and OutputError."""

    def __init__(
        self,
        target: Path | io.RawIOBase,
        source: InputContainer,
        plan: FilmPlan,
        template: PictureTemplate,
        cover_of: CoverOf,
        room: int | None = None,
    ) -> None:
        """Writes the header. `room` is that of `open_target`."""
        self._target, self._plan = target, plan
        held = None if isinstance(target, Path) else _HeldPipe(target)
        self._out: Any = open_target(held or f"file:{target}", plan.streams.container, room)
        begun = begin_streams(self._out, source, plan, template, cover_of)
        if held is not None:
            _describe_aac(source, begun)
        self._out.start_encoding()
        if held is not None:
            with held.released() as header:
                write_fields(header, plan)
        texts = [one for one, _ in begun.others.values() if one.type == "subtitle"]
        self._off = [one.index + 1 for one in texts if not one.disposition & _DEFAULT]
        """Tracks that players show only on request."""
        self.pictures = begun.pictures
        self.copied = CopiedStreams(plan, begun)

    def add_picture(self, packet: Packet[Any]) -> None:
        """Writes a coded picture, with times from the beginning of the cut."""
        packet.stream = self.pictures
        self._out.mux(packet)

    def add_copied(self, made: Packet[Any]) -> None:
        """Writes a packet from `copied`."""
        self.copied.mux(self._out, made)

    def close(self) -> None:
        """Completes the film."""
        self._out.close()
        if isinstance(self._target, Path):
            with self._target.open("r+b") as file:
                write_fields(file, self._plan)
                if self._plan.streams.container in ("mp4", "mov"):
                    turn_off(file, self._off)


def _describe_aac(source: InputContainer, begun: BegunStreams) -> None:
    for index, (stream, taken) in begun.others.items():
        context: Any = source.streams[index].codec_context
        is_aac = taken.handling == "copy" and context is not None and context.name == "aac"
        if is_aac and not context.extradata:
            stream.codec_context.extradata = audio_config(context)


class _HeldPipe(io.RawIOBase):
    """A pipe whose first bytes are held back until `released`, so that they can still change."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._held: io.BytesIO | None = io.BytesIO()

    @contextmanager
    def released(self) -> Iterator[IO[bytes]]:
        """Gives the first bytes, and writes them at the end of the context. Raises OSError."""
        held, self._held = self._held, None
        assert held is not None
        yield held
        self.write(held.getvalue())

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._held is not None:
            return self._held.write(data)
        return self._file.write(data) or 0


def audio_config(context: AudioCodecContext) -> bytes | None:
    """Returns the AudioSpecificConfig for AAC packets that describe themselves; None if unknown.
    Sound of MPEG-TS is like that. FFmpeg adds it to Matroska when it finds it, which a pipe does
    not allow."""
    rate, count = context.sample_rate, context.layout.nb_channels
    profile = context.profile or ""
    if profile in _EXTENDED:
        rate //= 2
        count = 1 if profile == "HE-AACv2" else count
    kind = 2 if profile in _EXTENDED else _PROFILES.get(profile)
    channels = _CHANNELS.get(count)
    if kind is None or rate not in _RATES or channels is None:
        return None
    return (kind << 11 | _RATES.index(rate) << 7 | channels << 3).to_bytes(2)
