"""Sets of models that belong together: some for each noise level, one that only enlarges."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.errors import ModelError, Sentence
from waifu2x.networks import catalogue
from waifu2x.networks.catalogue import Role
from waifu2x.networks.readers import SUFFIXES
from waifu2x.system.arguments import nearest
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.resources import user_models

# Modules that need NumPy are imported where a model is read: completions only list names.
if TYPE_CHECKING:
    from waifu2x.networks.model import Model

_STEM = re.compile(r"(noise(?P<noise>[0-3]))?_?(scale(?P<scale>[2348])(\.0)?x)?_model")
_MOST_PASSES = 6


@dataclass(frozen=True)
class ModelSet:
    """Models that belong together, by the noise level they remove and how much they enlarge."""

    name: str
    folder: Path
    """The folder of its files, or its only file."""
    files: dict[Role, Path]
    """Model files by noise level (None: removes none) and by how much they enlarge."""
    held: tuple[Model, ...] = field(default=(), compare=False, repr=False)
    """Models that had to be read to know what they do, held so that they are not read again."""

    @property
    def noise_levels(self) -> list[int]:
        """Returns the noise levels that it has a model for, in order."""
        return sorted({noise for noise, _ in self.files if noise is not None})

    @property
    def scales(self) -> list[int]:
        """Returns by how much its models enlarge; 1 is among them where one does not."""
        return sorted({scale for _, scale in self.files})

    def digest(self) -> str:
        """Returns a digest of the content of its files. Raises ModelError."""
        import hashlib  # a millisecond that completions need not wait for

        found = hashlib.blake2b(digest_size=16)
        for role in sorted(self.files, key=str):
            path = self.files[role]
            for part in dict.fromkeys((path, path.with_suffix(".bin"))):
                if part == path or (path.suffix == ".param" and part.is_file()):
                    try:
                        found.update(hashlib.blake2b(part.read_bytes()).digest())
                    except OSError as error:
                        raise ModelError(f"{part}: cannot read: {reason(error)}") from error
        return found.hexdigest()

    def factors(self, scale: Fraction | float, noise: int | None = None) -> tuple[int, ...]:
        """Returns by how much each model of a chain enlarges, to make a picture `scale` times as
        large.

        The smallest possible enlargement of at least `scale`, in the fewest passes, to be reduced.
        Empty for a scale of 1. Raises ModelError if no chain of the set enlarges so much.
        """
        found = _factors(frozenset(self.files), scale, noise)
        if found is None:
            lacks = noise is not None and noise not in self.noise_levels
            raise ModelError(self._missing((noise, 1) if lacks else (None, 2)).of(self.name))
        return found

    def models(self, scale: Fraction | float, noise: int | None) -> list[Model]:
        """Returns the models to run in turn; the first removes the noise.

        They enlarge by the product of `factors(scale, noise)`. Raises ModelError if a model is
        missing or unreadable.
        """
        factors = list(self.factors(scale, noise))
        if noise is not None and not factors:
            return [self._denoiser(noise)]
        roles: list[Role] = [(None, factor) for factor in factors]
        if not roles and (None, 1) in self.files:
            roles = [(None, 1)]
        if noise is not None:
            joint = next((factor for factor in factors if (noise, factor) in self.files), None)
            if joint is not None:
                roles.remove((None, joint))
            roles.insert(0, (noise, joint or 1))
        read: dict[Role, Model] = {}
        for role in roles:
            if role not in read:
                read[role] = self._read(role)
        return [read[role] for role in roles]

    def substitute(self, scale: Fraction | float, noise: int | None) -> str | None:
        """Returns a sentence on a model that `models` substitutes; None if the set lacks none."""
        if scale > 1 or noise is None or (noise, 1) in self.files:
            return None
        lacks = f"{self.name} has no model that removes noise level {noise} without enlarging"
        other = self._other_denoiser(noise)
        if other:
            return f"{lacks}: that of {other.name} is used"
        if (noise, 2) in self.files:
            return f"{lacks}: one that doubles is used, and its result halved"
        return None

    def _denoiser(self, noise: int) -> Model:
        other = self._other_denoiser(noise)
        if other:
            return other._read((noise, 1))
        if (noise, 1) not in self.files and (noise, 2) in self.files:
            from waifu2x.networks.shared import halved, shared

            self._read((noise, 2))  # raises if it cannot be read
            return shared(self.files[noise, 2], "halved", halved)
        return self._read((noise, 1))

    def _other_denoiser(self, noise: int) -> ModelSet | None:
        """Returns upstream's substitute for a set that cannot remove noise without enlarging."""
        known = catalogue.entry(self.name)
        if not known or not known.denoiser or (noise, 1) in self.files:
            return None
        other = _of_catalogue(known.denoiser) if known.folder == self.folder else None
        return other if other and (noise, 1) in other.files else None

    def _read(self, role: Role) -> Model:
        from waifu2x.networks.shared import shared

        if role not in self.files:
            raise ModelError(self._missing(role).of(self.name))
        path = self.files[role]
        model = shared(path)
        expected = role[1]
        if model.scale == expected:
            return model
        if (model.scale, expected) == (1, 2):
            from waifu2x.networks.shared import doubled

            return shared(path, "doubled", doubled)
        raise ModelError(f"{path}: it enlarges {model.scale} times, but its name says {expected}")

    def _missing(self, role: Role) -> Sentence:
        noise, _ = role
        if noise is None and self.folder in self.files.values():
            return Sentence("it does not enlarge", "use it with -s 1 -n 0")
        if noise is None:
            return Sentence("no model that enlarges: scale2.0x_model.json is missing")
        if not self.noise_levels:
            return Sentence("it cannot remove noise", f"leave out -n, or use {catalogue.DEFAULT}")
        levels = " or ".join(map(str, self.noise_levels))
        return Sentence(f"no model for noise level {noise}", f"use {levels}")


