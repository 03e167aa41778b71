"""Uses: what there is to enlarge, in plain words, and the model that is best for it.

They were chosen by benchmarks/intents.py; benchmarks/results/2026-11-27-intents.md has its output.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from waifu2x.networks import catalogue
from waifu2x.system.lazy_dataclass import dataclass

UseName = Literal["drawings", "photos", "old-films", "speed"]
Noise = int | Literal["auto"] | None
"""A noise level; auto: chosen for each picture; None: none."""


@dataclass(frozen=True)
class Use:
    """A use that a model is chosen for."""

    about: str
    """A sentence for people."""
    model: str
    film_model: str
    level: int | None = None
    """The noise level that `auto` means; None: it is chosen for each picture."""


USES: dict[str, Use] = {
    "drawings": Use(
        "Drawings, comics and screenshots: clean lines and flat colours.",
        "cunet/art",
        "upconv_7/art",
    ),
    "photos": Use(
        "Photos and camera films: texture stays close to the original.",
        "cunet/art",
        "upconv_7/photo",
    ),
    "old-films": Use(
        "Old films and pictures of them: strong grain and coding losses go, with some fine detail.",
        "cunet/art",
        "upconv_7/art",
        2,
    ),
    "speed": Use(
        "A slow machine or a quick look: more than ten times as fast, and less sharp.",
        "anime4k/l",
        "anime4k/l",
    ),
}


class Chosen(NamedTuple):
    """A model and a noise level, and whether the use had no part in them."""

    model: str | os.PathLike[str]
    noise: Noise
    notice: str | None = None
    """A sentence about a use that counts for nothing."""


def choose(
    best_for: str | None,
    model: str | os.PathLike[str] | None,
    noise: Noise,
    *,
    is_film: bool = False,
) -> Chosen:
    """Returns what a use means, for a model of None and a noise of `auto`: others win over it.
    Without a use they are the defaults. Raises ValueError for an unknown use."""
    if best_for is None:
        usual = catalogue.FILM_DEFAULT if is_film else catalogue.DEFAULT
        return Chosen(usual if model is None else model, noise)
    if best_for not in USES:
        names = ", ".join(map(repr, USES))
        raise ValueError(f"Expected a best_for of {names} or None, but got {best_for!r}")
    if model is not None:
        said = f"best for {best_for}: has no effect, since the model {os.fspath(model)} is given"
        return Chosen(model, noise, said)
    use = USES[best_for]
    level = use.level if noise == "auto" and use.level is not None else noise
    return Chosen(use.film_model if is_film else use.model, level)
