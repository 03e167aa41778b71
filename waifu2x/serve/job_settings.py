"""The settings of a job, checked, from the query of a request."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from waifu2x.api.settings.kinds import CRF, QUALITY, SCALE, STRENGTH, OneOf, noise_level, noise_word
from waifu2x.api.settings.setting import Setting
from waifu2x.api.settings.table import HTTP, conflict
from waifu2x.api.settings.uses import choose
from waifu2x.flows.jobs import Output
from waifu2x.formats import table
from waifu2x.formats.film.reading.fields import Deinterlacing
from waifu2x.formats.film.writing.codecs import Wish
from waifu2x.formats.table import Depth, OutputOptions, Quality, Range
from waifu2x.networks import catalogue, listing
from waifu2x.networks.listing import ModelInfo
from waifu2x.serve import names
from waifu2x.system.lazy_dataclass import dataclass

KEPT = tuple(row for row in HTTP if row.key != "best-for")
"""The settings that a job has; a use is known by its model and noise level."""
_USUAL_SCALE = "2"


@dataclass(frozen=True)
class JobSettings:
    """Holds how a file is enlarged, in the words of the command line: a field for each of KEPT."""

    model: str = catalogue.DEFAULT
    noise: str = "auto"
    scale: str | None = _USUAL_SCALE
    """None where `width` or `height` is given."""
    width: int | None = None
    height: int | None = None
    strength: str = "1"
    tta: int = 1
    format: str | None = None
    """The extension of the result; None for the source's."""
    quality: str | None = None
    """1 to 100, or like; None for the format's default."""
    depth: str = "auto"
    to: Range | None = None
    """The dynamic range of results; None for the source's."""
    film_model: str = catalogue.FILM_DEFAULT
    film_codec: str | None = None
    """The encoder; None for that of the film's kind."""
    film_crf: str | None = None
    film_deinterlace: str = "auto"

    @classmethod
    def of(cls, query: Mapping[str, str], default: JobSettings | None = None) -> JobSettings:
        """Reads settings from a query; `default` has those that it lacks. Raises ValueError, with a
        sentence, for settings that make no sense."""
        default = default or cls()
        query = _settled(query)
        rows = {row.parameter: row for row in KEPT}
        given = {name: query[name] for name in rows if query.get(name)}
        if said := conflict((rows[name] for name in given), dashes=""):
            raise ValueError(said)
        values = {name: getattr(default, name) for name in rows}
        sizes = [name for name, row in rows.items() if row.group == "size"]
        if not given.keys().isdisjoint(sizes):
            values |= dict.fromkeys(sizes)
        # "" asks for what there is without the setting, where a job has had something else.
        values |= {
            name: None
            for name, row in rows.items()
            if query.get(name) == "" and row.default is None and not row.group
        }
        values |= {name: _kept(rows[name], text) for name, text in given.items()}
        if "model" in given and "film_model" not in given:
            values["film_model"] = values["model"]
        found = cls(**values)
        if found.noise == "none" and found.scale is not None and SCALE.parse(found.scale) == 1:
            raise ValueError("Nothing to do; give a noise level, a scale above 1, or both.")
        if found.format is not None:
            table.check(found.format, found.coding, cast(Depth, found.depth))
        return found

    @property
    def coding(self) -> Quality:
        """Returns how results are encoded."""
        return Quality(None if self.quality is None else QUALITY.parse(self.quality))

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of an Upscaler."""
        own = {
            "noise": noise_level(self.noise),
            "scale": None if self.scale is None else SCALE.parse(self.scale),
            "strength": STRENGTH.parse(self.strength),
        }
        return {row.name: getattr(self, row.name) for row in KEPT if row.api == "upscaler"} | own

    def of_film(self) -> JobSettings:
        """Returns the settings by which a film is made."""
        return replace(self, model=self.film_model)

    @property
    def wish(self) -> Wish:
        """Returns how films are encoded."""
        return Wish(self.film_codec, None if self.film_crf is None else CRF.parse(self.film_crf))

    @property
    def deinterlacing(self) -> Deinterlacing | None:
        """Returns what is made of interlaced films; None: by what they say."""
        how = self.film_deinterlace
        return None if how == "auto" else cast(Deinterlacing, how)

    def output(self, source_extension: str) -> Output:
        """Returns how the result of a source of that extension is written. Raises ValueError if its
        format does not support the settings."""
        extension = self.format or _own_format(source_extension)
        table.check(extension, self.coding, cast(Depth, self.depth))
        options = OutputOptions(cast(Depth, self.depth), to=self.to)
        return Output(
            extension, self.coding, "overwrite", options, pages=self.format, pages_only=True
        )

    def command(self, name: str, *, is_film: bool) -> str:
        """Returns the command line that does the same."""
        words = ["waifu2x", "video" if is_film else "upscale"]
        usual = JobSettings()
        for row in KEPT:
            value = getattr(self, row.parameter)
            # Films have a model of their own, and few settings of files of pictures.
            is_of_files = row.api == "file" and "video" not in row.commands
            is_other = is_of_files or row.name == "model"
            is_meant = row.is_of_films or not is_other if is_film else not row.is_of_films
            if is_meant and value is not None and value != getattr(usual, row.parameter):
                words += [row.option, str(value)]
        files = [name]
        if is_film:
            scale = self.arguments()["scale"]
            files.append(names.of_result(name, names.film_extension(name), scale))
        # A name that begins with a dash would be an option.
        shown = [f"./{each}" if each.startswith("-") else each for each in files]
        return shlex.join(words + shown)


def installed_models() -> dict[str, ModelInfo]:
    """Returns the installed model sets by name."""
    return {one.name: one for one in listing.list_models() if one.installed}


def _own_format(extension: str) -> str:
    return extension if extension in table.WRITABLE else "png"


def _settled(query: Mapping[str, str]) -> Mapping[str, str]:
    """Returns a query with the model and noise level of the use that it names, if any. Raises
    ValueError."""
    best_for = query.get("best_for")
    if not best_for:
        return query
    if query.get("model"):
        raise ValueError("best_for chooses a model; leave out best_for or model.")
    level = noise_level(query.get("noise") or "auto")
    chosen, of_films = (choose(best_for, None, level, is_film=is_film) for is_film in (False, True))
    found = {"model": str(chosen.model), "noise": noise_word(chosen.noise)}
    return {**query, **found, "film_model": query.get("film_model") or str(of_films.model)}


def _kept(row: Setting, text: str) -> Any:
    """Returns a value as it is kept. Raises ValueError, with a sentence."""
    # A path, which the command line takes, would be read.
    kind = OneOf(tuple(installed_models())) if row.key == "model" else row.kind
    try:
        return kind.kept(text)
    except ValueError as error:
        raise ValueError(f"{row.parameter}: {error}") from error