@functools.lru_cache(1024)
def _factors(
    roles: frozenset[Role], scale: Fraction | float, noise: int | None
) -> tuple[int, ...] | None:
    """Returns `ModelSet.factors` of a set with models of these roles; None without such a chain."""
    scales = sorted({factor for _, factor in roles if factor > 1})
    best: tuple[int, int, tuple[int, ...]] | None = None
    for count in range(_MOST_PASSES + 1):
        for factors in itertools.combinations_with_replacement(scales, count):
            made = math.prod(factors)
            if made < scale or not _has_chain(roles, factors, noise):
                continue
            if best is None or (made, count) < best[:2]:
                best = made, count, factors
    return None if best is None else best[2]


def _has_chain(roles: frozenset[Role], factors: Sequence[int], noise: int | None) -> bool:
    plain = list(factors)
    if noise is not None and factors:
        joint = next((factor for factor in factors if (noise, factor) in roles), None)
        if joint is not None:
            plain.remove(joint)
        elif (noise, 1) not in roles:
            return False
    return all((None, factor) in roles for factor in plain)


def find(name: str) -> ModelSet:
    """Returns a model set by its name, its family's name, the path of its folder or of a single
    file.

    Names are of sets that come with waifu2x or were imported; a family alone, such as `cunet`,
    means its usual style. Capitals do not matter. Raises ModelError for unknown names.
    """
    if not name:
        raise ModelError("the name of the model is empty", "see `waifu2x models list`")
    folder = Path(name)
    if folder.parts and not folder.is_absolute() and ".." not in folder.parts:
        spelt = folder.as_posix()
        names = [spelt]
        if len(folder.parts) == 1:
            names.append(catalogue.usual(spelt) or f"{spelt}/{catalogue.USUAL_STYLE}")
        for each in names:
            found = _of_catalogue(each) or _of_user(each)
            if found:
                return found
        for each in names:
            absent = catalogue.entry(each)
            if absent and not folder.is_dir():
                raise ModelError(f"{name}: not installed", f"run `{absent.install}`")
    with contextlib.suppress(ModelError, OSError):
        if name != name.lower() and not folder.exists():
            return find(name.lower())
    return _of_path(name)


def role(file_name: str) -> Role | None:
    """Returns noise level and enlargement by a file's name; None for names of other files."""
    name = file_name.lower()
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    match = _STEM.fullmatch(file_name.removesuffix(suffix)) if suffix else None
    if not match or not (match["noise"] or match["scale"]):
        return None
    return int(match["noise"]) if match["noise"] else None, int(match["scale"] or 1)


