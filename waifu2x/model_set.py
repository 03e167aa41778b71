"""A folder of models that belong together: one for each noise level, one that enlarges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from waifu2x.errors import ModelError
from waifu2x.files import reason
from waifu2x.model import Model
from waifu2x.model_json import SUFFIXES, read_model
from waifu2x.resources import shipped_models, user_models

DEFAULT = "vgg_7/art"
_Role = tuple[int | None, bool]
"""Noise level that a model removes, or None, and whether it enlarges."""
_FILE = re.compile(r"(noise(?P<noise>[0-3]))?_?(?P<scale>scale2(\.0)?x)?_model\.json(\.gz)?")


@dataclass(frozen=True)
class ModelSet:
    """What `-m` names."""

    name: str
    folder: Path

    @property
    def files(self) -> dict[_Role, Path]:
        """Model files by what they do."""
        found: dict[_Role, Path] = {}
        try:
            paths = sorted(self.folder.iterdir())
        except OSError as error:
            raise ModelError(f"{self.folder}: cannot read the folder: {reason(error)}") from error
        for path in paths:
            match = _FILE.fullmatch(path.name)
            if match and (match["noise"] or match["scale"]):
                noise = int(match["noise"]) if match["noise"] else None
                found.setdefault((noise, bool(match["scale"])), path)
        return found

    @property
    def noise_levels(self) -> list[int]:
        """Noise levels that it has a model for."""
        return sorted({noise for noise, _ in self.files if noise is not None})

    def models(self, scale: int, noise: int | None) -> list[Model]:
        """The models to run one after the other: noise is removed once, by the first.

        `scale` is a power of two. Raises ModelError if a model is missing or unreadable.
        """
        files = self.files
        doublings = scale.bit_length() - 1
        chosen: list[_Role] = [(None, True)] * doublings
        if noise is not None:
            if doublings and (noise, True) in files:
                chosen[0] = (noise, True)
            else:
                chosen.insert(0, (noise, False))
        read: dict[_Role, Model] = {}
        for key in chosen:
            if key not in files:
                raise ModelError(f"{self.folder}: {self._missing(key)}")
            if key not in read:
                model = read_model(files[key])
                # vgg_7 doubles a picture by repeating pixels before its first layer.
                read[key] = model.enlarged(2) if key[1] else model
        return [read[key] for key in chosen]

    def _missing(self, role: _Role) -> str:
        noise, _ = role
        if noise is None:
            return f"no model that enlarges: scale2.0x_model{SUFFIXES[0]} is missing"
        if (noise, True) in self.files:
            return f"the model for noise level {noise} also enlarges; there is none that does not"
        levels = ", ".join(map(str, self.noise_levels)) or "none"
        return f"no model for noise level {noise}; the levels here: {levels}"


def find(name: str) -> ModelSet:
    """A model set by its name (shipped or imported) or by the path of its folder.

    Raises ModelError if there is none.
    """
    for root in (shipped_models(), user_models()):
        folder = root / name
        if not Path(name).is_absolute() and ".." not in Path(name).parts and folder.is_dir():
            found = ModelSet(name, folder)
            if found.files:
                return found
    folder = Path(name)
    if folder.is_dir():
        found = ModelSet(name, folder)
        if found.files:
            return found
        raise ModelError(f"{name}: no model files here: expected names like scale2.0x_model.json")
    if folder.is_file():
        raise ModelError(f"{name}: is a file; give the folder that holds it")
    names = ", ".join(model_set.name for model_set in available())
    raise ModelError(f"{name}: no such model and no such folder; the models here: {names}")


def available() -> list[ModelSet]:
    """The model sets that come with the package, then those imported, each in order of name."""
    found: dict[str, ModelSet] = {}
    for root in (shipped_models(), user_models()):
        if root.is_dir():
            for folder in sorted({path.parent for path in root.rglob("*_model.json*")}):
                name = folder.relative_to(root).as_posix()
                found.setdefault(name, ModelSet(name, folder))
    return list(found.values())
