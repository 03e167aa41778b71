"""Chooses the noise level for a JPEG by its quality, for each set of the catalogue, as measured.

benchmarks/noise_levels.py chooses the limits by twelve pictures and lowers them where one of 24
others loses; benchmarks/results/2026-11-22-noise.md has its output. Up to a limit a level is the
weakest of those with the highest mean PSNR; beyond the last one some picture would lose by any.
Level 3 is never chosen: it is hardly better than 2 anywhere, and draws lines into the skin of old
photos. Real-CUGAN's levels are no better than none (`cugan/se`), or worse (`cugan/pro`).
"""

from __future__ import annotations

from collections.abc import Callable

from waifu2x.networks import catalogue
from waifu2x.networks.model_set import ModelSet
from waifu2x.system.lazy_dataclass import dataclass

Limits = tuple[tuple[int, int], ...]
"""JPEG qualities on libjpeg's scale, ascending, and up to each the level to remove."""


@dataclass(frozen=True)
class NoiseLimits:
    """The noise levels of a model set that pictures get by their JPEG quality."""

    alone: Limits = ()
    """Where pictures keep their size."""
    enlarging: Limits = ()
    """Where they become larger."""
    flat: Limits = ()
    """Where pictures with flat colours keep their size."""

    @property
    def levels(self) -> frozenset[int]:
        """Returns the levels that may be chosen."""
        return frozenset(level for _, level in self.alone + self.enlarging + self.flat)

    def level(
        self, quality: int, *, enlarges: bool, is_flat: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Returns the level for a JPEG of that quality; None where it is better as it is.

        `is_flat` returns whether its colours are flat, and is called only where that matters.
        """
        if enlarges:
            return _within(self.enlarging, quality)
        level, flat = _within(self.alone, quality), _within(self.flat, quality)
        return flat if level != flat and is_flat() else level


def _within(limits: Limits, quality: int) -> int | None:
    return next((level for limit, level in limits if quality <= limit), None)


NO_LIMITS = NoiseLimits()
"""For sets that were not measured, or are no worse without noise removal: none is chosen."""
LIMITS = {
    "cunet/art": NoiseLimits(
        alone=((55, 2), (72, 1), (80, 0)),
        enlarging=((55, 2), (82, 1), (90, 0)),
        flat=((55, 2), (72, 1), (85, 0)),
    ),
    "upconv_7/art": NoiseLimits(
        alone=((45, 2), (65, 1), (80, 0)),
        enlarging=((65, 2), (77, 1), (90, 0)),
        flat=((45, 2), (82, 1), (93, 0)),
    ),
    "upconv_7/photo": NoiseLimits(
        alone=((45, 2), (70, 1)),
        enlarging=((75, 2),),
        flat=((45, 2), (70, 1)),
    ),
    "vgg_7/art": NoiseLimits(
        alone=((45, 2), (65, 1), (80, 0)),
        enlarging=((82, 1), (90, 0)),
        flat=((45, 2), (82, 1), (93, 0)),
    ),
}


def limits_of(models: ModelSet) -> NoiseLimits:
    """Returns the limits of a model set of the catalogue; NO_LIMITS for other sets."""
    known = catalogue.entry(models.name)
    if known is None or known.folder != models.folder:
        return NO_LIMITS
    return LIMITS.get(models.name, NO_LIMITS)