def is_shipped(name: str) -> bool:
    """Returns whether a set of this name comes with waifu2x, where `find` looks first."""
    return catalogue.entry(Path(name).as_posix()) is not None


def available() -> list[ModelSet]:
    """Returns the model sets that come with waifu2x, then those imported, each in order of name.

    Raises ModelError for a folder that cannot be read.
    """
    found = {entry.name: _of_catalogue(entry.name) for entry in catalogue.ENTRIES}
    sets = [each for each in found.values() if each]
    root = user_models()
    if root:
        for folder in sorted(_folders_with_models(root)):
            name = folder.relative_to(root).as_posix()
            if not found.get(name):
                sets.append(ModelSet(name, folder, _files(folder)))
    return sets


def _of_catalogue(name: str) -> ModelSet | None:
    """Returns a set that comes with waifu2x, if its files are here."""
    entry = catalogue.entry(name)
    folder = entry.folder if entry else None
    if entry is None or folder is None:
        return None
    try:
        if entry.package is None:
            files = _files(folder)
        else:
            packaged = {path: catalogue.packaged(path.name) for path in _listed(folder)}
            files = {of[1]: path for path, of in packaged.items() if of and of[0] == name}
    except ModelError:  # a folder that cannot be read is as good as none
        return None
    return ModelSet(name, folder, files) if files else None


def _of_user(name: str) -> ModelSet | None:
    root = user_models()
    with contextlib.suppress(OSError, ValueError):  # such as a name too long
        if root and (root / name).is_dir() and root != root / name:
            files = _files(root / name)
            return ModelSet(name, root / name, files) if files else None
    return None


def _of_path(name: str) -> ModelSet:
    folder = Path(name)
    try:
        mode = folder.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        if name.lower().endswith(SUFFIXES):
            raise ModelError(f"{name}: no such file") from error
        raise ModelError(f"{name}: no such model and no such folder", _instead(name)) from error
    except OSError as error:
        raise ModelError(f"{name}: cannot read the folder: {reason(error)}") from error
    if stat.S_ISREG(mode) and name.lower().endswith(SUFFIXES):
        return _of_file(folder)
    if not stat.S_ISDIR(mode):
        raise ModelError(f"{name}: not a model file: expected {', '.join(SUFFIXES)}, or a folder")
    files = _files(folder)
    if not files:
        raise ModelError(f"{name}: no model files here: expected names like scale2.0x_model.json")
    return ModelSet(name, folder, files)


def _of_file(path: Path) -> ModelSet:
    """Returns the set of one file of any name; without enlargement, it counts as noise level 0."""
    from waifu2x.networks.shared import shared

    model = shared(path)
    return ModelSet(str(path), path, {role_of(model): path}, (model,))


def role_of(model: Model) -> Role:
    """Returns noise level and enlargement of a network whose file's name does not say them."""
    return (0, 1) if model.scale == 1 else (None, model.scale)


def _files(folder: Path) -> dict[Role, Path]:
    found: dict[Role, Path] = {}
    for path in _listed(folder):
        of_file = role(path.name)
        if of_file:
            found.setdefault(of_file, path)
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise ModelError(f"{folder}: cannot read the folder: {reason(error)}") from error


def _instead(name: str) -> str:
    """Returns the remedy for an unknown name: its family's sets, or the nearest name."""
    names = sorted({each.name for each in available()} | {each.name for each in catalogue.ENTRIES})
    family = name.partition("/")[0]
    of_family = [each for each in names if each.startswith(f"{family}/")]
    if of_family:
        return f"choose one of {', '.join(of_family)}"
    meant = nearest(name, [*names, *(each.partition("/")[0] for each in names)])
    return f"did you mean {meant}?" if meant else "see `waifu2x models list`"


def _folders_with_models(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            message = f"{error.filename}: cannot read the folder: {reason(error)}"
            raise ModelError(message) from error

    for folder, _, names in os.walk(root, onerror=refuse):
        if Path(folder) != root and any(role(name) for name in names):
            yield Path(folder)
