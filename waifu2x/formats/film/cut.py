"""The stretch of a film that is wanted."""

from __future__ import annotations

from fractions import Fraction

from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Cut:
    """A stretch of a film, in seconds."""

    start: Fraction = Fraction(0)
    end: Fraction | None = None
