"""Decoders of AAC are told the right configuration before the first packet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from waifu2x.formats.film.writing.film_writer import audio_config


@pytest.mark.parametrize(
    ("profile", "rate", "channels", "expected"),
    [
        # ISO/IEC 14496-3, 1.6.2.1: the object type, the number of the rate, channels.
        ("LC", 48000, 2, (2, 3, 2)),
        ("Main", 44100, 1, (1, 4, 1)),
        ("LC", 44100, 8, (2, 4, 7)),
        ("HE-AAC", 48000, 2, (2, 6, 2)),
        # Its decoder makes two channels of one.
        ("HE-AACv2", 44100, 2, (2, 7, 1)),
        ("xHE-AAC", 48000, 2, None),
        (None, 48000, 2, None),
        ("LC", 48001, 2, None),
        ("LC", 48000, 7, None),
    ],
)
def test_what_a_decoder_is_told(
    profile: str | None, rate: int, channels: int, expected: tuple[int, int, int] | None
) -> None:
    context: Any = SimpleNamespace(
        profile=profile, sample_rate=rate, layout=SimpleNamespace(nb_channels=channels)
    )
    made = audio_config(context)
    if expected is None:
        assert made is None
    else:
        assert made is not None
        bits = int.from_bytes(made)
        assert (bits >> 11, bits >> 7 & 15, bits >> 3 & 15) == expected
