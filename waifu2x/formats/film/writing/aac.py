"""What decoders of AAC have to know before the first packet, where a film has it in each of them.

Sound of MPEG-TS is like that. FFmpeg writes it into Matroska when it comes across it, which a pipe
does not allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext

_RATES = (
    96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350,
)  # fmt: skip
_PROFILES = {"Main": 1, "LC": 2, "SSR": 3, "LTP": 4}
"""Audio object types of ISO/IEC 14496-3 that such packets can have."""
_EXTENDED = ("HE-AAC", "HE-AACv2")
"""AAC LC at half the rate, and what makes the rest of it: high frequencies, and in the second one
two channels of one."""
_CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 8: 7}


def audio_config(context: AudioCodecContext) -> bytes | None:
    """An AudioSpecificConfig for packets of AAC that describe themselves; None where it is not
    known."""
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
