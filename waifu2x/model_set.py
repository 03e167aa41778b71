"""A folder of models that belong together: one for each noise level, one that enlarges."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
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
            role = _role(path.name)
            if role:
                found.setdefault(role, path)
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
    if not name:
        raise ModelError(f"the name of the model is empty; the models here: {_names()}")
    folder = Path(name)
    if folder.parts and not folder.is_absolute() and ".." not in folder.parts:
        for root in _roots():
            with contextlib.suppress(OSError):  # of a name too long, say: it is not here
                if (root / folder).is_dir():
                    found = ModelSet(name, root / folder)
                    if found.files:
                        return found
    try:
        mode = folder.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ModelError(
            f"{name}: no such model and no such folder; the models here: {_names()}"
        ) from error
    except OSError as error:
        raise ModelError(f"{name}: cannot read the folder: {reason(error)}") from error
    if not stat.S_ISDIR(mode):
        raise ModelError(f"{name}: is a file; give the folder that holds it")
    found = ModelSet(name, folder)
    if not found.files:
        raise ModelError(f"{name}: no model files here: expected names like scale2.0x_model.json")
    return found


def is_shipped(name: str) -> bool:
    """Whether a set of this name comes with the package, where `find` looks first."""
    try:
        return bool(ModelSet(name, shipped_models() / name).files)
    except ModelError:
        return False


def available() -> list[ModelSet]:
    """The model sets that come with the package, then those imported, each in order of name.

    Raises ModelError for a folder that cannot be read.
    """
    found: dict[str, ModelSet] = {}
    for root in _roots():
        for folder in sorted(_folders_with_models(root)):
            name = folder.relative_to(root).as_posix()
            found.setdefault(name, ModelSet(name, folder))
    return list(found.values())


def _roots() -> list[Path]:
    """The folders of model sets, in the order in which a name is looked up."""
    return [root for root in (shipped_models(), user_models()) if root]


def _names() -> str:
    return ", ".join(found.name for found in available()) or "none"


def _folders_with_models(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            message = f"{error.filename}: cannot read the folder: {reason(error)}"
            raise ModelError(message) from error

    for folder, _, names in os.walk(root, onerror=refuse):
        if Path(folder) != root and any(_role(name) for name in names):
            yield Path(folder)


def _role(file_name: str) -> _Role | None:
    match = _FILE.fullmatch(file_name)
    if not match or not (match["noise"] or match["scale"]):
        return None
    return int(match["noise"]) if match["noise"] else None, bool(match["scale"])
