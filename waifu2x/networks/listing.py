"""Lists model sets with the facts that are known without reading their models."""

from __future__ import annotations

from pathlib import Path

from waifu2x.networks import catalogue, model_set
from waifu2x.networks.model_set import ModelSet
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ModelInfo:
    """A model set that `model=` takes by name, as `list_models` gives it.

    Figures were measured by the project's benchmarks; None where a set was not.
    """

    name: str
    """Family and style, such as "cunet/art"."""
    noise_levels: tuple[int, ...]
    """The levels that `noise` may have."""
    scales: tuple[int, ...]
    """By how much its networks enlarge; 1 where one only denoises. Other scales are made of these,
    and reduced."""
    best_at: str | None
    """Its use, in a few words."""
    drawings_db: float | None
    """PSNR in dB of drawings enlarged twice: how close they are to the original."""
    photos_db: float | None
    """PSNR in dB of photos enlarged twice."""
    megapixels_per_second: float | None
    """Output megapixels a second on two cores with AVX2."""
    licence: str | None
    """The licence of its files, by its SPDX name."""
    origin: str
    """Where it comes from, in words."""
    folder: Path | None
    """The folder of its files; None if they are not installed."""
    install: str | None
    """The command that installs its files; None if they are here."""

    @property
    def is_default(self) -> bool:
        """Returns whether it is what `model=` is where nothing else is asked for."""
        return self.name == catalogue.DEFAULT

    @property
    def installed(self) -> bool:
        """Returns whether its files are here."""
        return self.folder is not None


def list_models() -> list[ModelInfo]:
    """Returns the model sets that `model=` takes by name: first those installed, then the others.

    The same facts as `waifu2x models list` shows. No model is read.

    Raises:
        ModelError: A folder of imported models cannot be read.

    Examples:
        >>> [(one.name, one.scales) for one in waifu2x.list_models() if one.is_default]
        [('cunet/art', (1, 2))]
    """
    here = model_set.available()
    names = {found.name for found in here}
    absent = [entry for entry in catalogue.ENTRIES if entry.name not in names]
    return [
        *map(info_of, here),
        *(info_of(ModelSet(entry.name, Path(), {})) for entry in absent),
    ]


def info_of(found: ModelSet) -> ModelInfo:
    """Returns the facts of a set; for one without files, how to install them."""
    entry = catalogue.entry(found.name)
    folder = found.folder if found.files else None
    return ModelInfo(
        found.name,
        tuple(found.noise_levels),
        tuple(found.scales),
        entry.best_at if entry else None,
        entry.drawings if entry else None,
        entry.photos if entry else None,
        entry.speed if entry else None,
        entry.licence if entry else None,
        entry.origin if entry else "imported",
        folder,
        entry.install if entry and folder is None else None,
    )
