"""Removes model sets that were imported."""

from __future__ import annotations

import contextlib
from pathlib import Path

from waifu2x.errors import ModelError, OutputError, Sentence
from waifu2x.networks import catalogue, model_set
from waifu2x.networks.readers.ncnn import reader as ncnn
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.resources import user_models


@dataclass(frozen=True)
class Removed:
    """The removed files of a model set."""

    folder: Path
    """Where its files were."""
    files: int
    size: int
    """Bytes of all of them."""


def remove_models(name: str) -> Removed:
    """Removes the files of an imported model set, and its folder if nothing else is in it.

    Raises ModelError for a name that is no imported set, OutputError for a file that cannot be
    removed.
    """
    root = user_models()
    found = next((each for each in model_set.available() if each.name == name), None)
    if found is None or root is None or root not in found.folder.parents:
        raise ModelError(_refusal(name))
    paths = [path for path in found.folder.iterdir() if model_set.role(path.name)]
    paths += [ncnn.weights_path(path) for path in paths if path.suffix == ".param"]
    size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            try:
                size += path.lstat().st_size
                path.unlink()
            except FileNotFoundError:
                raise
            except OSError as error:
                raise OutputError(f"{path}: cannot remove the model: {reason(error)}") from error
    for folder in (found.folder, *found.folder.parents):
        if folder == root:
            break
        try:
            folder.rmdir()
        except OSError:  # it holds something else
            break
    return Removed(found.folder, len(paths), size)


def _refusal(name: str) -> Sentence:
    """Returns why there is no such set to remove, and the remedy."""
    entry = catalogue.entry(name)
    if entry is None:
        found = model_set.find(name)  # or it says what the name may have meant
        if catalogue.entry(found.name) is None:
            return Sentence(f"{name}: it was not imported", f"remove {found.folder} yourself")
        entry = catalogue.entry(found.name)
    if entry is None or entry.package is None:
        return Sentence(f"{name}: it is part of waifu2x-kernels, and cannot be removed alone")
    if entry.folder is None:
        return Sentence(f"{name}: it is not installed")
    if entry.package.extra is None:
        return Sentence(
            f"{name}: it is of the package {entry.package.name}, which waifu2x-kernels needs"
        )
    return Sentence(f"{name}: it was not imported", f"run `pip uninstall {entry.package.name}`")
