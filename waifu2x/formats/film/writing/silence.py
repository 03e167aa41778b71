"""Silence for containers that keep no gaps: sound without a codec is one run of samples in mov."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from waifu2x.errors import OutputError
from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.packet import Packet

_HEARD = Fraction(1, 50)
"""Seconds of silence that are more than the rounding of times."""
_PIECE = 1 << 16
"""Bytes of silence in a packet."""
_MOST = 1 << 30
"""Bytes of silence in a film: 93 minutes of stereo. Damaged times could ask for a week of it."""
_SILENT = {"pcm_u8": 0x80, "pcm_alaw": 0xD5, "pcm_mulaw": 0xFF}
"""The byte of silence, where it is not zero."""


class FilledGaps:
    """A sound of plain samples (PCM) whose gaps are filled, so that what follows stays in place."""

    def __init__(self, title: str, codec: str, channels: int, tick: Fraction) -> None:
        """`title` names the sound for people, `codec` is FFmpeg's name of its samples; `tick` is
        that of the target, in seconds: a sample."""
        bits = re.search(r"\d+", codec)
        self._title = title
        self._frame = (int(bits[0]) // 8 if bits else 1) * max(channels, 1)
        """Bytes of one sample of all channels: it lasts a tick."""
        self._silent = bytes([_SILENT.get(codec, 0)])
        self._tick = tick
        self._end: int | None = None
        """Where the samples so far end, in ticks."""
        self._filled = 0
        """Bytes of silence so far."""

    def before(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """The silence that comes before a packet, for the same stream. Raises OutputError."""
        assert packet.dts is not None
        if self._end is None:
            self._end = packet.dts
        missing = packet.dts - self._end
        if missing * self._tick > _HEARD:
            self._filled += missing * self._frame
            if self._filled > _MOST:
                raise OutputError(
                    f"{self._title} has gaps of more than {_MOST >> 20} MiB of silence, which a "
                    ".mov cannot skip: write an .mkv"
                )
            while missing > 0:
                length = min(missing, max(1, _PIECE // self._frame))
                silence: Packet[Any] = library().Packet(self._silent * (length * self._frame))
                silence.stream, silence.time_base = packet.stream, self._tick
                silence.pts = silence.dts = self._end
                silence.duration = length
                yield silence
                self._end += length
                missing -= length
        self._end += packet.size // self._frame
